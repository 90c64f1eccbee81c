//! Activations that are not fused in registers: the kernel of their own, on what tiles have written.

use tiled_kernel::Activation;

use super::source::Target;
use crate::Isa;
use crate::ops::elementwise::activate;
use crate::vector::Lane;

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
            activate(isa, activation, values);
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
            activate(isa, activation, values);
            for (p, value) in values.iter().enumerate() {
                // SAFETY: as above.
                unsafe { *start.add(p * target.step) = *value };
            }
        }
    }
}

/// Values that are activated at once.
const CHUNK: usize = 256;
