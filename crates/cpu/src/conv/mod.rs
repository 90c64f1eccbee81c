//! Convolution: forward, gradient for the input, gradient for the weights.
//!
//! Forward and the gradient for the input are one computation over classes of pixels ([`class`]), carried out
//! by one of four families of kernels ([`problem::Path`]). Winograd's filtering ([`winograd`]) is apart from them. Weights are packed once, in the order of summation.

mod activate;
mod class;
mod cut;
mod dense;
mod dot;
mod engine;
mod lanes;
mod planar;
mod problem;
mod rows;
mod share;
mod source;
mod tail;
mod weight;
mod winograd;

use tiled_geometry::Region;
use tiled_kernel::{Activation, Conv, Kernel};
use tiled_tensor::{Element, PartMut, View};

use crate::{Isa, vector};
use problem::{Path, Problem};
use tail::Tail;

pub(crate) fn block<T: Element>(isa: Isa, channels: usize) -> usize {
    problem::block(vector::lanes::<T>(isa), channels)
}

/// The elements that a thread needs while it carries out a kernel.
pub(crate) fn scratch_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    match kernel {
        Kernel::Conv2dWinograd { conv, .. } => winograd::scratch_len::<T>(isa, conv),
        Kernel::ConvThen { conv, .. } => scratch_len::<T>(isa, conv),
        _ => 0,
    }
}

/// Whether what follows the convolution can be applied in registers: where vectors are whole blocks of the output.
pub(crate) fn fuses<T: Element>(isa: Isa, kernel: &Kernel) -> bool {
    let Kernel::ConvThen { conv, activation, .. } = kernel else { return false };
    let is_whole = |channels: usize| block::<T>(isa, channels) > 1;
    let fits = match &**conv {
        Kernel::Conv2d { conv, activation: None, .. } => {
            let problem = Problem::of_kernel::<T>(isa, &kernel_of(conv));
            problem.path == Path::Dense && conv.groups == 1 && is_whole(conv.out_channels)
        }
        Kernel::Conv2dWinograd { activation: None, .. } => true,
        _ => false,
    };
    // portable code rounds a multiply-add twice, the affine kernel once
    fits && isa != Isa::Portable && matches!(activation, None | Some(Activation::Relu))
}

fn kernel_of(conv: &Conv) -> Kernel {
    Kernel::Conv2d { conv: *conv, bias: false, activation: None }
}

/// The scales and shifts of [`Kernel::ConvThen`], each padded to whole vectors; they are packed last.
fn affine_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    match kernel {
        Kernel::ConvThen { conv, affine: true, .. } => {
            2 * geometry(conv).out_channels.next_multiple_of(vector::lanes::<T>(isa))
        }
        _ => 0,
    }
}

fn geometry(kernel: &Kernel) -> &Conv {
    match kernel {
        Kernel::Conv2d { conv, .. }
        | Kernel::Conv2dWinograd { conv, .. }
        | Kernel::Conv2dBackwardInput { conv, .. } => conv,
        Kernel::ConvThen { conv, .. } => geometry(conv),
        _ => panic!("invariant: {} is not a convolution", kernel.name()),
    }
}

pub(crate) fn packed_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    match kernel {
        Kernel::Conv2dWinograd { conv, .. } => winograd::packed_len::<T>(isa, conv),
        Kernel::ConvThen { conv, .. } => packed_len::<T>(isa, conv) + affine_len::<T>(isa, kernel),
        _ => {
            let problem = Problem::of_kernel::<T>(isa, kernel);
            problem.bias_len() + problem.classes().map(|classes| problem.class_len(&classes)).sum::<usize>()
        }
    }
}

pub(crate) fn pack<T: Element>(isa: Isa, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
    assert_eq!(packed.len(), packed_len::<T>(isa, kernel), "{}: length of the packed weight", kernel.name());
    match kernel {
        Kernel::Conv2dWinograd { conv, .. } => winograd::pack(isa, conv, params, packed),
        Kernel::ConvThen { conv, affine, .. } => {
            let own = params.len() - if *affine { 2 } else { 0 };
            let (packed, tail) = packed.split_at_mut(packed.len() - affine_len::<T>(isa, kernel));
            pack(isa, conv, &params[..own], packed);
            tail.fill(T::ZERO);
            let len = tail.len() / 2;
            for (values, packed) in params[own..].iter().zip(tail.chunks_exact_mut(len.max(1))) {
                assert_eq!(values.len(), geometry(conv).out_channels, "{}: scales and shifts", kernel.name());
                packed[..values.len()].copy_from_slice(values);
            }
        }
        _ => pack_sums(isa, kernel, params, packed),
    }
}

fn pack_sums<T: Element>(isa: Isa, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
    let problem = Problem::of_kernel::<T>(isa, kernel);
    let weight = params[0];
    assert_eq!(weight.len(), problem.conv.weight_len(), "{}: length of the weight", kernel.name());
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
    assert_eq!(packed.len(), packed_len::<T>(isa, kernel), "{}: length of the packed weight", kernel.name());
    let (conv, packed, tail) = match kernel {
        Kernel::ConvThen { conv, sum, activation, .. } => {
            assert!(fuses::<T>(isa, kernel), "{kernel:?}");
            let (packed, affine) = packed.split_at(packed.len() - affine_len::<T>(isa, kernel));
            (&**conv, packed, Tail { affine, sum: sum.then(|| inputs[1]), activation: *activation })
        }
        Kernel::Conv2d { activation, .. }
        | Kernel::Conv2dWinograd { activation, .. }
        | Kernel::Conv2dBackwardInput { activation, .. } => {
            (kernel, packed, Tail::of_activation(*activation))
        }
        _ => panic!("invariant: {} is not a convolution", kernel.name()),
    };
    match conv {
        Kernel::Conv2dWinograd { conv, .. } => {
            winograd::compute(isa, conv, tail, packed, inputs[0], output, region);
        }
        _ => {
            let problem = Problem::of_kernel::<T>(isa, conv);
            engine::compute(isa, &problem, tail, packed, inputs[0], output, region);
        }
    }
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
        Kernel::Conv2dWinograd { conv, .. } => winograd::share_of_peak(conv),
        Kernel::ConvThen { conv, .. } => share_of_peak::<T>(isa, conv),
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
