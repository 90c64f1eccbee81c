//! Rows along one axis, and how threads share them.

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

    /// Runs `body` with the offsets of each row, in units that threads share.
    pub(super) fn for_each(&self, cost: usize, body: impl Fn([isize; N]) + Sync + Send) {
        let axes = self.others.all().len();
        for_rows(self.count, self.extent * cost, |index| body(self.others.offsets(axes, index)));
    }
}

/// Runs `body` for each row, where a row takes as many operations.
pub(super) fn for_rows(count: usize, operations: usize, body: impl Fn(usize) + Sync + Send) {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let (each, all) = (operations.max(1) as f64, count as f64 * operations as f64);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few rows")]
    let of_unit = ((share::WORTH_A_UNIT / each) as usize).clamp(1, count.max(1));
    share::for_units(share::threads(all), count.div_ceil(of_unit), |unit| {
        (unit * of_unit..((unit + 1) * of_unit).min(count)).for_each(&body);
    });
}
