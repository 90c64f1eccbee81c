//! Memory of the caller as a tensor.

use std::ffi::c_void;

use tiled::exec::{
    DeviceSink, DeviceSource, ElementType, MemorySource, Numbers, Sink, SliceSink, Source, StoredSink,
    StoredSource, with_stored,
};
use tiled::tensor::{DType, DeviceTensor, Element, MemoryDevice};

use crate::guard::guard;
use crate::pointer::{Extensible, array, extensible, write_extensible};
use crate::status::{
    Failure, Fallible, TILED_STATUS_DTYPE, TILED_STATUS_NULL_POINTER, TILED_STATUS_OTHER_DEVICE,
    TILED_STATUS_UNSUPPORTED, tiled_status,
};

/// IEEE 754 binary32, `float`.
pub const TILED_DTYPE_F32: i32 = 1;
/// IEEE 754 binary64, `double`.
pub const TILED_DTYPE_F64: i32 = 2;
/// Integers of 8 bits without a sign; this and all that follow only in sources and sinks of runs that lie in memory.
pub const TILED_DTYPE_U8: i32 = 3;
/// Integers of 8 bits.
pub const TILED_DTYPE_I8: i32 = 4;
/// Integers of 16 bits without a sign.
pub const TILED_DTYPE_U16: i32 = 5;
/// Integers of 16 bits.
pub const TILED_DTYPE_I16: i32 = 6;
/// Integers of 32 bits without a sign.
pub const TILED_DTYPE_U32: i32 = 7;
/// Integers of 32 bits.
pub const TILED_DTYPE_I32: i32 = 8;
/// Integers of 64 bits without a sign.
pub const TILED_DTYPE_U64: i32 = 9;
/// Integers of 64 bits.
pub const TILED_DTYPE_I64: i32 = 10;
/// IEEE 754 binary16.
pub const TILED_DTYPE_F16: i32 = 11;
/// The upper half of an IEEE 754 binary32.
pub const TILED_DTYPE_BF16: i32 = 12;

/// Memory of the host, `kDLCPU`.
pub const TILED_MEMORY_HOST: i32 = 1;
/// Memory of an NVIDIA GPU, `kDLCUDA`.
pub const TILED_MEMORY_CUDA: i32 = 2;
/// Memory of a simulated GPU, `kDLExtDev`: any of the host, which its kernels touch as a GPU's do theirs.
pub const TILED_MEMORY_CUDA_SIM: i32 = 12;

/// An NCHW tensor in memory of the caller.
///
/// Element (n, c, y, x) lies at `data + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]`, in elements.
/// Extents are at least 1. Of a tensor that is read, strides may be zero or negative; of one that is written, no
/// two elements may share a place. The memory from the first to the last element belongs to the call that gets
/// the tensor; it may not overlap that of another tensor of the call that is written.
///
/// Sources and sinks of runs may lie on the device of the engine (`device_type`, `device_id`), then of the type of the computation: no
/// element goes through the host. Every other tensor lies on the host.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_tensor {
    /// The size of the struct, as `tiled_tensor_init` sets it.
    pub struct_size: u32,
    /// `TILED_DTYPE_F32` or `TILED_DTYPE_F64`; in sources and sinks of runs any `TILED_DTYPE_…`.
    pub dtype: i32,
    /// Element (0, 0, 0, 0), aligned to the element's size.
    pub data: *mut c_void,
    /// Batch, channels, height, width.
    pub shape: [i64; 4],
    /// Distances between neighbours along each axis, in elements.
    pub strides: [i64; 4],
    /// Whose memory it is, `TILED_MEMORY_…`: the numbers of DLPack.
    pub device_type: i32,
    /// Which device of its type; 0 for the host.
    pub device_id: i32,
    /// Of a tensor on a GPU, a `CUstream` or `cudaStream_t` of it: what it was asked before the call comes before the run, which has
    /// ended when the call returns. NULL for the default stream. Of a simulated GPU NULL; of the host it is not looked at.
    pub stream: *mut c_void,
}

// SAFETY: repr(C), the size first, and integers and a pointer, which take any bits
unsafe impl Extensible for tiled_tensor {
    const NAME: &'static str = "tiled_tensor";
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, device_type);

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            dtype: TILED_DTYPE_F32,
            data: std::ptr::null_mut(),
            shape: [0; 4],
            strides: [0; 4],
            device_type: TILED_MEMORY_HOST,
            device_id: 0,
            stream: std::ptr::null_mut(),
        }
    }
}

/// Sets every field to its default: `float`, no data, extents of zero, on the host. `struct_size` is `sizeof(tiled_tensor)`.
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

/// The type that elements are stored as, of a number of the header.
pub(crate) fn element(number: i32) -> Fallible<ElementType> {
    match NUMBERS.iter().find(|(known, _)| *known == number) {
        Some((_, element)) => Ok(*element),
        None => {
            Err(Failure::new(TILED_STATUS_DTYPE, format!("dtype {number} is none of 1 (f32) to 12 (bf16)")))
        }
    }
}

/// The number of the header for a type that elements are stored as.
pub(crate) fn element_number(element: ElementType) -> i32 {
    NUMBERS.iter().find(|(_, known)| *known == element).map_or(0, |(number, _)| *number)
}

const NUMBERS: [(i32, ElementType); 12] = [
    (TILED_DTYPE_F32, ElementType::F32),
    (TILED_DTYPE_F64, ElementType::F64),
    (TILED_DTYPE_U8, ElementType::U8),
    (TILED_DTYPE_I8, ElementType::I8),
    (TILED_DTYPE_U16, ElementType::U16),
    (TILED_DTYPE_I16, ElementType::I16),
    (TILED_DTYPE_U32, ElementType::U32),
    (TILED_DTYPE_I32, ElementType::I32),
    (TILED_DTYPE_U64, ElementType::U64),
    (TILED_DTYPE_I64, ElementType::I64),
    (TILED_DTYPE_F16, ElementType::F16),
    (TILED_DTYPE_BF16, ElementType::Bf16),
];

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
    /// The device that it lies on, and the stream that its contents are ordered by; `None` of the host's.
    place: Option<(MemoryDevice, u64)>,
    element: ElementType,
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

    /// The device that it lies on, with its stream; `None` of the host.
    fn place(&self, name: &str) -> Fallible<Option<(MemoryDevice, u64)>> {
        let device = MemoryDevice { kind: self.device_type, index: self.device_id };
        match self.device_type {
            TILED_MEMORY_HOST => Ok(None),
            TILED_MEMORY_CUDA | TILED_MEMORY_CUDA_SIM => Ok(Some((device, self.stream.addr() as u64))),
            kind => {
                let message =
                    format!("{name}: memory of type {kind} is none of 1 (host), 2 (CUDA) and 12 (simulated)");
                Err(Failure::new(TILED_STATUS_UNSUPPORTED, message))
            }
        }
    }

    /// Checks the description.
    pub(crate) fn checked(&self, name: &'static str) -> Fallible<Memory> {
        let element = element(self.dtype)?;
        let shape = sizes(self.shape, name)?;
        if self.data.is_null() {
            return Err(Failure::new(TILED_STATUS_NULL_POINTER, format!("{name}: data is NULL")));
        }
        if !self.data.addr().is_multiple_of(element.size_bytes()) {
            let bytes = element.size_bytes();
            return Err(Failure::invalid(format!("{name}: data is not aligned to {bytes} bytes")));
        }
        let (mut first, mut last) = (0_i128, 0_i128);
        for (extent, stride) in self.shape.iter().zip(self.strides) {
            let reach = i128::from(stride) * i128::from(extent - 1);
            first += reach.min(0);
            last += reach.max(0);
        }
        let size = i128::try_from(element.size_bytes()).unwrap_or(8);
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
        let lowest = self.data.wrapping_byte_sub(start * element.size_bytes());
        let strides = self.strides.map(|stride| isize::try_from(stride).unwrap_or(isize::MAX));
        let place = self.place(name)?;
        Ok(Memory { name, place, element, lowest, len, start, shape, strides })
    }
}

impl Memory {
    /// The memory of a tensor that the caller lends.
    ///
    /// # Safety
    /// `tensor` is NULL, misaligned, or a struct as [`extensible`] wants it.
    pub(crate) unsafe fn of(tensor: *const tiled_tensor, name: &'static str) -> Fallible<Self> {
        // SAFETY: the caller's promise
        let memory = unsafe { extensible(tensor, name)? }.checked(name)?;
        match memory.place {
            None => Ok(memory),
            Some((device, _)) => {
                let message = format!("{name}: lies on {device}, wanted is memory of the host");
                Err(Failure::new(TILED_STATUS_OTHER_DEVICE, message))
            }
        }
    }

    /// Checks that nothing is asked of a tensor that a device does not do as it copies it.
    pub(crate) fn require_plain(&self, is_plain: bool, what: &str) -> Fallible {
        match self.place {
            Some((device, _)) if !is_plain => {
                let name = self.name;
                let message = format!("{name}: lies on {device}, where {what} are not carried out");
                Err(Failure::new(TILED_STATUS_UNSUPPORTED, message))
            }
            _ => Ok(()),
        }
    }

    /// The tensor on its device.
    ///
    /// # Safety
    /// As [`DeviceTensor::new`].
    unsafe fn on_device<T: Element>(&self, device: MemoryDevice, stream: u64) -> Fallible<DeviceTensor<T>> {
        self.require(T::DTYPE)?;
        let first = self.lowest.wrapping_byte_add(self.start * self.element.size_bytes());
        // SAFETY: the caller's promise
        Ok(unsafe { DeviceTensor::new(device, first.addr() as u64, self.shape, self.strides, stream)? })
    }

    /// The element type, where it is one that computations have.
    pub(crate) fn dtype(&self) -> Fallible<DType> {
        match self.element {
            ElementType::F32 => Ok(DType::F32),
            ElementType::F64 => Ok(DType::F64),
            other => {
                let (name, got) = (self.name, other.name());
                let message = format!("{name}: elements are {got}, wanted are f32 or f64");
                Err(Failure::new(TILED_STATUS_DTYPE, message))
            }
        }
    }

    /// The type that its elements are stored as.
    pub(crate) const fn element(&self) -> ElementType {
        self.element
    }

    /// Checks the element type.
    pub(crate) fn require(&self, dtype: DType) -> Fallible {
        if self.element == ElementType::from(dtype) {
            return Ok(());
        }
        let (name, got, wanted) = (self.name, self.element.name(), dtype.name());
        Err(Failure::new(TILED_STATUS_DTYPE, format!("{name}: elements are {got}, wanted are {wanted}")))
    }

    /// Checks that `others` have the same element type, one that computations have, and that the memory, which is written,
    /// shares no byte with theirs.
    pub(crate) fn require_alike_and_apart(&self, others: &[&Self]) -> Fallible {
        let dtype = self.dtype()?;
        others.iter().try_for_each(|other| other.require(dtype))?;
        self.require_apart(others)
    }

    /// Checks that the memory, which is written, shares no byte with that of `others`.
    pub(crate) fn require_apart(&self, others: &[&Self]) -> Fallible {
        let range = |memory: &Self| {
            let low = memory.lowest.addr();
            low..low + memory.len * memory.element.size_bytes()
        };
        let mine = range(self);
        // a simulated GPU's is the host's, and no address of a GPU is one of the host or of another
        for other in others {
            let theirs = range(other);
            if mine.start < theirs.end && theirs.start < mine.end {
                let message = format!("{} and {} overlap in memory", self.name, other.name);
                return Err(Failure::invalid(message));
            }
        }
        Ok(())
    }

    /// The tensor of elements of any type, to be read.
    ///
    /// # Safety
    /// As [`Memory::source`].
    pub(crate) unsafe fn stored_source<'a, T: Element>(
        &self,
        numbers: Numbers,
    ) -> Fallible<Box<dyn Source<T> + 'a>> {
        if let Some((device, stream)) = self.place {
            // SAFETY: the caller's promise
            return Ok(Box::new(DeviceSource::new(unsafe { self.on_device::<T>(device, stream)? })));
        }
        if self.element == ElementType::from(T::DTYPE) {
            // SAFETY: the caller's promise
            return Ok(Box::new(unsafe { self.source::<T>()? }));
        }
        with_stored!(self.element, S => {
            // SAFETY: as in `source`, for elements of the type that the memory was checked for
            let data = unsafe { std::slice::from_raw_parts(self.lowest.cast_const().cast::<S>(), self.len) };
            let source = StoredSource::with_strides(data, self.shape, self.start, self.strides)?;
            Ok(Box::new(source.with_numbers(numbers)))
        })
    }

    /// The tensor of elements of any type, to be written.
    ///
    /// # Safety
    /// As [`Memory::sink`].
    pub(crate) unsafe fn stored_sink<'a, T: Element>(
        &self,
        numbers: Numbers,
    ) -> Fallible<Box<dyn Sink<T> + 'a>> {
        if let Some((device, stream)) = self.place {
            // SAFETY: the caller's promise
            return Ok(Box::new(DeviceSink::new(unsafe { self.on_device::<T>(device, stream)? })?));
        }
        if self.element == ElementType::from(T::DTYPE) {
            // SAFETY: the caller's promise
            return Ok(Box::new(unsafe { self.sink::<T>()? }));
        }
        with_stored!(self.element, S => {
            // SAFETY: as in `sink`, for elements of the type that the memory was checked for
            let data = unsafe { std::slice::from_raw_parts_mut(self.lowest.cast::<S>(), self.len) };
            let sink = StoredSink::with_strides(data, self.shape, self.start, self.strides)?;
            Ok(Box::new(sink.with_numbers(numbers)))
        })
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
