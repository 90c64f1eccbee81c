//! Activations that are not fused in registers: the kernel of their own, on what tiles have written.

use tiled_geometry::Region;
use tiled_kernel::{Activation, Kernel, Params};
use tiled_tensor::{Layout, View, ViewMut};

use super::class::signed;
use super::source::Target;
use crate::vector::Lane;
use crate::{Isa, ops};

/// Applies the activation to what tiles have written.
///
/// # Safety
/// The target is valid for `pixels` pixels and nothing else uses it.
pub(super) unsafe fn tiles<E: Lane>(isa: Isa, activation: Activation, target: &Target<E>, pixels: usize) {
    if target.whole && target.step == target.block {
        for block in (target.channel..target.channel + target.channels).step_by(target.block) {
            let start = target.start.wrapping_add(block / target.block * target.block_stride);
            // SAFETY: vectors are whole blocks, so that the pixels of a block lie side by side.
            let values = unsafe { std::slice::from_raw_parts_mut(start, pixels * target.block) };
            values.chunks_mut(CHUNK).for_each(|values| apply(isa, activation, values));
        }
        return;
    }
    let mut values = [E::ZERO; CHUNK];
    for first in (0..pixels).step_by(CHUNK) {
        let values = &mut values[..CHUNK.min(pixels - first)];
        for channel in target.channel..target.channel + target.channels {
            let offset = channel / target.block * target.block_stride + channel % target.block;
            let start = target.start.wrapping_add(offset + first * target.step);
            for (p, value) in values.iter_mut().enumerate() {
                // SAFETY: a pixel of a channel of the target.
                *value = unsafe { *start.add(p * target.step) };
            }
            apply(isa, activation, values);
            for (p, value) in values.iter().enumerate() {
                // SAFETY: as above.
                unsafe { *start.add(p * target.step) = *value };
            }
        }
    }
}

/// Applies the activation to at most [`CHUNK`] values.
pub(super) fn apply<E: Lane>(isa: Isa, activation: Activation, values: &mut [E]) {
    let mut copy = [E::ZERO; CHUNK];
    let copy = &mut copy[..values.len()];
    copy.copy_from_slice(values);
    let layout = Layout::nchw([1, 1, 1, values.len()]).expect("invariant: a chunk fits");
    let region = Region::whole([1, signed(values.len())]);
    let output = ViewMut::new(values, layout).into();
    let (kernel, none) = (Kernel::Activation(activation), Params::Packed(&[]));
    ops::compute(isa, &kernel, none, &[View::new(copy, layout)], output, region);
}

/// Values that are activated at once.
const CHUNK: usize = 256;
