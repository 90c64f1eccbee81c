//! Copies of what register tiles read, in the order in which they read it.

use tiled_tensor::Element;

use super::super::matrix::Matrix;
use super::tile::{height, row_step, term_step, tile_len};
use crate::vector::{MAX_LANES, Micro, Simd, prefetch};

/// Whether the terms of a row lie side by side, here and in what is packed of it; else rows do.
pub(super) const fn is_side<E>(from: &Matrix<*const E>) -> bool {
    from.strides[1] == 1
}

/// The rows of a tile for one block of k, whose terms lie side by side ([`row_step`]).
///
/// # Safety
/// `from` is readable for `rows` by `terms`, `to` writable for a packed tile; `rows` is above zero and `height` at most [`term_step`].
pub(super) struct Rows<E> {
    pub(super) from: Matrix<*const E>,
    pub(super) rows: usize,
    /// The last row is repeated up to as many.
    pub(super) height: usize,
    pub(super) terms: usize,
    pub(super) to: *mut E,
}

impl<E: Element> Micro<E> for Rows<E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { from, rows, height, terms, to } = self;
        for row in 0..height {
            // SAFETY: the row is one of those that are there.
            unsafe { copy(simd, from.at(row.min(rows - 1), 0), to.add(row * row_step::<E>()), terms) }
        }
    }
}

/// The rows of many tiles for one block of k, where rows lie side by side or nothing does: `[tile][term][row]`, [`term_step`] apart.
/// A term is read along all tiles: one after another they would fetch its lines again, each of which is another page.
///
/// # Safety
/// `from` is readable for `readable` rows, at least `rows`, by `terms`, `to` writable for packed tiles of `of_tile` rows at most.
pub(super) struct Tiles<E> {
    pub(super) from: Matrix<*const E>,
    pub(super) rows: usize,
    /// The rows that may be read: those of other tiles behind them.
    pub(super) readable: usize,
    pub(super) of_tile: usize,
    pub(super) terms: usize,
    pub(super) to: *mut E,
}

impl<E: Element> Micro<E> for Tiles<E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { from, rows, readable, of_tile, terms, to } = self;
        let missing = (of_tile - rows % of_tile) % of_tile + (term_step::<S>() - of_tile);
        let turned =
            simd.index(&std::array::from_fn(|lane| u8::try_from((lane + missing) % S::LANES).unwrap_or(0)));
        for term in 0..terms {
            let fetched = from.at(0, term + AHEAD);
            for (tile, first) in (0..rows).step_by(of_tile).enumerate() {
                prefetch(fetched.wrapping_add(first));
                let of_term = term_step::<S>();
                let to = to.wrapping_add(tile * tile_len::<S>() + term * of_term);
                let count = of_tile.min(rows - first);
                // SAFETY: the rows are there, and those of a whole vector where it is loaded; a packed tile has as many rows.
                unsafe {
                    if from.strides[0] == 1 && first + of_term <= readable {
                        for row in (0..of_term).step_by(S::LANES) {
                            simd.store(to.add(row), simd.load(from.at(first + row, term)));
                        }
                        continue;
                    }
                    let is_last = first + count == rows && first + count >= of_term;
                    if from.strides[0] == 1 && S::LANES == of_term && is_last {
                        // a vector that ends with the last row, turned
                        let vector = simd.load(from.at(first + count - of_term, term));
                        simd.store(to, simd.permute(vector, turned));
                        continue;
                    }
                    for row in 0..height(count) {
                        *to.add(row) = *from.at(first + row.min(count - 1), term);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `from` is readable and `to` writable for `len` elements.
#[inline(always)]
unsafe fn copy<S: Simd>(simd: S, from: *const S::E, to: *mut S::E, len: usize) {
    let whole = len / S::LANES * S::LANES;
    // SAFETY: passed on to the caller.
    unsafe {
        for i in (0..whole).step_by(S::LANES) {
            simd.store(to.add(i), simd.load(from.add(i)));
        }
        for i in whole..len {
            *to.add(i) = *from.add(i);
        }
    }
}

/// From a panel to the next: off the powers of two, by which what is written of a term would meet in one set of the cache.
pub(super) const fn panel_len(terms: usize, width: usize) -> usize {
    (terms + 1) * width
}

/// How many terms ahead rows and columns are fetched while they are packed.
const AHEAD: usize = 4;

/// Columns for one block of k, or a part of it, in panels of `width`: `[panel][term][lane]`, zeros behind the last column in
/// its vector.
///
/// # Safety
/// `from` is readable for `terms` by `cols`, `to` writable for the panels; `width` is a multiple of the lanes.
pub(super) struct Cols<E> {
    pub(super) from: Matrix<*const E>,
    pub(super) terms: usize,
    pub(super) cols: usize,
    pub(super) width: usize,
    /// From a panel to the next.
    pub(super) panel_len: usize,
    pub(super) to: *mut E,
}

impl<E: Element> Micro<E> for Cols<E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Self { from, terms, cols, width, panel_len, to } = self;
        if from.strides[1] == 1 {
            // along the rows, as they lie in memory
            for term in 0..terms {
                for first in (0..cols).step_by(width) {
                    let to = to.wrapping_add(first / width * panel_len + term * width);
                    let count = width.min(cols - first);
                    for line in (0..width).step_by(64 / size_of::<E>()) {
                        prefetch(from.at(term + AHEAD, first + line));
                    }
                    // SAFETY: the columns are there, and a term of a panel has `width` elements.
                    unsafe {
                        copy(simd, from.at(term, first), to, count);
                        for lane in count..count.next_multiple_of(S::LANES) {
                            *to.add(lane) = E::ZERO;
                        }
                    }
                }
            }
            return;
        }
        for first in (0..cols).step_by(width) {
            let to = to.wrapping_add(first / width * panel_len);
            let count = width.min(cols - first);
            for lane in (0..count).step_by(S::LANES) {
                let lanes = S::LANES.min(count - lane);
                // SAFETY: as above.
                unsafe {
                    let (from, to) = (from.from(0, first + lane), to.add(lane));
                    if lanes < S::LANES {
                        for term in 0..terms {
                            for lane in 0..S::LANES {
                                *to.add(term * width + lane) =
                                    if lane < lanes { *from.at(term, lane) } else { E::ZERO };
                            }
                        }
                    } else if from.strides[0] == 1 {
                        transpose(simd, from, terms, to, width);
                    } else {
                        for term in 0..terms {
                            for lane in 0..S::LANES {
                                *to.add(term * width + lane) = *from.at(term, lane);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Squares of terms by columns, where the terms of a column lie side by side.
///
/// # Safety
/// `from` is readable for the terms of a vector of columns, `to` writable for a vector at each multiple of `width`.
#[inline(always)]
unsafe fn transpose<S: Simd>(simd: S, from: Matrix<*const S::E>, terms: usize, to: *mut S::E, width: usize) {
    let mut square = [S::E::ZERO; MAX_LANES * MAX_LANES];
    let whole = terms / S::LANES * S::LANES;
    // SAFETY: passed on to the caller; a square has as many elements.
    unsafe {
        for term in (0..whole).step_by(S::LANES) {
            for col in 0..S::LANES {
                simd.store(square.as_mut_ptr().add(col * S::LANES), simd.load(from.at(term, col)));
            }
            simd.store_lanes(square.as_ptr(), to.add(term * width), width, [S::LANES; 2]);
        }
        for term in whole..terms {
            for col in 0..S::LANES {
                *to.add(term * width + col) = *from.at(term, col);
            }
        }
    }
}
