//! The reference backend against PyTorch in `float64`: outputs and gradients of every operator.
//!
//! `bindings/python/fixtures/torch_fixtures.py` wrote the fixtures.

mod fixture;
mod norms;

use fixture::{Fixture, compute, each, extents, reduce, sums};
use tiled_geometry::{PadMode, Padding, Resize, ResizeMode, Window};
use tiled_kernel::{
    Activation, Arithmetic, Conv, Epilogue, Host, Kernel, Params, Partial, Pool, Reduction, Reference,
    Spread, Workspace,
};
use tiled_tensor::Tensor;

#[test]
fn convolution_agrees() {
    each("conv2d", |fixture| {
        let [top, bottom, left, right] = fixture.numbers("padding")[..] else { panic!("four sides") };
        let sides = [[top, bottom], [left, right]];
        let (x, weight) = (fixture.operand("x"), fixture.operand("weight"));
        let padding = match fixture.attribute("mode").as_str() {
            Some("reflect") => Some(pads(PadMode::Reflect, extents(x.shape()), sides)),
            Some("replicate") => Some(pads(PadMode::Replicate, extents(x.shape()), sides)),
            _ => None,
        };
        let padded = padding.map_or(x.clone(), |padding| {
            compute(Kernel::Pad(padding), &[], &[&x], with_extents(x.shape(), padding.map(Padding::output)))
        });
        let zeros = if padding.is_some() { [[0; 2]; 2] } else { sides };
        let conv = convolution(fixture, padded.shape(), weight.shape(), zeros);
        let bias = fixture.param("bias");
        let kernel = Kernel::conv2d(conv, Epilogue::of_bias(!bias.is_empty()));
        let output = compute(kernel, &[weight.data(), &bias], &[&padded], fixture.output().shape());
        fixture.check_output(output.data());

        let gy = fixture.output_gradient();
        let backward = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
        let gradient = compute(backward, &[weight.data()], &[&gy], padded.shape());
        let gradient = padding.map_or(gradient.clone(), |padding| {
            compute(Kernel::PadBackward(padding), &[], &[&gradient], x.shape())
        });
        fixture.check_gradient("x", gradient.data());
        fixture.check_gradient("weight", &weight_gradient(conv, &padded, &gy));
        if !bias.is_empty() {
            let sum = reduce(Reduction::ChannelSum, &[], &[&gy], gy.shape());
            fixture.check_gradient("bias", &sums(&sum));
        }
    });
}

#[test]
fn transposed_convolution_is_a_gradient() {
    each("conv_transpose2d", |fixture| {
        let (x, weight, bias) = (fixture.operand("x"), fixture.operand("weight"), fixture.param("bias"));
        let result = fixture.output().shape();
        let [vertical, horizontal] = fixture.pair("padding");
        let conv = Conv {
            input: extents(result),
            output: extents(x.shape()),
            in_channels: result[1],
            out_channels: x.shape()[1],
            ..convolution(fixture, result, weight.shape(), [[vertical; 2], [horizontal; 2]])
        };
        let kernel = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::of_bias(true) };
        fixture.check_output(compute(kernel, &[weight.data(), &bias], &[&x], result).data());

        let gy = fixture.output_gradient();
        let forward = Kernel::conv2d(conv, Epilogue::NONE);
        fixture.check_gradient("x", compute(forward, &[weight.data()], &[&gy], x.shape()).data());
        fixture.check_gradient("weight", &weight_gradient(conv, &gy, &x));
        let sum = reduce(Reduction::ChannelSum, &[], &[&gy], gy.shape());
        fixture.check_gradient("bias", &sums(&sum));
    });
}

#[test]
fn pooling_agrees() {
    each("pool2d", |fixture| match fixture.op() {
        "global_avg_pool" => check_global_average(fixture),
        "global_max_pool" => check_global_maximum(fixture),
        op => {
            let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
            let pool = pooling(fixture, extents(x.shape()), extents(gy.shape()));
            let (forward, backward, inputs) = if op == "max_pool2d" {
                (Kernel::MaxPool2d(pool), Kernel::MaxPool2dBackward(pool), vec![&gy, &x])
            } else {
                (Kernel::AvgPool2d(pool), Kernel::AvgPool2dBackward(pool), vec![&gy])
            };
            fixture.check_output(compute(forward, &[], &[&x], gy.shape()).data());
            fixture.check_gradient("x", compute(backward, &[], &inputs, x.shape()).data());
        }
    });
}

fn check_global_average(fixture: &Fixture) {
    let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
    let scale = 1.0 / pixels(&x);
    let means: Vec<f64> =
        sums(&reduce(Reduction::ImageSum, &[], &[&x], x.shape())).iter().map(|sum| sum * scale).collect();
    fixture.check_output(&means);
    fixture.check_gradient("x", compute(Kernel::Broadcast { scale }, &[], &[&gy], x.shape()).data());
}

fn check_global_maximum(fixture: &Fixture) {
    let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
    let Partial::Extrema(extrema) = reduce(Reduction::ImageMax, &[], &[&x], x.shape()) else {
        panic!("maxima expected")
    };
    fixture.check_output(&extrema.iter().map(|extremum| extremum.value).collect::<Vec<_>>());
    let mut gradient = Tensor::zeros(x.shape()).expect("a small tensor");
    let (params, output) = (Params::Extrema(&extrema), gradient.view_mut());
    let region = output.region();
    Reference.compute(&Kernel::Scatter, params, &[gy.view()], output, region, &Workspace::NONE);
    fixture.check_gradient("x", gradient.data());
}

#[test]
fn batch_norm_agrees_in_training_and_evaluation() {
    each("batch_norm", |fixture| {
        let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
        let (weight, bias) = (fixture.param("weight"), fixture.param("bias"));
        let running = ["running_mean", "running_var"]
            .map(|name| fixture::tensor(fixture.attribute(name)).data().to_vec());
        let count = pixels(&x) * 2.0;
        let training = fixture.attribute("training").as_bool().expect("a flag");
        let [mean, var] = if training {
            let moments = sums(&reduce(Reduction::Moments, &[], &[&x], x.shape()));
            let (sum, squares) = moments.split_at(weight.len());
            let mean: Vec<f64> = sum.iter().map(|sum| sum / count).collect();
            let var = squares.iter().zip(&mean).map(|(square, m)| square / count - m * m).collect();
            [mean, var]
        } else {
            running.clone()
        };
        let inverse: Vec<f64> = var.iter().map(|var| 1.0 / (var + 1e-5).sqrt()).collect();
        let a: Vec<f64> = weight.iter().zip(&inverse).map(|(weight, inverse)| weight * inverse).collect();
        let shift: Vec<f64> = (0..a.len()).map(|c| bias[c] - mean[c] * a[c]).collect();
        let affine = Kernel::ChannelAffine { activation: None };
        fixture.check_output(compute(affine, &[&a, &shift], &[&x], x.shape()).data());

        let dot = sums(&reduce(Reduction::CentredDot, &[&mean], &[&gy, &x], x.shape()));
        let (sum, centred) = dot.split_at(weight.len());
        let weight_gradient: Vec<f64> = centred.iter().zip(&inverse).map(|(dot, inv)| dot * inv).collect();
        fixture.check_gradient("bias", sum);
        fixture.check_gradient("weight", &weight_gradient);
        // gx = a·(gy − Σgy/N − (x − mean)·inverse²·Σ gy·(x − mean)/N), statistics fixed in evaluation
        let share = if training { 1.0 / count } else { 0.0 };
        let b: Vec<f64> =
            (0..a.len()).map(|c| -a[c] * inverse[c] * inverse[c] * centred[c] * share).collect();
        let d: Vec<f64> = (0..a.len()).map(|c| -a[c] * sum[c] * share - b[c] * mean[c]).collect();
        let gradient = compute(Kernel::ChannelCombine, &[&a, &b, &d], &[&gy, &x], x.shape());
        fixture.check_gradient("x", gradient.data());

        let update = |old: &[f64], new: &[f64], factor: f64| -> Vec<f64> {
            let momentum = if training { 0.1 } else { 0.0 };
            old.iter().zip(new).map(|(old, new)| (1.0 - momentum) * old + momentum * factor * new).collect()
        };
        fixture.check("running", "mean", &update(&running[0], &mean, 1.0));
        fixture.check("running", "var", &update(&running[1], &var, count / (count - 1.0)));
    });
}

#[test]
fn activations_agree() {
    each("activation", |fixture| {
        let function = match fixture.op() {
            "relu" => Activation::Relu,
            "leaky_relu" => Activation::LeakyRelu { slope: 0.01 },
            "sigmoid" => Activation::Sigmoid,
            "tanh" => Activation::Tanh,
            "silu" => Activation::Silu,
            "gelu" => Activation::Gelu,
            "gelu_tanh" => Activation::GeluTanh,
            op => panic!("{op} is not known"),
        };
        let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
        let output = compute(Kernel::Activation(function), &[], &[&x], x.shape());
        fixture.check_output(output.data());
        let saved = if function.differentiates_from_output() { &output } else { &x };
        let gradient = compute(Kernel::ActivationBackward(function), &[], &[&gy, saved], x.shape());
        fixture.check_gradient("x", gradient.data());
    });
}

#[test]
fn resampling_and_padding_agree() {
    each("resample", |fixture| {
        let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
        let mode = fixture.attribute("mode").as_str().expect("a mode");
        let (forward, backward) = if fixture.op() == "pad" {
            let [top, bottom, left, right] = fixture.numbers("padding")[..] else { panic!("four sides") };
            let mode = if mode == "reflect" { PadMode::Reflect } else { PadMode::Replicate };
            let padding = pads(mode, extents(x.shape()), [[top, bottom], [left, right]]);
            (Kernel::Pad(padding), Kernel::PadBackward(padding))
        } else {
            let corners = fixture.attribute("align_corners").as_bool().expect("a flag");
            let mode = match (mode, corners) {
                ("nearest", _) => ResizeMode::NEAREST,
                (_, true) => ResizeMode::LINEAR_ALIGNED,
                (_, false) => ResizeMode::LINEAR,
            };
            let (from, to) = (extents(x.shape()), fixture.pair("size"));
            let resize =
                [0, 1].map(|axis| Resize::new(mode, from[axis], to[axis]).expect("positive extents"));
            (Kernel::Resize(resize), Kernel::ResizeBackward(resize))
        };
        fixture.check_output(compute(forward, &[], &[&x], gy.shape()).data());
        fixture.check_gradient("x", compute(backward, &[], &[&gy], x.shape()).data());
    });
}

#[test]
fn heads_and_losses_agree() {
    each("head_and_loss", |fixture| match fixture.op() {
        "linear" => check_linear(fixture),
        "mse" => {
            let (x, target) = (fixture.operand("x"), fixture.operand("target"));
            let count = pixels(&x) * 6.0;
            let error = sums(&reduce(Reduction::SquaredError, &[], &[&x, &target], x.shape()));
            fixture.check_output(&[error[0] / count]);
            let kernel = Kernel::DifferenceScaled { scale: 2.0 / count };
            fixture.check_gradient("x", compute(kernel, &[], &[&x, &target], x.shape()).data());
        }
        _ => {
            let (x, mut target) = (fixture.operand("x"), fixture.operand("target"));
            if x.shape()[2..] == [1, 1] {
                // one class for each image, listed along the batch
                target = Tensor::from_fn([x.shape()[0], 1, 1, 1], |[n, ..]| target.data()[n]).expect("small");
            }
            let loss = sums(&reduce(Reduction::CrossEntropy, &[], &[&x, &target], x.shape()));
            fixture.check_output(&[loss[0] / loss[1]]);
            let kernel = Kernel::CrossEntropyBackward { scale: 1.0 / loss[1] };
            fixture.check_gradient("x", compute(kernel, &[], &[&x, &target], x.shape()).data());
        }
    });
}

#[test]
fn moves_agree() {
    each("rearrange", |fixture| {
        let x = fixture.operand("x");
        let number = |name: &str| fixture.attribute(name).as_i64().expect("a whole number");
        let count = |name: &str| usize::try_from(number(name)).expect("not negative");
        let (forward, backward) = match fixture.op() {
            "pixel_shuffle" => {
                let factor = [number("factor"); 2];
                (Kernel::PixelShuffle { factor }, Kernel::PixelUnshuffle { factor })
            }
            "pixel_unshuffle" => {
                let factor = [number("factor"); 2];
                (Kernel::PixelUnshuffle { factor }, Kernel::PixelShuffle { factor })
            }
            "channel_shuffle" => {
                let groups = count("groups");
                let back = x.shape()[1] / groups;
                (Kernel::ChannelShuffle { groups }, Kernel::ChannelShuffle { groups: back })
            }
            "slice" => {
                let begin = count("begin");
                (Kernel::Slice { begin }, Kernel::SliceBackward { begin })
            }
            "channels_to_width" => {
                let factor = [1, number("factor")];
                (Kernel::PixelShuffle { factor }, Kernel::PixelUnshuffle { factor })
            }
            "argmax" => {
                let output = fixture.output();
                return fixture.check_output(compute(Kernel::ArgMax, &[], &[&x], output.shape()).data());
            }
            "channel_max" => return check_largest_channel(fixture),
            "channel_mean" => return check_mean_of_channels(fixture),
            "pad" => return check_padding(fixture),
            _ => return check_linear_of_image(fixture),
        };
        let gy = fixture.output_gradient();
        fixture.check_output(compute(forward, &[], &[&x], gy.shape()).data());
        fixture.check_gradient("x", compute(backward, &[], &[&gy], x.shape()).data());
    });
}

fn check_largest_channel(fixture: &Fixture) {
    let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
    fixture.check_output(compute(Kernel::MaxChannels, &[], &[&x], gy.shape()).data());
    fixture.check_gradient("x", compute(Kernel::MaxChannelsBackward, &[], &[&gy, &x], x.shape()).data());
}

/// A sum and a quotient; the gradient is spread over the channels.
fn check_mean_of_channels(fixture: &Fixture) {
    let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
    let count = Spread::Number(f64::from(u32::try_from(x.shape()[1]).expect("few channels")));
    let divided = |spread| Kernel::arithmetic(Arithmetic::Div, [spread, count]);
    let sum = compute(Kernel::SumChannels, &[], &[&x], gy.shape());
    fixture.check_output(compute(divided(Spread::Whole), &[], &[&sum], gy.shape()).data());
    fixture.check_gradient("x", compute(divided(Spread::Plane), &[], &[&gy], x.shape()).data());
}

/// What is below zero is cropped first, then the rest is padded.
fn check_padding(fixture: &Fixture) {
    let [top, bottom, left, right] = fixture.numbers("padding")[..] else { panic!("four sides") };
    let (x, gy) = (fixture.operand("x"), fixture.output_gradient());
    let sides = [[top, bottom], [left, right]];
    let moved = |from: &Tensor<f64>, to: [usize; 4], before: [i64; 2], value: f64| {
        compute(Kernel::PadConstant { before, input: extents(from.shape()), value }, &[], &[from], to)
    };
    let mode = match fixture.attribute("mode").as_str().expect("a mode") {
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Replicate,
        "circular" => PadMode::Circular,
        _ => {
            let before = sides.map(|[before, _]| before);
            let value = fixture.attribute("value").as_f64().expect("a number");
            fixture.check_output(moved(&x, gy.shape(), before, value).data());
            let back = moved(&gy, x.shape(), before.map(|rows| -rows), 0.0);
            return fixture.check_gradient("x", back.data());
        }
    };
    let crop = sides.map(|sides| sides.map(|side| side.min(0)));
    let from = extents(x.shape());
    let cropped = with_extents(x.shape(), [0, 1].map(|axis| from[axis] + crop[axis][0] + crop[axis][1]));
    let padding = pads(mode, extents(cropped), sides.map(|sides| sides.map(|side| side.max(0))));
    let inner = moved(&x, cropped, crop.map(|[before, _]| before), 0.0);
    fixture.check_output(compute(Kernel::Pad(padding), &[], &[&inner], gy.shape()).data());
    let inner = compute(Kernel::PadBackward(padding), &[], &[&gy], cropped);
    fixture.check_gradient("x", moved(&inner, x.shape(), crop.map(|[before, _]| -before), 0.0).data());
}

/// A linear layer over an image is a convolution as large as that.
fn check_linear_of_image(fixture: &Fixture) {
    let (x, weight, bias) = (fixture.operand("x"), fixture.operand("weight"), fixture.param("bias"));
    let gy = fixture.output_gradient();
    let input = extents(x.shape());
    let conv = Conv {
        in_channels: x.shape()[1],
        out_channels: weight.shape()[0],
        groups: 1,
        windows: input.map(|extent| Window::new(extent, 1, 1, 0).expect("a small image")),
        input,
        output: [1, 1],
    };
    let forward = Kernel::conv2d(conv, Epilogue::of_bias(true));
    fixture.check_output(compute(forward, &[weight.data(), &bias], &[&x], gy.shape()).data());
    let backward = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
    fixture.check_gradient("x", compute(backward, &[weight.data()], &[&gy], x.shape()).data());
    fixture.check_gradient("weight", &weight_gradient(conv, &x, &gy));
    fixture.check_gradient("bias", &sums(&reduce(Reduction::ChannelSum, &[], &[&gy], gy.shape())));
}

/// A linear layer is a convolution of one pixel.
fn check_linear(fixture: &Fixture) {
    let (x, weight, bias) = (fixture.operand("x"), fixture.operand("weight"), fixture.param("bias"));
    let gy = fixture.output_gradient();
    let conv = Conv {
        in_channels: weight.shape()[1],
        out_channels: weight.shape()[0],
        groups: 1,
        windows: [Window::IDENTITY; 2],
        input: [1, 1],
        output: [1, 1],
    };
    let forward = Kernel::conv2d(conv, Epilogue::of_bias(true));
    fixture.check_output(compute(forward, &[weight.data(), &bias], &[&x], gy.shape()).data());
    let backward = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
    fixture.check_gradient("x", compute(backward, &[weight.data()], &[&gy], x.shape()).data());
    fixture.check_gradient("weight", &weight_gradient(conv, &x, &gy));
    fixture.check_gradient("bias", &sums(&reduce(Reduction::ChannelSum, &[], &[&gy], gy.shape())));
}

/// The geometry of a convolution of these shapes, with `[before, after]` of rows and of columns.
fn convolution(fixture: &Fixture, x: [usize; 4], weight: [usize; 4], sides: [[i64; 2]; 2]) -> Conv {
    let (stride, dilation, kernel) = (fixture.pair("stride"), fixture.pair("dilation"), extents(weight));
    let windows = [0, 1].map(|axis| {
        Window::new(kernel[axis], stride[axis], dilation[axis], sides[axis][0]).expect("positive sizes")
    });
    let input = extents(x);
    Conv {
        in_channels: x[1],
        out_channels: weight[0],
        groups: usize::try_from(fixture.attribute("groups").as_u64().expect("a number")).expect("small"),
        windows,
        input,
        output: [0, 1].map(|axis| windows[axis].outputs(input[axis], sides[axis][1], false)),
    }
}

fn pooling(fixture: &Fixture, input: [i64; 2], output: [i64; 2]) -> Pool {
    let [kernel, stride, padding, dilation] =
        ["kernel", "stride", "padding", "dilation"].map(|name| fixture.pair(name));
    let windows = [0, 1].map(|axis| {
        Window::new(kernel[axis], stride[axis], dilation[axis], padding[axis]).expect("positive sizes")
    });
    let ceil = fixture.attribute("ceil_mode").as_bool().expect("a flag");
    let outputs = [0, 1].map(|axis| windows[axis].outputs(input[axis], padding[axis], ceil));
    assert_eq!(outputs, output, "the number of windows");
    let counts_padding = fixture.attribute("count_include_pad").as_bool().unwrap_or(true);
    Pool { windows, padding_after: padding, input, output, counts_padding }
}

fn pads(mode: PadMode, extents: [i64; 2], sides: [[i64; 2]; 2]) -> [Padding; 2] {
    [0, 1].map(|axis| {
        let [before, after] = sides[axis];
        Padding::new(mode, extents[axis], before, after).expect("fits the mode")
    })
}

fn weight_gradient(conv: Conv, x: &Tensor<f64>, gy: &Tensor<f64>) -> Vec<f64> {
    match reduce(Reduction::ConvWeight(conv), &[], &[x, gy], gy.shape()) {
        Partial::Values(values) => values.to_vec(),
        _ => panic!("values expected"),
    }
}

fn with_extents([batch, channels, ..]: [usize; 4], extents: [i64; 2]) -> [usize; 4] {
    let [height, width] = extents.map(|extent| usize::try_from(extent).expect("positive"));
    [batch, channels, height, width]
}

fn pixels(x: &Tensor<f64>) -> f64 {
    let [height, width] = extents(x.shape()).map(|extent| i32::try_from(extent).expect("small"));
    f64::from(height * width)
}
