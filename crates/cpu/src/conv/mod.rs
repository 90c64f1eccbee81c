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
mod winograd;

use tiled_geometry::Region;
use tiled_kernel::{Conv, Kernel};
use tiled_tensor::{Element, View, ViewMut};

use crate::{Isa, vector};
use problem::{Path, Problem};

pub(crate) fn block<T: Element>(isa: Isa, channels: usize) -> usize {
    problem::block(vector::lanes::<T>(isa), channels)
}

/// The elements that a thread needs while it carries out a kernel.
pub(crate) fn scratch_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    match kernel {
        Kernel::Conv2dWinograd { conv, .. } => winograd::scratch_len::<T>(isa, conv),
        _ => 0,
    }
}

pub(crate) fn packed_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    if let Kernel::Conv2dWinograd { conv, .. } = kernel {
        return winograd::packed_len::<T>(isa, conv);
    }
    let problem = Problem::of_kernel::<T>(isa, kernel);
    problem.bias_len() + problem.classes().map(|classes| problem.class_len(&classes)).sum::<usize>()
}

pub(crate) fn pack<T: Element>(isa: Isa, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
    if let Kernel::Conv2dWinograd { conv, .. } = kernel {
        return winograd::pack(isa, conv, params, packed);
    }
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
    output: ViewMut<'_, T>,
    region: Region<2>,
) {
    if let Kernel::Conv2dWinograd { .. } = kernel {
        return winograd::compute(isa, kernel, packed, inputs[0], output, region);
    }
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
        Kernel::Conv2dWinograd { conv, .. } => winograd::share_of_peak(conv),
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
