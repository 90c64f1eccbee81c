//! Tensors of other frameworks without a copy, by DLPack 1.3.

use std::ffi::{c_int, c_void};

use tiled::exec::ElementType;

use crate::guard::guard;
use crate::pointer::{Extensible, Output, array, extensible, input, write_extensible};
use crate::status::{
    Failure, Fallible, TILED_STATUS_DTYPE, TILED_STATUS_SHAPE, TILED_STATUS_UNSUPPORTED, tiled_status,
};
use crate::tensor::{element_number, tiled_tensor};

/// The struct of this name of `dlpack.h`, before version 1.
#[derive(Debug)]
pub struct DLManagedTensor {
    _opaque: (),
}

/// The struct of this name of `dlpack.h`, since version 1.
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    _opaque: (),
}

/// Describes a tensor of another framework, without a copy.
///
/// The memory and the DLPack tensor stay the caller's: the description is valid until its deleter is called. It must
/// lie on the host or on a GPU (`kDLCPU`, `kDLCUDA`, or `kDLExtDev` for a simulated one) and have one to four axes; missing ones in front
/// become 1. The stream is NULL: set it to the one that the tensor was last written on, where that is not the default one.
/// `struct_size` is `sizeof(tiled_tensor)`. On failure `tensor` is untouched. Threads: any.
///
/// # Safety
/// `managed` is NULL or a DLPack tensor; `tensor` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_tensor_from_dlpack(
    managed: *const DLManagedTensor,
    tensor: *mut tiled_tensor,
    struct_size: u32,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        unsafe {
            let managed = input(managed.cast::<Managed>(), "managed")?;
            write_extensible(tensor, struct_size, "tensor", &describe(&managed.tensor)?)
        }
    })
}

/// As `tiled_tensor_from_dlpack`, for DLPack since version 1. A tensor of another major version is refused with
/// `TILED_STATUS_UNSUPPORTED`.
///
/// # Safety
/// `managed` is NULL or a DLPack tensor; `tensor` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_tensor_from_dlpack_versioned(
    managed: *const DLManagedTensorVersioned,
    tensor: *mut tiled_tensor,
    struct_size: u32,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise; the version comes first in every version
        unsafe {
            let version = *input(managed.cast::<[u32; 2]>(), "managed")?;
            if version[0] != DLPACK_MAJOR {
                let message = format!("managed: DLPack {}.{}, wanted is 1", version[0], version[1]);
                return Err(Failure::new(TILED_STATUS_UNSUPPORTED, message));
            }
            let managed = input(managed.cast::<ManagedVersioned>(), "managed")?;
            write_extensible(tensor, struct_size, "tensor", &describe(&managed.tensor)?)
        }
    })
}

/// Offers memory of the caller, on the host or on a GPU, to another framework as a DLPack tensor of four axes, without a copy.
///
/// The struct is that from before version 1, which `at::fromDLPack` and most consumers take. The consumer calls the
/// tensor's `deleter` once; it calls `release(user)`, which may be NULL, from whatever thread that is, and frees what this
/// function allocated. Until then the memory must stay. On failure `managed` is untouched and `release` is not called.
/// Threads: any.
///
/// # Safety
/// `tensor` is NULL or a tensor; `release` may be called once from any thread; `managed` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_tensor_to_dlpack(
    tensor: *const tiled_tensor,
    release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
    managed: *mut *mut DLManagedTensor,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (tensor, managed) = unsafe { (extensible(tensor, "tensor")?, Output::new(managed, "managed")?) };
        managed.set(Offered::<Managed>::make(&tensor, release, user)?.cast());
        Ok(())
    })
}

/// As `tiled_tensor_to_dlpack`, for consumers of DLPack since version 1.
///
/// # Safety
/// `tensor` is NULL or a tensor; `release` may be called once from any thread; `managed` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_tensor_to_dlpack_versioned(
    tensor: *const tiled_tensor,
    release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
    managed: *mut *mut DLManagedTensorVersioned,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (tensor, managed) = unsafe { (extensible(tensor, "tensor")?, Output::new(managed, "managed")?) };
        managed.set(Offered::<ManagedVersioned>::make(&tensor, release, user)?.cast());
        Ok(())
    })
}

/// What is offered, with the arrays that it points to. The struct of DLPack comes first, so that both have one address.
#[repr(C)]
struct Offered<M> {
    managed: M,
    shape: [i64; 4],
    strides: [i64; 4],
    release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
}

impl<M: Manages> Offered<M> {
    /// Describes memory of the caller; the result is freed by its deleter.
    fn make(
        tensor: &tiled_tensor,
        release: Option<unsafe extern "C" fn(user: *mut c_void)>,
        user: *mut c_void,
    ) -> Fallible<*mut Self> {
        let memory = tensor.checked("tensor")?;
        let described = Tensor {
            data: tensor.data,
            device: Device { kind: tensor.device_type, id: tensor.device_id },
            axes: 4,
            dtype: data_type(memory.element()),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let (shape, strides) = (tensor.shape, tensor.strides);
        let offered =
            Box::into_raw(Box::new(Self { managed: M::new(described), shape, strides, release, user }));
        // SAFETY: the box was made above and nothing else refers to it; its arrays live as long as it does
        unsafe {
            let tensor = (*offered).managed.tensor();
            tensor.shape = (&raw mut (*offered).shape).cast();
            tensor.strides = (&raw mut (*offered).strides).cast();
        }
        Ok(offered)
    }
}

/// A struct of DLPack that manages a tensor.
trait Manages: Sized {
    /// With the deleter of what is offered.
    fn new(tensor: Tensor) -> Self;
    fn tensor(&mut self) -> &mut Tensor;
}

impl Manages for Managed {
    fn new(tensor: Tensor) -> Self {
        Self { tensor, context: std::ptr::null_mut(), deleter: Some(delete::<Self>) }
    }

    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

impl Manages for ManagedVersioned {
    fn new(tensor: Tensor) -> Self {
        let version = [DLPACK_MAJOR, DLPACK_MINOR];
        Self { version, context: std::ptr::null_mut(), deleter: Some(delete::<Self>), flags: 0, tensor }
    }

    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

unsafe extern "C" fn delete<M>(managed: *mut M) {
    if managed.is_null() {
        return;
    }
    // SAFETY: the deleter is called once, with the struct that holds it, which is the first field of the box that
    // `Offered::make` made
    let offered = unsafe { Box::from_raw(managed.cast::<Offered<M>>()) };
    if let Some(release) = offered.release {
        // SAFETY: it may be called once, by the promise of the exported functions that take it
        unsafe { release(offered.user) }
    }
}

/// The description of a DLPack tensor.
///
/// # Safety
/// Its shape and strides are arrays of as many numbers as it has axes, the strides possibly NULL.
unsafe fn describe(tensor: &Tensor) -> Fallible<tiled_tensor> {
    let Some(axes) = usize::try_from(tensor.axes).ok().filter(|axes| (1..=4).contains(axes)) else {
        let message = format!("managed: {} axes, wanted are one to four", tensor.axes);
        return Err(Failure::new(TILED_STATUS_SHAPE, message));
    };
    let DataType { code, bits, lanes } = tensor.dtype;
    let known = ElementType::ALL.into_iter().find(|element| data_type(*element) == tensor.dtype);
    let dtype = known.map(element_number).ok_or_else(|| {
        let message =
            format!("managed: type of code {code}, {bits} bits, {lanes} lanes is no type that is read");
        Failure::new(TILED_STATUS_DTYPE, message)
    })?;
    let Device { kind: device_type, id: device_id } = tensor.device;
    let mut described =
        tiled_tensor { dtype, shape: [1; 4], device_type, device_id, ..tiled_tensor::initial() };
    // SAFETY: the caller's promise
    described.shape[4 - axes..].copy_from_slice(unsafe { array(tensor.shape, axes, "managed: shape")? });
    if tensor.strides.is_null() {
        let mut stride = 1_i64;
        for axis in (0..4).rev() {
            described.strides[axis] = stride;
            stride = stride
                .checked_mul(described.shape[axis])
                .ok_or_else(|| Failure::range(format!("managed: shape {:?} overflows", described.shape)))?;
        }
    } else {
        // SAFETY: the caller's promise
        described.strides[4 - axes..]
            .copy_from_slice(unsafe { array(tensor.strides, axes, "managed: strides")? });
    }
    let offset =
        usize::try_from(tensor.byte_offset).map_err(|_| Failure::range("managed: byte_offset overflows"))?;
    if !tensor.data.is_null() {
        described.data = tensor.data.wrapping_byte_add(offset);
    }
    described.checked("managed")?;
    Ok(described)
}

const fn data_type(element: ElementType) -> DataType {
    let (code, bits) = match element {
        ElementType::I8 => (INT, 8),
        ElementType::I16 => (INT, 16),
        ElementType::I32 => (INT, 32),
        ElementType::I64 => (INT, 64),
        ElementType::U8 => (UINT, 8),
        ElementType::U16 => (UINT, 16),
        ElementType::U32 => (UINT, 32),
        ElementType::U64 => (UINT, 64),
        ElementType::F16 => (FLOAT, 16),
        ElementType::F32 => (FLOAT, 32),
        ElementType::F64 => (FLOAT, 64),
        ElementType::Bf16 => (BFLOAT, 16),
    };
    DataType { code, bits, lanes: 1 }
}

const DLPACK_MAJOR: u32 = 1;
const DLPACK_MINOR: u32 = 3;
/// `kDLInt`, `kDLUInt`, `kDLFloat`, `kDLBfloat`.
const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;

#[repr(C)]
struct Device {
    kind: c_int,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    axes: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(managed: *mut Self)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(managed: *mut Self)>,
    flags: u64,
    tensor: Tensor,
}

// the layout of dlpack.h on 64-bit targets; tests/abi/dlpack.c holds the same in C
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(
        size_of::<Tensor>() == 48 && offset_of!(Tensor, shape) == 24 && offset_of!(Tensor, byte_offset) == 40
    );
    assert!(
        offset_of!(Tensor, dtype) == 20 && offset_of!(Tensor, axes) == 16 && offset_of!(Tensor, device) == 8
    );
    assert!(size_of::<Managed>() == 64 && offset_of!(Managed, deleter) == 56);
    assert!(size_of::<ManagedVersioned>() == 80 && offset_of!(ManagedVersioned, tensor) == 32);
};
