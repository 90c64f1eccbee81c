//! The speed of dense work: products as shares of what a loop of multiply-adds reaches in the same run, the rest in microseconds.
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

use ndarray::{ArrayD, ArrayViewD, IxDyn};
use rayon::ThreadPoolBuilder;
use tiled_cpu::CpuBackend;
use tiled_kernel::dense::{Dense, Product, Update};

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
                let peak = peak::gflops(backend.isa(), 20);
                let seconds = product(&backend, *extents, layout);
                let share = 2.0 * (m * n * k) as f64 / seconds / 1e9 / peak;
                format!("{:>18}", format!("{:.1} ({:3.0} %)", 1e6 * seconds, 100.0 * share))
            });
            println!("{name:18} {}", cells.join(" "));
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
