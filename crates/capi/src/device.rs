//! The devices that engines can be made for.

use std::ffi::c_char;
use std::sync::{Mutex, OnceLock, PoisonError};

use tiled::device::{Device, DeviceBackend, DeviceKind, Listed, devices};
use tiled::tensor::make_room;

use crate::guard::guard;
use crate::pointer::{Extensible, Output, TextOutput, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};

/// The cores of this machine.
pub const TILED_DEVICE_CPU: i32 = 1;
/// An NVIDIA GPU.
pub const TILED_DEVICE_CUDA: i32 = 2;
/// A GPU that this machine simulates, where there is a C++ compiler.
pub const TILED_DEVICE_CUDA_SIM: i32 = 3;

/// A device of the list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_device {
    /// The size of the struct, set by the library.
    pub struct_size: u32,
    /// `TILED_DEVICE_…`.
    pub kind: i32,
    /// Not zero where engines can be made for it; else `tiled_device_text` says why not.
    pub is_there: i32,
    /// The multiprocessors of a GPU; 0 of others, and where nobody knows.
    pub multiprocessors: u32,
    /// The bytes of its memory; likewise.
    pub memory_bytes: u64,
}

// SAFETY: repr(C), the size first, and integers
unsafe impl Extensible for tiled_device {
    const NAME: &'static str = "tiled_device";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            kind: TILED_DEVICE_CPU,
            is_there: 0,
            multiprocessors: 0,
            memory_bytes: 0,
        }
    }
}

/// The number of devices in the list: the CPU first, then the GPUs or why there are none, then those that can be simulated.
///
/// The list is made by the first call that asks for it, and stays. On failure `count` is untouched. Threads: any.
///
/// # Safety
/// `count` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_device_count(count: *mut usize) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let count = unsafe { Output::new(count, "count")? };
        count.set(listed().len());
        Ok(())
    })
}

/// What a device of the list is, in numbers. `struct_size` is `sizeof(tiled_device)`.
///
/// On failure `device` is untouched. Threads: any.
///
/// # Safety
/// `device` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_device_describe(
    index: usize,
    device: *mut tiled_device,
    struct_size: u32,
) -> tiled_status {
    guard(|| {
        let listed = at(index)?;
        let described = tiled_device {
            kind: match listed.kind {
                DeviceKind::Cuda => TILED_DEVICE_CUDA,
                DeviceKind::CudaSim => TILED_DEVICE_CUDA_SIM,
                _ => TILED_DEVICE_CPU,
            },
            is_there: i32::from(listed.is_there),
            multiprocessors: listed.multiprocessors.unwrap_or(0),
            memory_bytes: listed.memory_bytes.unwrap_or(0),
            ..tiled_device::initial()
        };
        // SAFETY: the caller's promise
        unsafe { write_extensible(device, struct_size, "device", &described) }
    })
}

/// The name of a device of the list, as `device` of `tiled_engine_options` takes it: UTF-8, ended by a NUL.
///
/// With a `capacity` of 0 only `length`, in bytes without the NUL, is written. On failure nothing is written.
/// Threads: any.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_device_name(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        output.set(&at(index)?.name)
    })
}

/// What a device of the list is, in words, or why it is not there; as `tiled_device_name`.
///
/// # Safety
/// `buffer` is NULL or has room for `capacity` bytes; `length` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_device_text(
    index: usize,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let output = unsafe { TextOutput::new(buffer, capacity, length)? };
        output.set(&at(index)?.what)
    })
}

fn listed() -> &'static [Listed] {
    static LIST: OnceLock<Vec<Listed>> = OnceLock::new();
    LIST.get_or_init(devices)
}

fn at(index: usize) -> Fallible<&'static Listed> {
    let all = listed();
    all.get(index).ok_or_else(|| Failure::range(format!("device is {index}, the list has {}", all.len())))
}

/// The backend of a device, opened once and kept as long as the program lives: executors refer to it.
pub(crate) fn backend(device: Device) -> Fallible<&'static DeviceBackend> {
    static OPENED: Mutex<Vec<(Device, &'static DeviceBackend)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, backend)) = opened.iter().find(|(known, _)| *known == device) {
        return Ok(backend);
    }
    make_room(&mut opened, 1)?;
    let backend: &'static DeviceBackend = Box::leak(Box::new(device.open()?));
    opened.push((device, backend));
    Ok(backend)
}
