//! Every kernel but convolution, on every instruction set, under the conformance suite.
//!
//! Beside the blocks that the backend asks for, the suite runs with others, also different ones for the windows
//! of one call: kernels must not rely on the choice.

use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::{Resize, ResizeMode, Window};
use tiled_kernel::{Backend, Host, Kernel, Pool, forward};
use tiled_tensor::{Element, Tensor};
use tiled_testkit::conformance::{self, Case, Rng};

const SEED: u64 = 20_240_917;

/// The backend with another choice of channel blocks.
#[derive(Debug)]
struct Blocked {
    backend: CpuBackend,
    block: fn(usize) -> usize,
}

impl<T: Element> Backend<T> for Blocked {
    forward!(T, |blocked| &blocked.backend; name support seconds transfers_beside workers open_own);

    fn block(&self, channels: usize) -> usize {
        (self.block)(channels)
    }
}

impl<T: Element> Host<T> for Blocked {
    forward!(T, |blocked| &blocked.backend; pack compute compute_part reduce unpack copy);
}

/// Blocks of one, of a vector of each instruction set, and several in one call.
const BLOCKS: [fn(usize) -> usize; 5] =
    [|_| 1, |_| 4, |_| 8, |_| 16, |channels| [1, 16, 64, 8, 2, 4, 32][channels % 7]];

fn check<T: Element>(check: fn(&dyn Backend<T>, u64, usize), cases: usize) {
    for isa in Isa::ALL {
        let backend = match CpuBackend::with_isa(isa) {
            Ok(backend) => backend,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                continue;
            }
        };
        for block in BLOCKS {
            check(&Blocked { backend, block }, conformance::seed(SEED), cases);
        }
    }
}

/// The windows that have loops of their own, and others beside them, on images of odd and even extents.
fn check_usual_pools<T: Element>(backend: &dyn Backend<T>, seed: u64, cases: usize) {
    let mut rng = Rng::new(seed);
    for [kernel, stride, padding] in
        [[2, 2, 0], [2, 2, 1], [3, 2, 1], [3, 2, 0], [3, 1, 1], [5, 1, 2], [9, 2, 4]]
    {
        for (input, ceil) in [([7, 39], false), ([6, 20], true)] {
            let window = Window::new(kernel, stride, 1, padding).expect("a window");
            let output = input.map(|extent| window.outputs(extent, padding, ceil));
            let counts_padding = !ceil;
            let pool =
                Pool { windows: [window; 2], padding_after: [padding; 2], input, output, counts_padding };
            for _ in 0..cases {
                for case in pool_cases(pool, &mut rng) {
                    case.check(backend, &mut rng);
                }
            }
        }
    }
}

fn pool_cases<T: Element>(pool: Pool, rng: &mut Rng) -> [Case<T>; 4] {
    let channels = rng.pick(&[1, 3, 16, 17]);
    let shape = |extents: [i64; 2]| {
        let [height, width] = extents.map(|extent| usize::try_from(extent).expect("positive"));
        [1, channels, height, width]
    };
    let (large, small) = (shape(pool.input), shape(pool.output));
    // few different values, so that windows have several maxima
    let mut tensor = |shape, special| {
        Tensor::from_fn(shape, |_| match rng.index(0, 30) {
            0 if special => T::from_f64(f64::NAN),
            1 if special => T::NEG_INFINITY,
            2 => T::from_f64(-0.0),
            value => T::from_f64(f64::from(u8::try_from(value % 5).expect("small")) - 2.0),
        })
        .expect("a small tensor")
    };
    let mut case = |kernel, inputs: &[([usize; 4], bool)], output| {
        let inputs = inputs.iter().map(|(shape, special)| tensor(*shape, *special)).collect();
        Case { kernel, params: Vec::new(), inputs, output }
    };
    [
        case(Kernel::MaxPool2d(pool), &[(large, true)], small),
        case(Kernel::MaxPool2dBackward(pool), &[(small, false), (large, true)], large),
        case(Kernel::AvgPool2d(pool), &[(large, false)], small),
        case(Kernel::AvgPool2dBackward(pool), &[(small, false)], large),
    ]
}

#[test]
fn usual_pools_conform_in_f32_on_every_instruction_set() {
    check::<f32>(check_usual_pools, 1);
}

#[test]
fn usual_pools_conform_in_f64_on_every_instruction_set() {
    check::<f64>(check_usual_pools, 1);
}

/// Rows of a few parts and of more than are worked out at once, enlarged by little and by much, and with outputs that are an input's value.
fn check_wide_resizes<T: Element>(backend: &dyn Backend<T>, seed: u64, _cases: usize) {
    let mut rng = Rng::new(seed);
    let special = |index: usize| match index {
        0 => T::from_f64(-0.0),
        1 => T::from_f64(f64::INFINITY),
        2 => T::from_f64(f64::NAN),
        index => T::from_f64(f64::from(u8::try_from(index % 251).expect("small")) / 8.0 - 9.0),
    };
    for (mode, [input, output], channels) in [
        (ResizeMode::LINEAR, [18, 139], 3),
        (ResizeMode::LINEAR, [137, 274], 16),
        (ResizeMode::LINEAR, [290, 331], 1),
        (ResizeMode::LINEAR, [140, 1123], 2),
        (ResizeMode::LINEAR_ALIGNED, [12, 133], 2),
        (ResizeMode::LINEAR_ALIGNED, [45, 265], 17),
        (ResizeMode::NEAREST, [70, 140], 2),
        (ResizeMode::NEAREST, [41, 130], 16),
        (ResizeMode::NEAREST, [700, 140], 2),
        (ResizeMode::LINEAR, [140, 20], 16),
        (ResizeMode::CUBIC, [33, 264], 3),
        (ResizeMode::CUBIC, [90, 180], 16),
    ] {
        let axes = [(4, 7), (input, output)]
            .map(|(input, output)| Resize::new(mode, input, output).expect("positive"));
        let shape = |extents: [i64; 2]| {
            let [height, width] = extents.map(|extent| usize::try_from(extent).expect("positive"));
            [1, channels, height, width]
        };
        let input = Tensor::from_fn(shape(axes.map(Resize::input)), |_| special(rng.index(0, 999)));
        let case = Case {
            kernel: Kernel::Resize(axes),
            params: Vec::new(),
            inputs: vec![input.expect("a small tensor")],
            output: shape(axes.map(Resize::output)),
        };
        case.check(backend, &mut rng);
    }
}

#[test]
fn wide_resizes_conform_in_f32_on_every_instruction_set() {
    check::<f32>(check_wide_resizes, 1);
}

#[test]
fn wide_resizes_conform_in_f64_on_every_instruction_set() {
    check::<f64>(check_wide_resizes, 1);
}

macro_rules! suite {
    ($($name:ident: $check:ident, $cases:literal;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn conform_in_f32_on_every_instruction_set() {
                check::<f32>(conformance::$check, $cases);
            }
            #[test]
            fn conform_in_f64_on_every_instruction_set() {
                check::<f64>(conformance::$check, $cases);
            }
        }
    )*};
}

suite! {
    pools: check_pool, 40;
    activations: check_activation, 20;
    elements: check_elementwise, 40;
    scatters: check_scatter, 12;
    norms: check_norm, 20;
    pixels: check_pixel, 32;
    resizes: check_resize, 30;
    paddings: check_pad, 30;
    movements: check_movement, 36;
    losses: check_loss, 20;
    reductions: check_reductions, 30;
}
