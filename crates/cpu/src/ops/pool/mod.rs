//! Pooling, forward and backward.
//!
//! Forward, every tap of the window is folded into a whole row of the output. Backward, the rows of the output
//! gradient are taken in order, and each adds to the rows of the input gradient that its windows touch, so that
//! every element sums its windows in row-major order wherever the region begins.

mod average;
mod maximum;

pub(crate) use average::{average, average_backward};
pub(crate) use maximum::{maximum, maximum_backward, wins};

use tiled_geometry::{Interval, Window, div_ceil, div_floor};
use tiled_kernel::Pool;
use tiled_tensor::{Element, View};

use super::band::{Band, extent, index};
use super::elementwise::Binary;
use super::gather::Place;
use super::runs::{Pixels, each, runs};
use super::stamp::per_isa;
use crate::Isa;

/// Elements of the output gradient that are treated at a time.
const PIECE: usize = 1024;

/// The taps of output `o` that lie in the axis.
fn taps(window: Window, o: i64, extent: i64) -> Interval {
    let first = o * window.stride() - window.padding();
    let begin = div_ceil(-first, window.dilation()).max(0);
    let end = div_floor(extent - 1 - first, window.dilation()) + 1;
    Interval::new(begin, end.min(window.kernel()))
}

/// The input that tap `t` of output `o` reads.
const fn tap(window: Window, o: i64, t: i64) -> i64 {
    o * window.stride() - window.padding() + window.dilation() * t
}

/// The outputs whose tap `t` lies in the inputs.
fn outputs(window: Window, t: i64, inputs: Interval) -> Interval {
    let shift = window.padding() - window.dilation() * t;
    Interval::new(
        div_ceil(inputs.begin() + shift, window.stride()),
        div_ceil(inputs.end() + shift, window.stride()),
    )
}

per_isa! {
    /// `out = f(out, x)` for `count` pixels of `len` lanes.
    fn fold<T: Element, F: Binary<T>>(f: F, count: usize, len: usize, x: Pixels<'_, T>, out: &mut [T], out_step: usize) {
        let values = x.values();
        each(count, len, [x.step(), out_step, 0], |[from, to, _]| {
            out[to] = f.apply::<FUSED>(out[to], values[from]);
        });
    }
}

/// Folds every tap of the windows of row `oy` into the row, in row-major order.
fn fold_row<T: Element>(
    isa: Isa,
    f: impl Binary<T>,
    pool: &Pool,
    x: &View<'_, T>,
    band: &mut Band<'_, T>,
    oy: i64,
) {
    let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
    let [vertical, horizontal] = pool.windows;
    let stride = index(horizontal.stride());
    let row = band.row(oy);
    let rows = taps(vertical, oy, pool.input[0]);
    for ty in rows.begin()..rows.end() {
        let y = tap(vertical, oy, ty);
        for tx in 0..horizontal.kernel() {
            let part = outputs(horizontal, tx, Interval::whole(pool.input[1])).intersect(cols);
            if part.is_empty() {
                continue;
            }
            let at = [y, tap(horizontal, part.begin(), tx)];
            let to = index(part.begin() - cols.begin()) * lanes;
            for run in runs(x.layout(), place) {
                let pixels = Pixels::of(x, place.n, run, at, stride);
                fold(isa, f, extent(part), run.len, pixels, &mut row[to + run.to..], lanes);
            }
        }
    }
}
