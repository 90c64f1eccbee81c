//! Gradients against central differences in `f64`, for every kernel that has one.
//!
//! For `L = Σ w·y` with random w, the difference `(L(v+h) − L(v−h))/2h` errs by `h²/6·|L'''|` and by
//! `ε·|L|/h`; with `h = 1e-4` and values of order one both stay below 1e-6.

use tiled_geometry::{PadMode, Padding, Resize, ResizeMode, Window};
use tiled_kernel::{
    Activation, Conv, Dropped, Epilogue, Host, Kernel, LocalResponse, Params, Partial, PixelNorm, Pool,
    Reduction, Reference, Workspace,
};
use tiled_tensor::Tensor;
use tiled_testkit::conformance::{Case, Rng};

const STEP: f64 = 1e-4;
const TOLERANCE: f64 = 1e-6;

const X: [usize; 4] = [2, 4, 5, 6];

fn conv() -> Conv {
    let windows = [window(3, 2, 1, 1), window(2, 1, 2, 2)];
    let input = [5, 6];
    let output = [windows[0].outputs(5, 1, false), windows[1].outputs(6, 1, false)];
    Conv { in_channels: 4, out_channels: 6, groups: 2, windows, input, output }
}

fn pool(counts_padding: bool) -> Pool {
    let windows = [window(3, 2, 1, 1), window(2, 1, 1, 1)];
    let output = [windows[0].outputs(5, 1, true), windows[1].outputs(6, 1, true)];
    Pool { windows, padding_after: [1, 1], input: [5, 6], output, counts_padding }
}

fn window(kernel: i64, stride: i64, dilation: i64, padding: i64) -> Window {
    Window::new(kernel, stride, dilation, padding).expect("positive sizes")
}

fn random(shape: [usize; 4], rng: &mut Rng) -> Tensor<f64> {
    Tensor::from_fn(shape, |_| rng.uniform(-1.0, 1.0)).expect("a small tensor")
}

fn list(len: usize, rng: &mut Rng) -> Vec<f64> {
    (0..len).map(|_| rng.uniform(-1.0, 1.0)).collect()
}

fn shape(channels: usize, extents: [i64; 2]) -> [usize; 4] {
    let [height, width] = extents.map(|extent| usize::try_from(extent).expect("positive"));
    [2, channels, height, width]
}

fn run(kernel: Kernel, params: &[&[f64]], inputs: &[&Tensor<f64>], output: [usize; 4]) -> Tensor<f64> {
    let params = params.iter().map(|param| param.to_vec()).collect();
    let inputs = inputs.iter().map(|input| (*input).clone()).collect();
    Case { kernel, params, inputs, output }.whole(&Reference)
}

fn dot(a: &Tensor<f64>, b: &Tensor<f64>) -> f64 {
    a.data().iter().zip(b.data()).map(|(a, b)| a * b).sum()
}

/// Checks `gradient` against the differences of `loss` at `at`.
fn assert_gradient(what: &str, at: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    assert_eq!(at.len(), gradient.len(), "{what}: elements of the gradient");
    assert!(gradient.iter().any(|value| *value != 0.0), "{what}: the gradient is not all zero");
    let mut moved = at.to_vec();
    for i in 0..at.len() {
        moved[i] = at[i] + STEP;
        let above = loss(&moved);
        moved[i] = at[i] - STEP;
        let below = loss(&moved);
        moved[i] = at[i];
        let difference = (above - below) / (2.0 * STEP);
        assert!(
            (difference - gradient[i]).abs() <= TOLERANCE * (1.0 + difference.abs()),
            "{what}: element {i} has gradient {}, difference {difference}",
            gradient[i],
        );
    }
}

/// Checks the gradient of a kernel with one input with respect to it.
fn assert_input_gradient(
    kernel: &Kernel,
    params: &[&[f64]],
    x: &Tensor<f64>,
    output: [usize; 4],
    backward: impl Fn(&Tensor<f64>) -> Tensor<f64>,
) {
    let weights = random(output, &mut Rng::new(99));
    let gradient = backward(&weights);
    assert_gradient(kernel.name(), x.data(), gradient.data(), |values| {
        let mut moved = x.clone();
        moved.data_mut().copy_from_slice(values);
        dot(&run(*kernel, params, &[&moved], output), &weights)
    });
}

fn reduce(reduction: Reduction, params: &[&[f64]], inputs: &[&Tensor<f64>]) -> Partial<f64> {
    let domain = inputs[inputs.len() - 1];
    let [batch, channels, ..] = domain.shape();
    let views: Vec<_> = inputs.iter().map(|input| input.view()).collect();
    let mut partial = (&Reference as &dyn Host<f64>)
        .partial(&reduction, batch, channels)
        .expect("memory for a small reduction");
    Reference.reduce(&reduction, params, &views, domain.view().region(), &mut partial);
    partial
}

fn sums(partial: &Partial<f64>) -> Vec<f64> {
    let Partial::Exact(sums) = partial else { panic!("exact sums expected") };
    sums.iter().map(tiled_kernel::ExactSum::value).collect()
}

#[test]
fn convolution_has_the_gradients_of_its_input_weight_and_bias() {
    let (conv, mut rng) = (conv(), Rng::new(1));
    let x = random(X, &mut rng);
    let (weight, bias) = (list(conv.weight_len(), &mut rng), list(6, &mut rng));
    let output = shape(6, conv.output);
    let kernel = Kernel::conv2d(conv, Epilogue::of_bias(true));
    assert_input_gradient(&kernel, &[&weight, &bias], &x, output, |gy| {
        let backward = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
        run(backward, &[&weight], &[gy], X)
    });
    let gy = random(output, &mut rng);
    let Partial::Values(gradient) = reduce(Reduction::ConvWeight(conv), &[], &[&x, &gy]) else {
        panic!("values expected")
    };
    assert_gradient("weight", &weight, &gradient, |weight| {
        dot(&run(kernel, &[weight, &bias], &[&x], output), &gy)
    });
    let gradient = sums(&reduce(Reduction::ChannelSum, &[], &[&gy]));
    assert_gradient("bias", &bias, &gradient, |bias| dot(&run(kernel, &[&weight, bias], &[&x], output), &gy));
}

#[test]
fn transposed_convolution_has_the_gradient_of_its_input() {
    let (conv, mut rng) = (conv(), Rng::new(2));
    let gy = random(shape(6, conv.output), &mut rng);
    let weight = list(conv.weight_len(), &mut rng);
    let kernel = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
    assert_input_gradient(&kernel, &[&weight], &gy, X, |g| {
        run(Kernel::conv2d(conv, Epilogue::NONE), &[&weight], &[g], gy.shape())
    });
}

#[test]
fn fused_activations_are_applied_last() {
    let (conv, mut rng) = (conv(), Rng::new(3));
    let (x, weight, bias) = (random(X, &mut rng), list(conv.weight_len(), &mut rng), list(6, &mut rng));
    let output = shape(6, conv.output);
    let plain = Kernel::conv2d(conv, Epilogue::of_bias(true));
    let fused = Kernel::conv2d(conv, Epilogue::of_bias(true).with_activation(Some(Activation::Silu)));
    let apart = run(plain, &[&weight, &bias], &[&x], output);
    let apart = run(Kernel::Activation(Activation::Silu), &[], &[&apart], output);
    assert_eq!(run(fused, &[&weight, &bias], &[&x], output).data(), apart.data());
}

#[test]
fn pooling_has_the_gradient_of_its_input() {
    let mut rng = Rng::new(4);
    // differences must not change which element is the maximum: all elements differ by more than the step
    let mut numbers: Vec<f64> = (0..240).map(|i| f64::from(i) / 120.0 - 1.0).collect();
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, rng.index(0, i));
    }
    let mut numbers = numbers.into_iter();
    let x = Tensor::from_fn(X, |_| numbers.next().expect("240 elements")).expect("a small tensor");
    let pool = pool(false);
    let output = shape(4, pool.output);
    assert_input_gradient(&Kernel::MaxPool2d(pool), &[], &x, output, |gy| {
        run(Kernel::MaxPool2dBackward(pool), &[], &[gy, &x], X)
    });
    for counts_padding in [false, true] {
        let pool = Pool { counts_padding, ..pool };
        assert_input_gradient(&Kernel::AvgPool2d(pool), &[], &x, output, |gy| {
            run(Kernel::AvgPool2dBackward(pool), &[], &[gy], X)
        });
    }
}

#[test]
fn activations_have_the_gradient_of_their_input() {
    for function in [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::LeakyRelu { slope: -0.3 },
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Clamp { min: -1.5, max: 2.0 },
        Activation::Threshold { threshold: 0.0, value: 0.5 },
        Activation::Elu { alpha: 1.5 },
        Activation::Selu,
        Activation::Celu { alpha: 0.75 },
        Activation::Softplus { beta: 1.5, threshold: 20.0 },
        Activation::Softsign,
        Activation::HardSigmoid,
        Activation::HardSwish,
        Activation::Mish,
        Activation::LogSigmoid,
        Activation::Exp,
        Activation::Abs,
        Activation::Neg,
        Activation::Pow { exponent: 3.0 },
    ] {
        let mut rng = Rng::new(5);
        // away from the kink of the rectifiers
        let x = Tensor::from_fn(X, |_| {
            let size = rng.uniform(0.01, 4.0);
            if rng.chance(50) { size } else { -size }
        })
        .expect("a small tensor");
        let kernel = Kernel::Activation(function);
        assert_input_gradient(&kernel, &[], &x, X, |gy| {
            let output = run(kernel, &[], &[&x], X);
            let saved = if function.differentiates_from_output() { &output } else { &x };
            run(Kernel::ActivationBackward(function), &[], &[gy, saved], X)
        });
    }
}

#[test]
fn resampling_and_padding_have_the_gradient_of_their_input() {
    let x = random(X, &mut Rng::new(6));
    for mode in [ResizeMode::NEAREST, ResizeMode::LINEAR, ResizeMode::LINEAR_ALIGNED] {
        for to in [[7, 13], [10, 12], [3, 2], [1, 1]] {
            let resize = [(5, to[0]), (6, to[1])]
                .map(|(from, to)| Resize::new(mode, from, to).expect("positive extents"));
            assert_input_gradient(&Kernel::Resize(resize), &[], &x, shape(4, to), |gy| {
                run(Kernel::ResizeBackward(resize), &[], &[gy], X)
            });
        }
    }
    for (mode, most) in [(PadMode::Reflect, 4), (PadMode::Replicate, 7), (PadMode::Circular, 5)] {
        let padding = [
            Padding::new(mode, 5, most, 1).expect("fits the mode"),
            Padding::new(mode, 6, 0, most).expect("fits the mode"),
        ];
        assert_input_gradient(&Kernel::Pad(padding), &[], &x, shape(4, padding.map(Padding::output)), |gy| {
            run(Kernel::PadBackward(padding), &[], &[gy], X)
        });
    }
}

#[test]
fn moves_have_the_gradient_of_their_input() {
    let mut rng = Rng::new(16);
    let x = random(X, &mut rng);
    assert_input_gradient(&Kernel::Slice { begin: 1 }, &[], &x, [X[0], 2, X[2], X[3]], |gy| {
        run(Kernel::SliceBackward { begin: 1 }, &[], &[gy], X)
    });
    assert_input_gradient(&Kernel::ChannelShuffle { groups: 2 }, &[], &x, X, |gy| {
        run(Kernel::ChannelShuffle { groups: X[1] / 2 }, &[], &[gy], X)
    });
    assert_input_gradient(
        &Kernel::PixelShuffle { factor: [2, 2] },
        &[],
        &x,
        [X[0], 1, 2 * X[2], 2 * X[3]],
        |gy| run(Kernel::PixelUnshuffle { factor: [2, 2] }, &[], &[gy], X),
    );
    let wide = random([2, 3, 4, 6], &mut rng);
    assert_input_gradient(&Kernel::PixelUnshuffle { factor: [2, 2] }, &[], &wide, [2, 12, 2, 3], |gy| {
        run(Kernel::PixelShuffle { factor: [2, 2] }, &[], &[gy], wide.shape())
    });
    let factor = [1, 4];
    assert_input_gradient(&Kernel::PixelShuffle { factor }, &[], &x, [X[0], 1, X[2], 4 * X[3]], |gy| {
        run(Kernel::PixelUnshuffle { factor }, &[], &[gy], X)
    });
    assert_input_gradient(&Kernel::MaxChannels, &[], &x, [X[0], 1, X[2], X[3]], |gy| {
        run(Kernel::MaxChannelsBackward, &[], &[gy, &x], X)
    });
    let (before, input) = ([2, -1], [5, 6]);
    let output = [9, 4];
    let forward = Kernel::PadConstant { before, input, value: 0.5 };
    let backward = Kernel::PadConstant { before: before.map(|rows| -rows), input: output, value: 0.0 };
    assert_input_gradient(&forward, &[], &x, shape(4, output), |gy| run(backward, &[], &[gy], X));
}

#[test]
fn normalisation_in_training_has_the_gradients_of_its_input_and_scale() {
    let mut rng = Rng::new(7);
    let (x, gy) = (random(X, &mut rng), random(X, &mut rng));
    let (weight, bias, count) = (list(4, &mut rng), list(4, &mut rng), 60.0);
    let statistics = |x: &Tensor<f64>| {
        let moments = sums(&reduce(Reduction::Moments, &[], &[x]));
        let mean: Vec<f64> = moments[..4].iter().map(|sum| sum / count).collect();
        let inverse = (0..4).map(|c| 1.0 / (moments[4 + c] / count - mean[c] * mean[c] + 1e-5).sqrt());
        (mean.clone(), inverse.collect::<Vec<f64>>())
    };
    let forward = |x: &Tensor<f64>, weight: &[f64]| {
        let (mean, inverse) = statistics(x);
        let a: Vec<f64> = weight.iter().zip(&inverse).map(|(weight, inverse)| weight * inverse).collect();
        let b: Vec<f64> = (0..4).map(|c| bias[c] - mean[c] * a[c]).collect();
        dot(&run(Kernel::ChannelAffine { activation: None }, &[&a, &b], &[x], X), &gy)
    };
    let (mean, inverse) = statistics(&x);
    let dots = sums(&reduce(Reduction::CentredDot, &[&mean], &[&gy, &x]));
    let weight_gradient: Vec<f64> = (0..4).map(|c| dots[4 + c] * inverse[c]).collect();
    assert_gradient("scale", &weight, &weight_gradient, |weight| forward(&x, weight));

    let a: Vec<f64> = (0..4).map(|c| weight[c] * inverse[c]).collect();
    let b: Vec<f64> = (0..4).map(|c| -a[c] * inverse[c] * inverse[c] * dots[4 + c] / count).collect();
    let d: Vec<f64> = (0..4).map(|c| -a[c] * dots[c] / count - b[c] * mean[c]).collect();
    let gradient = run(Kernel::ChannelCombine, &[&a, &b, &d], &[&gy, &x], X);
    assert_gradient("channel_combine", x.data(), gradient.data(), |values| {
        let mut moved = x.clone();
        moved.data_mut().copy_from_slice(values);
        forward(&moved, &weight)
    });
}

#[test]
fn losses_have_the_gradient_of_their_prediction() {
    let mut rng = Rng::new(8);
    let (x, other) = (random(X, &mut rng), random(X, &mut rng));
    let classes =
        Tensor::from_fn([2, 1, 5, 6], |_| f64::from(i32::try_from(rng.range(-1, 3)).expect("small")))
            .expect("a small tensor");
    let view = other.view();
    let probabilities = Tensor::from_fn(X, |[n, c, y, x]| {
        let [y, x] = [y, x].map(|at| i64::try_from(at).expect("small"));
        let sum: f64 = (0..4).map(|c| view.get(n, c, y, x).exp()).sum();
        view.get(n, c, y, x).exp() / sum
    })
    .expect("a small tensor");
    let cases = [
        (Reduction::SquaredError, Kernel::DifferenceScaled { scale: 2.0 }, &other),
        (Reduction::CrossEntropy, Kernel::CrossEntropyBackward { scale: 1.0 }, &classes),
        (Reduction::CrossEntropy, Kernel::CrossEntropyBackward { scale: 1.0 }, &probabilities),
    ];
    for (reduction, backward, target) in cases {
        let gradient = run(backward, &[], &[&x, target], X);
        assert_gradient(backward.name(), x.data(), gradient.data(), |values| {
            let mut moved = x.clone();
            moved.data_mut().copy_from_slice(values);
            sums(&reduce(reduction, &[], &[&moved, target]))[0]
        });
    }
}

#[test]
fn what_is_computed_of_each_pixel_has_the_gradient_of_its_input() {
    let mut rng = Rng::new(12);
    let x = random(X, &mut rng);
    for log in [false, true] {
        let kernel = Kernel::Softmax { log };
        let y = run(kernel, &[], &[&x], X);
        assert_input_gradient(&kernel, &[], &x, X, |gy| {
            run(Kernel::SoftmaxBackward { log }, &[], &[gy, &y], X)
        });
    }
    for centred in [false, true] {
        let norm = PixelNorm { eps: 0.1, centred };
        assert_input_gradient(&Kernel::PixelNorm(norm), &[], &x, X, |gy| {
            run(Kernel::PixelNormBackward(norm), &[], &[gy, &x], X)
        });
    }
    for size in [1, 2, 3, 9] {
        let local = LocalResponse { size, alpha: 1.5, beta: 0.75, k: 0.5 };
        assert_input_gradient(&Kernel::LocalResponse(local), &[], &x, X, |gy| {
            run(Kernel::LocalResponseBackward(local), &[], &[gy, &x], X)
        });
    }
}

#[test]
fn dropout_and_global_pools_have_the_gradient_of_their_input() {
    let mut rng = Rng::new(9);
    let x = random(X, &mut rng);
    let dropout = Kernel::Dropout { probability: 0.4, seed: 5, dropped: Dropped::Elements };
    assert_input_gradient(&dropout, &[], &x, X, |gy| run(dropout, &[], &[gy], X));

    // a global mean is Σ/n, so its gradient broadcasts with the scale 1/n, and a maximum's scatters
    let gy = random([2, 4, 1, 1], &mut rng);
    let gradient = run(Kernel::Broadcast { scale: 1.0 / 30.0 }, &[], &[&gy], X);
    assert_gradient("broadcast", x.data(), gradient.data(), |values| {
        let mut moved = x.clone();
        moved.data_mut().copy_from_slice(values);
        let means = sums(&reduce(Reduction::ImageSum, &[], &[&moved]));
        means.iter().zip(gy.data()).map(|(sum, g)| sum / 30.0 * g).sum()
    });
    let maxima = |x: &Tensor<f64>| match reduce(Reduction::ImageMax, &[], &[x]) {
        Partial::Extrema(extrema) => extrema,
        _ => panic!("maxima expected"),
    };
    let found = maxima(&x);
    let mut gradient = Tensor::zeros(X).expect("a small tensor");
    let (params, output) = (Params::Extrema(&found), gradient.view_mut());
    let region = output.region();
    Reference.compute(&Kernel::Scatter, params, &[gy.view()], output, region, &Workspace::NONE);
    assert_gradient("scatter", x.data(), gradient.data(), |values| {
        let mut moved = x.clone();
        moved.data_mut().copy_from_slice(values);
        maxima(&moved).iter().zip(gy.data()).map(|(extremum, g)| extremum.value * g).sum()
    });
}
