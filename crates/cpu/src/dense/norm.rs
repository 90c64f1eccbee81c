//! Layer norm, a row after another.

use ndarray::{ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2};
use tiled_kernel::dense::{LayerNorm, Update};

use super::lines::for_rows;
use super::matrix::{Shared, require, with_scratch};
use super::row;
use crate::Isa;
use crate::vector::Lane;

/// Operations that an element counts for.
const COST: usize = 30;

/// Blocks of rows whose sums for γ and β are kept apart and added in their order: as many as threads could share, by the rows alone.
const BLOCKS: usize = 16;

/// A block has at least as many rows.
const LEAST_ROWS: usize = 16;

fn check<E: Lane>(norm: &LayerNorm<'_, E>, shape: &[usize], of_rows: [&[usize]; 2]) {
    of_rows.iter().for_each(|of_rows| require("statistics", of_rows, &shape[..1]));
    for parameter in [&norm.gamma, &norm.beta].into_iter().flatten() {
        require("a parameter", parameter.shape(), &shape[1..]);
    }
}

/// A parameter, or the same for each column where there is none.
fn parameter<E: Lane>(given: Option<ArrayView1<'_, E>>, otherwise: E, cols: usize) -> Vec<E> {
    given.map_or_else(|| vec![otherwise; cols], |given| given.to_vec())
}

fn at<T>(start: *const T, [rows, cols]: [isize; 2], row: usize, col: usize) -> *const T {
    start.wrapping_offset(row.cast_signed() * rows + col.cast_signed() * cols)
}

fn two(strides: &[isize]) -> [isize; 2] {
    [strides[0], strides[1]]
}

#[expect(clippy::cast_precision_loss, reason = "columns are far below 2^53")]
const fn count(cols: usize) -> f64 {
    if cols == 0 { 1.0 } else { cols as f64 }
}

pub(super) fn forward<E: Lane>(
    isa: Isa,
    norm: LayerNorm<'_, E>,
    x: ArrayView2<'_, E>,
    mut y: ArrayViewMut2<'_, E>,
    [mut means, mut rstds]: [ArrayViewMut1<'_, E>; 2],
) {
    require("x", x.shape(), y.shape());
    check(&norm, x.shape(), [means.shape(), rstds.shape()]);
    let (rows, cols) = x.dim();
    let (gamma, beta) = (parameter(norm.gamma, E::ONE, cols), parameter(norm.beta, E::ZERO, cols));
    let (of_x, of_y) = (two(x.strides()), two(y.strides()));
    let of_rows = [means.strides()[0], rstds.strides()[0]];
    let starts = Shared((x.as_ptr(), y.as_mut_ptr(), [means.as_mut_ptr(), rstds.as_mut_ptr()]));
    for_rows(rows, cols * COST, |r| {
        let (x, y, statistics) = starts.get();
        with_scratch(2 * cols, |scratch: *mut E| {
            // SAFETY: the row is one of each array, and no other unit writes it; the scratch has two rows.
            unsafe {
                let x = row::read(at(x, of_x, r, 0), of_x[1], cols, scratch);
                let mean = row::sum(isa, x) / count(cols);
                // what rounding the mean leaves of it comes off the mean of squares
                let near = E::from_f64(mean);
                let rest = mean - near.to_f64();
                let variance = row::squares(isa, x, near) / count(cols) - rest * rest;
                let variance = if variance < 0.0 { 0.0 } else { variance }; // NaN stays
                let rstd = E::from_f64(1.0 / (variance + norm.epsilon).sqrt());
                for ((to, stride), value) in statistics.into_iter().zip(of_rows).zip([near, rstd]) {
                    *to.wrapping_offset(r.cast_signed() * stride) = value;
                }
                let to = at(y, of_y, r, 0).cast_mut();
                row::write(isa, to, of_y[1], cols, scratch.wrapping_add(cols), Update::Replace, |y| {
                    row::normalise(isa, x, &gamma, &beta, [near, rstd], y);
                });
            }
        });
    });
}

pub(super) fn backward<E: Lane>(
    isa: Isa,
    norm: LayerNorm<'_, E>,
    x: ArrayView2<'_, E>,
    [means, rstds]: [ArrayView1<'_, E>; 2],
    dy: ArrayView2<'_, E>,
    mut dx: Option<(ArrayViewMut2<'_, E>, Update)>,
    mut parameters: [Option<ArrayViewMut1<'_, E>>; 2],
) {
    require("dy", dy.shape(), x.shape());
    check(&norm, x.shape(), [means.shape(), rstds.shape()]);
    let (rows, cols) = x.dim();
    for parameter in parameters.iter().flatten() {
        require("the gradient of a parameter", parameter.shape(), &[cols]);
    }
    let to = dx.as_mut().map(|(dx, update)| {
        require("dx", dx.shape(), x.shape());
        let strides = two(dx.strides());
        (dx.as_mut_ptr(), strides, *update)
    });
    let wants_sums = parameters.iter().any(Option::is_some);
    let gamma = parameter(norm.gamma, E::ONE, cols);
    let (of_x, of_dy) = (two(x.strides()), two(dy.strides()));
    let of_block = rows.div_ceil(BLOCKS).max(LEAST_ROWS);
    let blocks = rows.div_ceil(of_block);
    let mut sums = vec![0.0_f64; if wants_sums { 2 * blocks * cols } else { 0 }];
    let starts = Shared((x.as_ptr(), dy.as_ptr(), to, sums.as_mut_ptr()));
    for_rows(blocks, of_block * cols * COST, |block| {
        let (from_x, from_dy, to, sums) = starts.get();
        with_scratch(3 * cols, |scratch: *mut E| {
            for r in block * of_block..((block + 1) * of_block).min(rows) {
                let statistics = [means[r], rstds[r]];
                // SAFETY: the row is one of each array, and no other unit writes that of dx or the sums of this block; the scratch
                // has three rows.
                unsafe {
                    let x = row::read(at(from_x, of_x, r, 0), of_x[1], cols, scratch);
                    let dy = row::read(at(from_dy, of_dy, r, 0), of_dy[1], cols, scratch.wrapping_add(cols));
                    if let Some((to, strides, update)) = to {
                        let [mean, rstd] = statistics;
                        let sums = [row::dot(isa, dy, &gamma), row::norm_dot(isa, x, dy, &gamma, mean, rstd)];
                        let means = sums.map(|sum| E::from_f64(sum / count(cols)));
                        let to = at(to, strides, r, 0).cast_mut();
                        row::write(isa, to, strides[1], cols, scratch.wrapping_add(2 * cols), update, |dx| {
                            row::norm_slopes(isa, x, dy, &gamma, statistics, means, dx);
                        });
                    }
                    if wants_sums {
                        let own = std::slice::from_raw_parts_mut(sums.add(2 * block * cols), 2 * cols);
                        let (d_gamma, d_beta) = own.split_at_mut(cols);
                        row::norm_parameters(isa, x, dy, statistics, d_gamma, d_beta);
                    }
                }
            }
        });
    });
    for (which, parameter) in parameters.iter_mut().enumerate() {
        for (c, to) in parameter.iter_mut().flatten().enumerate() {
            let total: f64 = (0..blocks).map(|block| sums[(2 * block + which) * cols + c]).sum();
            *to += E::from_f64(total);
        }
    }
}
