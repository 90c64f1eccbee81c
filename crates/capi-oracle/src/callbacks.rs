//! Callbacks that check what they get, and that fail, cancel or call the library.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use tiled_capi::*;

use super::shadow::Planned;

/// What the callbacks of a run know and hear; `user` of all of them points to it.
#[derive(Debug)]
pub(super) struct Heard {
    /// The handles of the run, which callbacks must not use and are told so.
    executor: *mut tiled_executor,
    weights: *mut tiled_weights,
    /// The calls that are left until one fails; negative where none does.
    pub(super) until_failure: AtomicI32,
    pub(super) until_cancel: AtomicI32,
    pub(super) failures: AtomicU32,
    pub(super) cancels: AtomicU32,
    /// The ends heard with 0 and with 1.
    pub(super) ends: [AtomicU32; 2],
    /// What went wrong first: a callback must not unwind.
    pub(super) wrong: Mutex<Option<String>>,
    /// The elements of the first output that were written.
    written: Mutex<Vec<bool>>,
    output: [i64; 4],
}

// the handles are numbers, and everything else is shared by threads already
// SAFETY: as above
unsafe impl Sync for Heard {}

impl Heard {
    /// `executor` is NULL where a trainer runs.
    pub(super) fn new(planned: &Planned, executor: *mut tiled_executor, weights: *mut tiled_weights) -> Self {
        let output = planned.outputs.first().copied().unwrap_or([1; 4]);
        let len = output.iter().product::<i64>();
        Self {
            executor,
            weights,
            until_failure: AtomicI32::new(-1),
            until_cancel: AtomicI32::new(-1),
            failures: AtomicU32::new(0),
            cancels: AtomicU32::new(0),
            ends: [AtomicU32::new(0), AtomicU32::new(0)],
            wrong: Mutex::new(None),
            written: Mutex::new(vec![false; usize::try_from(len).unwrap_or(0)]),
            output,
        }
    }

    pub(super) fn user(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn expect(&self, claim: bool, what: impl FnOnce() -> String) {
        if !claim {
            self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(what);
        }
    }

    /// Fails where it is time to.
    fn answer(&self) -> i32 {
        let left = self.until_failure.load(Ordering::SeqCst);
        if left >= 0 && self.until_failure.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.failures.fetch_add(1, Ordering::SeqCst);
            return 5;
        }
        0
    }

    /// The elements of a window, whose description is checked.
    fn elements(&self, region: tiled_region, window: &tiled_tensor) -> usize {
        let [n, c, h, w] = window.shape;
        let (rows, cols) = (region.rows.end - region.rows.begin, region.cols.end - region.cols.begin);
        self.expect([h, w] == [rows, cols] && h > 0 && w > 0, || format!("{window:?} for {region:?}"));
        self.expect(window.strides == [c * h * w, h * w, w, 1], || format!("{window:?} is not contiguous"));
        usize::try_from(n * c * h * w).unwrap_or(0)
    }

    /// The run's handles are in use, also by a callback's own thread; other calls work.
    fn call_the_library(&self) {
        let freed = tiled_executor_free(self.executor);
        let wanted = if self.executor.is_null() { TILED_STATUS_OK } else { TILED_STATUS_BUSY };
        self.expect(freed == wanted, || format!("freed in its own run: status {freed}"));
        let mut count = 0;
        // SAFETY: the place for the count is live
        let counted = unsafe { tiled_weights_count(self.weights, &raw mut count) };
        self.expect(counted == TILED_STATUS_BUSY, || format!("weights in their own run: status {counted}"));
        let mut grid = std::ptr::null_mut();
        // SAFETY: the place for the handle is live
        let made = unsafe { tiled_grid_new(8, 8, 3, 3, &raw mut grid) };
        let freed = tiled_grid_free(grid);
        self.expect([made, freed] == [TILED_STATUS_OK; 2], || format!("a grid: {made}, {freed}"));
    }
}

/// # Safety
/// `user` is a live [`Heard`], and `window` a tensor as the header promises it.
pub(super) unsafe extern "C" fn read(
    user: *mut c_void,
    region: tiled_region,
    window: *const tiled_tensor,
) -> i32 {
    // SAFETY: the caller's promise
    let (heard, window) = unsafe { (&*user.cast::<Heard>(), &*window) };
    let bytes = heard.elements(region, window) * if window.dtype == TILED_DTYPE_F32 { 4 } else { 8 };
    // SAFETY: the window has as many elements as its shape says
    unsafe { window.data.cast::<u8>().write_bytes(0x3f, bytes) };
    if region.rows.begin == 0 {
        heard.call_the_library();
    }
    heard.answer()
}

/// # Safety
/// As [`read`].
pub(super) unsafe extern "C" fn write(
    user: *mut c_void,
    region: tiled_region,
    window: *const tiled_tensor,
) -> i32 {
    // SAFETY: the caller's promise
    let (heard, window) = unsafe { (&*user.cast::<Heard>(), &*window) };
    let len = heard.elements(region, window) * if window.dtype == TILED_DTYPE_F32 { 4 } else { 8 };
    // SAFETY: the window has as many elements as its shape says
    let sum = unsafe { std::slice::from_raw_parts(window.data.cast::<u8>(), len) }
        .iter()
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
    heard.mark(region);
    heard.answer()
}

impl Heard {
    /// Regions of a run are disjoint and lie in the tensor.
    fn mark(&self, region: tiled_region) {
        let [n, c, h, w] = self.output;
        let is_inside =
            region.rows.begin >= 0 && region.rows.end <= h && region.cols.begin >= 0 && region.cols.end <= w;
        self.expect(is_inside, || format!("{region:?} of {:?}", self.output));
        if !is_inside {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        for plane in 0..n * c {
            for y in region.rows.begin..region.rows.end {
                for x in region.cols.begin..region.cols.end {
                    let place = usize::try_from((plane * h + y) * w + x).unwrap_or(0);
                    let was = std::mem::replace(&mut written[place], true);
                    self.expect(!was, || format!("{y}, {x} was written twice"));
                }
            }
        }
    }

    pub(super) fn is_all_written(&self) -> bool {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).iter().all(|written| *written)
    }
}

/// # Safety
/// `user` is a live [`Heard`].
pub(super) unsafe extern "C" fn end(user: *mut c_void, is_complete: i32) -> i32 {
    // SAFETY: the caller's promise
    let heard = unsafe { &*user.cast::<Heard>() };
    heard.expect([0, 1].contains(&is_complete), || format!("is_complete is {is_complete}"));
    heard.ends[usize::from(is_complete == 1)].fetch_add(1, Ordering::SeqCst);
    heard.answer()
}

/// # Safety
/// `user` is a live [`Heard`].
pub(super) unsafe extern "C" fn step(user: *mut c_void, done: u64, total: u64) -> i32 {
    // SAFETY: the caller's promise
    let heard = unsafe { &*user.cast::<Heard>() };
    heard.expect(done <= total && total > 0, || format!("{done} of {total} steps"));
    let left = heard.until_cancel.load(Ordering::SeqCst);
    if left >= 0 && heard.until_cancel.fetch_sub(1, Ordering::SeqCst) == 0 {
        heard.cancels.fetch_add(1, Ordering::SeqCst);
        return -1;
    }
    0
}
