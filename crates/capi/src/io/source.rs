//! Where a run reads a tensor from.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use tiled::exec::{FnSource, IoError, Source};
use tiled::geometry::Region;
use tiled::tensor::{Element, ViewMut};

use super::{bands, for_each_lane, returned, stage};
use crate::geometry::tiled_region;
use crate::guard::guard;
use crate::pointer::{Extensible, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::{Memory, describe, dtype, sizes, tiled_tensor};

/// Fills `window`, contiguous memory of the library, with the elements of `region` of every image and channel.
///
/// The window's shape is N×C×rows×columns of the region; regions have any size within the tensor, may overlap, and come
/// again in another pass over the image. Returns 0, or another number to end the run with `TILED_STATUS_CALLBACK`. Called
/// from the executor's threads or the caller's, several at once unless `is_serial`. It must not throw. Executor and
/// weights of the run answer it with `TILED_STATUS_BUSY`; other handles can be used, but for operators and runs where it
/// is serial: while it waits for them its thread may come back to it.
pub type tiled_read_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, region: tiled_region, window: *const tiled_tensor) -> i32>;

/// Where a run reads a tensor from: memory, or where `read` is not NULL a function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_source {
    /// The size of the struct, as `tiled_source_init` sets it.
    pub struct_size: u32,
    /// Not zero where calls of `read` must not overlap.
    pub is_serial: i32,
    /// Memory, read during the run where `read` is NULL. Else only its dtype and shape count.
    pub tensor: tiled_tensor,
    /// Fills a region, or NULL.
    pub read: tiled_read_fn,
    /// Given back to `read`.
    pub user: *mut c_void,
}

// SAFETY: repr(C), the size first, and integers, pointers and an optional function pointer, which take any bits
// that C can put there
unsafe impl Extensible for tiled_source {
    const NAME: &'static str = "tiled_source";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            is_serial: 0,
            tensor: tiled_tensor::initial(),
            read: None,
            user: std::ptr::null_mut(),
        }
    }
}

/// Sets every field to its default: no memory, no function. `struct_size` is `sizeof(tiled_source)`.
///
/// # Safety
/// `source` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_source_init(source: *mut tiled_source, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(source, struct_size, "source", &tiled_source::initial()) })
}

/// A source whose description makes sense.
pub(crate) enum CheckedSource {
    Memory(Memory),
    Function(ReadFunction),
}

/// A function of the caller.
#[derive(Clone, Copy)]
pub(crate) struct ReadFunction {
    name: &'static str,
    dtype: i32,
    shape: [usize; 4],
    is_serial: bool,
    read: unsafe extern "C" fn(*mut c_void, tiled_region, *const tiled_tensor) -> i32,
    user: *mut c_void,
}

// SAFETY: the function and `user` may be used from any thread, by the promise of the exported functions that take it
unsafe impl Send for ReadFunction {}
// SAFETY: as above
unsafe impl Sync for ReadFunction {}

impl CheckedSource {
    pub(crate) fn of(source: &tiled_source, name: &'static str) -> Fallible<Self> {
        source.tensor.require_initialised(name)?;
        let Some(read) = source.read else {
            return Ok(Self::Memory(source.tensor.checked(name)?));
        };
        dtype(source.tensor.dtype)?;
        Ok(Self::Function(ReadFunction {
            name,
            dtype: source.tensor.dtype,
            shape: sizes(source.tensor.shape, name)?,
            is_serial: source.is_serial != 0,
            read,
            user: source.user,
        }))
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Function(_) => None,
        }
    }

    /// The source.
    ///
    /// # Safety
    /// Memory can be read, and nothing writes it, for as long as the source is used.
    pub(crate) unsafe fn open<T: Element>(&self) -> Fallible<Box<dyn Source<T>>> {
        match self {
            // SAFETY: the caller's promise
            Self::Memory(memory) => Ok(Box::new(unsafe { memory.source::<T>()? })),
            Self::Function(function) => function.open::<T>(),
        }
    }
}

impl ReadFunction {
    fn open<T: Element>(self) -> Fallible<Box<dyn Source<T>>> {
        if dtype(self.dtype)? != T::DTYPE {
            let message = format!("{}: elements are not {}", self.name, T::DTYPE.name());
            return Err(Failure::new(crate::status::TILED_STATUS_DTYPE, message));
        }
        let serial = Mutex::new(());
        let source =
            FnSource::new::<T>(self.name, self.shape, move |region, output: &mut ViewMut<'_, T>| {
                let planes = self.shape[0] * self.shape[1];
                let mut staging = Vec::new();
                bands(region, planes, size_of::<T>()).try_for_each(|band| {
                    let _turn = self.is_serial.then(|| serial.lock().unwrap_or_else(PoisonError::into_inner));
                    self.fill(band, &mut staging, output)
                })
            })?;
        Ok(Box::new(source))
    }

    fn fill<T: Element>(
        &self,
        region: Region<2>,
        staging: &mut Vec<T>,
        output: &mut ViewMut<'_, T>,
    ) -> Result<(), IoError> {
        let (rows, cols) = (region.rows().len(), region.cols().len());
        let [batch, channels] =
            [self.shape[0], self.shape[1]].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
        let len = self.shape[0] * self.shape[1] * usize::try_from(rows * cols).unwrap_or(0);
        stage(self.name, staging, len)?;
        let shape = [batch, channels, rows, cols];
        let window = describe(staging.as_mut_ptr(), shape, [channels * rows * cols, rows * cols, cols, 1]);
        // SAFETY: the window describes `len` elements of `staging`; the function may be called from any thread, by
        // the promise of the exported functions that take it
        returned(self.name, unsafe { (self.read)(self.user, region.into(), &raw const window) })?;
        let layout = *output.layout();
        let lanes = output.data_mut();
        for_each_lane(&layout, region, |place, start, width| {
            for (x, value) in staging[place..place + width].iter().enumerate() {
                lanes[start + x * layout.block()] = *value;
            }
        });
        Ok(())
    }
}
