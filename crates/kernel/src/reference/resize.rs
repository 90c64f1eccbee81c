//! Nearest and linear resampling.

use tiled_geometry::{Interval, Region, Resize, ResizeMode};
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, map, require};

pub(super) fn forward<T: Element>(
    [rows, cols]: [Resize; 2],
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let needed = map([rows.input(), cols.input()], region, |axis, wanted| [rows, cols][axis].needed(wanted));
    require(input.region(), needed);
    fill(output, region, |n, c, y, x| {
        interpolate(rows, y, |i| interpolate(cols, x, |j| input.get(n, c, i, j)))
    });
}

pub(super) fn backward<T: Element>(
    [rows, cols]: [Resize; 2],
    gradient: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let needed =
        map([rows.output(), cols.output()], region, |axis, wanted| [rows, cols][axis].touched(wanted));
    require(gradient.region(), needed);
    fill(output, region, |n, c, y, x| {
        let mut sum = T::ZERO;
        for (i, row_weight) in readers::<T>(rows, y) {
            for (j, col_weight) in readers::<T>(cols, x) {
                sum += row_weight * col_weight * gradient.get(n, c, i, j);
            }
        }
        sum
    });
}

/// `(1 − λ)·f(low) + λ·f(high)`; `f(low)` alone where both taps are one.
fn interpolate<T: Element>(resize: Resize, o: i64, f: impl Fn(i64) -> T) -> T {
    let (low, high) = resize.taps(o);
    if low == high {
        return f(low);
    }
    let [before, after]: [T; 2] = weights(resize, o);
    before * f(low) + after * f(high)
}

/// Outputs that read input `i`, with the weight they give it.
fn readers<T: Element>(resize: Resize, i: i64) -> impl Iterator<Item = (i64, T)> {
    let touched = resize.touched(Interval::new(i, i + 1));
    (touched.begin()..touched.end()).map(move |o| {
        let (low, high) = resize.taps(o);
        let [before, after]: [T; 2] = weights(resize, o);
        let weight = if low == high {
            T::ONE
        } else if i == low {
            before
        } else {
            after
        };
        (o, weight)
    })
}

/// The weights `1 − λ` and `λ` of the two taps, where λ is the fraction of the source position.
fn weights<T: Element>(resize: Resize, o: i64) -> [T; 2] {
    if resize.mode() == ResizeMode::Nearest {
        return [T::ONE, T::ZERO];
    }
    let (numerator, denominator) = resize.source(o);
    #[expect(clippy::cast_precision_loss, reason = "extents are at most 2^30, so both are exact")]
    let fraction = T::from_f64((numerator % denominator) as f64 / denominator as f64);
    [T::ONE - fraction, fraction]
}
