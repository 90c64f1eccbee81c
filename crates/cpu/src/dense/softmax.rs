//! Softmax and its logarithm, a row after another: each is read and written once, and stays in the first cache between.

use ndarray::{ArrayViewD, ArrayViewMutD};
use tiled_kernel::dense::{Softmax, Update};

use super::matrix::{Axes, Shared, require, with_scratch};
use super::row;
use crate::Isa;
use crate::share;
use crate::vector::Lane;

/// Operations that an exponential counts for.
const EXPONENTIAL: usize = 60;

/// Operations that an element counts for where there is none: what it takes to read and write it.
const PLAIN: usize = 20;

/// The rows along one axis of arrays of one shape.
struct Lines<const N: usize> {
    others: Axes<N>,
    count: usize,
    extent: usize,
    strides: [isize; N],
}

impl<const N: usize> Lines<N> {
    fn new(shape: &[usize], strides: [&[isize]; N], axis: usize) -> Self {
        let without =
            |of: &[usize]| of.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, x)| *x).product();
        // the axis of the rows counts for one element of the others
        let mut other = shape.to_vec();
        let extent = std::mem::replace(&mut other[axis], 1);
        Self {
            others: Axes::new(&other, strides),
            count: without(shape),
            extent,
            strides: strides.map(|strides| strides[axis]),
        }
    }

    /// Runs `body` with the offsets of each row, in units that threads share.
    fn for_each(&self, cost: usize, body: impl Fn([isize; N]) + Sync + Send) {
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

/// Softmax as the contract has it.
pub(super) fn forward<E: Lane>(
    isa: Isa,
    kind: Softmax,
    x: ArrayViewD<'_, E>,
    axis: usize,
    mut y: ArrayViewMutD<'_, E>,
) {
    require("x", x.shape(), y.shape());
    let lines = Lines::new(x.shape(), [x.strides(), y.strides()], axis);
    let (len, [of_x, of_y]) = (lines.extent, lines.strides);
    if len == 0 {
        return;
    }
    let starts = Shared((x.as_ptr(), y.as_mut_ptr()));
    lines.for_each(EXPONENTIAL, |[at_x, at_y]| {
        let (x, y) = starts.get();
        with_scratch(2 * len, |scratch: *mut E| {
            // SAFETY: the row is one of x and of y, which no other unit writes; the scratch has two rows.
            unsafe {
                let x = row::read(x.wrapping_offset(at_x), of_x, len, scratch);
                let to = y.wrapping_offset(at_y);
                row::write(isa, to, of_y, len, scratch.wrapping_add(len), Update::Replace, |y| {
                    let largest = row::largest(isa, x);
                    row::exponentials(isa, x, largest, y);
                    let sum = row::sum(isa, y);
                    match kind {
                        Softmax::Probabilities => row::scale(isa, y, E::from_f64(1.0 / sum)),
                        Softmax::Logarithms => row::less(isa, x, largest, E::from_f64(sum.ln()), y),
                    }
                });
            }
        });
    });
}

/// Its gradient.
pub(super) fn backward<E: Lane>(
    isa: Isa,
    kind: Softmax,
    y: ArrayViewD<'_, E>,
    dy: ArrayViewD<'_, E>,
    axis: usize,
    mut dx: ArrayViewMutD<'_, E>,
    update: Update,
) {
    require("y", y.shape(), dx.shape());
    require("dy", dy.shape(), dx.shape());
    let lines = Lines::new(y.shape(), [y.strides(), dy.strides(), dx.strides()], axis);
    let (len, [of_y, of_dy, of_dx]) = (lines.extent, lines.strides);
    if len == 0 {
        return;
    }
    let cost = if kind == Softmax::Logarithms { EXPONENTIAL } else { PLAIN };
    let starts = Shared((y.as_ptr(), dy.as_ptr(), dx.as_mut_ptr()));
    lines.for_each(cost, |[at_y, at_dy, at_dx]| {
        let (y, dy, dx) = starts.get();
        with_scratch(3 * len, |scratch: *mut E| {
            let part = |index: usize| scratch.wrapping_add(index * len);
            // SAFETY: the row is one of each array, and no other unit writes that of dx; the scratch has three rows.
            unsafe {
                let y = row::read(y.wrapping_offset(at_y), of_y, len, part(0));
                let dy = row::read(dy.wrapping_offset(at_dy), of_dy, len, part(1));
                row::write(isa, dx.wrapping_offset(at_dx), of_dx, len, part(2), update, |dx| match kind {
                    Softmax::Probabilities => {
                        row::slopes(isa, y, dy, E::from_f64(row::dot(isa, y, dy)), dx);
                    }
                    Softmax::Logarithms => {
                        row::log_slopes(isa, y, dy, E::from_f64(row::sum(isa, dy)), dx);
                    }
                });
            }
        });
    });
}
