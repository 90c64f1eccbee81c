//! Where a run writes a tensor to.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tiled::exec::{Changes, DecidedSink, Decision, FnSink, IoError, Numbers, Sink, SinkInMemory};
use tiled::geometry::Region;
use tiled::graph::TRANSFER_BYTES;
use tiled::tensor::{Element, View};

use super::{TILED_NUMBERS_SCALED, for_each_lane, numbers, parts, pixel_bytes, returned, stage};
use crate::geometry::tiled_region;
use crate::guard::guard;
use crate::pointer::{Extensible, extensible, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::{Memory, describe, dtype, element_number, sizes, tiled_tensor};

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
/// anything is read. A result other than 0 ends the run with `TILED_STATUS_CALLBACK`. The sinks of a run that is complete
/// hear it one after the other, the outputs before the gradients, each in their order: where one returns another number
/// than 0, those before it have heard 1 although the run fails, and those after it hear 0.
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
    /// What integers stand for, `TILED_NUMBERS_…`.
    pub numbers: i32,
    /// What is written: the values, or what is decided of them, `TILED_DECISION_…`.
    pub decision: i32,
    /// The channels of the values that are decided of; the tensor itself has one where the largest is wanted, as many where not.
    pub channels: i64,
    /// The threshold of `TILED_DECISION_ABOVE`.
    pub threshold: f64,
    /// Where memory of integers or 16 bits tells what it does not hold as it was, when it is whole; or NULL.
    pub changes: *mut tiled_changes,
}

/// The values themselves are written.
pub const TILED_DECISION_NONE: i32 = 0;
/// The number of the channel with the largest value is written, from 0 on, the first of equal ones; NaN wins. Memory of integers gets the number
/// as it is, whatever `numbers` says.
pub const TILED_DECISION_ARGMAX: i32 = 1;
/// For each channel 1 is written where the value is above the threshold, else 0; NaN stays.
pub const TILED_DECISION_ABOVE: i32 = 2;

/// What memory of integers or 16 bits does not hold as it was. Values out of range become the nearer end of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_changes {
    /// The size of the struct, as `tiled_changes_init` sets it.
    pub struct_size: u32,
    /// The element type of the memory.
    pub dtype: i32,
    /// The values written; 0 where the memory has the type of the computation.
    pub values: u64,
    /// Those out of range.
    pub cut: u64,
    /// Those that are no number, which integers hold as 0.
    pub nan: u64,
    /// Those in range that integers round, so that they are read back as another number.
    pub rounded: u64,
    /// The least of all.
    pub least: f64,
    /// The largest of all.
    pub largest: f64,
}

// SAFETY: repr(C), the size first, and numbers
unsafe impl Extensible for tiled_changes {
    const NAME: &'static str = "tiled_changes";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            dtype: 0,
            values: 0,
            cut: 0,
            nan: 0,
            rounded: 0,
            least: 0.0,
            largest: 0.0,
        }
    }
}

/// Sets every field to zero but the size. `struct_size` is `sizeof(tiled_changes)`.
///
/// # Safety
/// `changes` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_changes_init(changes: *mut tiled_changes, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(changes, struct_size, "changes", &tiled_changes::initial()) })
}

// SAFETY: repr(C), the size first, and integers, pointers and optional function pointers, which take any bits that C
// can put there
unsafe impl Extensible for tiled_sink {
    const NAME: &'static str = "tiled_sink";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, numbers);

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            is_serial: 0,
            tensor: tiled_tensor::initial(),
            write: None,
            end: None,
            user: std::ptr::null_mut(),
            numbers: TILED_NUMBERS_SCALED,
            decision: TILED_DECISION_NONE,
            channels: 0,
            threshold: 0.0,
            changes: std::ptr::null_mut(),
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
pub(crate) struct CheckedSink {
    to: To,
    numbers: Numbers,
    /// What is decided, and the shape of the values that it is decided of.
    decision: Option<(Decision, [usize; 4])>,
    changes: Option<ChangesOut>,
}

/// Where its elements go.
enum To {
    Memory(Memory),
    Function(WriteFunction),
}

/// Where the caller wants to be told what was changed.
#[derive(Clone, Copy)]
struct ChangesOut {
    changes: *mut tiled_changes,
    size: u32,
}

// SAFETY: written on one thread at a time, at the end of a run, by the promise of the exported functions that take it
unsafe impl Send for ChangesOut {}
// SAFETY: as above
unsafe impl Sync for ChangesOut {}

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
    /// Checks a description.
    ///
    /// # Safety
    /// `changes` is NULL, misaligned, or a struct with its size set.
    pub(crate) unsafe fn of(sink: &tiled_sink, name: &'static str) -> Fallible<Self> {
        sink.tensor.require_initialised(name)?;
        let mut numbers = numbers(sink.numbers, name)?;
        let changes = if sink.changes.is_null() {
            None
        } else {
            // SAFETY: the caller's promise
            let size = unsafe { extensible(sink.changes.cast_const(), name)? }.struct_size;
            Some(ChangesOut { changes: sink.changes, size })
        };
        let to = match sink.write {
            None => To::Memory(sink.tensor.checked(name)?),
            Some(write) => {
                dtype(sink.tensor.dtype)?;
                To::Function(WriteFunction {
                    name,
                    dtype: sink.tensor.dtype,
                    shape: sizes(sink.tensor.shape, name)?,
                    is_serial: sink.is_serial != 0,
                    write,
                    end: sink.end,
                    user: sink.user,
                })
            }
        };
        let decision = match sink.decision {
            TILED_DECISION_NONE => None,
            TILED_DECISION_ARGMAX => {
                // as in files
                numbers = Numbers::Classes;
                Some(Decision::ArgMax)
            }
            TILED_DECISION_ABOVE => Some(Decision::Above(sink.threshold)),
            other => {
                let message = format!("{name}: decision {other} is none of 0, 1 (argmax) and 2 (above)");
                return Err(Failure::invalid(message));
            }
        };
        let decision = decision
            .map(|decision| -> Fallible<_> {
                let [batch, _, height, width] = sink.tensor.shape;
                let shape = sizes([batch, sink.channels, height, width], name)?;
                decision.check(name, shape)?;
                Ok((decision, shape))
            })
            .transpose()?;
        if let To::Memory(memory) = &to {
            memory.require_plain(decision.is_none() && changes.is_none(), "decisions and changes")?;
        }
        Ok(Self { to, numbers, decision, changes })
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        match &self.to {
            To::Memory(memory) => Some(memory),
            To::Function(_) => None,
        }
    }

    /// The sink.
    ///
    /// # Safety
    /// Memory can be written, and nothing else refers to it, for as long as the sink is used.
    pub(crate) unsafe fn open<T: Element>(&self) -> Fallible<Box<dyn Sink<T>>> {
        let mut sink = match &self.to {
            // SAFETY: the caller's promise
            To::Memory(memory) => unsafe { memory.stored_sink::<T>(self.numbers)? },
            To::Function(function) => function.open::<T>(self.decision)?,
        };
        if let Some(out) = self.changes {
            let dtype = self.memory().map_or(T::DTYPE.into(), Memory::element);
            sink = Box::new(Telling { inner: sink, out, dtype: element_number(dtype) });
        }
        match self.decision {
            None => Ok(sink),
            Some((decision, shape)) => Ok(Box::new(DecidedSink::new::<T>(sink, shape, decision)?)),
        }
    }
}

/// A sink that tells the caller what was changed, once it is whole.
struct Telling<S> {
    inner: S,
    out: ChangesOut,
    dtype: i32,
}

impl<T: Element, S: Sink<T>> Sink<T> for Telling<S> {
    fn shape(&self) -> [usize; 4] {
        self.inner.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.inner.write(region, input)
    }

    fn in_memory(&self) -> Option<&dyn SinkInMemory<T>> {
        self.inner.in_memory()
    }

    fn prepare(&self) -> Result<(), IoError> {
        self.inner.prepare()
    }

    fn finish(&self) -> Result<(), IoError> {
        self.inner.finish()?;
        let told = self.inner.changes().map_or(tiled_changes::initial(), |changes| tiled_changes {
            values: changes.values,
            cut: changes.cut,
            nan: changes.nan,
            rounded: changes.rounded,
            least: changes.least,
            largest: changes.largest,
            ..tiled_changes::initial()
        });
        let told = tiled_changes { dtype: self.dtype, ..told };
        // SAFETY: a struct of this size, which was checked, to be written by the caller's promise
        let written = unsafe { write_extensible(self.out.changes, self.out.size, "changes", &told) };
        written.map_err(|failure| IoError::from_function("changes", failure.message))
    }

    fn abort(&self) {
        self.inner.abort();
    }

    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes()
    }

    fn transfer_bytes(&self) -> u64 {
        self.inner.transfer_bytes()
    }

    fn changes(&self) -> Option<Changes> {
        self.inner.changes()
    }
}

impl WriteFunction {
    fn open<T: Element>(self, decision: Option<(Decision, [usize; 4])>) -> Fallible<Box<dyn Sink<T>>> {
        if dtype(self.dtype)? != T::DTYPE {
            let message = format!("{}: elements are not {}", self.name, T::DTYPE.name());
            return Err(Failure::new(crate::status::TILED_STATUS_DTYPE, message));
        }
        let serial = Mutex::new(());
        let inner = FnSink::new::<T>(self.name, self.shape, move |region, input: &View<'_, T>| {
            let mut staging = Vec::new();
            parts(region, pixel_bytes(self.shape, size_of::<T>())).try_for_each(|part| {
                let _turn = self.is_serial.then(|| serial.lock().unwrap_or_else(PoisonError::into_inner));
                self.take(part, &mut staging, input)
            })
        })?;
        // decisions come in pieces of half of what is held for them
        let transfer_bytes = decision.map_or(TRANSFER_BYTES, |(decision, shape)| {
            TRANSFER_BYTES.min(decision.buffer_bytes::<T>(shape) / 2)
        });
        Ok(Box::new(Ending { inner, function: self, transfer_bytes, has_ended: AtomicBool::new(false) }))
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
    transfer_bytes: u64,
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

    fn prepare(&self) -> Result<(), IoError> {
        self.inner.prepare()
    }

    fn finish(&self) -> Result<(), IoError> {
        self.inner.finish()?;
        returned(self.function.name, self.end(true))
    }

    fn abort(&self) {
        self.inner.abort();
        self.end(false);
    }

    fn transfer_bytes(&self) -> u64 {
        self.transfer_bytes
    }
}
