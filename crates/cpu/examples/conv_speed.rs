//! The speed of the convolution kernels, as shares of what a loop of multiply-adds reaches in turns with them.
//!
//! ```text
//! TILED_ISA=avx512 cargo run --release -p tiled-cpu --example conv_speed -- [threads] [filter]
//! ```
//!
//! The filter is a part of a name, or several with `|` between them. A slice of the loop runs before each call of a kernel, and both
//! times are those of the fastest tenth: other work on the machine only ever slows them down, and the clock is the same for both.

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints a table of estimates"
)]

#[path = "peak/mod.rs"]
mod peak;

use std::time::Instant;

use rayon::ThreadPoolBuilder;
use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::{Interval, Region, Window};
use tiled_kernel::{
    Activation, Algorithm, Backend, Conv, Epilogue, Host, Kernel, Params, Reduction, Workspace,
};
use tiled_tensor::{AlignedBuffer, Layout, View, ViewMut};

struct Case {
    name: &'static str,
    channels: [usize; 2],
    groups: usize,
    kernel: i64,
    stride: i64,
    dilation: i64,
    width: i64,
    rows: i64,
}

const fn case(name: &'static str, channels: [usize; 2], kernel: i64) -> Case {
    Case { name, channels, groups: 1, kernel, stride: 1, dilation: 1, width: 1024, rows: 2 }
}

const CASES: &[Case] = &[
    case("3→64 3×3", [3, 64], 3),
    case("64→64 3×3", [64, 64], 3),
    case("64→128 3×3", [64, 128], 3),
    Case { width: 512, ..case("128→128 3×3", [128, 128], 3) },
    Case { stride: 4, width: 256, ..case("3→96 4×4/4", [3, 96], 4) },
    case("3→16 3×3", [3, 16], 3),
    case("16→16 3×3", [16, 16], 3),
    case("16→32 3×3", [16, 32], 3),
    case("32→32 3×3", [32, 32], 3),
    case("16→3 3×3", [16, 3], 3),
    case("64→1 1×1", [64, 1], 1),
    case("3→3 3×3", [3, 3], 3),
    Case { width: 256, ..case("256→64 1×1", [256, 64], 1) },
    Case { stride: 2, ..case("64→128 3×3/2", [64, 128], 3) },
    Case { stride: 2, ..case("64→128 1×1/2", [64, 128], 1) },
    Case { stride: 2, ..case("3→64 7×7/2", [3, 64], 7) },
    Case { groups: 64, ..case("64 depthwise 3×3", [64, 64], 3) },
    Case { groups: 64, stride: 2, ..case("64 depthwise 3×3/2", [64, 64], 3) },
    Case { groups: 16, ..case("64→64 of 16 groups 3×3", [64, 64], 3) },
    Case { groups: 2, ..case("64→64 of 2 groups 3×3", [64, 64], 3) },
    Case { dilation: 2, ..case("64→64 3×3 dilated 2", [64, 64], 3) },
    Case { width: 64, rows: 16, ..case("64→128 3×3, 64×64", [64, 128], 3) },
    Case { width: 64, rows: 16, ..case("32→64 3×3, 64×64", [32, 64], 3) },
    Case { width: 64, rows: 16, ..case("16→16 3×3, 64×64", [16, 16], 3) },
    Case { width: 64, rows: 16, ..case("32→32 3×3, 64×64", [32, 32], 3) },
    Case { width: 64, rows: 16, ..case("128→64 3×3, 64×64", [128, 64], 3) },
    Case { stride: 2, rows: 16, ..case("3→64 7×7/2, 16 rows", [3, 64], 7) },
    Case { width: 512, rows: 8, ..case("64→64 3×3, 8 rows of 512", [64, 64], 3) },
    Case { width: 256, rows: 4, ..case("128→128 3×3, 4 rows of 256", [128, 128], 3) },
    Case { width: 128, rows: 2, ..case("256→256 3×3, 2 rows of 128", [256, 256], 3) },
    Case { width: 128, rows: 8, ..case("256→256 3×3, 8 rows of 128", [256, 256], 3) },
    Case { width: 64, rows: 1, ..case("512→512 3×3, 1 row of 64", [512, 512], 3) },
    Case { width: 64, rows: 4, ..case("512→512 3×3, 4 rows of 64", [512, 512], 3) },
    Case { width: 64, rows: 8, ..case("512→512 3×3, 8 rows of 64", [512, 512], 3) },
    Case { stride: 2, width: 512, rows: 8, ..case("64→128 3×3/2, 8 rows of 512", [64, 128], 3) },
    Case { stride: 2, width: 256, rows: 4, ..case("128→256 3×3/2, 4 rows of 256", [128, 256], 3) },
    Case { stride: 2, width: 128, rows: 2, ..case("256→512 3×3/2, 2 rows of 128", [256, 512], 3) },
    Case { stride: 2, width: 128, rows: 8, ..case("256→512 3×3/2, 8 rows of 128", [256, 512], 3) },
    Case { width: 512, rows: 512, ..case("64→64 3×3, 512×512", [64, 64], 3) },
    Case { width: 512, stride: 2, rows: 256, ..case("64→128 3×3/2, 256×256", [64, 128], 3) },
    Case { width: 128, rows: 128, ..case("256→256 3×3, 128×128", [256, 256], 3) },
    Case { width: 64, rows: 64, ..case("512→512 3×3, 64×64", [512, 512], 3) },
    Case { width: 32, rows: 32, ..case("3→16 3×3, 32×32", [3, 16], 3) },
    Case { width: 16, rows: 16, ..case("512→512 3×3, 16×16", [512, 512], 3) },
    Case { width: 64, rows: 16, ..case("1024→256 3×3, 16 rows of 64", [1024, 256], 3) },
    Case { width: 32, rows: 16, ..case("2048→256 3×3, 16 rows of 32", [2048, 256], 3) },
    Case { width: 64, rows: 16, ..case("2048→512 1×1, 16 rows of 64", [2048, 512], 1) },
    depthwise("64 depthwise 3×3, 8 rows of 128", 64, 3, 1),
    depthwise("64 depthwise 5×5, 8 rows of 128", 64, 5, 1),
    depthwise("64 depthwise 7×7, 8 rows of 128", 64, 7, 1),
    depthwise("192 depthwise 3×3, 8 rows of 64", 192, 3, 1),
    depthwise("384 depthwise 3×3, 8 rows of 32", 384, 3, 1),
    depthwise("384 depthwise 5×5, 8 rows of 32", 384, 5, 1),
    depthwise("384 depthwise 7×7, 8 rows of 32", 384, 7, 1),
    depthwise("64 depthwise 3×3/2, 4 rows of 64", 64, 3, 2),
    depthwise("64 depthwise 5×5/2, 4 rows of 64", 64, 5, 2),
    depthwise("64 depthwise 7×7/2, 4 rows of 64", 64, 7, 2),
    depthwise("384 depthwise 3×3/2, 4 rows of 16", 384, 3, 2),
    depthwise("384 depthwise 5×5/2, 4 rows of 16", 384, 5, 2),
    Case { dilation: 2, ..depthwise("64 depthwise 3×3 dilated 2, 8 rows", 64, 3, 1) },
    Case { dilation: 2, rows: 16, ..depthwise("384 depthwise 5×5 dilated 2, 16 rows of 32", 384, 5, 1) },
    Case {
        dilation: 6,
        width: 64,
        rows: 32,
        ..depthwise("64 depthwise 3×3 dilated 6, 32 rows of 64", 64, 3, 1)
    },
    Case { dilation: 12, width: 40, rows: 40, ..depthwise("64 depthwise 3×3 dilated 12, 40×40", 64, 3, 1) },
    Case {
        groups: 16,
        dilation: 2,
        width: 128,
        rows: 16,
        ..case("64→64 of 16 groups 3×3 dilated 2", [64, 64], 3)
    },
    Case { groups: 16, width: 128, rows: 8, ..case("64→64 of 16 groups 3×3, 8 rows", [64, 64], 3) },
    Case { width: 128, rows: 8, ..case("16→16 1×1", [16, 16], 1) },
    Case { width: 128, rows: 8, ..case("16→96 1×1", [16, 96], 1) },
    Case { width: 128, rows: 8, ..case("96→24 1×1", [96, 24], 1) },
    Case { width: 128, rows: 8, ..case("64→64 1×1", [64, 64], 1) },
    Case { width: 64, rows: 8, ..case("64→256 1×1", [64, 256], 1) },
    Case { width: 64, rows: 8, ..case("128→128 1×1", [128, 128], 1) },
    Case { width: 64, rows: 8, ..case("144→32 1×1", [144, 32], 1) },
    Case { width: 64, rows: 4, ..case("256→256 1×1", [256, 256], 1) },
    Case { width: 32, rows: 4, ..case("512→512 1×1", [512, 512], 1) },
    Case { width: 32, rows: 4, ..case("384→64 1×1", [384, 64], 1) },
    Case { width: 256, rows: 16, ..case("64→256 1×1, 16 rows of 256", [64, 256], 1) },
    Case { width: 64, rows: 32, ..case("256→1024 1×1, 32 rows of 64", [256, 1024], 1) },
    Case { width: 32, rows: 32, ..case("192→1152 1×1, 32 rows of 32", [192, 1152], 1) },
    dilated("32→32 3×3 dilated 2", 32, 2),
    dilated("32→32 3×3 dilated 4", 32, 4),
    dilated("32→32 3×3 dilated 8", 32, 8),
    dilated("32→32 3×3 dilated 16", 32, 16),
    dilated("64→64 3×3 dilated 2, 128²", 64, 2),
    dilated("64→64 3×3 dilated 4", 64, 4),
    dilated("64→64 3×3 dilated 8", 64, 8),
    dilated("64→64 3×3 dilated 16", 64, 16),
    Case {
        dilation: 2,
        width: 128,
        rows: 16,
        ..case("256→256 3×3 dilated 2, 16 rows of 128", [256, 256], 3)
    },
    Case {
        dilation: 12,
        width: 128,
        rows: 64,
        ..case("2048→256 3×3 dilated 12, 64 rows of 128", [2048, 256], 3)
    },
    Case { width: 128, rows: 8, ..case("16→3 3×3, 8 rows of 128", [16, 3], 3) },
    Case { width: 128, rows: 8, ..case("3→32 9×9", [3, 32], 9) },
    Case { width: 128, rows: 8, ..case("32→3 9×9", [32, 3], 9) },
];

const fn depthwise(name: &'static str, channels: usize, kernel: i64, stride: i64) -> Case {
    let width = if channels > 256 {
        32
    } else if channels > 128 {
        64
    } else {
        128
    };
    Case { groups: channels, stride, width, rows: 8 / stride, ..case(name, [channels, channels], kernel) }
}

const fn dilated(name: &'static str, channels: usize, dilation: i64) -> Case {
    Case { dilation, width: 128, rows: 8, ..case(name, [channels, channels], 3) }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(1);
    let filter = args.next().unwrap_or_default();
    let backend = CpuBackend::new().expect("the instruction set named in TILED_ISA");
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    pool.install(|| {
        println!("{} with {threads} threads, GFLOP/s", Backend::<f32>::name(&backend));
        println!("{:34} {:>16} {:>16} {:>16} {:>16}", "", "forward", "for input", "for weights", "winograd");
        let wanted = |case: &&Case| filter.split('|').any(|part| case.name.contains(part));
        for case in CASES.iter().filter(wanted) {
            let cells = measure(&backend, case).map(|Speed { flops, share }| {
                format!("{:>16}", format!("{:7.1} ({:3.0} %)", flops / 1e9, 100.0 * share))
            });
            println!("{:34} {}", case.name, cells.join(" "));
        }
    });
}

/// Enough for the transforms of every case.
const WORKSPACE_ELEMENTS: usize = 4 << 20;

/// Operations a second, and their share of what the loop does.
#[derive(Clone, Copy, Default)]
struct Speed {
    flops: f64,
    share: f64,
}

/// Speeds of the multiply-adds of the sums; Winograd's filtering does fewer. Zero where it does not apply.
fn measure(backend: &CpuBackend, case: &Case) -> [Speed; 4] {
    let padding = case.dilation * (case.kernel / 2);
    let window = Window::new(case.kernel, case.stride, case.dilation, padding).expect("a valid window");
    // room for the taps above and below
    let height = (4 * case.rows * case.stride).min(case.width).max(case.rows * case.stride + 4 * padding);
    let input = [height, case.width];
    let conv = Conv {
        in_channels: case.channels[0],
        out_channels: case.channels[1],
        groups: case.groups,
        windows: [window; 2],
        input,
        output: input.map(|extent| window.outputs(extent, padding, false)),
    };
    let rows = conv.output[0].min(case.rows);
    let middle = (conv.output[0] - rows) / 2;
    // Winograd's filtering computes whole cells
    let grain = if conv.suits_winograd() { 4 * conv.dilation() } else { 4 };
    let begin = if middle < grain { middle } else { middle / grain * grain };
    let share = Region::new([Interval::new(begin, begin + rows), Interval::whole(conv.output[1])]);
    let all = Region::whole(conv.input);
    let layout = |channels: usize, region: Region<2>, rows: i64| {
        let block = Backend::<f32>::block(backend, channels);
        Layout::new(1, channels, block, region, usize::try_from(rows).expect("rows")).expect("a layout")
    };
    let computed = share.rows().aligned(grain).intersect(Interval::whole(conv.output[0]));
    let need = Region::new([window.receptive(computed).intersect(all.rows()), all.cols()]);
    let x_layout = layout(conv.in_channels, need, need.rows().len() + 1);
    let y_layout = layout(conv.out_channels, share, rows);
    let weight: Vec<f32> = (0..conv.weight_len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let bias = vec![0.5; conv.out_channels];
    let mut x = AlignedBuffer::<f32>::new(x_layout.len());
    x.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 5) as f32 - 2.0);
    let mut y = AlignedBuffer::<f32>::new(y_layout.len());
    let per_pixel = 2.0 * conv.weight_len() as f64;
    let workspace = Workspace::new(rayon::current_num_threads(), WORKSPACE_ELEMENTS).expect("memory");

    let mut forward = |kernel: Kernel| {
        let packed = pack(backend, &kernel, &[&weight, &bias]);
        let work = per_pixel * share.volume() as f64;
        speed(backend.isa(), work, || {
            backend.compute(
                &kernel,
                Params::Packed(&packed),
                &[View::new(&x, x_layout)],
                ViewMut::new(&mut y, y_layout),
                share,
                &workspace,
            );
        })
    };
    let activation = Some(Activation::Relu);
    let direct = forward(Kernel::conv2d(conv, Epilogue::of_bias(true).with_activation(activation)));
    let winograd = if conv.suits_winograd() {
        forward(Kernel::Conv2d {
            conv,
            algorithm: Algorithm::Winograd,
            epilogue: Epilogue::of_bias(true).with_activation(activation),
        })
    } else {
        Speed::default()
    };
    let for_input = {
        let kernel = Kernel::Conv2dBackwardInput { conv, epilogue: Epilogue::NONE };
        let packed = pack(backend, &kernel, &[&weight]);
        let rows = Interval::new(begin * case.stride, (begin + rows) * case.stride);
        let region = Region::new([rows, all.cols()]);
        let need = window.touched(rows).intersect(Interval::whole(conv.output[0]));
        let from = layout(conv.out_channels, share.with_axis(0, need), need.len());
        let mut gy = AlignedBuffer::<f32>::new(from.len());
        gy.fill(0.5);
        let to = layout(conv.in_channels, region, rows.len());
        let mut gx = AlignedBuffer::<f32>::new(to.len());
        let work = per_pixel * share.volume() as f64;
        speed(backend.isa(), work, || {
            backend.compute(
                &kernel,
                Params::Packed(&packed),
                &[View::new(&gy, from)],
                ViewMut::new(&mut gx, to),
                region,
                &Workspace::NONE,
            );
        })
    };
    let for_weight = {
        let reduction = Reduction::ConvWeight(conv);
        let mut partial =
            (backend as &dyn Host<f32>).partial(&reduction, 1, conv.in_channels).expect("memory");
        let work = per_pixel * share.volume() as f64;
        y.fill(0.5);
        speed(backend.isa(), work, || {
            let inputs = [View::new(&x, x_layout), View::new(&y, y_layout)];
            backend.reduce(&reduction, &[], &inputs, share, &mut partial);
        })
    };
    [direct, for_input, for_weight, winograd]
}

fn pack(backend: &CpuBackend, kernel: &Kernel, params: &[&[f32]]) -> AlignedBuffer<f32> {
    let lens: Vec<usize> = params.iter().map(|param| param.len()).collect();
    let mut packed = AlignedBuffer::new((backend as &dyn Host<f32>).packed_len(kernel, &lens));
    backend.pack(kernel, params, &mut packed);
    packed
}

/// Rounds of a slice of the loop of multiply-adds: about as long as a short call.
const ROUNDS: u64 = 2_000;

/// The speed of calls in turns with slices of the loop, over a fifth of a second and more.
fn speed(isa: Isa, work: f64, mut body: impl FnMut()) -> Speed {
    let seconds = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        call();
        start.elapsed().as_secs_f64()
    };
    let (mut loops, mut calls) = (Vec::new(), Vec::new());
    body();
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.2 || calls.len() < 10 {
        loops.push(seconds(&mut || {
            rayon::broadcast(|_| peak::fma_loop(isa, ROUNDS));
        }));
        calls.push(seconds(&mut body));
    }
    let fast = |seconds: &mut Vec<f64>| {
        seconds.sort_unstable_by(f64::total_cmp);
        seconds[seconds.len() / 10]
    };
    let peak = peak::operations(isa, ROUNDS) * rayon::current_num_threads() as f64 / fast(&mut loops);
    let flops = work / fast(&mut calls);
    Speed { flops, share: flops / peak }
}
