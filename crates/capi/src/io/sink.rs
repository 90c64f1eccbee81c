//! Where a run writes a tensor to.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tiled::exec::{FnSink, IoError, Sink};
use tiled::geometry::Region;
use tiled::tensor::{Element, View};

use super::{bands, for_each_lane, returned, stage};
use crate::geometry::tiled_region;
use crate::guard::guard;
use crate::pointer::{Extensible, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::{Memory, describe, dtype, sizes, tiled_tensor};

/// Takes the elements of `region` of every image and channel from `window`, contiguous memory of the library that
/// lives until it returns.
///
/// The window's shape is N×C×rows×columns of the region; the regions of a run are disjoint and are together the whole
/// tensor. Returns 0, or another number to end the run with `TILED_STATUS_CALLBACK`. Called from the executor's threads
/// or the caller's, several at once unless `is_serial`. It must not throw. Executor and weights of the run answer it with
/// `TILED_STATUS_BUSY`; other handles can be used, but for operators and runs where it is serial: while it waits for them
/// its thread may come back to it.
pub type tiled_write_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, region: tiled_region, window: *const tiled_tensor) -> i32>;

/// Hears that a run is over: `is_complete` is 1 where every region was written, 0 where the run failed before that.
///
/// Called once a run, on the thread of the call, after the last `write`; not at all where an argument is refused before
/// anything is read. A result other than 0 ends the run with `TILED_STATUS_CALLBACK`.
pub type tiled_end_fn = Option<unsafe extern "C" fn(user: *mut c_void, is_complete: i32) -> i32>;

/// Where a run writes a tensor to: memory, or where `write` is not NULL a function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_sink {
    /// The size of the struct, as `tiled_sink_init` sets it.
    pub struct_size: u32,
    /// Not zero where calls of `write` must not overlap.
    pub is_serial: i32,
    /// Memory, written during the run where `write` is NULL. Else only its dtype and shape count.
    pub tensor: tiled_tensor,
    /// Takes a region, or NULL.
    pub write: tiled_write_fn,
    /// Hears the end of the run, or NULL.
    pub end: tiled_end_fn,
    /// Given back to `write` and `end`.
    pub user: *mut c_void,
}

// SAFETY: repr(C), the size first, and integers, pointers and optional function pointers, which take any bits that C
// can put there
unsafe impl Extensible for tiled_sink {
    const NAME: &'static str = "tiled_sink";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            is_serial: 0,
            tensor: tiled_tensor::initial(),
            write: None,
            end: None,
            user: std::ptr::null_mut(),
        }
    }
}

/// Sets every field to its default: no memory, no function. `struct_size` is `sizeof(tiled_sink)`.
///
/// # Safety
/// `sink` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_sink_init(sink: *mut tiled_sink, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(sink, struct_size, "sink", &tiled_sink::initial()) })
}

/// A sink whose description makes sense.
pub(crate) enum CheckedSink {
    Memory(Memory),
    Function(WriteFunction),
}

/// A function of the caller.
#[derive(Clone, Copy)]
pub(crate) struct WriteFunction {
    name: &'static str,
    dtype: i32,
    shape: [usize; 4],
    is_serial: bool,
    write: unsafe extern "C" fn(*mut c_void, tiled_region, *const tiled_tensor) -> i32,
    end: tiled_end_fn,
    user: *mut c_void,
}

// SAFETY: the functions and `user` may be used from any thread, by the promise of the exported functions that take it
unsafe impl Send for WriteFunction {}
// SAFETY: as above
unsafe impl Sync for WriteFunction {}

impl CheckedSink {
    pub(crate) fn of(sink: &tiled_sink, name: &'static str) -> Fallible<Self> {
        sink.tensor.require_initialised(name)?;
        let Some(write) = sink.write else {
            return Ok(Self::Memory(sink.tensor.checked(name)?));
        };
        dtype(sink.tensor.dtype)?;
        Ok(Self::Function(WriteFunction {
            name,
            dtype: sink.tensor.dtype,
            shape: sizes(sink.tensor.shape, name)?,
            is_serial: sink.is_serial != 0,
            write,
            end: sink.end,
            user: sink.user,
        }))
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Function(_) => None,
        }
    }

    /// The sink.
    ///
    /// # Safety
    /// Memory can be written, and nothing else refers to it, for as long as the sink is used.
    pub(crate) unsafe fn open<T: Element>(&self) -> Fallible<Box<dyn Sink<T>>> {
        match self {
            // SAFETY: the caller's promise
            Self::Memory(memory) => Ok(Box::new(unsafe { memory.sink::<T>()? })),
            Self::Function(function) => function.open::<T>(),
        }
    }
}

impl WriteFunction {
    fn open<T: Element>(self) -> Fallible<Box<dyn Sink<T>>> {
        if dtype(self.dtype)? != T::DTYPE {
            let message = format!("{}: elements are not {}", self.name, T::DTYPE.name());
            return Err(Failure::new(crate::status::TILED_STATUS_DTYPE, message));
        }
        let serial = Mutex::new(());
        let inner = FnSink::new::<T>(self.name, self.shape, move |region, input: &View<'_, T>| {
            let planes = self.shape[0] * self.shape[1];
            let mut staging = Vec::new();
            bands(region, planes, size_of::<T>()).try_for_each(|band| {
                let _turn = self.is_serial.then(|| serial.lock().unwrap_or_else(PoisonError::into_inner));
                self.take(band, &mut staging, input)
            })
        })?;
        Ok(Box::new(Ending { inner, function: self, has_ended: AtomicBool::new(false) }))
    }

    fn take<T: Element>(
        &self,
        region: Region<2>,
        staging: &mut Vec<T>,
        input: &View<'_, T>,
    ) -> Result<(), IoError> {
        let (rows, cols) = (region.rows().len(), region.cols().len());
        let [batch, channels] =
            [self.shape[0], self.shape[1]].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
        let len = self.shape[0] * self.shape[1] * usize::try_from(rows * cols).unwrap_or(0);
        stage(self.name, staging, len)?;
        let layout = *input.layout();
        for_each_lane(&layout, region, |place, start, width| {
            for (x, value) in staging[place..place + width].iter_mut().enumerate() {
                *value = input.data()[start + x * layout.block()];
            }
        });
        let shape = [batch, channels, rows, cols];
        let window = describe(staging.as_mut_ptr(), shape, [channels * rows * cols, rows * cols, cols, 1]);
        // SAFETY: the window describes `len` elements of `staging`; the function may be called from any thread, by
        // the promise of the exported functions that take it
        returned(self.name, unsafe { (self.write)(self.user, region.into(), &raw const window) })
    }
}

/// A sink that hears the end, once: a run that fails aborts the sinks that have finished before as well.
struct Ending<S> {
    inner: S,
    function: WriteFunction,
    has_ended: AtomicBool,
}

impl<S> Ending<S> {
    fn end(&self, is_complete: bool) -> i32 {
        let Some(end) = self.function.end else { return 0 };
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return 0;
        }
        // SAFETY: the function may be called from any thread, by the promise of the exported functions that take it
        unsafe { end(self.function.user, i32::from(is_complete)) }
    }
}

impl<T: Element, S: Sink<T>> Sink<T> for Ending<S> {
    fn shape(&self) -> [usize; 4] {
        self.inner.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.inner.write(region, input)
    }

    fn finish(&self) -> Result<(), IoError> {
        self.inner.finish()?;
        returned(self.function.name, self.end(true))
    }

    fn abort(&self) {
        self.inner.abort();
        self.end(false);
    }
}
