//! Exact sums and maxima over shares of an image.

use tiled_geometry::Region;
use tiled_tensor::{Element, View};

use super::{require, visit};
use crate::{ExactSum, Extremum};

pub(super) fn channel_sum<T: Element>(input: View<'_, T>, share: Region<2>, sums: &mut [ExactSum]) {
    each(input, share, |_, c, _, value| sums[c].add(value.to_f64()));
}

pub(super) fn image_sum<T: Element>(input: View<'_, T>, share: Region<2>, sums: &mut [ExactSum]) {
    let channels = input.layout().channels();
    each(input, share, |n, c, _, value| sums[n * channels + c].add(value.to_f64()));
}

pub(super) fn moments<T: Element>(input: View<'_, T>, share: Region<2>, sums: &mut [ExactSum]) {
    let channels = input.layout().channels();
    each(input, share, |_, c, _, value| {
        let value = value.to_f64();
        sums[c].add(value);
        sums[channels + c].add_product(value, value);
    });
}

pub(super) fn centred_dot<T: Element>(
    mean: &[T],
    gradient: View<'_, T>,
    input: View<'_, T>,
    share: Region<2>,
    sums: &mut [ExactSum],
) {
    require(input.region(), share);
    let channels = input.layout().channels();
    each(gradient, share, |n, c, [y, x], g| {
        sums[c].add(g.to_f64());
        let product = g * (input.get(n, c, y, x) - mean[c]);
        sums[channels + c].add(product.to_f64());
    });
}

pub(super) fn channel_dot<T: Element>(
    gradient: View<'_, T>,
    input: View<'_, T>,
    share: Region<2>,
    sums: &mut [ExactSum],
) {
    require(input.region(), share);
    each(gradient, share, |n, c, [y, x], g| sums[c].add((g * input.get(n, c, y, x)).to_f64()));
}

pub(super) fn image_moments<T: Element>(input: View<'_, T>, share: Region<2>, sums: &mut [ExactSum]) {
    let channels = input.layout().channels();
    let (sums, squares) = sums.split_at_mut(sums.len() / 2);
    each(input, share, |n, c, _, value| {
        let value = value.to_f64();
        sums[n * channels + c].add(value);
        squares[n * channels + c].add_product(value, value);
    });
}

pub(super) fn image_centred_dot<T: Element>(
    mean: &[T],
    gradient: View<'_, T>,
    input: View<'_, T>,
    share: Region<2>,
    sums: &mut [ExactSum],
) {
    require(input.region(), share);
    let channels = input.layout().channels();
    let (sums, dots) = sums.split_at_mut(sums.len() / 2);
    each(gradient, share, |n, c, [y, x], g| {
        let place = n * channels + c;
        sums[place].add(g.to_f64());
        dots[place].add((g * (input.get(n, c, y, x) - mean[place])).to_f64());
    });
}

pub(super) fn image_max<T: Element>(input: View<'_, T>, share: Region<2>, extrema: &mut [Extremum<T>]) {
    let channels = input.layout().channels();
    each(input, share, |n, c, position, value| extrema[n * channels + c].offer(value, position));
}

pub(super) fn sum<T: Element>(input: View<'_, T>, share: Region<2>, sums: &mut [ExactSum]) {
    each(input, share, |_, _, _, value| sums[0].add(value.to_f64()));
}

pub(super) fn squared_error<T: Element>(
    prediction: View<'_, T>,
    target: View<'_, T>,
    share: Region<2>,
    sums: &mut [ExactSum],
) {
    require(target.region(), share);
    each(prediction, share, |n, c, [y, x], p| {
        let difference = p - target.get(n, c, y, x);
        sums[0].add((difference * difference).to_f64());
    });
}

/// Calls `f(n, c, position, value)` for every element of the share.
fn each<T: Element>(input: View<'_, T>, share: Region<2>, mut f: impl FnMut(usize, usize, [i64; 2], T)) {
    require(input.region(), share);
    let layout = input.layout();
    visit(layout.batch(), layout.channels(), share, |n, c, y, x| f(n, c, [y, x], input.get(n, c, y, x)));
}
