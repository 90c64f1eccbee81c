//! Memory that nobody may touch, where the process runs with the address sanitizer: kernels that are built with it end the process there.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

type Mark = unsafe extern "C" fn(address: *const c_void, bytes: usize);

/// The functions of the sanitizer that close and open memory.
#[derive(Clone, Copy)]
struct Sanitizer {
    close: Mark,
    open: Mark,
}

/// Whether the sanitizer is in this process.
pub(super) fn is_there() -> bool {
    sanitizer().is_some()
}

/// Closes or opens memory; nothing where there is no sanitizer.
pub(super) fn set(address: u64, bytes: usize, is_closed: bool) {
    let Some(Sanitizer { close, open }) = sanitizer() else { return };
    let mark = if is_closed { close } else { open };
    // SAFETY: the function notes that these bytes may be touched or not, and touches none of them
    unsafe { mark(address as *const c_void, bytes) }
}

fn sanitizer() -> Option<Sanitizer> {
    static FOUND: OnceLock<Option<Sanitizer>> = OnceLock::new();
    let find = |name: &CStr| {
        // SAFETY: a string that ends
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: the sanitizer's functions of these names have this signature
        (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Mark>(address) })
    };
    *FOUND.get_or_init(|| {
        let (close, open) = (find(c"__asan_poison_memory_region")?, find(c"__asan_unpoison_memory_region")?);
        Some(Sanitizer { close, open })
    })
}
