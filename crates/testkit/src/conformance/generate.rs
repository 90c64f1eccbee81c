//! Random computations of each kind.
//!
//! Longer than other files: a generator for each kind of work, all of them over the same few draws at its end.

use tiled_geometry::{
    Coordinates, Cubic, Filter, PadMode, Padding, Ratio, Resize, ResizeMode, Rounding, Window,
};
use tiled_kernel::{
    Activation, Algorithm, Arithmetic, Conv, Dropped, Epilogue, Kernel, LocalResponse, PixelNorm, Pool,
    Spread,
};
use tiled_tensor::{Element, Tensor};

use super::case::{Case, map_tensor};
use super::rng::Rng;
use super::window::extents;

/// Functions that may follow a convolution.
pub const ACTIVATIONS: [Activation; 11] = [
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.01 },
    Activation::LeakyRelu { slope: -0.25 },
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Clamp { min: 0.0, max: 6.0 },
    Activation::HardSigmoid,
    Activation::HardSwish,
];

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

/// Multiply-adds of a case, so that naive loops take milliseconds.
const MOST_WORK: usize = 400_000;

pub(super) fn conv2d<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
    let (conv, batch) = conv(rng);
    let (bias, activation) = (rng.chance(60), some_activation(rng));
    Case {
        kernel: Kernel::conv2d(conv, Epilogue::of_bias(bias).with_activation(activation)),
        params: weights(&conv, bias.then_some(conv.out_channels), rng),
        inputs: vec![tensor(shape(batch, conv.in_channels, conv.input), rng)],
        output: shape(batch, conv.out_channels, conv.output),
    }
}

/// A convolution, or a gradient for its input, that sums over so many channels that the weights of a few outputs fill a cache.
pub(super) fn conv2d_deep<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    // the weights of a tile are more than a quarter of a second level cache of up to two megabytes, or of all of it
    let least = if matches!(index % 4, 0 | 3) { 2900 } else { 1150 };
    let (deep, few) = (rng.range(least, least + 200), rng.range(5, 40));
    let [deep, few] = [deep, few].map(|channels| usize::try_from(channels).expect("positive"));
    let windows = [(); 2].map(|()| {
        let (stride, dilation) = rng.pick(&[(1, 1), (1, 2), (1, 3), (2, 1)]);
        Window::new(3, stride, dilation, rng.range(0, 3)).expect("positive sizes")
    });
    let input = [rng.range(7, 9), rng.range(7, 12)];
    let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], windows[axis].padding(), false));
    let epilogue = Epilogue::of_bias(rng.chance(60)).with_activation(some_activation(rng));
    let is_backward = index % 2 == 1;
    let [in_channels, out_channels] = if is_backward { [few, deep] } else { [deep, few] };
    let conv = Conv { in_channels, out_channels, groups: 1, windows, input, output };
    let (kernel, from, to) = if is_backward {
        (Kernel::Conv2dBackwardInput { conv, epilogue }, output, input)
    } else {
        (Kernel::conv2d(conv, epilogue), input, output)
    };
    Case {
        kernel,
        params: weights(&conv, epilogue.bias.then_some(few), rng),
        inputs: vec![tensor(shape(1, deep, from), rng)],
        output: shape(1, few, to),
    }
}

/// A convolution, or a gradient for its input, whose taps are so far apart that no tile holds what lies between them.
pub(super) fn conv2d_spread<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let windows = [rng.range(1, 2), rng.range(25, 40)].map(|dilation| {
        Window::new(3, 1, dilation, rng.pick(&[0, dilation / 2, dilation])).expect("positive sizes")
    });
    let input = [rng.range(5, 7), rng.range(81, 110)];
    let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], windows[axis].padding(), false));
    let epilogue = Epilogue::of_bias(rng.chance(60)).with_activation(some_activation(rng));
    let is_backward = index % 2 == 1;
    let (many, few) = (rng.pick(&[16, 33, 64]), rng.pick(&[1, 3, 5, 17, 40]));
    let [in_channels, out_channels] = if is_backward { [few, many] } else { [many, few] };
    let conv = Conv { in_channels, out_channels, groups: 1, windows, input, output };
    let (kernel, from, to) = if is_backward {
        (Kernel::Conv2dBackwardInput { conv, epilogue }, output, input)
    } else {
        (Kernel::conv2d(conv, epilogue), input, output)
    };
    Case {
        kernel,
        params: weights(&conv, epilogue.bias.then_some(few), rng),
        inputs: vec![tensor(shape(1, many, from), rng)],
        output: shape(1, few, to),
    }
}

/// A convolution of one column of taps, or of patches that lie side by side or further apart: pixels of rows long enough for several tiles.
pub(super) fn conv2d_point<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let windows = if index.is_multiple_of(2) {
        let stride = rng.pick(&[1, 1, 2]);
        [rng.pick(&[1, 1, 1, 3]), 1]
            .map(|kernel| Window::new(kernel, stride, 1, rng.pick(&[0, 0, 1])).expect("positive sizes"))
    } else {
        [(); 2].map(|()| {
            let kernel = rng.range(2, 5);
            Window::new(kernel, rng.range(3, 5), 1, rng.range(0, kernel)).expect("positive sizes")
        })
    };
    let input = [rng.range(5, 7), rng.range(31, 90)];
    let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], windows[axis].padding(), false));
    let channels = [3, 8, 16, 20, 24, 32, 48, 64];
    let conv = Conv {
        in_channels: rng.pick(&channels),
        out_channels: rng.pick(&channels),
        groups: 1,
        windows,
        input,
        output,
    };
    let (batch, bias, activation) = (batch(rng), rng.chance(60), some_activation(rng));
    Case {
        kernel: Kernel::conv2d(conv, Epilogue::of_bias(bias).with_activation(activation)),
        params: weights(&conv, bias.then_some(conv.out_channels), rng),
        inputs: vec![tensor(shape(batch, conv.in_channels, input), rng)],
        output: shape(batch, conv.out_channels, output),
    }
}

pub(super) fn conv2d_winograd<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
    winograd_of(rng, 1)
}

pub(super) fn conv2d_winograd_dilated<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    // one whose tiles have too few outputs is carried out as sums
    loop {
        let case = winograd_of(rng, [2, 3, 5][index % 3]);
        if matches!(&case.kernel, Kernel::Conv2d { conv, .. } if conv.suits_winograd()) {
            return case;
        }
    }
}

fn winograd_of<T: Element>(rng: &mut Rng, dilation: i64) -> Case<T> {
    let paddings = [0, dilation, dilation, 2, 4];
    let windows = [(); 2].map(|()| Window::new(3, 1, dilation, rng.pick(&paddings)).expect("positive sizes"));
    let input = [13, 19].map(|most| rng.range(2 * dilation + 1, most + 7 * (dilation - 1)));
    let after = windows.map(|window| if rng.chance(70) { window.padding() } else { rng.range(0, 4) });
    let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], after[axis], false));
    let channels = [16, 17, 31, 32, 33, 48];
    let (in_channels, out_channels) = (rng.pick(&channels), rng.pick(&channels));
    let conv = Conv { in_channels, out_channels, groups: 1, windows, input, output };
    let (batch, bias, activation) = (batch(rng), rng.chance(60), some_activation(rng));
    Case {
        kernel: Kernel::Conv2d {
            conv,
            algorithm: Algorithm::Winograd,
            epilogue: Epilogue::of_bias(bias).with_activation(activation),
        },
        params: weights(&conv, bias.then_some(out_channels), rng),
        inputs: vec![tensor(shape(batch, in_channels, input), rng)],
        output: shape(batch, out_channels, output),
    }
}

/// A convolution, direct or by Winograd's filtering, or a gradient for its input, whose epilogue has operands of its own.
pub(super) fn conv2d_epilogue<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let case = match index % 3 {
        0 => conv2d(rng, index),
        1 => conv2d_winograd(rng, index),
        _ => conv2d_backward_input(rng, index),
    };
    with_operands(case, rng)
}

/// Dilated ones by Winograd's filtering.
pub(super) fn conv2d_winograd_dilated_epilogue<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    with_operands(conv2d_winograd_dilated(rng, index), rng)
}

/// A convolution whose epilogue has operands of its own.
fn with_operands<T: Element>(mut case: Case<T>, rng: &mut Rng) -> Case<T> {
    let bias = case.kernel.epilogue().expect("a convolution").bias;
    let (affine, sum) = (rng.chance(50), rng.chance(50));
    if affine {
        case.params.extend([numbers(case.output[1], rng), numbers(case.output[1], rng)]);
    }
    if sum {
        case.inputs.push(tensor(case.output, rng));
    }
    let mask = rng.chance(50).then_some(Activation::Relu);
    let activation =
        if mask.is_some() { rng.chance(30).then_some(Activation::Relu) } else { some_activation(rng) };
    if mask.is_some() {
        // as many zeros as a ReLU leaves
        let saved = tensor::<T>(case.output, rng);
        case.inputs.push(map_tensor(&saved, |value| if value <= T::ZERO { T::ZERO } else { value }));
    }
    case.kernel = case.kernel.with_epilogue(Epilogue { bias, affine, sum, activation, mask });
    case
}

pub(super) fn conv2d_backward_input<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
    let (conv, batch) = conv(rng);
    let bias = rng.chance(30);
    let activation = if bias { some_activation(rng) } else { None };
    Case {
        kernel: Kernel::Conv2dBackwardInput {
            conv,
            epilogue: Epilogue::of_bias(bias).with_activation(activation),
        },
        params: weights(&conv, bias.then_some(conv.in_channels), rng),
        inputs: vec![tensor(shape(batch, conv.out_channels, conv.output), rng)],
        output: shape(batch, conv.in_channels, conv.input),
    }
}

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

/// A convolution and a batch size, of at most [`MOST_WORK`] multiply-adds.
pub(super) fn conv(rng: &mut Rng) -> (Conv, usize) {
    loop {
        let windows = [(); 2].map(|()| {
            let kernel = rng.pick(&[1, 2, 3, 3, 3, 4, 5, 7]);
            let padding = if rng.chance(50) { kernel / 2 } else { rng.range(0, 4) };
            let (stride, dilation) = (rng.pick(&[1, 1, 1, 2, 2, 3, 5]), rng.pick(&[1, 1, 1, 2, 3]));
            Window::new(kernel, stride, dilation, padding).expect("positive sizes")
        });
        let input = [rng.range(1, 14), if rng.chance(30) { rng.range(20, 70) } else { rng.range(1, 20) }];
        let after = windows.map(|window| if rng.chance(70) { window.padding() } else { rng.range(0, 4) });
        let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], after[axis], false));
        let (groups, in_channels, out_channels) = match rng.index(0, 5) {
            0 => {
                let channels = channels(rng);
                (channels, channels, channels * rng.pick(&[1, 1, 2]))
            }
            1 => {
                let groups = rng.pick(&[2, 3, 4]);
                let each = [1, 3, 4, 8, 16, 17];
                (groups, groups * rng.pick(&each), groups * rng.pick(&each))
            }
            _ => (1, channels(rng), channels(rng)),
        };
        let conv = Conv { in_channels, out_channels, groups, windows, input, output };
        let batch = batch(rng);
        if output.contains(&0) {
            continue;
        }
        let pixels = usize::try_from(output[0] * output[1]).expect("positive extents");
        if conv.weight_len() * pixels * batch <= MOST_WORK {
            return (conv, batch);
        }
    }
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

fn weights<T: Element>(conv: &Conv, bias: Option<usize>, rng: &mut Rng) -> Vec<Vec<T>> {
    let mut params = vec![numbers(conv.weight_len(), rng)];
    params.extend(bias.map(|channels| numbers(channels, rng)));
    params
}

fn some_activation(rng: &mut Rng) -> Option<Activation> {
    match rng.index(0, 9) {
        0..5 => None,
        5..7 => Some(Activation::Relu),
        _ => Some(rng.pick(&ACTIVATIONS)),
    }
}

/// Around the vector widths and register blocks of every instruction set.
pub(super) fn channels(rng: &mut Rng) -> usize {
    rng.pick(&[1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33])
}

pub(super) fn batch(rng: &mut Rng) -> usize {
    rng.pick(&[1, 1, 2])
}

/// More channels than a backend may keep of a few pixels, now and then, and rows of several runs of them.
fn many_channels(rng: &mut Rng) -> [usize; 4] {
    [1, rng.index(230, 300), rng.index(1, 2), rng.index(1, 140)]
}

pub(super) fn plain_shape(rng: &mut Rng) -> [usize; 4] {
    [batch(rng), channels(rng), rng.index(1, 12), rng.pick(&[1, 2, 3, 7, 8, 15, 16, 17, 33])]
}

pub(super) fn shape(batch: usize, channels: usize, extents: [i64; 2]) -> [usize; 4] {
    let [height, width] = extents.map(|extent| usize::try_from(extent).expect("positive extents"));
    [batch, channels, height, width]
}

fn numbers<T: Element>(len: usize, rng: &mut Rng) -> Vec<T> {
    (0..len).map(|_| T::from_f64(rng.uniform(-1.0, 1.0))).collect()
}

/// Numbers in `[−1, 1)`.
pub(super) fn tensor<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    from_fn(shape, || rng.uniform(-1.0, 1.0))
}

/// Numbers in `[−9, 9)`, zeros of both signs, and small and large ones.
fn wide_tensor<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    from_fn(shape, || match rng.index(0, 19) {
        0 => 0.0,
        1 => -0.0,
        2 => rng.uniform(-1e-6, 1e-6),
        3 => rng.uniform(-30.0, 30.0),
        _ => rng.uniform(-9.0, 9.0),
    })
}

/// Few different numbers, so that windows have several maxima; sometimes NaN and infinities.
pub(super) fn with_ties<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    let special = rng.chance(30);
    from_fn(shape, || match rng.index(0, 40) {
        0 if special => f64::NAN,
        1 if special => f64::NEG_INFINITY,
        2 if special => f64::INFINITY,
        3 => -0.0,
        _ => rng.pick(&[-2.0, -1.0, -0.5, 0.0, 0.5]),
    })
}

fn from_fn<T: Element>(shape: [usize; 4], mut f: impl FnMut() -> f64) -> Tensor<T> {
    Tensor::from_fn(shape, |_| T::from_f64(f())).expect("a small tensor")
}
