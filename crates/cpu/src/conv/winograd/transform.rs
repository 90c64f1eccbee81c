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
}

/// The outputs of a tile that are wanted.
pub(super) struct Corner<E> {
    /// Column 0 of each wanted row, in the first block of channels.
    pub(super) starts: [*mut E; TILE],
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
}

impl<E> Default for Patch<E> {
    fn default() -> Self {
        Self { starts: [std::ptr::null(); PATCH], rows: 0..0, cols: 0..0 }
    }
}

impl<E> Default for Corner<E> {
    fn default() -> Self {
        Self { starts: [std::ptr::null_mut(); TILE], rows: 0..0, cols: 0..0 }
    }
}

/// The channels of a window, in blocks of a vector.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    pub(super) count: usize,
    /// Elements from a block to the next.
    pub(super) stride: usize,
    /// Elements from a column of a tile to the next.
    pub(super) col_step: usize,
}

/// Where the transforms of tiles lie: vector `v` of tile `t` at point `i` `t` vectors, `v·vector` and `i·point` elements from the first.
#[derive(Clone, Copy)]
pub(super) struct Strides {
    pub(super) vector: usize,
    pub(super) point: usize,
}

impl Strides {
    /// The elements from the first to behind the last one of so many vectors of tiles.
    pub(super) fn end(self, vectors: usize, tiles: usize, lanes: usize) -> usize {
        (super::POINTS - 1) * self.point + (vectors - 1) * self.vector + tiles * lanes
    }
}

/// Writes the transforms of the patches of some tiles: all of a block of channels before the next, so that memory is read
/// along its rows.
///
/// # Safety
/// The rows of the patches are readable in their columns, for all blocks; `to` is writable by this call alone.
pub(super) unsafe fn input<S: Simd>(
    simd: S,
    patches: &[Patch<S::E>],
    blocks: Blocks,
    to: *mut S::E,
    strides: Strides,
) {
    // SAFETY: passed on to the caller.
    unsafe { simd.call(Input { patches, blocks, to, strides }) }
}

/// See [`input`].
struct Input<'a, E> {
    patches: &'a [Patch<E>],
    blocks: Blocks,
    to: *mut E,
    strides: Strides,
}

impl<E: Element> Micro<E> for Input<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { patches, blocks, to, strides } = self;
        for block in 0..blocks.count {
            for (place, patch) in patches.iter().enumerate() {
                let to = to.wrapping_add(block * strides.vector + place * S::LANES);
                // SAFETY: as `input` asks.
                unsafe {
                    if patch.rows == (0..PATCH) && patch.cols == (0..PATCH) {
                        transform::<S, true>(simd, patch, (blocks, block), to, strides.point);
                    } else {
                        transform::<S, false>(simd, patch, (blocks, block), to, strides.point);
                    }
                }
            }
        }
    }
}

/// The transform of a block of channels of a patch, point `i` to `to + i·point_stride`; `INSIDE` says that the whole patch lies in the image.
///
/// # Safety
/// As [`input`].
#[inline(always)]
unsafe fn transform<S: Simd, const INSIDE: bool>(
    simd: S,
    patch: &Patch<S::E>,
    (blocks, block): (Blocks, usize),
    to: *mut S::E,
    point_stride: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let zero = simd.splat(S::E::ZERO);
        let mut columns = [[zero; PATCH]; PATCH];
        for (j, column) in columns.iter_mut().enumerate() {
            let mut values = [zero; PATCH];
            for (i, value) in values.iter_mut().enumerate() {
                if INSIDE || (patch.rows.contains(&i) && patch.cols.contains(&j)) {
                    let at = block * blocks.stride + j * blocks.col_step;
                    *value = simd.load(patch.starts[i].wrapping_add(at));
                }
            }
            *column = of_inputs(simd, values);
        }
        let rows: [[S::V; PATCH]; PATCH] = transposed(&columns);
        for (i, row) in rows.into_iter().enumerate() {
            for (j, value) in of_inputs(simd, row).into_iter().enumerate() {
                simd.store(to.add((i * PATCH + j) * point_stride), value);
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

/// The sums of some tiles for some vectors of output channels.
#[derive(Clone, Copy)]
pub(super) struct Sums<E> {
    pub(super) from: *const E,
    pub(super) strides: Strides,
    pub(super) bias: *const E,
    /// What is applied to the outputs.
    pub(super) limits: Limits<E>,
}

/// Writes the outputs of corners, all of a vector of channels before the next, in as many blocks.
///
/// # Safety
/// The sums and the bias are readable; the wanted rows are writable in the wanted columns, in all blocks, by this call alone.
pub(super) unsafe fn output<S: Simd>(simd: S, sums: Sums<S::E>, corners: &[Corner<S::E>], blocks: Blocks) {
    // SAFETY: passed on to the caller.
    unsafe { simd.call(Output { sums, corners, blocks }) }
}

/// See [`output`].
struct Output<'a, E> {
    sums: Sums<E>,
    corners: &'a [Corner<E>],
    blocks: Blocks,
}

impl<E: Element> Micro<E> for Output<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { sums, corners, blocks } = self;
        let limits = sums.limits.splat(simd);
        for vector in 0..blocks.count {
            for (place, corner) in corners.iter().enumerate() {
                let from = sums.from.wrapping_add(vector * sums.strides.vector + place * S::LANES);
                if corner.rows.is_empty() || corner.cols.is_empty() {
                    continue;
                }
                // SAFETY: as `output` asks.
                unsafe {
                    if corner.rows == (0..TILE) && corner.cols == (0..TILE) {
                        restore::<S, true>(simd, (&sums, limits), from, corner, (blocks, vector));
                    } else {
                        restore::<S, false>(simd, (&sums, limits), from, corner, (blocks, vector));
                    }
                }
            }
        }
    }
}

/// Writes a vector of channels of a corner; `WHOLE` says that the whole tile is wanted.
///
/// # Safety
/// As [`output`].
#[inline(always)]
unsafe fn restore<S: Simd, const WHOLE: bool>(
    simd: S,
    (sums, limits): (&Sums<S::E>, Limits<S::V>),
    from: *const S::E,
    corner: &Corner<S::E>,
    (blocks, vector): (Blocks, usize),
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let bias = simd.load(sums.bias.add(vector * S::LANES));
        let mut columns = [[bias; TILE]; PATCH];
        for (j, column) in columns.iter_mut().enumerate() {
            let point = |i: usize| simd.load(from.add((i * PATCH + j) * sums.strides.point));
            *column = of_sums(simd, std::array::from_fn(point));
        }
        let rows: [[S::V; PATCH]; TILE] = transposed(&columns);
        for (i, row) in rows.into_iter().enumerate() {
            let start = corner.starts[i].wrapping_add(vector * blocks.stride);
            for (j, value) in of_sums(simd, row).into_iter().enumerate() {
                let value = limits.vector(simd, simd.add(value, bias));
                if WHOLE || (corner.rows.contains(&i) && corner.cols.contains(&j)) {
                    simd.store(start.wrapping_add(j * blocks.col_step), value);
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
