//! Single operators on memory of the caller, tile by tile.

mod conv2d;
mod pool2d;

pub use conv2d::*;
pub use pool2d::*;

use tiled::ops::Options;

use crate::guard::guard;
use crate::pointer::{Extensible, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};

/// How an operator is cut into tiles. The result does not depend on it, but for the last bits of weight gradients.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_operator_options {
    /// The size of the struct, as `tiled_operator_options_init` sets it.
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// The most bytes that the call may take beside the tensors: windows, packed weights and partial sums; 0 for 64 MiB, or what the
    /// smallest tiles take where that is more.
    pub memory_bytes: u64,
    /// Height and width of a tile of the operator's output, also where the call computes gradients; 0 for what the
    /// memory allows. Larger than the output means the whole of it.
    pub tile: [i64; 2],
}

// SAFETY: repr(C), the size first, and integers
unsafe impl Extensible for tiled_operator_options {
    const NAME: &'static str = "tiled_operator_options";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self { struct_size: crate::size_of_u32::<Self>(), reserved: 0, memory_bytes: 0, tile: [0, 0] }
    }
}

impl tiled_operator_options {
    fn checked(&self) -> Fallible<Options> {
        for (what, size) in [("height", self.tile[0]), ("width", self.tile[1])] {
            if size < 0 {
                return Err(Failure::range(format!("options: tile {what} is {size}, must be at least 0")));
            }
        }
        Ok(Options {
            memory_bytes: (self.memory_bytes > 0).then_some(self.memory_bytes),
            tile: self.tile.map(|size| (size > 0).then_some(size)),
        })
    }
}

/// Sets every field to its default: tiles of 64 MiB. `struct_size` is `sizeof(tiled_operator_options)`.
///
/// # Safety
/// `options` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_operator_options_init(
    options: *mut tiled_operator_options,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(options, struct_size, "options", &tiled_operator_options::initial()) })
}

/// Checks a batch and extents that two tensors must share.
fn require(what: &str, got: &[usize], expected: &[usize]) -> Fallible {
    if got == expected {
        return Ok(());
    }
    Err(Failure::shape(format!("{what} is {got:?}, wanted is {expected:?}")))
}

/// Height and width as coordinates.
fn extents(shape: [usize; 4], name: &str) -> Fallible<[i64; 2]> {
    let [_, _, height, width] = shape;
    let extent = |what: &str, size: usize| match i64::try_from(size) {
        Ok(extent) if extent <= tiled::graph::MAX_EXTENT => Ok(extent),
        _ => Err(Failure::range(format!("{name}: {what} is {size}, must be at most 2^30"))),
    };
    Ok([extent("height", height)?, extent("width", width)?])
}
