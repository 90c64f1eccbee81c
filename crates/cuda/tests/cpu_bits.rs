//! Where no order of a sum is involved, the bits are those of the CPU backend with fused multiply-adds: on the simulated device, or on the GPU where
//! `TILED_CUDA_DEVICE` is `cuda`.
#![cfg(all(unix, feature = "simulated"))]

use std::sync::Arc;

use tiled_cpu::{CpuBackend, Isa};
use tiled_cuda::CudaBackend;
use tiled_cuda::driver::Facts;
use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_geometry::{PadMode, Padding, Resize, ResizeMode, Window};
use tiled_kernel::{
    Activation, Arithmetic, Backend, Kernel, LocalResponse, PixelNorm, Pool, Reference, Spread,
};
use tiled_tensor::{Element, Tensor};
use tiled_testkit::conformance::{ACTIVATIONS, Case, FUNCTIONS, Rng};

const SHAPE: [usize; 4] = [2, 19, 9, 23];

/// Both backends; none where one is missing.
fn backends() -> Option<(CpuBackend, CudaBackend)> {
    if Isa::detect() == Isa::Portable {
        eprintln!("skipped: this CPU has no fused multiply-add");
        return None;
    }
    let cpu = CpuBackend::with_isa(Isa::detect()).expect("it was detected");
    #[cfg(feature = "device")]
    if std::env::var("TILED_CUDA_DEVICE").is_ok_and(|device| device == "cuda") {
        let gpu = tiled_cuda::driver::gpu::Gpu::new(0).expect("a GPU");
        return Some((cpu, CudaBackend::new(Arc::new(gpu))));
    }
    match Simulated::new(Facts::h200(), Order::Forward) {
        Ok(device) => Some((cpu, CudaBackend::new(Arc::new(device)))),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            None
        }
    }
}

/// Numbers of every size, zeros of both signs among them.
fn numbers<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    Tensor::from_fn(shape, |_| {
        let size = 2f64.powi(i32::try_from(rng.range(-24, 6)).expect("small"));
        match rng.index(0, 40) {
            0 => T::ZERO,
            1 => -T::ZERO,
            _ => T::from_f64(rng.uniform(-2.0, 2.0) * size),
        }
    })
    .expect("a small tensor")
}

fn compare<T: Element>(cpu: &CpuBackend, cuda: &CudaBackend, case: &Case<T>) {
    let (expected, got): (&dyn Backend<T>, &dyn Backend<T>) = (cpu, cuda);
    let (expected, got) = (case.whole(expected), case.whole(got));
    for (place, (got, expected)) in got.data().iter().zip(expected.data()).enumerate() {
        let same = got.to_bits_u64() == expected.to_bits_u64() || (got.is_nan() && expected.is_nan());
        let [got, expected] = [got, expected].map(|value| value.to_f64());
        assert!(same, "{:?}: element {place} is {got:e}, the CPU's {expected:e}", case.kernel);
    }
}

fn each<T: Element>() {
    let Some((cpu, cuda)) = backends() else { return };
    let mut rng = Rng::new(7);
    let run = |kernel: Kernel, params: Vec<Vec<T>>, inputs: Vec<Tensor<T>>, output: [usize; 4]| {
        compare(&cpu, &cuda, &Case { kernel, params, inputs, output });
    };
    for function in ACTIVATIONS.into_iter().chain(FUNCTIONS) {
        let x = numbers::<T>(SHAPE, &mut rng);
        run(Kernel::Activation(function), vec![], vec![x.clone()], SHAPE);
        let saved = if function.differentiates_from_output() {
            let kernel = Kernel::Activation(function);
            Case { kernel, params: vec![], inputs: vec![x], output: SHAPE }.whole(&Reference)
        } else {
            x
        };
        let gradient = numbers(SHAPE, &mut rng);
        run(Kernel::ActivationBackward(function), vec![], vec![gradient, saved], SHAPE);
    }
    for function in
        [Arithmetic::Add, Arithmetic::Sub, Arithmetic::Div, Arithmetic::Maximum, Arithmetic::Prelu]
    {
        let inputs = vec![numbers(SHAPE, &mut rng), numbers([SHAPE[0], 1, SHAPE[2], SHAPE[3]], &mut rng)];
        run(Kernel::arithmetic(function, [Spread::Whole, Spread::Plane]), vec![], inputs, SHAPE);
    }
    let factors = |rng: &mut Rng| numbers::<T>([1, SHAPE[1], 1, 1], rng).data().to_vec();
    let params = vec![factors(&mut rng), factors(&mut rng)];
    let activation = Some(Activation::Silu);
    run(Kernel::ChannelAffine { activation }, params, vec![numbers(SHAPE, &mut rng)], SHAPE);
    for log in [false, true] {
        run(Kernel::Softmax { log }, vec![], vec![numbers(SHAPE, &mut rng)], SHAPE);
        let inputs = vec![numbers(SHAPE, &mut rng), numbers(SHAPE, &mut rng)];
        run(Kernel::SoftmaxBackward { log }, vec![], inputs, SHAPE);
    }
    let scores = numbers(SHAPE, &mut rng);
    let one = [SHAPE[0], 1, SHAPE[2], SHAPE[3]];
    // ignored ones, one that there is not, and all that there are
    let class = |place: usize| f64::from(u8::try_from(place % 22).expect("small")) - 2.0;
    let mut places = 0..;
    let classes =
        Tensor::from_fn(one, |_| T::from_f64(class(places.next().expect("no end")))).expect("a small tensor");
    for target in [classes, numbers(SHAPE, &mut rng)] {
        let gradient = Kernel::CrossEntropyBackward { scale: 0.3 };
        run(gradient, vec![], vec![scores.clone(), target], SHAPE);
    }
    let norm = PixelNorm { eps: 1e-5, centred: true };
    run(Kernel::PixelNorm(norm), vec![], vec![numbers(SHAPE, &mut rng)], SHAPE);
    let inputs = vec![numbers(SHAPE, &mut rng), numbers(SHAPE, &mut rng)];
    run(Kernel::PixelNormBackward(norm), vec![], inputs, SHAPE);
    let local = LocalResponse { size: 5, alpha: 1.0, beta: 0.75, k: 2.0 };
    run(Kernel::LocalResponse(local), vec![], vec![numbers(SHAPE, &mut rng)], SHAPE);
    let inputs = vec![numbers(SHAPE, &mut rng), numbers(SHAPE, &mut rng)];
    run(Kernel::LocalResponseBackward(local), vec![], inputs, SHAPE);

    let windows = [Window::new(3, 2, 1, 1).expect("a small window"); 2];
    let input = [9, 23];
    let output = [0, 1].map(|axis| windows[axis].outputs(input[axis], 1, false));
    let pool = Pool { windows, padding_after: [1, 1], input, output, counts_padding: false };
    let small = [SHAPE[0], SHAPE[1], 5, 12];
    run(Kernel::MaxPool2d(pool), vec![], vec![numbers(SHAPE, &mut rng)], small);
    run(Kernel::AvgPool2d(pool), vec![], vec![numbers(SHAPE, &mut rng)], small);
    let inputs = vec![numbers(small, &mut rng), numbers(SHAPE, &mut rng)];
    run(Kernel::MaxPool2dBackward(pool), vec![], inputs, SHAPE);
    run(Kernel::AvgPool2dBackward(pool), vec![], vec![numbers(small, &mut rng)], SHAPE);

    let resampling = |mode, to: [i64; 2]| {
        [0, 1].map(|axis| Resize::new(mode, input[axis], to[axis]).expect("positive extents"))
    };
    let large = [SHAPE[0], SHAPE[1], 21, 40];
    for mode in [ResizeMode::NEAREST_EXACT, ResizeMode::LINEAR, ResizeMode::LINEAR_ALIGNED, ResizeMode::CUBIC]
    {
        let kernel = Kernel::Resize(resampling(mode, [21, 40]));
        run(kernel, vec![], vec![numbers(SHAPE, &mut rng)], large);
    }
    let (parts, few) = (resampling(ResizeMode::AREA, [4, 7]), [SHAPE[0], SHAPE[1], 4, 7]);
    run(Kernel::AdaptiveAvgPool2d(parts), vec![], vec![numbers(SHAPE, &mut rng)], few);
    run(Kernel::AdaptiveAvgPool2dBackward(parts), vec![], vec![numbers(few, &mut rng)], SHAPE);
    run(Kernel::AdaptiveMaxPool2d(parts), vec![], vec![numbers(SHAPE, &mut rng)], few);
    let inputs = vec![numbers(few, &mut rng), numbers(SHAPE, &mut rng)];
    run(Kernel::AdaptiveMaxPool2dBackward(parts), vec![], inputs, SHAPE);
    let padding = input.map(|extent| Padding::new(PadMode::Reflect, extent, 2, 1).expect("fits"));
    let padded = [SHAPE[0], SHAPE[1], 12, 26];
    run(Kernel::Pad(padding), vec![], vec![numbers(SHAPE, &mut rng)], padded);
}

#[test]
fn singles_have_the_bits_of_the_cpu() {
    each::<f32>();
}

#[test]
fn doubles_have_the_bits_of_the_cpu() {
    each::<f64>();
}
