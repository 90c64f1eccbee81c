//! Activations that are not fused in registers.

use tiled_geometry::Region;
use tiled_kernel::{Activation, Backend, Kernel, Reference};
use tiled_tensor::{Element, Layout, View, ViewMut};

use super::source::Target;

/// Applies the activation to what tiles have written.
///
/// # Safety
/// The target is valid for `pixels` pixels and nothing else uses it.
pub(super) unsafe fn tiles<E: Element>(activation: Activation, target: &Target<E>, pixels: usize) {
    for channel in target.channel..target.channel + target.channels {
        let offset = channel / target.block * target.block_stride + channel % target.block;
        for p in 0..pixels {
            // SAFETY: passed on to the caller.
            let value = unsafe { &mut *target.start.add(offset + p * target.step) };
            apply(activation, value);
        }
    }
}

/// Applies the activation to a value.
pub(super) fn apply<E: Element>(activation: Activation, value: &mut E) {
    let layout = Layout::nchw([1; 4]).expect("invariant: one element fits");
    let input = [*value];
    let output = ViewMut::new(std::slice::from_mut(value), layout);
    let kernel = Kernel::Activation(activation);
    Reference.compute(&kernel, &[], &[View::new(&input, layout)], output, Region::whole([1, 1]));
}
