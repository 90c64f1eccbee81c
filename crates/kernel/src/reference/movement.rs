//! Moves between channels and pixels: gradients of slices, shuffles, padding with a constant and crops.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, require};

pub(super) fn slice_backward<T: Element>(
    begin: usize,
    gradient: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(gradient.region(), region);
    let channels = begin..begin + gradient.layout().channels();
    fill(
        output,
        region,
        |n, c, y, x| {
            if channels.contains(&c) { gradient.get(n, c - begin, y, x) } else { T::ZERO }
        },
    );
}

pub(super) fn channel_shuffle<T: Element>(
    groups: usize,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), region);
    let each = output.layout().channels() / groups;
    fill(output, region, |n, c, y, x| input.get(n, c % groups * each + c / groups, y, x));
}

pub(super) fn pixel_shuffle<T: Element>(
    factor: [i64; 2],
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let [r, s] = factor.map(channels);
    fill(output, region, |n, c, y, x| {
        let [u, v] = [y.rem_euclid(factor[0]), x.rem_euclid(factor[1])].map(channels);
        input.get(n, (c * r + u) * s + v, y.div_euclid(factor[0]), x.div_euclid(factor[1]))
    });
}

pub(super) fn pixel_unshuffle<T: Element>(
    factor: [i64; 2],
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let [r, s] = factor.map(channels);
    fill(output, region, |n, c, y, x| {
        let [u, v] = [c / s % r, c % s].map(|phase| i64::try_from(phase).expect("below the factor"));
        input.get(n, c / (r * s), y * factor[0] + u, x * factor[1] + v)
    });
}

pub(super) fn pad_constant<T: Element>(
    before: [i64; 2],
    extents: [i64; 2],
    value: f64,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let [rows, cols] = extents.map(Interval::whole);
    fill(output, region, |n, c, y, x| {
        let [y, x] = [y - before[0], x - before[1]];
        if rows.contains(y) && cols.contains(x) { input.get(n, c, y, x) } else { T::from_f64(value) }
    });
}

fn channels(of: i64) -> usize {
    usize::try_from(of).expect("factors and remainders are not negative")
}
