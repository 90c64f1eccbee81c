//! Softmax and its logarithm, a few rows at a time: each is read and written once, and stays in the first cache between.

use ndarray::{ArrayViewD, ArrayViewMutD};
use tiled_kernel::dense::{Softmax, Update};

use super::lines::Lines;
use super::matrix::{Shared, require, with_scratch};
use super::row::{self, SIDE_ROWS};
use crate::Isa;
use crate::vector::Lane;

/// Operations that an exponential counts for.
const EXPONENTIAL: usize = 100;

/// Operations that an element counts for where there is none: what it takes to read and write it.
const PLAIN: usize = 20;

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
    let logarithms = kind == Softmax::Logarithms;
    if of_x == 1 && of_y == 1 {
        // SAFETY: each is a row of x and of y, which no other unit writes, nor another of those side by side.
        let rows = |[at_x, at_y]: [isize; 2]| unsafe {
            let (x, y) = starts.get();
            let (x, y) = (x.wrapping_offset(at_x), y.wrapping_offset(at_y));
            (std::slice::from_raw_parts(x, len), std::slice::from_raw_parts_mut(y, len))
        };
        let side = |offsets: [[isize; 2]; SIDE_ROWS]| {
            let [a, b, c, d] = offsets.map(rows);
            row::softmax(isa, [a.0, b.0, c.0, d.0], logarithms, [a.1, b.1, c.1, d.1]);
        };
        return lines.for_side_by_side(EXPONENTIAL, side, |offsets| {
            let (x, y) = rows(offsets);
            row::softmax(isa, [x], logarithms, [y]);
        });
    }
    lines.for_each(EXPONENTIAL, |[at_x, at_y]| {
        let (x, y) = starts.get();
        let (x, y) = (x.wrapping_offset(at_x), y.wrapping_offset(at_y));
        with_scratch(2 * len, |scratch: *mut E| {
            // SAFETY: as above; the scratch has two rows.
            unsafe {
                let x = row::read(x, of_x, len, scratch);
                let buffer = scratch.wrapping_add(len);
                row::write(isa, y, of_y, len, buffer, Update::Replace, |y| {
                    row::softmax(isa, [x], logarithms, [y]);
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
