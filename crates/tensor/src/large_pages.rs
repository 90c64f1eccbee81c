//! Pages of 2 MiB instead of 4 KiB for large storage.
//!
//! A window of a few megabytes is a thousand small pages, more than a core remembers the addresses of at a time.

use std::ptr::NonNull;

/// Asks for large pages in storage of so many bytes, before it is first written. Where the system has none, or gives them to
/// all or to none, nothing changes. It takes no memory that does not belong to the pages of the storage.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn advise(start: NonNull<u8>, bytes: usize) {
    const LARGE_PAGE_BYTES: usize = 2 << 20;
    if bytes < LARGE_PAGE_BYTES {
        return;
    }
    // SAFETY: it asks for a number.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1).max(1);
    // pages begin a little before a block that the allocator puts its own numbers in front of
    let before = start.addr().get() % page_bytes;
    let pages = start.as_ptr().wrapping_sub(before);
    // SAFETY: the pages are mapped, since the block lies in all of them, and advice changes nothing that a program can
    // read. An error says that there are no large pages, so it is left.
    let _ = unsafe { libc::madvise(pages.cast(), before + bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn advise(_: NonNull<u8>, _: usize) {}
