//! The reference backend: naive loops, every operator, every element type.

pub(crate) mod activation;
mod adaptive;
mod arithmetic;
mod conv2d;
mod elementwise;
mod loss;
mod movement;
mod norm;
mod pad;
mod pixel;
mod pool2d;
mod reduce;
mod resize;

use tiled_geometry::{Interval, Region, Window};
use tiled_tensor::{Element, PartMut, View, ViewMut};

use crate::host::{copy_region, open, pack_plainly};
use crate::{
    Backend, Context, Costs, DeviceError, Host, Kernel, Load, Needs, Operands, Params, Partial, Reduction,
    Support, Task, Work, Workspace,
};

/// Naive loops over [`View::get`] and [`ViewMut::set`]: the oracle of every other backend.
///
/// Windows may have any channel block. Sums run over taps in row-major order, channels outermost, with a
/// rounding after each product and each sum. Functions of one element (activations, softmax) are computed in
/// `f64` and rounded once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl<T: Element> Backend<T> for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn block(&self, _channels: usize) -> usize {
        1
    }

    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support> {
        let mut support = Support::PLAIN;
        match work {
            Work::Map(_) => support.packed_bytes = operands.params.iter().sum::<usize>() * size_of::<T>(),
            Work::Reduce(reduction) => {
                let weights = match reduction {
                    Reduction::ConvWeight(conv) => conv.weight_len() * size_of::<T>(),
                    _ => 0,
                };
                support.partial_bytes =
                    reduction.partial_bytes::<T>(operands.batch, operands.channels, weights);
            }
        }
        if work.is_convolution() {
            support.flops_per_second = Some(Costs::default().flops);
        }
        Some(support)
    }

    fn transfers_beside(&self) -> bool {
        false
    }

    fn workers(&self, threads: usize) -> usize {
        threads
    }

    fn seconds(&self, task: Task<'_>, load: &Load) -> f64 {
        Costs::default().seconds(task, load)
    }

    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'b>, DeviceError> {
        open(self, needs)
    }
}

impl<T: Element> Host<T> for Reference {
    fn pack(&self, _kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        pack_plainly(params, packed);
    }

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        mut output: ViewMut<'_, T>,
        region: Region<2>,
        _workspace: &Workspace<T>,
    ) {
        if region.is_empty() {
            return;
        }
        require(output.region(), region);
        let out = &mut output;
        match *kernel {
            Kernel::Conv2d { conv, epilogue, .. } => {
                let sums = conv2d::Params::new(&conv, conv.out_channels, params.packed(), epilogue);
                conv2d::forward(&sums, inputs, out, region);
            }
            Kernel::Conv2dBackwardInput { conv, epilogue } => {
                let sums = conv2d::Params::new(&conv, conv.in_channels, params.packed(), epilogue);
                conv2d::backward_input(&sums, inputs, out, region);
            }
            Kernel::MaxPool2d(pool) => pool2d::max(&pool, inputs[0], out, region),
            Kernel::MaxPool2dBackward(pool) => {
                pool2d::max_backward(&pool, inputs[0], inputs[1], out, region);
            }
            Kernel::AvgPool2d(pool) => pool2d::average(&pool, inputs[0], out, region),
            Kernel::AvgPool2dBackward(pool) => pool2d::average_backward(&pool, inputs[0], out, region),
            Kernel::Activation(activation) => elementwise::activation(activation, inputs[0], out, region),
            Kernel::ActivationBackward(activation) => {
                elementwise::activation_backward(activation, inputs[0], inputs[1], out, region);
            }
            Kernel::Add => elementwise::zip(inputs[0], inputs[1], out, region, |a, b| a + b),
            Kernel::Mul => elementwise::zip(inputs[0], inputs[1], out, region, |a, b| a * b),
            Kernel::Arithmetic { function, operands } => {
                arithmetic::arithmetic(function, operands, params.packed(), inputs, out, region);
            }
            Kernel::SumChannels => arithmetic::sum_channels(inputs[0], out, region),
            Kernel::MaxChannels => elementwise::max_channels(inputs[0], out, region),
            Kernel::MaxChannelsBackward => {
                elementwise::max_channels_backward(inputs[0], inputs[1], out, region);
            }
            Kernel::Concat => elementwise::concat(inputs, out, region),
            Kernel::Slice { begin } => elementwise::slice(begin, inputs[0], out, region),
            Kernel::SliceBackward { begin } => movement::slice_backward(begin, inputs[0], out, region),
            Kernel::ChannelShuffle { groups } => movement::channel_shuffle(groups, inputs[0], out, region),
            Kernel::PixelShuffle { factor } => movement::pixel_shuffle(factor, inputs[0], out, region),
            Kernel::PixelUnshuffle { factor } => movement::pixel_unshuffle(factor, inputs[0], out, region),
            Kernel::ArgMax => elementwise::arg_max(inputs[0], out, region),
            Kernel::AdaptiveAvgPool2d(parts) => adaptive::average(parts, inputs[0], out, region),
            Kernel::AdaptiveAvgPool2dBackward(parts) => {
                adaptive::average_backward(parts, inputs[0], out, region);
            }
            Kernel::AdaptiveMaxPool2d(parts) => adaptive::max(parts, inputs[0], out, region),
            Kernel::AdaptiveMaxPool2dBackward(parts) => {
                adaptive::max_backward(parts, inputs[0], inputs[1], out, region);
            }
            Kernel::Resize(resize) => resize::forward(resize, inputs[0], out, region),
            Kernel::ResizeBackward(resize) => resize::backward(resize, inputs[0], out, region),
            Kernel::Pad(padding) => pad::forward(padding, inputs[0], out, region),
            Kernel::PadBackward(padding) => pad::backward(padding, inputs[0], out, region),
            Kernel::PadConstant { before, input, value } => {
                movement::pad_constant(before, input, value, inputs[0], out, region);
            }
            Kernel::ChannelAffine { activation } => {
                norm::channel_affine(params.packed(), activation, inputs[0], out, region);
            }
            Kernel::ChannelCombine => {
                norm::channel_combine(params.packed(), inputs[0], inputs[1], out, region)
            }
            Kernel::Softmax { log } => pixel::softmax(log, inputs[0], out, region),
            Kernel::SoftmaxBackward { log } => {
                pixel::softmax_backward(log, inputs[0], inputs[1], out, region)
            }
            Kernel::PixelNorm(norm) => pixel::norm(&norm, inputs[0], out, region),
            Kernel::PixelNormBackward(norm) => {
                pixel::norm_backward(&norm, inputs[0], inputs[1], out, region);
            }
            Kernel::LocalResponse(local) => pixel::local_response(&local, inputs[0], out, region),
            Kernel::LocalResponseBackward(local) => {
                pixel::local_response_backward(&local, inputs[0], inputs[1], out, region);
            }
            Kernel::Broadcast { scale } => elementwise::broadcast(scale, inputs[0], out, region),
            Kernel::Scatter => elementwise::scatter(params.extrema(), inputs[0], out, region),
            Kernel::Dropout { probability, seed, dropped } => {
                elementwise::dropout(probability, seed, dropped, inputs[0], out, region);
            }
            Kernel::DifferenceScaled { scale } => {
                let scale = T::from_f64(scale);
                elementwise::zip(inputs[0], inputs[1], out, region, |p, t| (p - t) * scale);
            }
            Kernel::CrossEntropyBackward { scale } => {
                loss::cross_entropy_backward(scale, inputs[0], inputs[1], out, region);
            }
            Kernel::Fill { value } => fill(out, region, |_, _, _, _| T::from_f64(value)),
        }
    }

    fn compute_part(
        &self,
        kernel: &Kernel,
        _params: Params<'_, T>,
        _inputs: &[View<'_, T>],
        _output: PartMut<'_, T>,
        _region: Region<2>,
        _workspace: &Workspace<T>,
    ) {
        panic!("invariant: {} writes no parts of windows", kernel.name());
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        if share.is_empty() {
            return;
        }
        match (reduction, partial) {
            (Reduction::ConvWeight(conv), Partial::Values(values)) => {
                conv2d::backward_weight(conv, inputs[0], inputs[1], share, values);
            }
            (Reduction::ImageMax, Partial::Extrema(extrema)) => {
                reduce::image_max(inputs[0], share, extrema);
            }
            (reduction, Partial::Exact(sums)) => match reduction {
                Reduction::ChannelSum => reduce::channel_sum(inputs[0], share, sums),
                Reduction::ImageSum => reduce::image_sum(inputs[0], share, sums),
                Reduction::Moments => reduce::moments(inputs[0], share, sums),
                Reduction::CentredDot => reduce::centred_dot(params[0], inputs[0], inputs[1], share, sums),
                Reduction::ChannelDot => reduce::channel_dot(inputs[0], inputs[1], share, sums),
                Reduction::ImageMoments => reduce::image_moments(inputs[0], share, sums),
                Reduction::ImageCentredDot => {
                    reduce::image_centred_dot(params[0], inputs[0], inputs[1], share, sums);
                }
                Reduction::Sum => reduce::sum(inputs[0], share, sums),
                Reduction::SquaredError => reduce::squared_error(inputs[0], inputs[1], share, sums),
                Reduction::CrossEntropy => loss::cross_entropy(inputs[0], inputs[1], share, sums),
                Reduction::ConvWeight(_) | Reduction::ImageMax => panic!("{MISMATCH}"),
            },
            _ => panic!("{MISMATCH}"),
        }
    }

    fn unpack(&self, _reduction: &Reduction, values: &[T], result: &mut [T]) {
        result.copy_from_slice(values);
    }

    fn copy(&self, from: &View<'_, T>, mut to: ViewMut<'_, T>, region: Region<2>) {
        copy_region(from, &mut to, region);
    }
}

const MISMATCH: &str = "invariant: the state belongs to the reduction";

/// Writes `f(n, c, y, x)` to every element of the region.
fn fill<T: Element>(
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
    mut f: impl FnMut(usize, usize, i64, i64) -> T,
) {
    let (batch, channels) = (output.layout().batch(), output.layout().channels());
    visit(batch, channels, region, |n, c, y, x| output.set(n, c, y, x, f(n, c, y, x)));
}

/// Calls `f(n, c, y, x)` for every element of the region, in row-major order.
fn visit(batch: usize, channels: usize, region: Region<2>, mut f: impl FnMut(usize, usize, i64, i64)) {
    for n in 0..batch {
        for c in 0..channels {
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    f(n, c, y, x);
                }
            }
        }
    }
}

fn require(held: Region<2>, needed: Region<2>) {
    assert!(held.contains_region(needed), "window holds {held}, needed {needed}");
}

/// Inputs that output `o` reads, one for each tap.
fn taps(window: Window, o: i64) -> impl Iterator<Item = i64> + Clone {
    (0..window.kernel()).map(move |t| o * window.stride() - window.padding() + window.dilation() * t)
}

/// For each tap, the output that reads input `i` through it, if any.
fn readers(window: Window, outputs: i64, i: i64) -> impl Iterator<Item = Option<i64>> + Clone {
    (0..window.kernel()).map(move |t| {
        let scaled = i + window.padding() - window.dilation() * t;
        let o = scaled.div_euclid(window.stride());
        (scaled.rem_euclid(window.stride()) == 0 && (0..outputs).contains(&o)).then_some(o)
    })
}

/// Inputs that the outputs of a region read, clipped to the tensor.
fn receptive(windows: [Window; 2], extents: [i64; 2], region: Region<2>) -> Region<2> {
    map(extents, region, |axis, wanted| windows[axis].receptive(wanted))
}

/// Outputs that read the inputs of a region, clipped to the tensor.
fn touched(windows: [Window; 2], extents: [i64; 2], region: Region<2>) -> Region<2> {
    map(extents, region, |axis, wanted| windows[axis].touched(wanted))
}

fn map(extents: [i64; 2], region: Region<2>, f: impl Fn(usize, Interval) -> Interval) -> Region<2> {
    Region::new([f(0, region.rows()), f(1, region.cols())]).intersect(Region::whole(extents))
}
