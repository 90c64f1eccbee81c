//! Normalisation of each pixel over its channels, computed in `f64`.

use tiled_geometry::Region;
use tiled_kernel::PixelNorm;
use tiled_tensor::{Element, PartMut, View};

use super::math;
use super::pixel::{GROUP, PIXELS, Plane, Planes, Run, for_runs};
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

/// What the pixels of a run are normalised by.
struct Statistics {
    mean: Plane<f64>,
    /// `1/√(σ² + ε)`.
    inverse: Plane<f64>,
}

impl Statistics {
    fn new<T: Element>(isa: Isa, norm: &PixelNorm, run: &Run<T>, x: &View<'_, T>) -> Self {
        let mut values = [[T::ZERO; PIXELS]; GROUP];
        let mut mean = [0.0; PIXELS];
        if norm.centred {
            for group in run.groups() {
                add(isa, run.read(x, group, &mut values), &mut mean);
            }
            mean = mean.map(|sum| sum / count(run));
        }
        let mut squares = [0.0; PIXELS];
        for group in run.groups() {
            add_squares(isa, run.read(x, group, &mut values), &mean, &mut squares);
        }
        Self { mean, inverse: squares.map(|sum| 1.0 / (sum / count(run) + norm.eps).sqrt()) }
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
    for_runs(&inputs[..1], output, region, 6, |run| {
        let [mut values, mut out]: [Planes<T>; 2] = [[[T::ZERO; PIXELS]; GROUP]; 2];
        let statistics = Statistics::new(isa, norm, run, x);
        for group in run.groups() {
            normalise(isa, run.read(x, group, &mut values), &statistics, &mut out);
            run.write(group, &out);
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
    for_runs(&inputs[..2], output, region, 12, |run| {
        let [mut gradients, mut values, mut out]: [Planes<T>; 3] = [[[T::ZERO; PIXELS]; GROUP]; 3];
        let statistics = Statistics::new(isa, norm, run, x);
        let (mut sum, mut dot) = ([0.0; PIXELS], [0.0; PIXELS]);
        for group in run.groups() {
            let gradients = run.read(g, group, &mut gradients);
            add_dots(isa, gradients, run.read(x, group, &mut values), &statistics, &mut sum, &mut dot);
        }
        let sum = if norm.centred { sum.map(|sum| sum / count(run)) } else { [0.0; PIXELS] };
        let dot = dot.map(|dot| dot / count(run));
        for group in run.groups() {
            let gradients = run.read(g, group, &mut gradients);
            slopes(isa, gradients, run.read(x, group, &mut values), &statistics, &sum, &dot, &mut out);
            run.write(group, &out);
        }
    });
}
