//! Convolutions whose kernels the conformance suite meets by chance: square depthwise windows, and few channels on one side.
#![cfg(all(unix, feature = "simulated"))]

use std::sync::Arc;

use tiled_cuda::CudaBackend;
use tiled_cuda::driver::Facts;
use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_geometry::Window;
use tiled_kernel::{Activation, Conv, Epilogue, Kernel};
use tiled_tensor::Tensor;
use tiled_testkit::conformance::{Case, Rng, check_gradient_of_weights};

const INPUT: [i64; 2] = [19, 23];

/// Checks a convolution with what may follow it, and its gradients.
fn check(channels: [usize; 2], groups: usize, [kernel, stride]: [i64; 2]) {
    let simulated = |order| Simulated::new(Facts::h200(), order);
    let windows = [Window::new(kernel, stride, 1, kernel / 2).expect("a small window"); 2];
    let output = [0, 1].map(|axis| windows[axis].outputs(INPUT[axis], kernel / 2, false));
    let [in_channels, out_channels] = channels;
    let conv = Conv { in_channels, out_channels, groups, windows, input: INPUT, output };
    let mut rng = Rng::new(u64::try_from(100 * kernel + stride).expect("positive"));
    let of = |channels: usize, [height, width]: [i64; 2]| {
        [2, channels, usize::try_from(height).expect("small"), usize::try_from(width).expect("small")]
    };
    let [x, y] = [of(in_channels, INPUT), of(out_channels, output)];
    let numbers =
        |len: usize, rng: &mut Rng| -> Vec<f64> { (0..len).map(|_| rng.uniform(-1.0, 1.0)).collect() };
    let tensor = |shape: [usize; 4], rng: &mut Rng| {
        Tensor::from_fn(shape, |_| rng.uniform(-1.0, 1.0)).expect("a small tensor")
    };
    let weights = numbers(conv.weight_len(), &mut rng);
    let rest: Vec<_> = (0..3).map(|_| numbers(out_channels, &mut rng)).collect();
    let plain = Epilogue::of_bias(false);
    let followed =
        Epilogue { bias: true, affine: true, sum: true, activation: None, mask: Some(Activation::Relu) };
    let cases: [Case<f64>; 3] = [
        Case {
            kernel: Kernel::conv2d(conv, plain),
            params: vec![weights.clone()],
            inputs: vec![tensor(x, &mut rng)],
            output: y,
        },
        Case {
            kernel: Kernel::conv2d(conv, followed),
            params: std::iter::once(weights.clone()).chain(rest).collect(),
            inputs: vec![tensor(x, &mut rng), tensor(y, &mut rng), tensor(y, &mut rng)],
            output: y,
        },
        Case {
            kernel: Kernel::Conv2dBackwardInput { conv, epilogue: plain },
            params: vec![weights],
            inputs: vec![tensor(y, &mut rng)],
            output: x,
        },
    ];
    for order in [Order::Forward, Order::Shuffled(7)] {
        let device = match simulated(order) {
            Ok(device) => device,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let backend = CudaBackend::new(Arc::new(device));
        for case in &cases {
            #[expect(clippy::cast_possible_truncation, reason = "numbers of the test")]
            case.map(|value| value as f32).check(&backend, &mut rng);
        }
        check_gradient_of_weights::<f32>(&backend, conv, 2, &mut rng);
    }
}

#[test]
fn depthwise_windows_of_three_hold() {
    [1, 2].into_iter().for_each(|stride| check([19, 19], 19, [3, stride]));
}

#[test]
fn depthwise_windows_of_five_hold() {
    [1, 2].into_iter().for_each(|stride| check([19, 19], 19, [5, stride]));
}

#[test]
fn depthwise_windows_of_seven_hold() {
    [1, 2].into_iter().for_each(|stride| check([19, 19], 19, [7, stride]));
}

#[test]
fn few_channels_on_one_side_hold() {
    for (channels, window) in [
        ([3, 65], [3, 1]),
        ([3, 21], [7, 2]),
        ([4, 8], [5, 1]),
        ([33, 3], [3, 1]),
        ([40, 2], [3, 1]),
        ([20, 7], [3, 2]),
    ] {
        check(channels, 1, window);
    }
}
