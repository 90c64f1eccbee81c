//! Normalisation of each pixel over its channels, computed in `f64`.

use std::hint::black_box;

use tiled_geometry::Region;
use tiled_kernel::PixelNorm;
use tiled_tensor::{Element, PartMut, View};

use super::math;
use super::pixel::{GROUP, Kept, PIXELS, Plane, Planes, Run, for_tasks};
use super::stamp::per_isa;
use crate::Isa;

per_isa! {
    /// `sum += x`.
    fn add<T: Element>(x: &[Plane<T>], sum: &mut Plane<f64>) {
        for x in x {
            for (sum, x) in sum.iter_mut().zip(x) {
                *sum += x.to_f64();
            }
        }
    }
}

per_isa! {
    /// `sum += (x − mean)²`.
    fn add_squares<T: Element>(x: &[Plane<T>], mean: &Plane<f64>, sum: &mut Plane<f64>) {
        for x in x {
            for ((sum, x), mean) in sum.iter_mut().zip(x).zip(mean) {
                let centred = x.to_f64() - mean;
                *sum = math::fma::<f64, FUSED>(centred, centred, *sum);
            }
        }
    }
}

per_isa! {
    /// `(x − mean)·inverse`.
    fn normalise<T: Element>(x: &[Plane<T>], of: &Statistics, out: &mut [Plane<T>]) {
        for (out, x) in out.iter_mut().zip(x) {
            for (((out, x), mean), inverse) in out.iter_mut().zip(x).zip(&of.mean).zip(&of.inverse) {
                *out = T::from_f64((x.to_f64() - mean) * inverse);
            }
        }
    }
}

per_isa! {
    /// The same for a channel block of the pixels.
    fn normalise_block<T: Element; const LANES: usize>(x: &[T], of: &Statistics, out: &mut [T]) {
        let (out, x) = (out.as_chunks_mut::<LANES>().0, x.as_chunks::<LANES>().0);
        for (((out, x), mean), inverse) in out.iter_mut().zip(x).zip(&of.mean).zip(&of.inverse) {
            // vectors of channels: the compiler would gather and scatter those of pixels
            let mean = if LANES > 1 { black_box(*mean) } else { *mean };
            for (out, x) in out.iter_mut().zip(x) {
                *out = T::from_f64((x.to_f64() - mean) * inverse);
            }
        }
    }
}

per_isa! {
    /// `sum += g`, `dot += g·(x − mean)·inverse`.
    fn add_dots<T: Element>(g: &[Plane<T>], x: &[Plane<T>], of: &Statistics, sum: &mut Plane<f64>, dot: &mut Plane<f64>) {
        for (g, x) in g.iter().zip(x) {
            let sums = sum.iter_mut().zip(dot.iter_mut()).zip(of.mean.iter().zip(&of.inverse));
            for (((sum, dot), (mean, inverse)), (g, x)) in sums.zip(g.iter().zip(x)) {
                *sum += g.to_f64();
                *dot = math::fma::<f64, FUSED>(g.to_f64(), (x.to_f64() - mean) * inverse, *dot);
            }
        }
    }
}

per_isa! {
    /// `(g − sum − (x − mean)·inverse·dot)·inverse`.
    fn slopes<T: Element>(g: &[Plane<T>], x: &[Plane<T>], of: &Statistics, sum: &Plane<f64>, dot: &Plane<f64>, out: &mut [Plane<T>]) {
        for ((out, g), x) in out.iter_mut().zip(g).zip(x) {
            let of = of.mean.iter().zip(&of.inverse).zip(sum.iter().zip(dot));
            for ((out, ((mean, inverse), (sum, dot))), (g, x)) in out.iter_mut().zip(of).zip(g.iter().zip(x)) {
                let share = (x.to_f64() - mean) * inverse * dot;
                *out = T::from_f64((g.to_f64() - sum - share) * inverse);
            }
        }
    }
}

per_isa! {
    /// The same for a channel block of the pixels.
    fn slopes_block<T: Element; const LANES: usize>(g: &[T], x: &[T], of: &Statistics, sum: &Plane<f64>, dot: &Plane<f64>, out: &mut [T]) {
        let [g, x] = [g, x].map(|values| values.as_chunks::<LANES>().0);
        let out = out.as_chunks_mut::<LANES>().0;
        let of = of.mean.iter().zip(&of.inverse).zip(sum.iter().zip(dot));
        for ((out, ((mean, inverse), (sum, dot))), (g, x)) in out.iter_mut().zip(of).zip(g.iter().zip(x)) {
            let mean = if LANES > 1 { black_box(*mean) } else { *mean };
            for (out, (g, x)) in out.iter_mut().zip(g.iter().zip(x)) {
                let share = (x.to_f64() - mean) * inverse * dot;
                *out = T::from_f64((g.to_f64() - sum - share) * inverse);
            }
        }
    }
}

per_isa! {
    /// The means of so many values, from their sums.
    fn means<T: Element>(count: T, sums: &mut Plane<T>) {
        for sum in sums {
            *sum = *sum / count;
        }
    }
}

per_isa! {
    /// `1/√(σ² + ε)`, from sums of squares of so many values.
    fn inverses<T: Element>(count: T, eps: T, squares: &mut Plane<T>) {
        for sum in squares {
            *sum = T::ONE / (*sum / count + eps).sqrt();
        }
    }
}

/// The channels of a block that functions of a block are built for: those of a vector of some instruction set, and one.
const fn is_built(block: usize) -> bool {
    matches!(block, 1 | 4 | 8 | 16)
}

/// Calls the function of a block that is built for as many channels ([`is_built`]).
macro_rules! of_block {
    ($block:expr, $function:ident::<$T:ty>($($arg:expr),* $(,)?)) => {
        match $block {
            1 => $function::<$T, 1>($($arg),*),
            4 => $function::<$T, 4>($($arg),*),
            8 => $function::<$T, 8>($($arg),*),
            _ => $function::<$T, 16>($($arg),*),
        }
    };
}

/// What the pixels of a run are normalised by.
struct Statistics {
    mean: Plane<f64>,
    /// `1/√(σ² + ε)`.
    inverse: Plane<f64>,
}

impl Statistics {
    const fn new() -> Self {
        Self { mean: [0.0; PIXELS], inverse: [0.0; PIXELS] }
    }

    /// Takes those of a run.
    fn take<T: Element>(
        &mut self,
        isa: Isa,
        norm: &PixelNorm,
        run: &Run<T>,
        x: &View<'_, T>,
        kept: &mut Kept<T>,
    ) {
        let Self { mean, inverse } = self;
        kept.clear();
        mean.fill(0.0);
        if norm.centred {
            for group in run.groups() {
                add(isa, kept.read(run.pixels(), x, group), mean);
            }
            means(isa, count(run), mean);
        }
        inverse.fill(0.0);
        for group in run.groups() {
            add_squares(isa, kept.read(run.pixels(), x, group), mean, inverse);
        }
        inverses(isa, count(run), norm.eps, inverse);
    }
}

#[expect(clippy::cast_precision_loss, reason = "channel counts are far below 2^53")]
const fn count<T: Element>(run: &Run<T>) -> f64 {
    run.channels() as f64
}

/// `(x[c] − μ)/√(σ² + ε)` of `[x]`.
pub(super) fn forward<T: Element>(
    isa: Isa,
    norm: &PixelNorm,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_tasks(&inputs[..1], output, region, 6, |runs| {
        let mut kept = Kept::new();
        let mut statistics = Statistics::new();
        let mut out: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
        let lanes = x.layout().block();
        for mut run in runs {
            statistics.take(isa, norm, &run, x, &mut kept);
            if is_built(lanes)
                && let Some(blocks) = run.alike(x)
            {
                for (block, values) in blocks.enumerate() {
                    of_block!(lanes, normalise_block::<T>(isa, values, &statistics, run.row(block)));
                }
                continue;
            }
            for group in run.groups() {
                normalise(isa, kept.read(run.pixels(), x, group), &statistics, &mut out);
                run.write(group, &out);
            }
        }
    });
}

/// The gradient of `[gy, x]`.
pub(super) fn backward<T: Element>(
    isa: Isa,
    norm: &PixelNorm,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (g, x) = (&inputs[0], &inputs[1]);
    for_tasks(&inputs[..2], output, region, 12, |runs| {
        let mut kept = Kept::new();
        let mut kept_gradients = Kept::new();
        let mut statistics = Statistics::new();
        let mut out: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
        let lanes = x.layout().block();
        for mut run in runs {
            kept_gradients.clear();
            statistics.take(isa, norm, &run, x, &mut kept);
            let (mut sum, mut dot) = ([0.0; PIXELS], [0.0; PIXELS]);
            for group in run.groups() {
                let gradients = kept_gradients.read(run.pixels(), g, group);
                add_dots(isa, gradients, kept.read(run.pixels(), x, group), &statistics, &mut sum, &mut dot);
            }
            if norm.centred {
                means(isa, count(&run), &mut sum);
            } else {
                sum.fill(0.0);
            }
            means(isa, count(&run), &mut dot);
            if is_built(lanes)
                && let (Some(gradients), Some(values)) = (run.alike(g), run.alike(x))
            {
                for (block, (gradients, values)) in gradients.zip(values).enumerate() {
                    let out = run.row(block);
                    of_block!(lanes, slopes_block::<T>(isa, gradients, values, &statistics, &sum, &dot, out));
                }
                continue;
            }
            for group in run.groups() {
                let gradients = kept_gradients.read(run.pixels(), g, group);
                slopes(isa, gradients, kept.read(run.pixels(), x, group), &statistics, &sum, &dot, &mut out);
                run.write(group, &out);
            }
        }
    });
}
