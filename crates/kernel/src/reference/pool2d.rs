//! Maximum and average pooling and their gradients.

use tiled_geometry::{Region, Window};
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, readers, receptive, require, taps, touched};
use crate::{Extremum, Pool};

pub(super) fn max<T: Element>(
    pool: &Pool,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), receptive(pool.windows, pool.input, region));
    fill(output, region, |n, c, y, x| maximum(pool, input, [n, c], [y, x]).value);
}

pub(super) fn max_backward<T: Element>(
    pool: &Pool,
    gradient: View<'_, T>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let outputs = touched(pool.windows, pool.output, region);
    require(gradient.region(), outputs);
    require(input.region(), receptive(pool.windows, pool.input, outputs));
    fill(output, region, |n, c, y, x| {
        let mut sum = T::ZERO;
        for i in outputs_of(pool, 0, y) {
            for j in outputs_of(pool, 1, x) {
                if maximum(pool, input, [n, c], [i, j]).position == Some([y, x]) {
                    sum += gradient.get(n, c, i, j);
                }
            }
        }
        sum
    });
}

pub(super) fn average<T: Element>(
    pool: &Pool,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), receptive(pool.windows, pool.input, region));
    fill(output, region, |n, c, y, x| {
        let mut sum = T::ZERO;
        let mut any = false;
        for i in inside(pool, 0, y) {
            for j in inside(pool, 1, x) {
                sum += input.get(n, c, i, j);
                any = true;
            }
        }
        if any { sum / divisor(pool, [y, x]) } else { T::ZERO }
    });
}

pub(super) fn average_backward<T: Element>(
    pool: &Pool,
    gradient: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(gradient.region(), touched(pool.windows, pool.output, region));
    fill(output, region, |n, c, y, x| {
        let mut sum = T::ZERO;
        for i in outputs_of(pool, 0, y) {
            for j in outputs_of(pool, 1, x) {
                sum += gradient.get(n, c, i, j) / divisor(pool, [i, j]);
            }
        }
        sum
    });
}

/// The first maximum of a window in row-major order; NaN wins. No position where the window is all padding.
fn maximum<T: Element>(pool: &Pool, input: View<'_, T>, [n, c]: [usize; 2], [y, x]: [i64; 2]) -> Extremum<T> {
    let mut extremum = Extremum::default();
    for i in inside(pool, 0, y) {
        for j in inside(pool, 1, x) {
            extremum.offer(input.get(n, c, i, j), [i, j]);
        }
    }
    extremum
}

/// How many elements the mean of a window divides by.
fn divisor<T: Element>(pool: &Pool, [y, x]: [i64; 2]) -> T {
    let counts = [(0, y), (1, x)].map(|(axis, o)| {
        let (before, after) = if pool.counts_padding {
            (pool.windows[axis].padding(), pool.padding_after[axis])
        } else {
            (0, 0)
        };
        let counted = taps(pool.windows[axis], o).filter(|i| (-before..pool.input[axis] + after).contains(i));
        u32::try_from(counted.count()).expect("invariant: kernels are at most 2^20")
    });
    T::from_f64(f64::from(counts[0]) * f64::from(counts[1]))
}

/// Inputs that output `o` reads along an axis, without padding.
fn inside(pool: &Pool, axis: usize, o: i64) -> impl Iterator<Item = i64> {
    let extent = pool.input[axis];
    taps(pool.windows[axis], o).filter(move |i| (0..extent).contains(i))
}

/// Outputs that read input `i` along an axis, in increasing order.
fn outputs_of(pool: &Pool, axis: usize, i: i64) -> impl Iterator<Item = i64> {
    let window: Window = pool.windows[axis];
    // a later tap belongs to an earlier output
    let found: Vec<i64> = readers(window, pool.output[axis], i).flatten().collect();
    found.into_iter().rev()
}
