//! The columns of B that a thread has packed, and what it fetches and packs meanwhile.

use std::ops::Range;

use tiled_tensor::Element;

use super::super::matrix::Matrix;
use super::Unit;
use super::pack::{Cols, is_side, panel_len};
use super::tile::{Ahead, VECTORS, ahead_rows};
use crate::vector::Simd;

/// Which columns of B: the place, the first of them, the block of k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) place: usize,
    pub(super) first: usize,
    pub(super) block: usize,
}

/// The columns that a thread has packed: those it works with, and those it is to work with next.
pub(super) struct Packed<E> {
    buffers: [*mut E; 2],
    held: [Option<Name>; 2],
}

impl<E> Packed<E> {
    pub(super) const fn new(buffers: [*mut E; 2]) -> Self {
        Self { buffers, held: [None; 2] }
    }

    pub(super) fn find(&self, name: Name) -> Option<usize> {
        self.held.iter().position(|held| *held == Some(name))
    }

    pub(super) const fn buffer(&self, index: usize) -> *mut E {
        self.buffers[index]
    }

    /// Says what a buffer holds from now on; where it is yet to be written, nothing.
    pub(super) const fn hold(&mut self, index: usize, name: Option<Name>) {
        self.held[index] = name;
    }
}

/// What the next block of k reads, fetched while this one is computed: rows of memory, one after another.
pub(super) struct Fetch<E> {
    left: [(Ahead<E>, usize); 2],
}

impl<E> Fetch<E> {
    /// The lines of some terms of a unit: of its columns if they are wanted, and of its rows where these are packed at once.
    pub(super) fn new(unit: &Unit<E>, terms: Range<usize>, wants_cols: bool) -> Self {
        let of = |matrix: Matrix<*const E>, others: &Range<usize>, is_wanted: bool| {
            // rows of memory are those of the matrix, or its columns
            let [step, other] = matrix.strides;
            let (step, count) = if other == 1 { (step, terms.len()) } else { (other, others.len()) };
            (Ahead { start: matrix.start, step }, if is_wanted { count } else { 0 })
        };
        let (a, b) = (unit.a.from(unit.rows.start, terms.start), unit.b.from(terms.start, unit.cols.start));
        let is_wanted = !terms.is_empty();
        let of_a = of(a.transposed(), &unit.rows, is_wanted && !is_side(&a));
        Self { left: [of(b, &unit.cols, is_wanted && wants_cols), of_a] }
    }

    /// The rows of memory of columns that are yet to be fetched.
    pub(super) const fn left_of_cols(&self) -> usize {
        self.left[0].1
    }

    /// As many rows as a tile fetches; the same again where none are left.
    pub(super) fn next(&mut self) -> Ahead<E> {
        let [first, second] = &mut self.left;
        let (ahead, left) = if first.1 > 0 { first } else { second };
        if *left == 0 {
            ahead.step = 0;
        }
        let now = Ahead { ..*ahead };
        let rows = ahead_rows::<E>().min(*left);
        *left -= rows;
        ahead.start = ahead.start.wrapping_offset(rows.cast_signed().wrapping_mul(ahead.step));
        now
    }
}

/// The columns of a block that are packed while another is computed, as they are fetched: rows of memory a power of two apart meet in a few
/// sets of the cache, and those of a whole block would not stay.
pub(super) struct NextCols<E> {
    from: Matrix<*const E>,
    terms: usize,
    cols: usize,
    to: *mut E,
    /// The rows of memory that are packed, and all of them.
    packed: usize,
    pub(super) rows: usize,
}

/// Terms that are packed at once, where a row of memory is a term.
const PACKED_TERMS: usize = 16;

impl<E: Element> NextCols<E> {
    pub(super) fn new(from: Matrix<*const E>, [terms, cols]: [usize; 2], to: *mut E) -> Self {
        let rows = if from.strides[1] == 1 && cols > 0 { terms } else { cols };
        Self { from, terms, cols, to, packed: 0, rows }
    }

    /// Packs what has been fetched, in whole steps, and all where that is all.
    ///
    /// # Safety
    /// The columns are readable, and there is room for their panels.
    pub(super) unsafe fn pack<S: Simd<E = E>>(&mut self, simd: S, fetched: usize) {
        let width = VECTORS * S::LANES;
        let of_terms = self.from.strides[1] == 1;
        let step = if of_terms { PACKED_TERMS } else { width };
        let until = if fetched >= self.rows { self.rows } else { fetched / step * step };
        if until <= self.packed {
            return;
        }
        let (first, count) = (self.packed, until - self.packed);
        let panel_len = panel_len(self.terms, width);
        let (from, terms, cols, at) = if of_terms {
            (self.from.from(first, 0), count, self.cols, first * width)
        } else {
            (self.from.from(0, first), self.terms, count, first / width * panel_len)
        };
        // SAFETY: passed on to the caller.
        unsafe { simd.call(Cols { from, terms, cols, width, panel_len, to: self.to.wrapping_add(at) }) }
        self.packed = until;
    }
}
