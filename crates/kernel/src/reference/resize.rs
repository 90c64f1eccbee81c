//! Nearest, linear and cubic resampling.

use tiled_geometry::{Interval, Region, Resize};
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, map, require};
use crate::Taps;

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

/// The sum of what an output reads, each by its weight; what it reads where that is one input.
fn interpolate<T: Element>(resize: Resize, o: i64, f: impl Fn(i64) -> T) -> T {
    let taps = Taps::<T>::of(resize, o);
    match taps.weights() {
        [_] => f(taps.first),
        weights => {
            let products = weights.iter().zip(taps.first..).map(|(weight, i)| *weight * f(i));
            products.reduce(|sum, product| sum + product).unwrap_or(T::ZERO)
        }
    }
}

/// Outputs that read input `i`, with the weight they give it.
fn readers<T: Element>(resize: Resize, i: i64) -> impl Iterator<Item = (i64, T)> {
    let touched = resize.touched(Interval::new(i, i + 1));
    (touched.begin()..touched.end()).map(move |o| (o, Taps::of(resize, o).weight(i)))
}
