//! Where messages go: the logger that is set, and what is sent to it.

use std::ffi::{CString, c_char, c_void};
use std::sync::{PoisonError, RwLock};

use crate::pointer::Extensible;

/// Something failed; the call's status says so as well.
pub const TILED_LOG_ERROR: i32 = 1;
/// What was made and what it takes: engines, plans, executors.
pub const TILED_LOG_INFO: i32 = 2;

/// Where the library's messages go.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_logger {
    /// The size of the struct, as `tiled_logger_init` sets it.
    pub struct_size: u32,
    /// The most detailed level that is wanted: `TILED_LOG_ERROR` or `TILED_LOG_INFO`.
    pub level: i32,
    /// Gets `user`, the level and a text that lives until it returns. Called on the thread that made the call
    /// that logs, several at once; it must not call the library.
    pub log: Option<unsafe extern "C" fn(user: *mut c_void, level: i32, message: *const c_char)>,
    /// Given back to `log`.
    pub user: *mut c_void,
}

// SAFETY: repr(C), the size first, and integers, pointers and an optional function pointer, which take any bits
// that C can put there
unsafe impl Extensible for tiled_logger {
    const NAME: &'static str = "tiled_logger";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        let struct_size = crate::size_of_u32::<Self>();
        Self { struct_size, level: TILED_LOG_ERROR, log: None, user: std::ptr::null_mut() }
    }
}

/// Sends messages to this logger from now on; `None` sends them nowhere.
///
/// # Safety
/// The function and `user` may be used from any thread until another logger is set and every call that had begun has returned.
pub(crate) unsafe fn set(logger: Option<tiled_logger>) {
    *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = logger.map(Logger);
}

pub(crate) fn error(message: &str) {
    send(TILED_LOG_ERROR, || message.to_owned());
}

pub(crate) fn info(message: impl FnOnce() -> String) {
    send(TILED_LOG_INFO, message);
}

fn send(level: i32, message: impl FnOnce() -> String) {
    // copied out of the lock, so that a logger may take its time
    let Some(Logger(logger)) = *LOGGER.read().unwrap_or_else(PoisonError::into_inner) else { return };
    if let Some(log) = logger.log.filter(|_| level <= logger.level)
        && let Ok(text) = CString::new(message().replace('\0', "?"))
    {
        // SAFETY: the function and `user` may be used from any thread, by the promise of `set`
        unsafe { log(logger.user, level, text.as_ptr()) }
    }
}

#[derive(Clone, Copy)]
struct Logger(tiled_logger);

// SAFETY: `user` is only given back to the function, which may be called from any thread by the promise of
// `set`
unsafe impl Send for Logger {}
// SAFETY: as above; nothing in it changes
unsafe impl Sync for Logger {}

static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);
