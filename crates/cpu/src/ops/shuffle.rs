//! Kernels that move elements between channels, and between channels and pixels.
//!
//! One channel of a row of the output is elements at one distance of one row of the input: a copy with two strides.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, PartMut, View};

use super::band::{for_bands, index, signed, span};

/// `y[k·groups + g] = x[g·each + k]`.
pub(crate) fn channels<T: Element>(
    groups: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let each = output.layout().channels() / groups;
    for_bands(output, region, 2, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            for lane in 0..band.real_lanes() {
                let c = band.first_channel() + lane;
                let from = Channel { n, c: c % groups * each + c / groups, y };
                from.copy(&inputs[0], cols, 1, &mut band.row(y)[lane..], lanes);
            }
        }
    });
}

/// `y[c, i·r + u, j·s + v] = x[(c·r + u)·s + v, i, j]`, r and s the factors.
pub(crate) fn to_pixels<T: Element>(
    [height, width]: [i64; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let [r, s] = [height, width].map(index);
    for_bands(output, region, 2, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            let (i, u) = (y.div_euclid(height), index(y.rem_euclid(height)));
            for lane in 0..band.real_lanes() {
                let c = ((band.first_channel() + lane) * r + u) * s;
                // the columns of one phase are neighbours in one channel of the input
                for first in cols.begin()..cols.end().min(cols.begin() + width) {
                    let (j, v) = (first.div_euclid(width), index(first.rem_euclid(width)));
                    let shown = Interval::new(j, j + (cols.end() - 1 - first) / width + 1);
                    let at = index(first - cols.begin()) * lanes + lane;
                    let from = Channel { n, c: c + v, y: i };
                    from.copy(&inputs[0], shown, 1, &mut band.row(y)[at..], s * lanes);
                }
            }
        }
    });
}

/// `y[(c·r + u)·s + v, i, j] = x[c, i·r + u, j·s + v]`, r and s the factors.
pub(crate) fn to_channels<T: Element>(
    [height, width]: [i64; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let [r, s] = [height, width].map(index);
    for_bands(output, region, 2, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            for lane in 0..band.real_lanes() {
                let c = band.first_channel() + lane;
                let [u, v] = [c / s % r, c % s].map(signed);
                let shown = Interval::new(cols.begin() * width + v, (cols.end() - 1) * width + v + 1);
                let from = Channel { n, c: c / (r * s), y: y * height + u };
                from.copy(&inputs[0], shown, s, &mut band.row(y)[lane..], lanes);
            }
        }
    });
}

/// A row of a channel of an image.
#[derive(Clone, Copy)]
struct Channel {
    n: usize,
    c: usize,
    y: i64,
}

impl Channel {
    /// Writes every `stride`-th of its columns `cols` to every `step`-th element of a row.
    fn copy<T: Element>(self, x: &View<'_, T>, cols: Interval, stride: usize, row: &mut [T], step: usize) {
        let block = x.layout().block();
        let from = &span(x, [self.n, self.c / block], self.y, cols)[self.c % block..];
        for (to, from) in row.iter_mut().step_by(step).zip(from.iter().step_by(stride * block)) {
            *to = *from;
        }
    }
}
