//! Everything but convolution.
//!
//! A kernel is a loop over rows of the output ([`band`]); rows are contiguous, so what it does to one is a loop
//! over slices that the compiler vectorises, compiled once per instruction set ([`stamp`]); pixels of
//! a channel block that lie apart are taken as vectors ([`crate::vector`]). Windows whose channel
//! blocks differ are regrouped on the way ([`gather`], [`runs`]).

mod activations;
mod adaptive;
mod arg;
pub(crate) mod arithmetic;
mod band;
mod channel;
pub(crate) mod elementwise;
pub(crate) mod function;
mod gather;
mod gelu;
mod group;
mod local_response;
mod loss;
pub(crate) mod math;
mod movement;
pub(crate) mod nan;
mod pixel;
mod pixel_norm;
mod planes;
mod pool;
mod power_below;
pub(crate) mod powers;
mod reduce;
mod resize;
mod runs;
mod shuffle;
mod softmax;
pub(crate) mod stamp;
mod unmasked;

use tiled_geometry::Region;
use tiled_kernel::{Dropped, Kernel, Params, Partial, Reduction};
use tiled_tensor::{Element, PartMut, View};

pub(crate) use movement::copy;

use crate::Isa;
use crate::vector::Lane;

/// Computes `region` of the output of any kernel but convolution.
pub(crate) fn compute<T: Lane>(
    isa: Isa,
    kernel: &Kernel,
    params: Params<'_, T>,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    match kernel {
        Kernel::MaxPool2d(pool) => pool::maximum(isa, pool, inputs, output, region),
        Kernel::MaxPool2dBackward(pool) => pool::maximum_backward(isa, pool, inputs, output, region),
        Kernel::AvgPool2d(pool) => pool::average(isa, pool, inputs, output, region),
        Kernel::AvgPool2dBackward(pool) => pool::average_backward(isa, pool, inputs, output, region),
        Kernel::Activation(activation) => {
            elementwise::activation(isa, *activation, inputs, output, region);
        }
        Kernel::ActivationBackward(activation) => {
            elementwise::activation_backward(isa, *activation, inputs, output, region);
        }
        Kernel::Add => elementwise::binary(isa, function::Sum, 1, inputs, output, region),
        Kernel::Mul => elementwise::binary(isa, function::Product, 1, inputs, output, region),
        Kernel::Arithmetic { function, operands } => {
            arithmetic::arithmetic(isa, *function, operands, params.packed(), inputs, output, region);
        }
        Kernel::SumChannels => arithmetic::sum_channels(isa, inputs, output, region),
        Kernel::MaxChannels => arithmetic::max_channels(isa, inputs, output, region),
        Kernel::MaxChannelsBackward => arg::max_backward(isa, inputs, output, region),
        Kernel::DifferenceScaled { scale } => {
            let difference = elementwise::DifferenceScaled { scale: T::from_f64(*scale) };
            elementwise::binary(isa, difference, 1, inputs, output, region);
        }
        Kernel::Concat => movement::concat(inputs, output, region),
        Kernel::Slice { begin } => movement::slice(*begin, inputs, output, region),
        Kernel::SliceBackward { begin } => movement::slice_backward(*begin, inputs, output, region),
        Kernel::ChannelShuffle { groups } => shuffle::channels(*groups, inputs, output, region),
        Kernel::PixelShuffle { factor } => shuffle::to_pixels(*factor, inputs, output, region),
        Kernel::PixelUnshuffle { factor } => shuffle::to_channels(*factor, inputs, output, region),
        Kernel::ArgMax => arg::max(isa, inputs, output, region),
        Kernel::AdaptiveAvgPool2d(parts) => adaptive::average(isa, parts, inputs, output, region),
        Kernel::AdaptiveAvgPool2dBackward(parts) => adaptive::average_backward(parts, inputs, output, region),
        Kernel::AdaptiveMaxPool2d(parts) => adaptive::maximum(isa, parts, inputs, output, region),
        Kernel::AdaptiveMaxPool2dBackward(parts) => {
            adaptive::maximum_backward(isa, parts, inputs, output, region);
        }
        Kernel::Resize(resize) => resize::forward(isa, *resize, inputs, output, region),
        Kernel::ResizeBackward(resize) => resize::backward(isa, *resize, inputs, output, region),
        Kernel::Pad(padding) => movement::pad(padding, inputs, output, region),
        Kernel::PadBackward(padding) => movement::pad_backward(isa, padding, inputs, output, region),
        Kernel::PadConstant { before, input, value } => {
            movement::pad_constant(*before, *input, *value, inputs, output, region);
        }
        Kernel::ChannelAffine { activation } => {
            channel::channel_affine(isa, *activation, params.packed(), inputs, output, region);
        }
        Kernel::ChannelCombine => channel::channel_combine(isa, params.packed(), inputs, output, region),
        Kernel::Softmax { log } => softmax::forward(isa, *log, inputs, output, region),
        Kernel::SoftmaxBackward { log } => softmax::backward(isa, *log, inputs, output, region),
        Kernel::PixelNorm(norm) => pixel_norm::forward(isa, norm, inputs, output, region),
        Kernel::PixelNormBackward(norm) => pixel_norm::backward(isa, norm, inputs, output, region),
        Kernel::LocalResponse(local) => local_response::forward(isa, local, inputs, output, region),
        Kernel::LocalResponseBackward(local) => {
            local_response::backward(isa, local, inputs, output, region);
        }
        Kernel::Broadcast { scale } => channel::broadcast(isa, *scale, inputs, output, region),
        Kernel::Scatter => channel::scatter(params.extrema(), inputs, output, region),
        Kernel::Dropout { probability, seed, dropped: Dropped::Elements } => {
            channel::dropout(isa, *probability, *seed, inputs, output, region);
        }
        Kernel::Dropout { probability, seed, dropped } => {
            channel::dropout_channels(isa, *probability, *seed, *dropped, inputs, output, region);
        }
        Kernel::CrossEntropyBackward { scale } => {
            loss::cross_entropy_backward(isa, *scale, inputs, output, region);
        }
        Kernel::Fill { value } => channel::fill(*value, output, region),
        _ => unreachable!("invariant: `{}` is no kernel of this module", kernel.name()),
    }
}

/// Takes a share into the state of any reduction but that of convolution weights.
pub(crate) fn reduce<T: Element>(
    isa: Isa,
    reduction: &Reduction,
    params: &[&[T]],
    inputs: &[View<'_, T>],
    share: Region<2>,
    partial: &mut Partial<T>,
) {
    match partial {
        Partial::Extrema(extrema) => reduce::image_max(isa, inputs, share, extrema),
        Partial::Exact(sums) => reduce::exact(isa, reduction, params, inputs, share, sums),
        Partial::Values(_) => unreachable!("invariant: only convolution weights keep values"),
    }
}
