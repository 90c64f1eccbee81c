//! Memory that was freed and that the allocator has kept.

/// Gives freed memory back to the system that the allocator of the process has kept for later: holes between what is still used, which other sizes do not
/// fit in. Nothing happens where the system's allocator is not that of glibc. It looks through all that is free in the process, so call it seldom.
///
/// ```
/// tiled_tensor::give_back_freed();
/// ```
pub fn give_back_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: it takes a number, and touches what is free alone
    let _ = unsafe { libc::malloc_trim(0) };
}
