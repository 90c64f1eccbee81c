//! Convolution: forward, gradient for the input, gradient for the weights.
//!
//! Forward and the gradient for the input are one computation over classes of pixels ([`class`]), carried out
//! by one of four families of kernels ([`problem::Path`]). Winograd's filtering ([`winograd`]) is apart from them. Weights are packed once, in the order of summation.

mod activated;
mod class;
mod columns;
mod cut;
mod dense;
mod dot;
mod lanes;
mod limits;
mod loops;
mod planar;
mod point;
mod problem;
mod rows;
mod source;
mod tail;
mod terms;
mod tile;
mod weight;
mod winograd;

use tiled_geometry::Region;
use tiled_kernel::{Activation, Algorithm, Conv, Epilogue, Kernel, Workspace};
use tiled_tensor::{Element, PartMut, View};

use crate::vector::Lane;
use crate::{Isa, vector};
use problem::{Path, Problem};
use tail::Tail;

pub(crate) fn block<T: Element>(isa: Isa, channels: usize) -> usize {
    problem::block(vector::lanes::<T>(isa), channels)
}

/// The elements that a thread needs while it carries out a kernel.
pub(crate) fn workspace_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    match kernel {
        Kernel::Conv2d { conv, algorithm: Algorithm::Winograd, .. } => {
            winograd::Problem::new::<T>(isa, conv).workspace_len::<T>()
        }
        _ => 0,
    }
}

/// Whether a kernel is carried out with its epilogue. What has operands of its own is applied in registers: where vectors are
/// whole blocks of the output.
pub(crate) fn supports<T: Element>(isa: Isa, kernel: &Kernel) -> bool {
    let (conv, epilogue) = parts(kernel);
    let algorithm = match kernel {
        Kernel::Conv2d { algorithm, .. } => *algorithm,
        _ => Algorithm::Direct,
    };
    if algorithm == Algorithm::Winograd && !conv.suits_winograd() {
        return false;
    }
    if !epilogue.has_operands() {
        return true;
    }
    let in_blocks = match algorithm {
        Algorithm::Direct => {
            let problem = Problem::of_kernel::<T>(isa, kernel);
            let in_blocks = block::<T>(isa, problem.outputs()) > 1;
            // what no tap reaches is written apart
            let whole = problem.path == Path::Lanes || problem.path == Path::Dense && conv.groups == 1;
            whole && in_blocks && !problem.leaves_gaps()
        }
        Algorithm::Winograd => true,
    };
    // portable code rounds a multiply-add twice, the affine kernel once
    let rounds_alike = isa != Isa::Portable || !epilogue.affine;
    let of_relu = |function: Option<Activation>| function.is_none_or(|function| function == Activation::Relu);
    // other functions come after all else
    let in_order = epilogue.mask.is_none() || of_relu(epilogue.activation) && of_relu(epilogue.mask);
    in_blocks && rounds_alike && in_order
}

/// The geometry and what follows the sums.
fn parts(kernel: &Kernel) -> (&Conv, &Epilogue) {
    match kernel {
        Kernel::Conv2d { conv, epilogue, .. } | Kernel::Conv2dBackwardInput { conv, epilogue } => {
            (conv, epilogue)
        }
        _ => panic!("invariant: {} is not a convolution", kernel.name()),
    }
}

/// The factors of the epilogue and what is added to their products, each padded to whole vectors; they are packed last.
fn affine_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    let lanes = vector::lanes::<T>(isa);
    if parts(kernel).1.affine { 2 * outputs(kernel).next_multiple_of(lanes) } else { 0 }
}

/// The channels of what a kernel gives.
fn outputs(kernel: &Kernel) -> usize {
    match kernel {
        Kernel::Conv2dBackwardInput { conv, .. } => conv.in_channels,
        _ => parts(kernel).0.out_channels,
    }
}

pub(crate) fn packed_len<T: Element>(isa: Isa, kernel: &Kernel) -> usize {
    let sums = match kernel {
        Kernel::Conv2d { conv, algorithm: Algorithm::Winograd, .. } => winograd::packed_len::<T>(isa, conv),
        _ => Problem::of_kernel::<T>(isa, kernel).packed_len(),
    };
    sums + affine_len::<T>(isa, kernel)
}

pub(crate) fn pack<T: Element>(isa: Isa, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
    assert_eq!(packed.len(), packed_len::<T>(isa, kernel), "{}: length of the packed weight", kernel.name());
    let (conv, epilogue) = parts(kernel);
    let (params, affine) = params.split_at(params.len() - if epilogue.affine { 2 } else { 0 });
    let (packed, tail) = packed.split_at_mut(packed.len() - affine_len::<T>(isa, kernel));
    match kernel {
        Kernel::Conv2d { algorithm: Algorithm::Winograd, .. } => winograd::pack(isa, conv, params, packed),
        _ => pack_sums(isa, kernel, params, packed),
    }
    tail.fill(T::ZERO);
    let len = tail.len() / 2;
    for (values, packed) in affine.iter().zip(tail.chunks_exact_mut(len.max(1))) {
        assert_eq!(values.len(), outputs(kernel), "{}: factors of the channels", kernel.name());
        packed[..values.len()].copy_from_slice(values);
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

pub(crate) fn compute<T: Lane>(
    isa: Isa,
    kernel: &Kernel,
    packed: &[T],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
    workspace: &Workspace<T>,
) {
    let (conv, epilogue) = parts(kernel);
    assert!(supports::<T>(isa, kernel), "{kernel:?}");
    let (packed, affine) = packed.split_at(packed.len().saturating_sub(affine_len::<T>(isa, kernel)));
    let check = |len: usize| {
        assert_eq!(packed.len(), len, "{}: length of the packed weight", kernel.name());
    };
    let mut others = inputs[1..].iter().copied();
    let sum = if epilogue.sum { others.next() } else { None };
    let tail = Tail { affine, sum, activation: epilogue.activation, mask: epilogue.mask.and(others.next()) };
    match kernel {
        Kernel::Conv2d { algorithm: Algorithm::Winograd, .. } => {
            check(winograd::packed_len::<T>(isa, conv));
            let problem = winograd::Problem::new::<T>(isa, conv);
            winograd::compute(problem, tail, packed, inputs[0], output, region, workspace);
        }
        _ => {
            let problem = Problem::of_kernel::<T>(isa, kernel);
            check(problem.packed_len());
            loops::compute(isa, &problem, tail, packed, inputs[0], output, region);
        }
    }
}

pub(crate) fn partial_len<T: Element>(isa: Isa, conv: &Conv) -> usize {
    let problem = Problem::for_weights::<T>(isa, conv);
    problem.classes().map(|classes| problem.class_len(&classes)).sum()
}

pub(crate) fn reduce_weight<T: Lane>(
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
/// since its columns are then copied, for planes channel by channel. What is added to it comes in blocks.
pub(crate) fn reads_planes<T: Element>(isa: Isa, kernel: &Kernel) -> bool {
    let Kernel::Conv2d { conv, algorithm: Algorithm::Direct, epilogue } = kernel else { return false };
    let problem = Problem::of_kernel::<T>(isa, kernel);
    let [_, cols] = conv.windows;
    let is_fast = problem.path == Path::Dense && cols.padding() == 0 && cols.stride() <= 2;
    is_fast && !epilogue.has_operands()
}

/// The same for the gradient for the weights: the inputs, but not the gradients, which are read as vectors.
pub(crate) fn reduces_planes<T: Element>(isa: Isa, conv: &Conv) -> bool {
    let is_dense = Problem::for_weights::<T>(isa, conv).path == Path::Dense;
    is_dense && conv.windows[1].padding() == 0
}

/// Whether a convolution writes planes from registers: vectors of channels whose pixels lie side by side.
pub(crate) fn writes_planes<T: Element>(isa: Isa, kernel: &Kernel) -> bool {
    let (conv, epilogue) = match kernel {
        Kernel::Conv2d { algorithm: Algorithm::Winograd, .. } => return false,
        _ => parts(kernel),
    };
    if epilogue.has_operands() {
        return false;
    }
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
    if let Kernel::Conv2d { conv, algorithm: Algorithm::Winograd, .. } = kernel {
        return winograd::share_of_peak(conv);
    }
    let problem = Problem::of_kernel::<T>(isa, kernel);
    match problem.path {
        Path::Dense if problem.run < 8 => 0.75,
        Path::Dense => 0.93,
        Path::Dot => 0.50,
        Path::Lanes => lanes::share_of_peak(&problem),
        Path::Planar => 0.13,
    }
}

/// The same for the gradient for the weights.
pub(crate) fn weight_share_of_peak<T: Element>(isa: Isa, conv: &Conv) -> f64 {
    let problem = Problem::for_weights::<T>(isa, conv);
    match problem.path {
        Path::Dense if problem.run < 8 => 0.60,
        Path::Dense => 0.88,
        Path::Dot => 0.45,
        Path::Lanes => lanes::weight_share_of_peak(&problem),
        Path::Planar => 0.04,
    }
}
