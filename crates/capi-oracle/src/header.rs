//! The types of `tiled.h` as a C program uses them: structs that may grow, and handles.

use std::mem::{MaybeUninit, offset_of};

use tiled_capi::*;

/// A struct of the header that may grow.
pub(super) trait Extensible: Copy {
    /// Its size in the first version.
    const FIRST_SIZE: usize = size_of::<Self>();

    /// What `_init` writes, with the full size.
    fn initial() -> Self;
}

macro_rules! extensible {
    ($($type:ident $init:ident $(from $first:expr)?),* $(,)?) => {$(
        impl Extensible for $type {
            $(const FIRST_SIZE: usize = $first;)?

            fn initial() -> Self {
                let mut value = MaybeUninit::uninit();
                // SAFETY: there is room for the struct, all of which is written where that succeeds
                unsafe {
                    assert_eq!($init(value.as_mut_ptr(), size_of_u32::<Self>()), TILED_STATUS_OK);
                    value.assume_init()
                }
            }
        }
    )*};
}

extensible! {
    tiled_logger tiled_logger_init,
    tiled_allocator tiled_allocator_init,
    tiled_engine_options tiled_engine_options_init from offset_of!(tiled_engine_options, device),
    tiled_operator_options tiled_operator_options_init,
    tiled_conv2d tiled_conv2d_init,
    tiled_pool2d tiled_pool2d_init,
    tiled_objective tiled_objective_init from offset_of!(tiled_objective, ignore_index),
    tiled_plan_options tiled_plan_options_init from offset_of!(tiled_plan_options, chunks),
    tiled_tensor tiled_tensor_init from offset_of!(tiled_tensor, device_type),
    tiled_source tiled_source_init from offset_of!(tiled_source, numbers),
    tiled_changes tiled_changes_init,
    tiled_sink tiled_sink_init from offset_of!(tiled_sink, numbers),
    tiled_progress tiled_progress_init,
    tiled_io tiled_io_init,
    tiled_optimizer tiled_optimizer_init,
}

// the library alone writes it, so that there is no `_init`
impl Extensible for tiled_report {
    fn initial() -> Self {
        Self { struct_size: size_of_u32::<Self>(), has_loss: 0, loss: 0.0, seconds: 0.0 }
    }
}

/// The size of a struct of the header, as its first field holds it.
pub(super) fn size_of_u32<T>() -> u32 {
    u32::try_from(size_of::<T>()).expect("a struct of the header is small")
}

/// The type that the header declares for a kind of handle.
pub(super) trait Opaque {
    /// The kind's number in the library, and here its place among the functions that free.
    const KIND: usize;
}

macro_rules! opaque {
    ($($type:ident $kind:expr),* $(,)?) => {$(
        impl Opaque for $type {
            const KIND: usize = $kind;
        }
    )*};
}

opaque! {
    tiled_grid 1,
    tiled_engine 2,
    tiled_graph 3,
    tiled_weights 4,
    tiled_plan 5,
    tiled_executor 6,
    tiled_trainer 7,
}
