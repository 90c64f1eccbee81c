//! Random convolutions, and gradients for their inputs.

use tiled_geometry::Window;
use tiled_kernel::{Activation, Algorithm, Conv, Epilogue, Kernel};
use tiled_tensor::Element;

use super::super::case::{Case, map_tensor};
use super::super::rng::Rng;
use super::draws::{batch, channels, numbers, shape, some_activation, tensor};

/// Multiply-adds of a case, so that naive loops take milliseconds.
const MOST_WORK: usize = 400_000;

pub(in crate::conformance) fn conv2d<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
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
pub(in crate::conformance) fn conv2d_deep<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
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
pub(in crate::conformance) fn conv2d_spread<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let windows = [rng.range(1, 2), rng.range(25, 40)].map(|dilation| {
        let (stride, padding) = (rng.pick(&[1, 1, 2]), rng.pick(&[0, dilation / 2, dilation]));
        Window::new(3, stride, dilation, padding).expect("positive sizes")
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
pub(in crate::conformance) fn conv2d_point<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let windows = if index.is_multiple_of(2) {
        let stride = rng.pick(&[1, 1, 2]);
        [rng.pick(&[1, 1, 1, 3]), 1].map(|kernel| {
            // of more columns than a tile has, nothing is read
            let padding = rng.pick(&[0, 0, 0, 1, 9, 20]);
            Window::new(kernel, stride, 1, padding).expect("positive sizes")
        })
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

pub(in crate::conformance) fn conv2d_winograd<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
    winograd_of(rng, 1)
}

pub(in crate::conformance) fn conv2d_winograd_dilated<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
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
pub(in crate::conformance) fn conv2d_epilogue<T: Element>(rng: &mut Rng, index: usize) -> Case<T> {
    let case = match index % 3 {
        0 => conv2d(rng, index),
        1 => conv2d_winograd(rng, index),
        _ => conv2d_backward_input(rng, index),
    };
    with_operands(case, rng)
}

/// Dilated ones by Winograd's filtering.
pub(in crate::conformance) fn conv2d_winograd_dilated_epilogue<T: Element>(
    rng: &mut Rng,
    index: usize,
) -> Case<T> {
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

pub(in crate::conformance) fn conv2d_backward_input<T: Element>(rng: &mut Rng, _index: usize) -> Case<T> {
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

/// A convolution and a batch size, of at most [`MOST_WORK`] multiply-adds.
pub(in crate::conformance) fn conv(rng: &mut Rng) -> (Conv, usize) {
    loop {
        let windows = [(); 2].map(|()| {
            let kernel = rng.pick(&[1, 2, 3, 3, 3, 4, 5, 7]);
            let most = if rng.chance(10) { 20 } else { 4 };
            let padding = if rng.chance(50) { kernel / 2 } else { rng.range(0, most) };
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

fn weights<T: Element>(conv: &Conv, bias: Option<usize>, rng: &mut Rng) -> Vec<Vec<T>> {
    let mut params = vec![numbers(conv.weight_len(), rng)];
    params.extend(bias.map(|channels| numbers(channels, rng)));
    params
}
