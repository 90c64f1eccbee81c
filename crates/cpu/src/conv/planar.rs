//! Lanes are pixels of a row; weights are broadcast. Few channels on both sides.
//!
//! The order of the sum is kernel row, input of the group, kernel column.

use std::mem::MaybeUninit;
use std::ptr;

use tiled_tensor::Element;

use super::class::{index, signed};
use super::source::{Reading, Source, Target};
use super::tile::Tile;
use crate::vector::{MAX_LANES, Micro, Simd};

/// The most vectors of pixels of a tile.
pub(super) const MAX_VECTORS: usize = 4;

/// The most output channels of a tile.
pub(super) const MAX_OUTPUTS: usize = 4;

/// Neighbouring tiles of a row, of at most `N` vectors of pixels by `O` output channels of one group.
///
/// # Safety
/// As for [`super::dense::Tiles`]; `weights` is the first term of the first kernel row inside the image of
/// the first output channel, `terms` the distance to those of the next, `pixels` at most `N` vectors; for more than one tile or where
/// the reading is [`Reading::Direct`], it is exactly that and the pixel step is one.
pub(super) struct Tiles<'a, E, const N: usize, const O: usize> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) terms: usize,
    pub(super) bias: *const E,
    pub(super) pixels: usize,
    pub(super) count: usize,
}

impl<E: Element, const N: usize, const O: usize> Micro<E> for Tiles<'_, E, N, O> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let (source, target) = (self.source, self.target);
        let mut buffer = [MaybeUninit::<E>::uninit(); MAX_LANES * MAX_VECTORS];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        let (mut first_col, mut start) = (source.col, target.start);
        for _ in 0..self.count {
            // SAFETY: as in `dense`; the buffer holds MAX_VECTORS vectors.
            unsafe { self.tile(simd, first_col, start, buffer) };
            first_col += signed(N * S::LANES) * source.pixel_step;
            start = start.wrapping_add(N * S::LANES * target.step);
        }
    }
}

impl<E: Element, const N: usize, const O: usize> Tiles<'_, E, N, O> {
    /// Computes one tile.
    ///
    /// # Safety
    /// As for the tiles.
    #[inline(always)]
    unsafe fn tile<S: Simd<E = E>>(&self, simd: S, first_col: i64, to: *mut E, buffer: *mut E) {
        let (source, target) = (self.source, self.target);
        // SAFETY: offsets stay inside the storage that the source names, the packed weights and the buffer,
        // which holds MAX_VECTORS vectors.
        unsafe {
            let mut sums = [[simd.splat(E::ZERO); N]; O];
            for (o, sums) in sums.iter_mut().enumerate() {
                *sums = [simd.splat(*self.bias.add(o)); N];
            }
            let mut weights = self.weights;
            let mut row = source.row;
            for _ in 0..source.rows {
                let row_start = source.start.add(row * source.row_stride);
                row = source.next_row(row);
                for channel in source.channels.0..source.channels.1 {
                    let plane = row_start.add(channel * source.block_stride);
                    for tap in 0..source.cols {
                        let col = first_col + signed(tap * source.tap_step);
                        let inputs = if source.reading != Reading::Direct {
                            self.gather::<S>(plane, col, buffer);
                            buffer.cast_const()
                        } else {
                            plane.add(index(col - source.first_col))
                        };
                        let mut values = [simd.splat(E::ZERO); N];
                        for (n, value) in values.iter_mut().enumerate() {
                            *value = simd.load(inputs.add(n * S::LANES));
                        }
                        for (o, sums) in sums.iter_mut().enumerate() {
                            let weight = simd.splat(*weights.add(o * self.terms));
                            for (sum, value) in sums.iter_mut().zip(values) {
                                *sum = simd.mul_add(value, weight, *sum);
                            }
                        }
                        weights = weights.add(1);
                    }
                }
            }
            for (o, sums) in sums.iter_mut().enumerate() {
                let start = to.add((target.channel + o) * target.block_stride);
                let whole = self.pixels == N * S::LANES && target.step == 1;
                for (n, sum) in sums.iter_mut().enumerate() {
                    let value = target.limits.splat(simd).vector(simd, *sum);
                    simd.store(if whole { start.add(n * S::LANES) } else { buffer.add(n * S::LANES) }, value);
                }
                if !whole {
                    for p in 0..self.pixels {
                        *start.add(p * target.step) = *buffer.add(p);
                    }
                }
            }
        }
    }

    /// Copies the inputs of one tap next to each other, from the column of the first pixel; zeros where there is no input.
    ///
    /// # Safety
    /// As for the tiles; `plane` is the row of storage, `buffer` has room for `N` vectors.
    #[inline(always)]
    unsafe fn gather<S: Simd<E = E>>(&self, plane: *const E, col: i64, buffer: *mut E) {
        let (width, step) = (self.source.width, self.source.pixel_step);
        // the pixels whose column is not before that one
        let before = |end: i64| {
            let columns = (end - col).max(0);
            let pixels = if step == 1 { columns } else { (columns + step - 1) / step };
            index(pixels).min(self.pixels)
        };
        let (begin, end) = (before(0), before(width));
        // SAFETY: the columns of the pixels from `begin` to `end` are inside the image, which the storage holds, and all
        // pixels inside `N` vectors
        unsafe {
            for p in (0..begin).chain(end..N * S::LANES) {
                *buffer.add(p) = E::ZERO;
            }
            if begin >= end {
                return;
            }
            let from = plane.add(index(col + step * signed(begin) - self.source.first_col));
            let (to, count, step) = (buffer.add(begin), end - begin, index(step));
            if step == 1 {
                ptr::copy_nonoverlapping(from, to, count);
            } else {
                for p in 0..count {
                    *to.add(p) = *from.add(p * step);
                }
            }
        }
    }
}

/// Vectors of pixels of a tile.
pub(super) const fn vectors<S: Simd>() -> usize {
    if S::TILE > 6 { MAX_VECTORS } else { 2 }
}

/// Runs `count` tiles of `pixels` pixels and `outputs` output channels.
///
/// # Safety
/// As for [`Tiles`]; `pixels` is at most [`vectors`] vectors, `outputs` at most [`MAX_OUTPUTS`].
pub(super) unsafe fn run<S: Simd>(
    simd: S,
    source: &Source<S::E>,
    target: &Target<S::E>,
    (weights, terms): (*const S::E, usize),
    bias: *const S::E,
    [pixels, outputs, count]: [usize; 3],
) {
    macro_rules! tile {
        ($vectors:literal, $outputs:literal) => {
            // SAFETY: passed on to the caller.
            unsafe {
                simd.call(Tiles::<_, $vectors, $outputs> {
                    source,
                    target,
                    weights,
                    terms,
                    bias,
                    pixels,
                    count,
                })
            }
        };
    }
    macro_rules! outputs {
        ($vectors:literal) => {
            match outputs {
                1 => tile!($vectors, 1),
                2 => tile!($vectors, 2),
                3 => tile!($vectors, 3),
                _ => tile!($vectors, 4),
            }
        };
    }
    // a last tile may be of fewer
    match pixels.div_ceil(S::LANES) {
        0 | 1 => outputs!(1),
        3.. if const { vectors::<S>() == MAX_VECTORS } => outputs!(4),
        _ => outputs!(2),
    }
}
