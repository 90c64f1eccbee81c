//! Memory of the caller as a tensor.

use std::ffi::c_void;

use tiled::exec::{MemorySource, SliceSink};
use tiled::tensor::{DType, Element};

use crate::guard::guard;
use crate::pointer::{Extensible, array, extensible, write_extensible};
use crate::status::{Failure, Fallible, TILED_STATUS_DTYPE, TILED_STATUS_NULL_POINTER, tiled_status};

/// IEEE 754 binary32, `float`.
pub const TILED_DTYPE_F32: i32 = 1;
/// IEEE 754 binary64, `double`.
pub const TILED_DTYPE_F64: i32 = 2;

/// An NCHW tensor in memory of the caller, on the CPU.
///
/// Element (n, c, y, x) lies at `data + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]`, in elements.
/// Extents are at least 1. Of a tensor that is read, strides may be zero or negative; of one that is written, no
/// two elements may share a place. The memory from the first to the last element belongs to the call that gets
/// the tensor; it may not overlap that of another tensor of the call that is written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_tensor {
    /// The size of the struct, as `tiled_tensor_init` sets it.
    pub struct_size: u32,
    /// `TILED_DTYPE_F32` or `TILED_DTYPE_F64`.
    pub dtype: i32,
    /// Element (0, 0, 0, 0), aligned to the element's size.
    pub data: *mut c_void,
    /// Batch, channels, height, width.
    pub shape: [i64; 4],
    /// Distances between neighbours along each axis, in elements.
    pub strides: [i64; 4],
}

// SAFETY: repr(C), the size first, and integers and a pointer, which take any bits
unsafe impl Extensible for tiled_tensor {
    const NAME: &'static str = "tiled_tensor";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            dtype: TILED_DTYPE_F32,
            data: std::ptr::null_mut(),
            shape: [0; 4],
            strides: [0; 4],
        }
    }
}

/// Sets every field to its default: `float`, no data, extents of zero. `struct_size` is `sizeof(tiled_tensor)`.
///
/// # Safety
/// `tensor` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_tensor_init(tensor: *mut tiled_tensor, struct_size: u32) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(tensor, struct_size, "tensor", &tiled_tensor::initial()) })
}

/// Describes contiguous memory as a tensor: `shape` holds four extents, NCHW.
///
/// The memory stays the caller's. `struct_size` is `sizeof(tiled_tensor)`. On failure `tensor` is untouched.
/// Threads: any.
///
/// # Safety
/// `shape` is NULL or four numbers can be read from it; `tensor` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_tensor_contiguous(
    dtype: i32,
    data: *mut c_void,
    shape: *const i64,
    tensor: *mut tiled_tensor,
    struct_size: u32,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let shape = unsafe { shape4(shape, "shape")? };
        let described =
            tiled_tensor { dtype, data, shape, strides: contiguous(shape)?, ..tiled_tensor::initial() };
        described.checked("tensor")?;
        // SAFETY: the caller's promise
        unsafe { write_extensible(tensor, struct_size, "tensor", &described) }
    })
}

/// Four extents of the caller.
///
/// # Safety
/// `shape` is NULL, misaligned, or four numbers can be read from it.
pub(crate) unsafe fn shape4(shape: *const i64, name: &str) -> Fallible<[i64; 4]> {
    // SAFETY: the caller's promise
    let shape = unsafe { array(shape, 4, name)? };
    Ok([shape[0], shape[1], shape[2], shape[3]])
}

/// The extents as sizes: each at least 1, and the bytes of `f64` elements within the address space.
pub(crate) fn sizes(shape: [i64; 4], name: &str) -> Fallible<[usize; 4]> {
    let mut product = 8_i64;
    for extent in shape {
        if extent < 1 {
            return Err(Failure::range(format!("{name}: extent {extent} of {shape:?} must be at least 1")));
        }
        product = product
            .checked_mul(extent)
            .ok_or_else(|| Failure::range(format!("{name}: shape {shape:?} overflows 2^63 bytes")))?;
    }
    isize::try_from(product).map_err(|_| Failure::range(format!("{name}: shape {shape:?} overflows")))?;
    Ok(shape.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX)))
}

fn contiguous(shape: [i64; 4]) -> Fallible<[i64; 4]> {
    sizes(shape, "tensor")?;
    let [_, channels, height, width] = shape;
    Ok([channels * height * width, height * width, width, 1])
}

/// The element type of a number of the header.
pub(crate) fn dtype(number: i32) -> Fallible<DType> {
    match number {
        TILED_DTYPE_F32 => Ok(DType::F32),
        TILED_DTYPE_F64 => Ok(DType::F64),
        _ => Err(Failure::new(TILED_STATUS_DTYPE, format!("dtype {number} is neither f32 (1) nor f64 (2)"))),
    }
}

pub(crate) const fn dtype_number(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => TILED_DTYPE_F32,
        DType::F64 => TILED_DTYPE_F64,
    }
}

/// Calls a generic function with the element type of a value.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            tiled::tensor::DType::F32 => {
                type $T = f32;
                $body
            }
            tiled::tensor::DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}
pub(crate) use with_element;

/// A tensor of the caller whose description makes sense: what it takes to make slices of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    name: &'static str,
    pub(crate) dtype: DType,
    /// The lowest element.
    lowest: *mut c_void,
    /// The elements from the lowest to the highest.
    len: usize,
    /// The place of element (0, 0, 0, 0).
    start: usize,
    pub(crate) shape: [usize; 4],
    strides: [isize; 4],
}

impl tiled_tensor {
    /// Checks that a tensor within another struct was initialised; there it cannot grow.
    pub(crate) fn require_initialised(&self, name: &str) -> Fallible {
        let (size, wanted) = (self.struct_size, crate::size_of_u32::<Self>());
        if size == wanted {
            return Ok(());
        }
        let message =
            format!("{name}: struct_size of its tensor is {size}, wanted is {wanted}: was it initialised?");
        Err(Failure::invalid(message))
    }

    /// Checks the description.
    pub(crate) fn checked(&self, name: &'static str) -> Fallible<Memory> {
        let dtype = dtype(self.dtype)?;
        let shape = sizes(self.shape, name)?;
        if self.data.is_null() {
            return Err(Failure::new(TILED_STATUS_NULL_POINTER, format!("{name}: data is NULL")));
        }
        if !self.data.addr().is_multiple_of(dtype.size_bytes()) {
            let bytes = dtype.size_bytes();
            return Err(Failure::invalid(format!("{name}: data is not aligned to {bytes} bytes")));
        }
        let (mut first, mut last) = (0_i128, 0_i128);
        for (extent, stride) in self.shape.iter().zip(self.strides) {
            let reach = i128::from(stride) * i128::from(extent - 1);
            first += reach.min(0);
            last += reach.max(0);
        }
        let size = i128::try_from(dtype.size_bytes()).unwrap_or(8);
        let low = i128::try_from(self.data.addr()).unwrap_or(i128::MAX) + first * size;
        let high = low + (last - first + 1) * size;
        let bytes = isize::try_from((last - first + 1) * size).ok();
        let (Some(_), Ok(start), Ok(len), true) = (
            bytes,
            usize::try_from(-first),
            usize::try_from(last - first + 1),
            low > 0 && high <= i128::try_from(usize::MAX).unwrap_or(i128::MAX),
        ) else {
            let strides = self.strides;
            return Err(Failure::range(format!("{name}: strides {strides:?} leave the address space")));
        };
        let lowest = self.data.wrapping_byte_sub(start * dtype.size_bytes());
        let strides = self.strides.map(|stride| isize::try_from(stride).unwrap_or(isize::MAX));
        Ok(Memory { name, dtype, lowest, len, start, shape, strides })
    }
}

impl Memory {
    /// The memory of a tensor that the caller lends.
    ///
    /// # Safety
    /// `tensor` is NULL, misaligned, or a struct as [`extensible`] wants it.
    pub(crate) unsafe fn of(tensor: *const tiled_tensor, name: &'static str) -> Fallible<Self> {
        // SAFETY: the caller's promise
        unsafe { extensible(tensor, name)? }.checked(name)
    }

    /// Checks the element type.
    pub(crate) fn require(&self, dtype: DType) -> Fallible {
        if self.dtype == dtype {
            return Ok(());
        }
        let (name, got, wanted) = (self.name, self.dtype.name(), dtype.name());
        Err(Failure::new(TILED_STATUS_DTYPE, format!("{name}: elements are {got}, wanted are {wanted}")))
    }

    /// Checks that `others` have the same element type, and that the memory, which is written, shares no byte with
    /// theirs.
    pub(crate) fn require_apart(&self, others: &[&Self]) -> Fallible {
        let range = |memory: &Self| {
            let low = memory.lowest.addr();
            low..low + memory.len * memory.dtype.size_bytes()
        };
        let mine = range(self);
        for other in others {
            other.require(self.dtype)?;
            let theirs = range(other);
            if mine.start < theirs.end && theirs.start < mine.end {
                let message = format!("{} and {} overlap in memory", self.name, other.name);
                return Err(Failure::invalid(message));
            }
        }
        Ok(())
    }

    /// The tensor, to be read.
    ///
    /// # Safety
    /// The elements can be read, and nothing writes them, for as long as the result is used.
    pub(crate) unsafe fn source<'a, T: Element>(&self) -> Fallible<MemorySource<'a, T>> {
        self.require(T::DTYPE)?;
        // SAFETY: `checked` has shown that the elements from the lowest to the highest span `len` elements within
        // the address space, aligned; they can be read by the caller's promise
        let data = unsafe { std::slice::from_raw_parts(self.lowest.cast_const().cast::<T>(), self.len) };
        Ok(MemorySource::with_strides(data, self.shape, self.start, self.strides)?)
    }

    /// The tensor, to be written.
    ///
    /// # Safety
    /// The elements can be written, and nothing else refers to them, for as long as the result is used.
    pub(crate) unsafe fn sink<'a, T: Element>(&self) -> Fallible<SliceSink<'a, T>> {
        self.require(T::DTYPE)?;
        // SAFETY: as in `source`; the sink only writes, so that memory that was never written before is not read
        let data = unsafe { std::slice::from_raw_parts_mut(self.lowest.cast::<T>(), self.len) };
        Ok(SliceSink::with_strides(data, self.shape, self.start, self.strides)?)
    }
}

/// A description that the library gives out.
pub(crate) fn describe<T: Element>(data: *mut T, shape: [i64; 4], strides: [i64; 4]) -> tiled_tensor {
    let data = data.cast();
    tiled_tensor { dtype: dtype_number(T::DTYPE), data, shape, strides, ..tiled_tensor::initial() }
}
