//! Rows along one axis, and how threads share them.

use std::ops::Range;

use super::matrix::Axes;
use crate::share;

/// The rows along one axis of arrays of one shape.
pub(super) struct Lines<const N: usize> {
    others: Axes<N>,
    count: usize,
    /// The elements of a row, and how far apart they are in each array.
    pub(super) extent: usize,
    pub(super) strides: [isize; N],
}

impl<const N: usize> Lines<N> {
    pub(super) fn new(shape: &[usize], strides: [&[isize]; N], axis: usize) -> Self {
        // the axis of the rows counts for one element of the others
        let mut other = shape.to_vec();
        let extent = std::mem::replace(&mut other[axis], 1);
        Self {
            others: Axes::new(&other, strides),
            count: other.iter().product(),
            extent,
            strides: strides.map(|strides| strides[axis]),
        }
    }

    /// Runs `body` with the offsets of each row, one after another.
    pub(super) fn for_each_in_turn(&self, mut body: impl FnMut([isize; N])) {
        let axes = self.others.all().len();
        (0..self.count).for_each(|index| body(self.others.offsets(axes, index)));
    }

    /// Runs `side` with the offsets of as many rows as it takes, and `body` with those of each that is left, in units that threads share.
    pub(super) fn for_side_by_side<const SIDE: usize>(
        &self,
        cost: usize,
        side: impl Fn([[isize; N]; SIDE]) + Sync + Send,
        body: impl Fn([isize; N]) + Sync + Send,
    ) {
        let axes = self.others.all().len();
        let offsets = |row: usize| self.others.offsets(axes, row);
        for_ranges(self.count, self.extent * cost, |rows| {
            let whole = rows.start + rows.len() / SIDE * SIDE;
            for first in (rows.start..whole).step_by(SIDE) {
                side(std::array::from_fn(|row| offsets(first + row)));
            }
            (whole..rows.end).for_each(|row| body(offsets(row)));
        });
    }

    /// Runs `body` with the offsets of each row, in units that threads share.
    pub(super) fn for_each(&self, cost: usize, body: impl Fn([isize; N]) + Sync + Send) {
        let axes = self.others.all().len();
        for_rows(self.count, self.extent * cost, |index| body(self.others.offsets(axes, index)));
    }
}

/// Runs `body` for each row, where a row takes as many operations.
pub(super) fn for_rows(count: usize, operations: usize, body: impl Fn(usize) + Sync + Send) {
    for_ranges(count, operations, |rows| rows.for_each(&body));
}

/// Runs `body` for rows one after another, where a row takes as many operations.
fn for_ranges(count: usize, operations: usize, body: impl Fn(Range<usize>) + Sync + Send) {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (each, all) = (operations.max(1) as f64, count as f64 * operations as f64);
    let threads = share::threads(all);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few rows")]
    let of_unit = ((share::of_a_unit(all, threads) / each) as usize).clamp(1, count.max(1));
    share::for_units(threads, count.div_ceil(of_unit), |unit| {
        body(unit * of_unit..((unit + 1) * of_unit).min(count));
    });
}
