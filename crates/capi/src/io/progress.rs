//! How a caller hears how far a run is, and stops it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use tiled::exec::Progress;

use crate::guard::guard;
use crate::pointer::{Extensible, extensible, write_extensible};
use crate::status::{Fallible, tiled_status};

/// Hears that `done` of `total` steps are done; returns 0, or another number to end the run with
/// `TILED_STATUS_CANCELLED`.
///
/// Called between steps from the executor's threads or the caller's, several at once. It must not throw; executor and
/// weights of the run answer it with `TILED_STATUS_BUSY`, other handles can be used.
pub type tiled_progress_fn = Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> i32>;

/// Hears how far a run is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_progress {
    /// The size of the struct, as `tiled_progress_init` sets it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Hears a step, or NULL.
    pub step: tiled_progress_fn,
    /// Given back to `step`.
    pub user: *mut c_void,
}

// SAFETY: repr(C), the size first, and integers, pointers and an optional function pointer, which take any bits
// that C can put there
unsafe impl Extensible for tiled_progress {
    const NAME: &'static str = "tiled_progress";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        let struct_size = crate::size_of_u32::<Self>();
        Self { struct_size, reserved: 0, step: None, user: std::ptr::null_mut() }
    }
}

/// Sets every field to its default: no function. `struct_size` is `sizeof(tiled_progress)`.
///
/// # Safety
/// `progress` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_progress_init(
    progress: *mut tiled_progress,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(progress, struct_size, "progress", &tiled_progress::initial()) })
}

/// Calls the caller's function.
pub(crate) struct CallbackProgress {
    progress: tiled_progress,
    is_cancelled: AtomicBool,
}

// SAFETY: the function and `user` may be used from any thread, by the promise of the exported functions that take it
unsafe impl Sync for CallbackProgress {}

impl CallbackProgress {
    /// The caller's progress, NULL for none.
    ///
    /// # Safety
    /// `progress` is NULL or a struct with its size set.
    pub(crate) unsafe fn of(progress: *const tiled_progress) -> Fallible<Self> {
        let progress = if progress.is_null() {
            tiled_progress::initial()
        } else {
            // SAFETY: the caller's promise
            unsafe { extensible(progress, "io: progress")? }
        };
        Ok(Self { progress, is_cancelled: AtomicBool::new(false) })
    }
}

impl Progress for CallbackProgress {
    fn step(&self, done: u64, total: u64, _what: &str) {
        if let Some(step) = self.progress.step {
            // SAFETY: the function may be called from any thread, by the promise of the exported functions that take it
            if unsafe { step(self.progress.user, done, total) } != 0 {
                self.is_cancelled.store(true, Ordering::Relaxed);
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}
