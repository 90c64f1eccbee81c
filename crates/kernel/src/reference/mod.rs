//! The reference backend: naive loops, every operator, every element type.

mod activation;
mod conv2d;
mod elementwise;
mod loss;
mod norm;
mod pad;
mod pool2d;
mod reduce;
mod resize;

use tiled_geometry::{Interval, Region, Window};
use tiled_tensor::{Element, View, ViewMut};

use crate::{Backend, Kernel, Partial, Reduction};

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

    fn fuses(&self, _kernel: &Kernel) -> bool {
        true
    }

    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        mut output: ViewMut<'_, T>,
        region: Region<2>,
    ) {
        if region.is_empty() {
            return;
        }
        require(output.region(), region);
        let out = &mut output;
        match *kernel {
            Kernel::Conv2d { conv, bias, activation } | Kernel::Conv2dWinograd { conv, bias, activation } => {
                let params = conv2d::Params { conv: &conv, weight_and_bias: packed, bias, activation };
                conv2d::forward(&params, inputs[0], out, region);
            }
            Kernel::ConvThen { ref conv, affine, sum, activation } => {
                let tail = if affine { 2 * out.layout().channels() } else { 0 };
                let (packed, tail) = packed.split_at(packed.len() - tail);
                self.compute(conv, packed, &inputs[..1], out.reborrow(), region);
                let other = sum.then(|| inputs[1]);
                norm::affine_sum(tail, other, activation, out, region);
            }
            Kernel::Conv2dBackwardInput { conv, bias, activation } => {
                let params = conv2d::Params { conv: &conv, weight_and_bias: packed, bias, activation };
                conv2d::backward_input(&params, inputs[0], out, region);
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
            Kernel::Concat => elementwise::concat(inputs, out, region),
            Kernel::Slice { begin } => elementwise::slice(begin, inputs[0], out, region),
            Kernel::Resize(resize) => resize::forward(resize, inputs[0], out, region),
            Kernel::ResizeBackward(resize) => resize::backward(resize, inputs[0], out, region),
            Kernel::Pad(padding) => pad::forward(padding, inputs[0], out, region),
            Kernel::PadBackward(padding) => pad::backward(padding, inputs[0], out, region),
            Kernel::ChannelAffine { activation } => {
                norm::channel_affine(packed, activation, inputs[0], out, region);
            }
            Kernel::ChannelCombine => norm::channel_combine(packed, inputs[0], inputs[1], out, region),
            Kernel::Broadcast { scale } => elementwise::broadcast(scale, inputs[0], out, region),
            Kernel::Scatter => elementwise::scatter(packed, inputs[0], out, region),
            Kernel::Dropout { probability, seed } => {
                elementwise::dropout(probability, seed, inputs[0], out, region);
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
                Reduction::Sum => reduce::sum(inputs[0], share, sums),
                Reduction::SquaredError => reduce::squared_error(inputs[0], inputs[1], share, sums),
                Reduction::CrossEntropy => loss::cross_entropy(inputs[0], inputs[1], share, sums),
                Reduction::ConvWeight(_) | Reduction::ImageMax => panic!("{MISMATCH}"),
            },
            _ => panic!("{MISMATCH}"),
        }
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
