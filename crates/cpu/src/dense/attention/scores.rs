//! Heads somewhere in memory, and the scores of a block of queries and keys.

use std::ops::Range;

use ndarray::{ArrayViewD, ArrayViewMutD};
use tiled_kernel::dense::{Attention, Update};
use tiled_tensor::Element;

use super::super::matrix::{Matrix, require};
use super::super::product::{Job, serial, serial_len};
use super::super::row::{self, SIDE_ROWS};
use crate::Isa;
use crate::vector::{Lane, Simd};

/// Queries and keys of a block.
pub(super) const QUERIES: usize = 128;
pub(super) const KEYS: usize = 256;

/// From a row of a block of scores to the next: that of rows which a product of single precision has packed, so that it reads them where
/// they lie.
pub(super) const PITCH: usize = KEYS + 16;

/// N×H matrices.
#[derive(Clone, Copy)]
pub(super) struct Heads<P> {
    pub(super) start: P,
    pub(super) strides: [isize; 4],
}

impl<P: Copy> Heads<P> {
    pub(super) const fn offset(&self, [n, h]: [usize; 2], row: usize) -> isize {
        let [of_n, of_h, of_row, _] = self.strides;
        n.cast_signed() * of_n + h.cast_signed() * of_h + row.cast_signed() * of_row
    }

    pub(super) const fn inner(&self) -> [isize; 2] {
        [self.strides[2], self.strides[3]]
    }
}

impl<E> Heads<*const E> {
    pub(super) fn new(view: &ArrayViewD<'_, E>) -> Self {
        Self { start: view.as_ptr(), strides: four(view.strides()) }
    }

    /// The matrix of a head, from a row on.
    pub(super) const fn matrix(&self, head: [usize; 2], row: usize) -> Matrix<*const E> {
        Matrix { start: self.start.wrapping_offset(self.offset(head, row)), strides: self.inner() }
    }
}

impl<E: Element> Heads<*mut E> {
    pub(super) fn new_mut(view: &mut ArrayViewMutD<'_, E>) -> Self {
        Self { start: view.as_mut_ptr(), strides: four(view.strides()) }
    }

    /// The matrix of a head, from a row on.
    pub(super) const fn place(&self, head: [usize; 2], row: usize) -> Matrix<*mut E> {
        Matrix { start: self.start.wrapping_offset(self.offset(head, row)), strides: self.inner() }
    }

    /// Writes rows of a head from contiguous ones.
    ///
    /// # Safety
    /// They are rows of it that nothing else uses; `from` is readable for them, `buffer` writable for one.
    pub(super) unsafe fn put(
        &self,
        isa: Isa,
        head: [usize; 2],
        rows: Range<usize>,
        (from, width): (*const E, usize),
        buffer: *mut E,
        update: Update,
    ) {
        for (i, row) in rows.enumerate() {
            let to = self.start.wrapping_offset(self.offset(head, row));
            // SAFETY: passed on to the caller.
            unsafe {
                let values = std::slice::from_raw_parts(from.add(i * width), width);
                row::write(isa, to, self.strides[3], width, buffer, update, |to| to.copy_from_slice(values));
            }
        }
    }
}

fn four(strides: &[isize]) -> [isize; 4] {
    [strides[0], strides[1], strides[2], strides[3]]
}

/// What all calls have: queries, keys, and which of them see each other.
#[derive(Clone, Copy)]
pub(super) struct Scores<E> {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) depth: usize,
    pub(super) q: Heads<*const E>,
    pub(super) k: Heads<*const E>,
    pub(super) mask: Option<Heads<*const E>>,
    pub(super) causal: bool,
    pub(super) scale: E,
}

impl<E: Lane> Scores<E> {
    pub(super) fn new(
        attention: &Attention<'_, E>,
        q: &ArrayViewD<'_, E>,
        k: &ArrayViewD<'_, E>,
        log_sums: &[usize],
    ) -> Self {
        let &[batch, heads, queries, depth] = q.shape() else {
            panic!("queries of shape {:?}, where there are four axes", q.shape())
        };
        assert_eq!(k.ndim(), 4, "keys of shape {:?}, where there are four axes", k.shape());
        let keys = k.shape()[2];
        require("k", k.shape(), &[batch, heads, keys, depth]);
        require("log_sums", log_sums, &[batch * heads, queries]);
        if let Some(mask) = &attention.mask {
            require("mask", mask.shape(), &[batch, heads, queries, keys]);
        }
        let (scale, causal) = (E::from_f64(attention.scale), attention.causal);
        let (mask, q, k) = (attention.mask.as_ref().map(Heads::new), Heads::new(q), Heads::new(k));
        Self { batch, heads, queries, keys, depth, q, k, mask, causal, scale }
    }

    /// The keys that some query of a block may see.
    pub(super) fn seen(&self, queries: &Range<usize>) -> usize {
        if self.causal { self.keys.min(queries.end) } else { self.keys }
    }

    /// The keys of a block that a query may see.
    pub(super) fn seen_by(&self, query: usize, first: usize, count: usize) -> usize {
        if self.causal { (query + 1).saturating_sub(first).min(count) } else { count }
    }

    /// The block of queries and keys of one head, rows [`PITCH`] apart: `q·kᵀ`, and where there is a mask scaled and masked. Returns the factor that is left to be
    /// applied. Rows are zero behind what their query sees.
    ///
    /// # Safety
    /// The block is one of those that are there; `to` is writable for it, the scratch as long as [`serial_len`] says and a block of keys.
    pub(super) unsafe fn compute<S: Simd<E = E>>(
        &self,
        simd: S,
        head: [usize; 2],
        queries: &Range<usize>,
        (first, count): (usize, usize),
        (to, scratch): (*mut E, *mut E),
    ) -> E {
        let job = Job {
            extents: [queries.len(), count, self.depth],
            a: self.q.matrix(head, queries.start),
            b: self.k.matrix(head, first).transposed(),
            c: plain(to, PITCH),
            bias: None,
            activation: None,
            update: Update::Replace,
        };
        // SAFETY: passed on to the caller.
        unsafe {
            serial(simd, job, scratch);
            if self.causal {
                for (i, query) in queries.clone().enumerate() {
                    let seen = self.seen_by(query, first, count);
                    std::slice::from_raw_parts_mut(to.add(i * PITCH + seen), count - seen).fill(E::ZERO);
                }
            }
            let Some(mask) = self.mask else { return self.scale };
            for (i, query) in queries.clone().enumerate() {
                let row =
                    std::slice::from_raw_parts_mut(to.add(i * PITCH), self.seen_by(query, first, count));
                let from = mask.matrix(head, query);
                row::scale(S::ISA, self.scale, row);
                row::add(S::ISA, row::read(from.at(0, first), from.strides[1], row.len(), scratch), row);
            }
        }
        E::ONE
    }

    /// The same as probabilities.
    ///
    /// # Safety
    /// The same; `log_sums` are those of the queries.
    pub(super) unsafe fn probabilities<S: Simd<E = E>>(
        &self,
        simd: S,
        head: [usize; 2],
        queries: &Range<usize>,
        keys: (usize, usize),
        log_sum: impl Fn(usize) -> E,
        memory: (*mut E, *mut E),
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let factor = self.compute(simd, head, queries, keys, memory);
            for (i, query) in queries.clone().enumerate() {
                let seen = self.seen_by(query, keys.0, keys.1);
                let row = std::slice::from_raw_parts_mut(memory.0.add(i * PITCH), seen);
                row::probabilities(S::ISA, factor, log_sum(query), row);
            }
        }
    }

    /// The same as exponentials, less the largest score that a query has seen so far: what is `held` of it. Returns for each row by what the
    /// sums of the blocks before are multiplied, and adds to the total.
    ///
    /// # Safety
    /// The same; what is held is as long as the queries.
    pub(super) unsafe fn soften<S: Simd<E = E>>(
        &self,
        simd: S,
        head: [usize; 2],
        (queries, keys): (&Range<usize>, (usize, usize)),
        [held, totals]: [&mut [E]; 2],
        memory: (*mut E, *mut E),
        mut rescale: impl FnMut(usize, E),
    ) {
        let (first, count) = keys;
        // SAFETY: passed on to the caller; rows lie apart.
        unsafe {
            let factor = self.compute(simd, head, queries, keys, memory);
            let row = |i: usize| {
                let seen = self.seen_by(queries.start + i, first, count);
                std::slice::from_raw_parts_mut(memory.0.add(i * PITCH), seen)
            };
            let mut add = |i: usize, before: E, now: E, sum: E| {
                if first == 0 || now == E::NEG_INFINITY {
                    totals[i] = sum; // zero where all are hidden, so far
                    return;
                }
                let shrinks = (before - now).exp();
                totals[i] = totals[i] * shrinks + sum;
                rescale(i, shrinks);
            };
            let whole = queries.len() / SIDE_ROWS * SIDE_ROWS;
            for i in (0..whole).step_by(SIDE_ROWS) {
                let before: [E; SIDE_ROWS] = std::array::from_fn(|side| held[i + side]);
                let (mut now, mut sums) = (before, [E::ZERO; SIDE_ROWS]);
                let rows = std::array::from_fn(|side| row(i + side));
                row::soften(S::ISA, rows, factor, &mut now, &mut sums);
                held[i..i + SIDE_ROWS].copy_from_slice(&now);
                for (side, ((before, now), sum)) in before.into_iter().zip(now).zip(sums).enumerate() {
                    add(i + side, before, now, sum);
                }
            }
            for (i, held) in held.iter_mut().enumerate().skip(whole) {
                let (before, mut now, mut sum) = (*held, [*held], [E::ZERO]);
                row::soften(S::ISA, [row(i)], factor, &mut now, &mut sum);
                *held = now[0];
                add(i, before, now[0], sum[0]);
            }
        }
    }

    pub(super) fn head(&self, index: usize) -> [usize; 2] {
        [index / self.heads, index % self.heads]
    }

    /// The longest scratch of the products of blocks, and of a row of keys.
    pub(super) fn product_len<S: Simd>(&self, width: usize) -> usize {
        let (queries, keys) = (self.queries.min(QUERIES), self.keys.min(KEYS));
        let widest = self.depth.max(width);
        let all = [[queries, keys, widest], [queries, widest, keys], [keys, widest, queries]];
        all.map(serial_len::<S>).into_iter().fold(keys, usize::max)
    }
}

/// A matrix without gaps.
pub(super) fn plain<E>(start: *mut E, cols: usize) -> Matrix<*mut E> {
    Matrix { start, strides: [cols.cast_signed(), 1] }
}
