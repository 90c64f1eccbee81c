//! `Bᵀ d B` of patches and `Aᵀ m A` of sums, a vector of channels at a time.

use std::ops::Range;

use tiled_tensor::Element;

use super::super::limits::Limits;
use super::{PATCH, TILE};
use crate::vector::{Micro, Simd};

/// The inputs of a tile.
pub(super) struct Patch<E> {
    /// Column 0 of each row that lies in the image, in the first block of channels.
    pub(super) starts: [*const E; PATCH],
    /// The rows and columns that lie in the image; the others are zero.
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    /// Elements from a column to the next.
    pub(super) col_step: usize,
    pub(super) block_stride: usize,
    pub(super) blocks: usize,
}

/// The outputs of a tile that are wanted.
pub(super) struct Corner<E> {
    /// Column 0 of each wanted row, in the first block of channels.
    pub(super) starts: [*mut E; TILE],
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    /// Elements from a column to the next.
    pub(super) col_step: usize,
    pub(super) block_stride: usize,
    /// What is applied to them.
    pub(super) limits: Limits<E>,
}

/// Writes the transform of a patch: vector `b` of point `i` to `to + b·vector_stride + i·point_stride`.
///
/// # Safety
/// The rows of the patch are readable in its columns, for all blocks; `to` is writable by this call alone.
pub(super) unsafe fn input<S: Simd>(
    simd: S,
    patch: &Patch<S::E>,
    to: *mut S::E,
    vector_stride: usize,
    point_stride: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        if patch.rows == (0..PATCH) && patch.cols == (0..PATCH) {
            simd.call(Input::<_, true> { patch, to, vector_stride, point_stride });
        } else {
            simd.call(Input::<_, false> { patch, to, vector_stride, point_stride });
        }
    }
}

/// See [`input`]; `INSIDE` says that the whole patch lies in the image.
struct Input<'a, E, const INSIDE: bool> {
    patch: &'a Patch<E>,
    to: *mut E,
    vector_stride: usize,
    point_stride: usize,
}

impl<E: Element, const INSIDE: bool> Micro<E> for Input<'_, E, INSIDE> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let patch = self.patch;
        for block in 0..patch.blocks {
            // SAFETY: as `input` asks.
            unsafe {
                let zero = simd.splat(E::ZERO);
                let mut columns = [[zero; PATCH]; PATCH];
                for (j, column) in columns.iter_mut().enumerate() {
                    let mut values = [zero; PATCH];
                    for (i, value) in values.iter_mut().enumerate() {
                        if INSIDE || (patch.rows.contains(&i) && patch.cols.contains(&j)) {
                            let at = block * patch.block_stride + j * patch.col_step;
                            *value = simd.load(patch.starts[i].wrapping_add(at));
                        }
                    }
                    *column = of_inputs(simd, values);
                }
                let to = self.to.add(block * self.vector_stride);
                let rows: [[S::V; PATCH]; PATCH] = transposed(&columns);
                for (i, row) in rows.into_iter().enumerate() {
                    for (j, value) in of_inputs(simd, row).into_iter().enumerate() {
                        simd.store(to.add((i * PATCH + j) * self.point_stride), value);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn transposed<V: Copy, const R: usize, const C: usize>(columns: &[[V; R]; C]) -> [[V; C]; R] {
    std::array::from_fn(|i| std::array::from_fn(|j| columns[j][i]))
}

/// `Bᵀ d`, always in this order.
#[inline(always)]
fn of_inputs<S: Simd>(simd: S, d: [S::V; PATCH]) -> [S::V; PATCH] {
    let constant = |value: f64| simd.splat(S::E::from_f64(value));
    let (two, four) = (constant(2.0), constant(4.0));
    let even = simd.mul_add(constant(-4.0), d[2], d[4]);
    let odd = simd.mul_add(constant(-4.0), d[1], d[3]);
    let (even_2, odd_2) = (simd.sub(d[4], d[2]), simd.sub(d[3], d[1]));
    [
        simd.mul_add(four, d[0], simd.mul_add(constant(-5.0), d[2], d[4])),
        simd.add(even, odd),
        simd.sub(even, odd),
        simd.mul_add(two, odd_2, even_2),
        simd.mul_add(constant(-2.0), odd_2, even_2),
        simd.mul_add(four, d[1], simd.mul_add(constant(-5.0), d[3], d[5])),
    ]
}

/// The sums of a tile for some vectors of output channels.
pub(super) struct Sums<E> {
    /// Vector `v` of point `i` lies at `v·vector_stride + i·point_stride`.
    pub(super) from: *const E,
    pub(super) vectors: usize,
    pub(super) vector_stride: usize,
    pub(super) point_stride: usize,
    pub(super) bias: *const E,
}

/// Writes the outputs of a corner.
///
/// # Safety
/// The sums and the bias are readable; the wanted rows are writable in the wanted columns, in as many blocks as there are vectors, by
/// this call alone.
pub(super) unsafe fn output<S: Simd>(simd: S, sums: &Sums<S::E>, corner: &Corner<S::E>) {
    // SAFETY: passed on to the caller.
    unsafe {
        if corner.rows == (0..TILE) && corner.cols == (0..TILE) {
            simd.call(Output::<_, true> { sums, corner });
        } else {
            simd.call(Output::<_, false> { sums, corner });
        }
    }
}

/// See [`output`]; `WHOLE` says that the whole tile is wanted.
struct Output<'a, E, const WHOLE: bool> {
    sums: &'a Sums<E>,
    corner: &'a Corner<E>,
}

impl<E: Element, const WHOLE: bool> Micro<E> for Output<'_, E, WHOLE> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let (sums, corner) = (self.sums, self.corner);
        let limits = corner.limits.splat(simd);
        for vector in 0..sums.vectors {
            // SAFETY: as `output` asks.
            unsafe {
                let bias = simd.load(sums.bias.add(vector * S::LANES));
                let from = sums.from.add(vector * sums.vector_stride);
                let mut columns = [[bias; TILE]; PATCH];
                for (j, column) in columns.iter_mut().enumerate() {
                    let point = |i: usize| simd.load(from.add((i * PATCH + j) * sums.point_stride));
                    *column = of_sums(simd, std::array::from_fn(point));
                }
                let rows: [[S::V; PATCH]; TILE] = transposed(&columns);
                for (i, row) in rows.into_iter().enumerate() {
                    let start = corner.starts[i].wrapping_add(vector * corner.block_stride);
                    for (j, value) in of_sums(simd, row).into_iter().enumerate() {
                        let value = simd.add(value, bias);
                        let value = limits.vector(simd, value);
                        if WHOLE || (corner.rows.contains(&i) && corner.cols.contains(&j)) {
                            simd.store(start.wrapping_add(j * corner.col_step), value);
                        }
                    }
                }
            }
        }
    }
}

/// `Aᵀ m`, always in this order.
#[inline(always)]
fn of_sums<S: Simd>(simd: S, m: [S::V; PATCH]) -> [S::V; TILE] {
    let constant = |value: f64| simd.splat(S::E::from_f64(value));
    let (sum, difference) = (simd.add(m[1], m[2]), simd.sub(m[1], m[2]));
    let (sum_2, difference_2) = (simd.add(m[3], m[4]), simd.sub(m[3], m[4]));
    [
        simd.add(m[0], simd.add(sum, sum_2)),
        simd.mul_add(constant(2.0), difference_2, difference),
        simd.mul_add(constant(4.0), sum_2, sum),
        simd.add(m[5], simd.mul_add(constant(8.0), difference_2, difference)),
    ]
}
