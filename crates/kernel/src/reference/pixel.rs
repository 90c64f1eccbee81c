//! Computations of each pixel over its channels, in `f64` and rounded once.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{require, visit};
use crate::spec::{LocalResponse, PixelNorm};

pub(super) fn softmax<T: Element>(
    log: bool,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    each_pixel([input], output, region, |[x]| {
        let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - largest).exp()).sum();
        let value = |x: &f64| if log { (x - largest) - sum.ln() } else { (x - largest).exp() / sum };
        x.iter().map(value).collect()
    });
}

pub(super) fn softmax_backward<T: Element>(
    log: bool,
    gradient: View<'_, T>,
    result: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    each_pixel([gradient, result], output, region, |[g, y]| {
        let pairs = || g.iter().zip(&y);
        if log {
            let sum: f64 = g.iter().sum();
            pairs().map(|(g, y)| g - y.exp() * sum).collect()
        } else {
            let sum: f64 = pairs().map(|(g, y)| g * y).sum();
            pairs().map(|(g, y)| y * (g - sum)).collect()
        }
    });
}

pub(super) fn norm<T: Element>(
    norm: &PixelNorm,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    each_pixel([input], output, region, |[x]| {
        let [mean, inverse] = statistics(norm, &x);
        x.iter().map(|x| (x - mean) * inverse).collect()
    });
}

pub(super) fn norm_backward<T: Element>(
    norm: &PixelNorm,
    gradient: View<'_, T>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    each_pixel([gradient, input], output, region, |[g, x]| {
        let [mean, inverse] = statistics(norm, &x);
        let normalised: Vec<f64> = x.iter().map(|x| (x - mean) * inverse).collect();
        let dots: Vec<f64> = g.iter().zip(&normalised).map(|(g, x)| g * x).collect();
        let (sum, dot) = (if norm.centred { mean_of(&g) } else { 0.0 }, mean_of(&dots));
        g.iter().zip(&normalised).map(|(g, x)| inverse * (g - sum - x * dot)).collect()
    });
}

/// μ and `1/√(σ² + ε)`.
fn statistics(norm: &PixelNorm, x: &[f64]) -> [f64; 2] {
    let mean = if norm.centred { mean_of(x) } else { 0.0 };
    let squares: Vec<f64> = x.iter().map(|x| (x - mean) * (x - mean)).collect();
    [mean, 1.0 / (mean_of(&squares) + norm.eps).sqrt()]
}

#[expect(clippy::cast_precision_loss, reason = "channel counts are far below 2^53")]
fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(super) fn local_response<T: Element>(
    local: &LocalResponse,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    each_pixel([input], output, region, |[x]| {
        let sums = sums(local, &x);
        x.iter().zip(sums).map(|(x, sum)| x * sum.powf(-local.beta)).collect()
    });
}

pub(super) fn local_response_backward<T: Element>(
    local: &LocalResponse,
    gradient: View<'_, T>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    each_pixel([gradient, input], output, region, |[g, x]| {
        let sums = sums(local, &x);
        let slopes: Vec<f64> = (0..x.len()).map(|c| g[c] * x[c] * sums[c].powf(-local.beta - 1.0)).collect();
        let factor = 2.0 * local.beta * local.share();
        (0..x.len())
            .map(|c| {
                let sum: f64 = slopes[local.readers(c, x.len())].iter().sum();
                g[c] * sums[c].powf(-local.beta) - factor * x[c] * sum
            })
            .collect()
    });
}

/// The s of every channel.
fn sums(local: &LocalResponse, x: &[f64]) -> Vec<f64> {
    let sum = |c: usize| x[local.window(c, x.len())].iter().map(|x| x * x).sum::<f64>();
    (0..x.len()).map(|c| local.k + local.share() * sum(c)).collect()
}

/// Writes what `f` makes of the channels of each pixel.
fn each_pixel<T: Element, const N: usize>(
    inputs: [View<'_, T>; N],
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
    f: impl Fn([Vec<f64>; N]) -> Vec<f64>,
) {
    inputs.iter().for_each(|input| require(input.region(), region));
    let (batch, channels) = (output.layout().batch(), output.layout().channels());
    visit(batch, 1, region, |n, _, y, x| {
        let of = |input: View<'_, T>| (0..channels).map(|c| input.get(n, c, y, x).to_f64()).collect();
        for (c, value) in f(inputs.map(of)).into_iter().enumerate() {
            output.set(n, c, y, x, T::from_f64(value));
        }
    });
}
