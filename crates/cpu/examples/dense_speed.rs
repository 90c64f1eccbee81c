//! The speed of dense work: products as shares of what a loop of multiply-adds reaches in the same run, the rest in microseconds
//! forward and backward.
//!
//! ```text
//! TILED_ISA=avx512 cargo run --release -p tiled-cpu --example dense_speed -- [threads] [filter]
//! ```

#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints a table of estimates"
)]

use std::time::Instant;

use ndarray::{Array1, Array2, ArrayD, ArrayViewD, Ix2, IxDyn};
use rayon::ThreadPoolBuilder;
use tiled_cpu::{CpuBackend, Isa};
use tiled_kernel::dense::{Attention, Dense, LayerNorm, Product, Softmax, Update};

#[path = "peak/mod.rs"]
mod peak;

/// Values of order one that do not repeat soon.
fn values(shape: &[usize]) -> ArrayD<f32> {
    let mut state = 1_u32;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    })
}

/// Which operand lies with its rows for columns.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// `dY·W`.
    Plain,
    /// `x·Wᵀ`.
    Second,
    /// `dYᵀ·x`, added.
    First,
}

fn product(dense: &dyn Dense<f32>, [m, n, k]: [usize; 3], layout: Layout) -> f64 {
    let turned = |turns: bool, rows: usize, cols: usize| {
        let held = if turns { values(&[cols, rows]) } else { values(&[rows, cols]) };
        (held, turns)
    };
    let (a, b) = (turned(layout == Layout::First, m, k), turned(layout == Layout::Second, k, n));
    let mut c = ArrayD::zeros(IxDyn(&[m, n]));
    fn view((held, turns): &(ArrayD<f32>, bool)) -> ArrayViewD<'_, f32> {
        if *turns { held.t() } else { held.view() }
    }
    let update = if layout == Layout::First { Update::Add } else { Update::Replace };
    let product = Product { a: view(&a), b: view(&b), bias: None, activation: None };
    seconds(|| dense.product(&product, c.view_mut(), update))
}

/// Forward and backward, the gradient of a sum added to what is there.
fn softmax(dense: &dyn Dense<f32>, shape: [usize; 2]) -> [f64; 2] {
    let (x, mut y, mut dx) = (values(&shape), ArrayD::zeros(&shape[..]), ArrayD::zeros(&shape[..]));
    let one = ArrayD::ones(&[1, 1][..]);
    let dy = one.broadcast(&shape[..]).expect("one for all");
    let kind = Softmax::Probabilities;
    let forward = seconds(|| dense.softmax(kind, x.view(), 1, y.view_mut()));
    let backward =
        seconds(|| dense.softmax_backward(kind, y.view(), dy.view(), 1, dx.view_mut(), Update::Add));
    [forward, backward]
}

fn layer_norm(dense: &dyn Dense<f32>, shape: [usize; 2]) -> [f64; 2] {
    let [rows, cols] = shape;
    let x = values(&shape).into_dimensionality::<Ix2>().expect("two axes");
    let (dy, mut y, mut dx) = (x.clone(), Array2::zeros(shape), Array2::zeros(shape));
    let (gamma, beta) = (Array1::ones(cols), Array1::zeros(cols));
    let (mut mean, mut rstd) = (Array1::zeros(rows), Array1::zeros(rows));
    let (mut d_gamma, mut d_beta) = (Array1::zeros(cols), Array1::zeros(cols));
    let norm = LayerNorm { epsilon: 1e-5, gamma: Some(gamma.view()), beta: Some(beta.view()) };
    let forward = seconds(|| {
        dense.layer_norm(&norm, x.view(), y.view_mut(), [mean.view_mut(), rstd.view_mut()]);
    });
    let backward = seconds(|| {
        let to = Some((dx.view_mut(), Update::Replace));
        let parameters = [Some(d_gamma.view_mut()), Some(d_beta.view_mut())];
        dense.layer_norm_backward(&norm, x.view(), [mean.view(), rstd.view()], dy.view(), to, parameters);
    });
    [forward, backward]
}

/// Heads as they lie in one projection: images, keys, three times the heads side by side.
fn attention(dense: &dyn Dense<f32>, [batch, keys, heads, depth]: [usize; 4], causal: bool) -> [f64; 2] {
    let qkv = values(&[batch, keys, 3, heads, depth]).permuted_axes(IxDyn(&[2, 0, 3, 1, 4]));
    let part = |which| qkv.index_axis(ndarray::Axis(0), which);
    let plain = [batch, keys, heads, depth];
    let mut y = ArrayD::zeros(&plain[..]).permuted_axes(IxDyn(&[0, 2, 1, 3]));
    let dy = values(&plain).permuted_axes(IxDyn(&[0, 2, 1, 3]));
    let mut gradients = [(); 3].map(|()| ArrayD::zeros(part(0).raw_dim()));
    let mut log_sums = Array2::zeros([batch * heads, keys]);
    let attention = Attention { scale: 1.0 / (depth as f64).sqrt(), causal, mask: None };
    let forward = seconds(|| {
        dense.attention(&attention, [part(0), part(1), part(2)], y.view_mut(), log_sums.view_mut());
    });
    let backward = seconds(|| {
        let to = gradients.each_mut().map(|gradient| Some((gradient.view_mut(), Update::Replace)));
        let qkv = [part(0), part(1), part(2)];
        dense.attention_backward(&attention, qkv, y.view(), log_sums.view(), dy.view(), to);
    });
    [forward, backward]
}

/// The seconds of a call: of one thread those that it ran, where the system says so, else of the fastest of several. Other work on the
/// machine only ever slows a call down.
fn seconds(mut call: impl FnMut()) -> f64 {
    call();
    let ran = || {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        times.split(' ').next()?.parse::<f64>().ok()
    };
    let (mut best, mut calls) = (f64::INFINITY, 0);
    let (begin, before) = (Instant::now(), ran());
    while calls < 5 || begin.elapsed().as_secs_f64() < 0.2 {
        let start = Instant::now();
        call();
        best = best.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    match (before, ran()) {
        (Some(before), Some(after)) if rayon::current_num_threads() == 1 => {
            best.min((after - before) / 1e9 / f64::from(calls))
        }
        _ => best,
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(1);
    let filter = args.next().unwrap_or_default();
    let backend = CpuBackend::new().expect("the instruction set named in TILED_ISA");
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
    pool.install(|| {
        println!(
            "{} with {threads} threads; µs, and share of a loop of multiply-adds",
            Dense::<f32>::name(&backend)
        );
        println!("{:18} {:>18} {:>18} {:>18}", "m×n×k", "A·B", "A·Bᵀ", "C += Aᵀ·B");
        for extents in SHAPES {
            let [m, n, k] = *extents;
            let name = format!("{m}×{n}×{k}");
            if !name.contains(&filter) {
                continue;
            }
            let cells = [Layout::Plain, Layout::Second, Layout::First].map(|layout| {
                let peak = gflops(backend.isa(), 20);
                let seconds = product(&backend, *extents, layout);
                let share = 2.0 * (m * n * k) as f64 / seconds / 1e9 / peak;
                format!("{:>18}", format!("{:.1} ({:3.0} %)", 1e6 * seconds, 100.0 * share))
            });
            println!("{name:18} {}", cells.join(" "));
        }
        println!("{:32} {:>12} {:>12}", "", "forward", "backward");
        let print = |name: String, measure: &dyn Fn() -> [f64; 2]| {
            if name.contains(&filter) {
                let [forward, backward] = measure().map(|seconds| 1e6 * seconds);
                println!("{name:32} {forward:>12.1} {backward:>12.1}");
            }
        };
        for shape in [[128, 64], [512, 256], [1024, 512]] {
            print(format!("softmax {}×{}", shape[0], shape[1]), &|| softmax(&backend, shape));
            print(format!("layer norm {}×{}", shape[0], shape[1]), &|| layer_norm(&backend, shape));
        }
        for shape in [[32, 16, 4, 16], [64, 32, 8, 16], [128, 32, 8, 32], [32, 1024, 8, 32]] {
            for causal in [false, true] {
                let name = if causal { "causal attention" } else { "attention" };
                let [batch, keys, heads, depth] = shape;
                let name = format!("{name} {batch}×{keys}×{heads}×{depth}");
                print(name, &|| attention(&backend, shape, causal));
            }
        }
    });
}

const SHAPES: &[[usize; 3]] = &[
    [64, 64, 64],
    [128, 128, 128],
    [256, 256, 256],
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [64, 4096, 512],
    [4096, 64, 512],
    [512, 512, 4096],
    [32, 128, 64],
    [32, 2048, 1024],
    [128, 4096, 2048],
    [32, 1024, 2048],
    [128, 2048, 4096],
    [128, 64, 32],
    [2048, 1024, 32],
    [4096, 2048, 128],
];

/// What a loop of multiply-adds in registers reaches, in GFLOP/s; all threads together.
fn gflops(isa: Isa, tries: usize) -> f64 {
    let rounds = 50_000_u64;
    let speeds = rayon::broadcast(|_| {
        let mut best = f64::INFINITY;
        for _ in 0..tries {
            let start = Instant::now();
            peak::fma_loop(isa, rounds);
            best = best.min(start.elapsed().as_secs_f64());
        }
        peak::operations(isa, rounds) / best / 1e9
    });
    speeds.into_iter().sum()
}
