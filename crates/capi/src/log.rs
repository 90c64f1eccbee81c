//! Messages for whoever set a logger.

use std::ffi::{CString, c_char, c_void};
use std::sync::{PoisonError, RwLock};

use crate::guard::guard;
use crate::pointer::{Extensible, extensible, write_extensible};
use crate::status::{Failure, tiled_status};

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

/// Sets every field to its default: errors only, no function. `struct_size` is `sizeof(tiled_logger)`.
///
/// # Safety
/// `logger` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_logger_init(logger: *mut tiled_logger, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(logger, struct_size, "logger", &tiled_logger::initial()) })
}

/// Sends the library's messages to a function; NULL, the default, sends them nowhere.
///
/// The struct is copied. `user` stays the caller's and must live until another logger is set and every call that
/// had begun has returned. On failure the logger is as before. Threads: any.
///
/// # Safety
/// `logger` is NULL or points to a struct of as many bytes as its `struct_size` says, with a function that may be
/// called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_logger_set(logger: *const tiled_logger) -> tiled_status {
    guard(|| {
        let mut chosen = None;
        if !logger.is_null() {
            // SAFETY: the caller's promise
            let logger = unsafe { extensible(logger, "logger")? };
            if ![TILED_LOG_ERROR, TILED_LOG_INFO].contains(&logger.level) {
                return Err(Failure::invalid(format!("logger: level {} is not one", logger.level)));
            }
            chosen = logger.log.is_some().then_some(Logger(logger));
        }
        *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = chosen;
        Ok(())
    })
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
        // SAFETY: the function and `user` may be used from any thread, by the promise of `tiled_logger_set`
        unsafe { log(logger.user, level, text.as_ptr()) }
    }
}

#[derive(Clone, Copy)]
struct Logger(tiled_logger);

// SAFETY: `user` is only given back to the function, which may be called from any thread by the promise of
// `tiled_logger_set`
unsafe impl Send for Logger {}
// SAFETY: as above; nothing in it changes
unsafe impl Sync for Logger {}

static LOGGER: RwLock<Option<Logger>> = RwLock::new(None);
