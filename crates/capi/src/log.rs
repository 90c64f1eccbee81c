//! Messages for whoever set a logger.

use crate::guard::guard;
use crate::logger::{TILED_LOG_ERROR, TILED_LOG_INFO, set, tiled_logger};
use crate::pointer::{Extensible, extensible, write_extensible};
use crate::status::{Failure, tiled_status};

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
            chosen = logger.log.is_some().then_some(logger);
        }
        // SAFETY: the caller's promise
        unsafe { set(chosen) };
        Ok(())
    })
}
