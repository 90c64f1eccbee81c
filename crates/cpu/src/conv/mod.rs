//! Convolution: forward, gradient for the input, gradient for the weights.
//!
//! Forward and the gradient for the input are one computation over classes of pixels ([`class`]), carried out
//! by one of four families of kernels ([`problem::Path`]). Weights are packed once, in the order of summation.

mod activate;
mod class;
mod dense;
mod dot;
mod engine;
mod lanes;
mod planar;
mod problem;
mod rows;
mod share;
mod source;
mod weight;

use tiled_geometry::Region;
use tiled_kernel::{Conv, Kernel};
use tiled_tensor::{Element, PartMut, View};

use crate::{Isa, vector};
use problem::{Path, Problem};

pub(crate) fn block<T: Element>(isa: Isa, channels: usize) -> usize {
    problem::block(vector::lanes::<T>(isa), channels)
}

pub(crate) fn packed_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    let problem = Problem::of_kernel::<T>(isa, kernel);
    problem.bias_len() + problem.classes().map(|classes| problem.class_len(&classes)).sum::<usize>()
}

pub(crate) fn pack<T: Element>(isa: Isa, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
    let problem = Problem::of_kernel::<T>(isa, kernel);
    let weight = params[0];
    assert_eq!(weight.len(), problem.conv.weight_len(), "{}: length of the weight", kernel.name());
    assert_eq!(packed.len(), packed_len::<T>(isa, kernel), "{}: length of the packed weight", kernel.name());
    packed.fill(T::ZERO);
    let (head, mut rest) = packed.split_at_mut(problem.bias_len());
    if let Some(bias) = params.get(1) {
        assert_eq!(bias.len(), problem.outputs(), "{}: length of the bias", kernel.name());
        for (channel, value) in bias.iter().enumerate() {
            head[problem.bias_at(channel)] = *value;
        }
    }
    for classes in problem.classes() {
        let (head, tail) = rest.split_at_mut(problem.class_len(&classes));
        problem.visit(&classes, |to, from| head[to] = weight[from]);
        rest = tail;
    }
}

pub(crate) fn compute<T: Element>(
    isa: Isa,
    kernel: &Kernel,
    packed: &[T],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (Kernel::Conv2d { activation, .. } | Kernel::Conv2dBackwardInput { activation, .. }) = kernel else {
        panic!("invariant: {} is not a convolution", kernel.name());
    };
    assert_eq!(packed.len(), packed_len::<T>(isa, kernel), "{}: length of the packed weight", kernel.name());
    let problem = Problem::of_kernel::<T>(isa, kernel);
    engine::compute(isa, &problem, *activation, packed, inputs[0], output, region);
}

pub(crate) fn partial_len<T: Element>(isa: Isa, conv: &Conv) -> usize {
    let problem = Problem::for_weights::<T>(isa, conv);
    problem.classes().map(|classes| problem.class_len(&classes)).sum()
}

pub(crate) fn reduce_weight<T: Element>(
    isa: Isa,
    conv: &Conv,
    inputs: &[View<'_, T>],
    share: Region<2>,
    values: &mut [T],
) {
    assert_eq!(values.len(), partial_len::<T>(isa, conv), "conv2d_backward_weight: length of the partial");
    weight::reduce(isa, &Problem::for_weights::<T>(isa, conv), inputs, share, values);
}

pub(crate) fn unpack_weight<T: Element>(isa: Isa, conv: &Conv, values: &[T], result: &mut [T]) {
    let problem = Problem::for_weights::<T>(isa, conv);
    assert_eq!(values.len(), partial_len::<T>(isa, conv), "conv2d_backward_weight: length of the partial");
    assert_eq!(result.len(), conv.weight_len(), "conv2d_backward_weight: length of the weight");
    for classes in problem.classes() {
        problem.visit(&classes, |from, to| result[to] = values[from]);
    }
}

/// Whether a convolution reads planes in place as fast as channel blocks: where no tile reads outside the image,
/// since its columns are then copied, for planes channel by channel.
pub(crate) fn reads_planes<T: Element>(isa: Isa, kernel: &Kernel) -> bool {
    let Kernel::Conv2d { conv, .. } = kernel else { return false };
    let problem = Problem::of_kernel::<T>(isa, kernel);
    problem.path == Path::Dense && conv.windows[1].padding() == 0 && conv.windows[1].stride() <= 2
}

/// The same for the gradient for the weights: the inputs, but not the gradients, which are read as vectors.
pub(crate) fn reduces_planes<T: Element>(isa: Isa, conv: &Conv, input: usize) -> bool {
    let is_dense = Problem::for_weights::<T>(isa, conv).path == Path::Dense;
    input == 0 && is_dense && conv.windows[1].padding() == 0
}

/// Whether a convolution writes planes from registers: vectors of channels whose pixels lie side by side.
pub(crate) fn writes_planes<T: Element>(isa: Isa, kernel: &Kernel) -> bool {
    let (Kernel::Conv2d { conv, .. } | Kernel::Conv2dBackwardInput { conv, .. }) = kernel else {
        return false;
    };
    let problem = Problem::of_kernel::<T>(isa, kernel);
    let apart = problem.transposed && conv.windows[1].stride() > 1;
    match problem.path {
        Path::Dense | Path::Lanes => !apart,
        // their outputs have no blocks in any window
        Path::Dot | Path::Planar => true,
    }
}

/// The share of the peak that a kernel reaches; medians of the example `conv_speed`.
pub(crate) fn share_of_peak<T: Element>(isa: Isa, kernel: &Kernel) -> f64 {
    match kernel {
        Kernel::Conv2d { .. } | Kernel::Conv2dBackwardInput { .. } => {
            let problem = Problem::of_kernel::<T>(isa, kernel);
            match problem.path {
                Path::Dense if problem.run < 8 => 0.75,
                Path::Dense => 0.93,
                Path::Dot => 0.42,
                Path::Lanes => 0.30,
                Path::Planar => 0.13,
            }
        }
        _ => 1.0,
    }
}

/// The same for the gradient for the weights.
pub(crate) fn weight_share_of_peak<T: Element>(isa: Isa, conv: &Conv) -> f64 {
    let problem = Problem::for_weights::<T>(isa, conv);
    match problem.path {
        Path::Dense if problem.run < 8 => 0.60,
        Path::Dense => 0.88,
        Path::Dot => 0.40,
        Path::Lanes => 0.14,
        Path::Planar => 0.04,
    }
}
