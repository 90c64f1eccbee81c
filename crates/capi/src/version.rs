//! Which library this is.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use tiled::cpu::Isa;

/// The major version that this header belongs to.
pub const TILED_VERSION_MAJOR: u32 = 0;
/// The minor version that this header belongs to.
pub const TILED_VERSION_MINOR: u32 = 1;
/// The patch that this header belongs to.
pub const TILED_VERSION_PATCH: u32 = 0;

/// The version of the library that runs, `major·2^16 + minor·2^8 + patch`; compare it with the header's.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_version() -> u32 {
    (TILED_VERSION_MAJOR << 16) | (TILED_VERSION_MINOR << 8) | TILED_VERSION_PATCH
}

/// The version as text, `"0.1.0"`. Static, ended by a NUL; do not free it. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version, the target and the best instruction set of this CPU, on one line:
/// `"tiled 0.1.0, x86_64-linux, avx512"`. Static, ended by a NUL; do not free it. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_build_info() -> *const c_char {
    static INFO: OnceLock<CString> = OnceLock::new();
    let text = INFO.get_or_init(|| {
        let (version, arch, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
        CString::new(format!("tiled {version}, {arch}-{os}, {}", Isa::detect())).unwrap_or_default()
    });
    text.as_ptr()
}

/// The number of handles that are not freed yet, of every kind: zero at the end of a program that leaks none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_live_handles() -> usize {
    crate::handle::live()
}
