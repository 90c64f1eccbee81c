//! Random computations of each kind.

mod convolution;
mod draws;

use tiled_geometry::{
    Coordinates, Cubic, Filter, PadMode, Padding, Ratio, Resize, ResizeMode, Rounding, Window,
};
use tiled_kernel::{Activation, Arithmetic, Dropped, Kernel, LocalResponse, PixelNorm, Pool, Spread};
use tiled_tensor::{Element, Tensor};

use super::case::Case;
use super::rng::Rng;
use super::window::extents;

pub(super) use convolution::{
    conv, conv2d, conv2d_backward_input, conv2d_deep, conv2d_epilogue, conv2d_point, conv2d_spread,
    conv2d_winograd, conv2d_winograd_dilated, conv2d_winograd_dilated_epilogue,
};
pub use draws::ACTIVATIONS;
use draws::{batch, channels, from_fn, many_channels, numbers, some_activation, wide_tensor};
pub(super) use draws::{plain_shape, shape, tensor, with_ties};

/// Functions that follow no convolution here: an error before them may be as large after as one likes.
pub const FUNCTIONS: [Activation; 26] = [
    Activation::Clamp { min: -1.5, max: 2.25 },
    Activation::Clamp { min: 0.0, max: f64::INFINITY },
    Activation::Clamp { min: 1.0, max: -1.0 },
    Activation::Clamp { min: -1.0, max: 1.0 },
    Activation::Threshold { threshold: 0.5, value: -3.0 },
    Activation::Elu { alpha: 1.0 },
    Activation::Elu { alpha: -0.75 },
    Activation::Selu,
    Activation::Celu { alpha: 1.5 },
    Activation::Softplus { beta: 1.0, threshold: 20.0 },
    Activation::Softplus { beta: -0.5, threshold: 3.0 },
    Activation::Softsign,
    Activation::Mish,
    Activation::LogSigmoid,
    Activation::Exp,
    Activation::Log,
    Activation::Sqrt,
    Activation::Abs,
    Activation::Neg,
    Activation::Reciprocal,
    Activation::Pow { exponent: 0.0 },
    Activation::Pow { exponent: 2.0 },
    Activation::Pow { exponent: -3.0 },
    Activation::Pow { exponent: 0.5 },
    Activation::Pow { exponent: 2.75 },
    Activation::Pow { exponent: 33.0 },
];

const ARITHMETIC: [Arithmetic; 12] = [
    Arithmetic::Add,
    Arithmetic::Sub,
    Arithmetic::Mul,
    Arithmetic::Div,
    Arithmetic::Minimum,
    Arithmetic::Maximum,
    Arithmetic::Prelu,
    Arithmetic::DivisorBackward,
    Arithmetic::MinimumBackward,
    Arithmetic::MaximumBackward,
    Arithmetic::PreluBackward,
    Arithmetic::PreluSlope,
];

pub(super) fn pool<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let pool = draw_pool(rng, index % 4 < 2);
    let (batch, channels) = (batch(rng), channels(rng));
    let (small, large) = (shape(batch, channels, pool.output), shape(batch, channels, pool.input));
    let (kernel, inputs, output) = match index % 4 {
        0 => (Kernel::MaxPool2d(pool), vec![with_ties(large, rng)], small),
        1 => (Kernel::MaxPool2dBackward(pool), vec![tensor(small, rng), with_ties(large, rng)], large),
        2 => (Kernel::AvgPool2d(pool), vec![tensor(large, rng)], small),
        _ => (Kernel::AvgPool2dBackward(pool), vec![tensor(small, rng)], large),
    };
    Case { kernel, params: Vec::new(), inputs, output }
}

pub(super) fn activation<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let all = ACTIVATIONS.len() + FUNCTIONS.len();
    let function = match index / 2 % all {
        index if index < ACTIVATIONS.len() => ACTIVATIONS[index],
        index => FUNCTIONS[index - ACTIVATIONS.len()],
    };
    let shape = plain_shape(rng);
    let argument = wide_tensor(shape, rng);
    let (kernel, inputs) = if index.is_multiple_of(2) {
        (Kernel::Activation(function), vec![argument])
    } else {
        let saved = if function.differentiates_from_output() {
            let kernel = Kernel::Activation(function);
            Case { kernel, params: Vec::new(), inputs: vec![argument], output: shape }
                .whole(&tiled_kernel::Reference)
        } else {
            argument
        };
        (Kernel::ActivationBackward(function), vec![tensor(shape, rng), saved])
    };
    Case { kernel, params: Vec::new(), inputs, output: shape }
}

pub(super) fn elementwise<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let output = plain_shape(rng);
    let [batch, channels, height, width] = output;
    let (kernel, inputs) = match index % 10 {
        0 => (Kernel::Add, vec![tensor(output, rng), tensor(output, rng)]),
        1 => (Kernel::Mul, vec![tensor(output, rng), tensor(output, rng)]),
        2 => return concat(rng),
        3 => {
            let begin = if rng.chance(50) { rng.pick(&[0, 8, 16]) } else { rng.index(0, 17) };
            let held = [batch, begin + channels + rng.index(0, 9), height, width];
            (Kernel::Slice { begin }, vec![tensor(held, rng)])
        }
        4 => (Kernel::Broadcast { scale: 1.0 / 3.0 }, vec![tensor([batch, channels, 1, 1], rng)]),
        5 => {
            let kernel = Kernel::Dropout {
                probability: rng.pick(&[0.0, 0.3, 0.9]),
                seed: rng.next_u64(),
                dropped: Dropped::Elements,
            };
            (kernel, vec![tensor(output, rng)])
        }
        8 => {
            let kernel = Kernel::Dropout {
                probability: rng.pick(&[0.3, 0.6]),
                seed: rng.next_u64(),
                dropped: rng.pick(&[Dropped::Channels, Dropped::Images, Dropped::Batch]),
            };
            (kernel, vec![tensor(output, rng)])
        }
        9 => {
            let input = tensor(output, rng);
            let output = [batch, 1, height, width];
            return Case { kernel: Kernel::SumChannels, params: Vec::new(), inputs: vec![input], output };
        }
        6 => {
            let kernel = Kernel::DifferenceScaled { scale: rng.uniform(-2.0, 2.0) };
            (kernel, vec![tensor(output, rng), tensor(output, rng)])
        }
        _ => (Kernel::Fill { value: rng.uniform(-2.0, 2.0) }, Vec::new()),
    };
    Case { kernel, params: Vec::new(), inputs, output }
}

/// A function of operands that are spread in every way.
pub(super) fn arithmetic<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let function = ARITHMETIC[index % ARITHMETIC.len()];
    let output = plain_shape(rng);
    let [batch, channels, height, width] = output;
    let (mut params, mut inputs) = (Vec::new(), Vec::new());
    // few different numbers, so that there are ties
    let values = |shape: [usize; 4], rng: &mut Rng| {
        if rng.chance(50) { tensor(shape, rng) } else { with_ties(shape, rng) }
    };
    let operands = [0, 1, 2].map(|place| {
        if place >= function.arity() {
            return Spread::Whole;
        }
        let spread = match rng.index(0, 9) {
            0..=3 => Spread::Whole,
            4 | 5 => Spread::Pixel,
            6 | 7 => Spread::Plane,
            8 if params.is_empty() => Spread::Channel,
            _ => Spread::Number(rng.pick(&[-1.75, 0.5, 3.0])),
        };
        match spread {
            Spread::Whole => inputs.push(values(output, rng)),
            Spread::Pixel => {
                let channels = if rng.chance(80) { channels } else { 1 };
                inputs.push(values([batch, channels, 1, 1], rng));
            }
            Spread::Plane => inputs.push(values([batch, 1, height, width], rng)),
            Spread::Channel => params.push(numbers(if rng.chance(70) { channels } else { 1 }, rng)),
            Spread::Number(_) => {}
        }
        spread
    });
    Case { kernel: Kernel::Arithmetic { function, operands }, params, inputs, output }
}

fn concat<T: Element>(rng: &mut Rng) -> Case<T> {
    let [batch, _, height, width] = plain_shape(rng);
    let are_blocks = rng.chance(50);
    let mut of_one = || {
        let channels = if are_blocks { rng.pick(&[8, 16, 24]) } else { channels(rng) };
        tensor([batch, channels, height, width], rng)
    };
    let mut inputs: Vec<Tensor<T>> = vec![of_one(), of_one()];
    if rng.chance(50) {
        inputs.push(tensor([batch, channels(rng), height, width], rng));
    }
    let sum = inputs.iter().map(|input| input.shape()[1]).sum();
    Case { kernel: Kernel::Concat, params: Vec::new(), inputs, output: [batch, sum, height, width] }
}

pub(super) fn norm<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let shape = plain_shape(rng);
    // for each channel, or for each of each image
    let len = if rng.chance(50) { shape[1] } else { shape[0] * shape[1] };
    let mut param = || numbers(len, rng);
    if index.is_multiple_of(2) {
        let params = vec![param(), param()];
        let activation = some_activation(rng);
        let kernel = Kernel::ChannelAffine { activation };
        Case { kernel, params, inputs: vec![tensor(shape, rng)], output: shape }
    } else {
        let params = vec![param(), param(), param()];
        let inputs = vec![tensor(shape, rng), tensor(shape, rng)];
        Case { kernel: Kernel::ChannelCombine, params, inputs, output: shape }
    }
}

pub(super) fn pixel<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let shape = if rng.chance(25) { many_channels(rng) } else { plain_shape(rng) };
    let log = rng.chance(50);
    let norm = PixelNorm { eps: rng.pick(&[1e-5, 1e-2]), centred: rng.chance(60) };
    let local = LocalResponse {
        size: rng.pick(&[1, 2, 3, 4, 5, 5, 9, 40]),
        alpha: rng.pick(&[0.0, 1e-4, 1.0, 3.0]),
        beta: rng.pick(&[0.5, 0.75, 0.75, 1.0, 2.3]),
        k: rng.pick(&[1.0, 2.0, 0.25]),
    };
    let (kernel, inputs) = match index % 8 {
        0 => (Kernel::Softmax { log }, vec![wide_tensor(shape, rng)]),
        1 => {
            let argument = wide_tensor(shape, rng);
            let forward = Kernel::Softmax { log };
            let saved = Case { kernel: forward, params: Vec::new(), inputs: vec![argument], output: shape }
                .whole(&tiled_kernel::Reference);
            (Kernel::SoftmaxBackward { log }, vec![tensor(shape, rng), saved])
        }
        2 | 3 => (Kernel::PixelNorm(norm), vec![tensor(shape, rng)]),
        4 | 5 => (Kernel::PixelNormBackward(norm), vec![tensor(shape, rng), tensor(shape, rng)]),
        6 => (Kernel::LocalResponse(local), vec![wide_tensor(shape, rng)]),
        _ => (Kernel::LocalResponseBackward(local), vec![tensor(shape, rng), wide_tensor(shape, rng)]),
    };
    Case { kernel, params: Vec::new(), inputs, output: shape }
}

pub(super) fn resize<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    const COORDINATES: [Coordinates; 5] = [
        Coordinates::HalfPixel,
        Coordinates::AlignCorners,
        Coordinates::Asymmetric,
        Coordinates::HalfPixelSymmetric,
        Coordinates::HalfPixelOfSeveral,
    ];
    let cubic = Cubic { slope_thousandths: rng.pick(&[-750, -500]), drops_outside: rng.chance(30) };
    let rounding = rng.pick(&[Rounding::Floor, Rounding::Ceil, Rounding::HalfDown, Rounding::HalfUp]);
    let filter = [Filter::Nearest(rounding), Filter::Linear, Filter::Cubic(cubic)][index / 2 % 3];
    let mode = ResizeMode { filter, coordinates: rng.pick(&COORDINATES) };
    let resize = [(); 2].map(|()| {
        let input = rng.range(1, 13);
        let output = if rng.chance(40) { 2 * input } else { rng.range(1, 30) };
        let scale = Ratio::new(rng.range(1, 12), rng.range(2, 5)).expect("positive numbers");
        match scale.of(input) {
            Some(output @ 1..) if rng.chance(30) => Resize::with_scale(mode, input, output, scale),
            _ => Resize::new(mode, input, output),
        }
        .expect("positive extents")
    });
    let (batch, channels) = (batch(rng), channels(rng));
    let small = shape(batch, channels, resize.map(Resize::input));
    let large = shape(batch, channels, resize.map(Resize::output));
    let (kernel, input, output) = if index.is_multiple_of(2) {
        (Kernel::Resize(resize), small, large)
    } else {
        (Kernel::ResizeBackward(resize), large, small)
    };
    Case { kernel, params: Vec::new(), inputs: vec![tensor(input, rng)], output }
}

pub(super) fn adaptive<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let parts = [(); 2].map(|()| {
        let input = rng.range(1, 30);
        let output = if rng.chance(20) { input } else { rng.range(1, 9) };
        Resize::new(ResizeMode::AREA, input, output).expect("positive extents")
    });
    let (batch, channels) = (batch(rng), channels(rng));
    let large = shape(batch, channels, parts.map(Resize::input));
    let small = shape(batch, channels, parts.map(Resize::output));
    let (kernel, inputs, output) = match index % 4 {
        0 => (Kernel::AdaptiveAvgPool2d(parts), vec![tensor(large, rng)], small),
        1 => (Kernel::AdaptiveAvgPool2dBackward(parts), vec![tensor(small, rng)], large),
        2 => (Kernel::AdaptiveMaxPool2d(parts), vec![with_ties(large, rng)], small),
        _ => {
            let inputs = vec![tensor(small, rng), with_ties(large, rng)];
            (Kernel::AdaptiveMaxPool2dBackward(parts), inputs, large)
        }
    };
    Case { kernel, params: Vec::new(), inputs, output }
}

pub(super) fn pad<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let mode = [PadMode::Reflect, PadMode::Replicate, PadMode::Circular][index / 2 % 3];
    let padding = [(); 2].map(|()| {
        let extent = rng.range(1, 14);
        let most = match mode {
            PadMode::Reflect => (extent - 1).min(5),
            PadMode::Replicate => 5,
            PadMode::Circular => extent.min(5),
        };
        Padding::new(mode, extent, rng.range(0, most), rng.range(0, most)).expect("fits the mode")
    });
    let (batch, channels) = (batch(rng), channels(rng));
    let small = shape(batch, channels, padding.map(Padding::input));
    let large = shape(batch, channels, padding.map(Padding::output));
    let (kernel, input, output) = if index.is_multiple_of(2) {
        (Kernel::Pad(padding), small, large)
    } else {
        (Kernel::PadBackward(padding), large, small)
    };
    Case { kernel, params: Vec::new(), inputs: vec![tensor(input, rng)], output }
}

/// Moves between channels and pixels, with their gradients, padding with a constant, crops, and the largest channel with that of its value.
pub(super) fn movement<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let [batch, channels, height, width] = plain_shape(rng);
    let factor = if rng.chance(60) { [rng.range(1, 4); 2] } else { [rng.range(1, 5), rng.range(1, 9)] };
    let [r, s] = factor.map(|factor| usize::try_from(factor).expect("a small factor"));
    let (kernel, input, output) = match index % 8 {
        0 => {
            let begin = rng.index(0, 17);
            let wide = [batch, begin + channels + rng.index(0, 9), height, width];
            (Kernel::SliceBackward { begin }, tensor([batch, channels, height, width], rng), wide)
        }
        1 => {
            let groups = rng.index(1, 6);
            let shape = [batch, groups * rng.index(1, 7), height, width];
            (Kernel::ChannelShuffle { groups }, tensor(shape, rng), shape)
        }
        2 | 3 => {
            let each = rng.index(1, 9);
            let (many, large) =
                ([batch, each * r * s, height, width.min(9)], [batch, each, height * r, width.min(9) * s]);
            match index % 8 {
                2 => (Kernel::PixelShuffle { factor }, tensor(many, rng), large),
                _ => (Kernel::PixelUnshuffle { factor }, tensor(large, rng), many),
            }
        }
        4 => {
            let shape = [batch, channels, height, width];
            let input = extents(shape);
            let (before, after) =
                ([rng.range(-4, 4), rng.range(-9, 9)], [rng.range(-4, 4), rng.range(-9, 9)]);
            let output = [0, 1].map(|axis| (input[axis] + before[axis] + after[axis]).max(1));
            let kernel = Kernel::PadConstant { before, input, value: rng.uniform(-2.0, 2.0) };
            (kernel, tensor(shape, rng), self::shape(batch, channels, output))
        }
        5 => {
            let shape = [batch, channels, height, width];
            (Kernel::ArgMax, with_ties(shape, rng), [batch, 1, height, width])
        }
        6 => {
            let shape = [batch, channels, height, width];
            (Kernel::MaxChannels, with_ties(shape, rng), [batch, 1, height, width])
        }
        _ => {
            let (shape, one) = ([batch, channels, height, width], [batch, 1, height, width]);
            let inputs = vec![tensor(one, rng), with_ties(shape, rng)];
            return Case { kernel: Kernel::MaxChannelsBackward, params: Vec::new(), inputs, output: shape };
        }
    };
    Case { kernel, params: Vec::new(), inputs: vec![input], output }
}

pub(super) fn loss<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
    let shape = if rng.chance(25) { many_channels(rng) } else { plain_shape(rng) };
    let inputs = vec![wide_tensor(shape, rng), target(shape, rng)];
    let kernel = Kernel::CrossEntropyBackward { scale: rng.uniform(0.1, 2.0) };
    Case { kernel, params: Vec::new(), inputs, output: shape }
}

/// Classes, some ignored, or probabilities.
pub(super) fn target<T: Element>([batch, channels, height, width]: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    if channels > 1 && rng.chance(40) {
        return from_fn([batch, channels, height, width], || rng.unit());
    }
    let last = i32::try_from(channels).expect("few channels") - 1;
    from_fn([batch, 1, height, width], || {
        let class = i32::try_from(rng.range(-1, last.into())).expect("few channels");
        f64::from(class)
    })
}

fn draw_pool(rng: &mut Rng, is_max: bool) -> Pool {
    loop {
        let windows = [(); 2].map(|()| {
            // now and then larger than what a backend has loops for
            let kernel = if rng.chance(4) { rng.range(9, 36) } else { rng.pick(&[1, 2, 2, 3, 3, 4, 5]) };
            let stride = if rng.chance(50) { kernel } else { rng.range(1, 4) };
            let dilation = if is_max { rng.pick(&[1, 1, 2, 3]) } else { 1 };
            Window::new(kernel, stride, dilation, rng.range(0, kernel / 2)).expect("positive sizes")
        });
        let large = windows.map(|window| if window.kernel() > 5 { window.kernel() } else { 0 });
        let input = [large[0] + rng.range(1, 14), large[1] + rng.range(1, 24)];
        let ceil = rng.chance(40);
        let is_even = rng.chance(70);
        let padding_after = windows.map(|window| match window.padding() {
            padding if is_even => padding,
            _ => rng.range(0, window.kernel() / 2),
        });
        let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], padding_after[axis], ceil));
        if !output.contains(&0) {
            return Pool { windows, padding_after, input, output, counts_padding: rng.chance(50) };
        }
    }
}
