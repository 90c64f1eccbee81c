//! Plain calls of the C interface: handles made, structs with their defaults, tensors in memory.

use std::ptr::null_mut;

use tiled_capi::*;

pub(crate) fn ok(status: tiled_status) {
    assert_eq!(status, TILED_STATUS_OK, "{}", message());
}

pub(crate) fn made<H>(make: impl FnOnce(*mut *mut H) -> tiled_status) -> *mut H {
    let mut handle = null_mut();
    ok(make(&raw mut handle));
    handle
}

pub(crate) fn initial<S>(init: unsafe extern "C" fn(*mut S, u32) -> tiled_status) -> S {
    let mut value = std::mem::MaybeUninit::<S>::uninit();
    // SAFETY: there is room for the struct, all of which `init` writes
    unsafe {
        ok(init(value.as_mut_ptr(), u32::try_from(size_of::<S>()).expect("small")));
        value.assume_init()
    }
}

pub(crate) fn message() -> String {
    let mut bytes = vec![0_u8; 512];
    // SAFETY: the buffer has room for as many bytes as it is said to have
    let len = unsafe { tiled_last_error(bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(len.min(511));
    String::from_utf8(bytes).expect("messages are UTF-8")
}

pub(crate) fn source(data: &mut [f32], shape: [i64; 4]) -> tiled_source {
    let strides = [shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1];
    let data = data.as_mut_ptr().cast();
    let tensor = tiled_tensor { data, shape, strides, ..initial(tiled_tensor_init) };
    tiled_source { tensor, ..initial(tiled_source_init) }
}
