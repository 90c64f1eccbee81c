//! Where a run reads a tensor from.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use tiled::exec::{
    ChunkedSource, FnSource, IoError, Normalization, NormalizedSource, Numbers, Source, Stored, with_stored,
};
use tiled::geometry::Region;
use tiled::tensor::{Element, ViewMut, collected};

use super::{for_each_lane, parts, pixel_bytes, returned, stage};
use crate::geometry::tiled_region;
use crate::guard::guard;
use crate::pointer::{Extensible, array, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::tensor::{Memory, describe, dtype, element, sizes, tiled_tensor};

/// Fills `window`, contiguous memory of the library, with the elements of `region` of every image and channel.
///
/// The window's shape is N×C×rows×columns of the region; regions have any size within the tensor, may overlap, and come
/// again in another pass over the image. Returns 0, or another number to end the run with `TILED_STATUS_CALLBACK`. Called
/// from the executor's threads or the caller's, several at once unless `is_serial`. It must not throw. Executor and
/// weights of the run answer it with `TILED_STATUS_BUSY`; other handles can be used, but for operators and runs where it
/// is serial: while it waits for them its thread may come back to it.
pub type tiled_read_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, region: tiled_region, window: *const tiled_tensor) -> i32>;

/// Fills `chunk`, contiguous memory of the library of the source's dtype, with the elements of the chunk in this row and column of
/// chunks, of every image and channel.
///
/// Its shape is N×C×`chunk_shape`, also where it reaches beyond the tensor: what lies there is never looked at. Returns 0, or
/// another number to end the run with `TILED_STATUS_CALLBACK`. Threads and calls of the library are those of `tiled_read_fn`.
pub type tiled_read_chunk_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, row: i64, column: i64, chunk: *const tiled_tensor) -> i32>;

/// Where a run reads a tensor from: memory, or where `read` or `read_chunk` is not NULL a function.
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
    /// What integers stand for, `TILED_NUMBERS_…`.
    pub numbers: i32,
    /// Zero.
    pub reserved: i32,
    /// Each value v becomes `(scale·v − mean)/std`, each step rounded to the type of the computation.
    pub scale: f64,
    /// One mean, or one for each channel, read during the call; NULL for none.
    pub mean: *const f64,
    /// 0, 1, or as many as channels.
    pub mean_count: usize,
    /// One deviation, or one for each channel, read during the call; NULL for none.
    pub std: *const f64,
    /// 0, 1, or as many as channels.
    pub std_count: usize,
    /// Fills a chunk, or NULL; then `read` is NULL, and of `tensor` the dtype, which may be any, and the shape count. Called from the plan's
    /// memory for chunks, which `chunks` of `tiled_plan_options` asks for.
    pub read_chunk: tiled_read_chunk_fn,
    /// Rows and columns of a chunk.
    pub chunk_shape: [i64; 2],
}

/// Integers of 8 and 16 bits without a sign stand for 0 to 1; others are the numbers that they are.
pub const TILED_NUMBERS_SCALED: i32 = 0;
/// Integers are the numbers that they are: so class numbers are read and written.
pub const TILED_NUMBERS_AS_IS: i32 = 1;

/// What integers stand for, of a number of the header.
pub(crate) fn numbers(number: i32, name: &str) -> Fallible<Numbers> {
    match number {
        TILED_NUMBERS_SCALED => Ok(Numbers::Scaled),
        TILED_NUMBERS_AS_IS => Ok(Numbers::AsIs),
        _ => Err(Failure::invalid(format!("{name}: numbers {number} are neither scaled (0) nor as is (1)"))),
    }
}

// SAFETY: repr(C), the size first, and integers, pointers and an optional function pointer, which take any bits
// that C can put there
unsafe impl Extensible for tiled_source {
    const NAME: &'static str = "tiled_source";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, numbers);

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            is_serial: 0,
            tensor: tiled_tensor::initial(),
            read: None,
            user: std::ptr::null_mut(),
            numbers: TILED_NUMBERS_SCALED,
            reserved: 0,
            scale: 1.0,
            mean: std::ptr::null(),
            mean_count: 0,
            std: std::ptr::null(),
            std_count: 0,
            read_chunk: None,
            chunk_shape: [0, 0],
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
pub(crate) struct CheckedSource {
    name: &'static str,
    from: From,
    numbers: Numbers,
    normalization: Normalization,
}

/// Where its elements come from.
enum From {
    Memory(Memory),
    Function(ReadFunction),
    Chunks(ChunkFunction),
}

/// A function of the caller that fills chunks.
#[derive(Clone, Copy)]
pub(crate) struct ChunkFunction {
    name: &'static str,
    dtype: i32,
    shape: [usize; 4],
    chunk: [usize; 2],
    is_serial: bool,
    read: unsafe extern "C" fn(*mut c_void, i64, i64, *const tiled_tensor) -> i32,
    user: *mut c_void,
}

// SAFETY: the function and `user` may be used from any thread, by the promise of the exported functions that take it
unsafe impl Send for ChunkFunction {}
// SAFETY: as above
unsafe impl Sync for ChunkFunction {}

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
    /// Checks a description.
    ///
    /// # Safety
    /// `mean` and `std` are NULL or as many numbers as they say can be read from them.
    pub(crate) unsafe fn of(source: &tiled_source, name: &'static str) -> Fallible<Self> {
        source.tensor.require_initialised(name)?;
        let numbers = numbers(source.numbers, name)?;
        // SAFETY: the caller's promise
        let normalization = unsafe {
            Normalization {
                scale: source.scale,
                mean: factors(source.mean, source.mean_count, name)?,
                std: factors(source.std, source.std_count, name)?,
            }
        };
        let from = match (source.read, source.read_chunk) {
            (Some(_), Some(_)) => {
                return Err(Failure::invalid(format!("{name}: both read and read_chunk are given")));
            }
            (None, None) => From::Memory(source.tensor.checked(name)?),
            (None, Some(read)) => {
                element(source.tensor.dtype)?;
                From::Chunks(ChunkFunction {
                    name,
                    dtype: source.tensor.dtype,
                    shape: sizes(source.tensor.shape, name)?,
                    chunk: chunk_shape(source.chunk_shape, name)?,
                    is_serial: source.is_serial != 0,
                    read,
                    user: source.user,
                })
            }
            (Some(read), None) => {
                dtype(source.tensor.dtype)?;
                From::Function(ReadFunction {
                    name,
                    dtype: source.tensor.dtype,
                    shape: sizes(source.tensor.shape, name)?,
                    is_serial: source.is_serial != 0,
                    read,
                    user: source.user,
                })
            }
        };
        if let From::Memory(memory) = &from {
            memory.require_plain(normalization.is_none(), "scale, mean and deviation")?;
        }
        Ok(Self { name, from, numbers, normalization })
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        match &self.from {
            From::Memory(memory) => Some(memory),
            From::Function(_) | From::Chunks(_) => None,
        }
    }

    /// The source.
    ///
    /// # Safety
    /// Memory can be read, and nothing writes it, for as long as the source is used.
    pub(crate) unsafe fn open<T: Element>(&self) -> Fallible<Box<dyn Source<T>>> {
        let source = match &self.from {
            // SAFETY: the caller's promise
            From::Memory(memory) => unsafe { memory.stored_source::<T>(self.numbers)? },
            From::Function(function) => function.open::<T>()?,
            From::Chunks(function) => {
                with_stored!(element(function.dtype)?, S => function.open::<S, T>(self.numbers)?)
            }
        };
        if self.normalization.is_none() {
            return Ok(source);
        }
        Ok(Box::new(NormalizedSource::new(self.name, source, &self.normalization)?))
    }
}

/// Numbers of the caller.
///
/// # Safety
/// `pointer` is NULL or `count` numbers can be read from it.
unsafe fn factors(pointer: *const f64, count: usize, name: &str) -> Fallible<Vec<f64>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise
    let factors = unsafe { array(pointer, count, name)? };
    Ok(collected(factors.iter().copied())?)
}

/// Rows and columns of a chunk, neither of them 0.
pub(crate) fn chunk_shape(shape: [i64; 2], name: &str) -> Fallible<[usize; 2]> {
    match shape.map(usize::try_from) {
        [Ok(rows @ 1..), Ok(cols @ 1..)] => Ok([rows, cols]),
        _ => {
            Err(Failure::range(format!("{name}: chunks are {}×{}, wanted is 1 and more", shape[0], shape[1])))
        }
    }
}

impl ChunkFunction {
    fn open<S: Stored, T: Element>(self, numbers: Numbers) -> Fallible<Box<dyn Source<T>>> {
        let serial = Mutex::new(());
        let source =
            ChunkedSource::new(self.name, self.shape, self.chunk, move |at: [usize; 2], data: &mut [S]| {
                let _turn = self.is_serial.then(|| serial.lock().unwrap_or_else(PoisonError::into_inner));
                self.fill(at, data)
            })?;
        Ok(Box::new(source.with_numbers(numbers)))
    }

    fn fill<S>(&self, at: [usize; 2], data: &mut [S]) -> Result<(), IoError> {
        let number = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        let ([batch, channels, ..], [rows, cols]) = (self.shape.map(number), self.chunk.map(number));
        let view = tiled_tensor {
            dtype: self.dtype,
            data: data.as_mut_ptr().cast(),
            shape: [batch, channels, rows, cols],
            strides: [channels * rows * cols, rows * cols, cols, 1],
            ..tiled_tensor::initial()
        };
        // SAFETY: the view describes all of `data`, whose type is that of `dtype`; the function may be called from any thread, by
        // the promise of the exported functions that take it
        returned(self.name, unsafe { (self.read)(self.user, number(at[0]), number(at[1]), &raw const view) })
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
                let mut staging = Vec::new();
                parts(region, pixel_bytes(self.shape, size_of::<T>())).try_for_each(|part| {
                    let _turn = self.is_serial.then(|| serial.lock().unwrap_or_else(PoisonError::into_inner));
                    self.fill(part, &mut staging, output)
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
