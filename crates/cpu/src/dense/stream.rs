//! The elements of arrays in row-major order, a piece at a time: where they lie side by side, else copied.

use std::marker::PhantomData;

use ndarray::{ArrayViewD, ArrayViewMutD};
use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use super::matrix::{Axes, with_scratch};
use super::row;
use crate::Isa;
use crate::share;

pub(super) use super::row::PIECE;

/// The elements of a view.
#[derive(Debug)]
pub(super) struct Stream<'a, E> {
    start: *mut E,
    axes: Axes<1>,
    view: PhantomData<&'a [E]>,
}

// SAFETY: it is a view; whoever writes through it shows that no two threads write the same element.
unsafe impl<E: Sync> Sync for Stream<'_, E> {}

impl<'a, E: Copy> Stream<'a, E> {
    pub(super) fn new(view: &'a ArrayViewD<'_, E>) -> Self {
        let axes = Axes::new(view.shape(), [view.strides()]);
        Self { start: view.as_ptr().cast_mut(), axes, view: PhantomData }
    }

    pub(super) fn new_mut(view: &'a mut ArrayViewMutD<'_, E>) -> Self {
        let axes = Axes::new(view.shape(), [view.strides()]);
        Self { start: view.as_mut_ptr(), axes, view: PhantomData }
    }

    /// Calls `run` with each stretch of the elements from `first` on: its start, its stride, the elements before it and its own.
    fn runs(&self, first: usize, len: usize, mut run: impl FnMut(*mut E, isize, usize, usize)) {
        let [outer @ .., rows, last] = self.axes.all() else {
            let stride = self.axes.all().first().map_or(1, |axis| axis.strides[0]);
            return run(self.start.wrapping_offset(first.cast_signed() * stride), stride, 0, len);
        };
        let (mut row, mut col, mut done) = (first / last.extent, first % last.extent, 0);
        while done < len {
            // rows of one plane lie a stride apart
            let [plane] = self.axes.offsets(outer.len(), row / rows.extent);
            let mut in_plane = row % rows.extent;
            while in_plane < rows.extent && done < len {
                let at = plane + in_plane.cast_signed() * rows.strides[0];
                let count = (last.extent - col).min(len - done);
                let start = at + col.cast_signed() * last.strides[0];
                run(self.start.wrapping_offset(start), last.strides[0], done, count);
                (done, col) = (done + count, 0);
                (in_plane, row) = (in_plane + 1, row + 1);
            }
        }
    }

    /// The elements, where they lie if they lie side by side.
    fn plain(&self, first: usize, len: usize) -> Option<*mut E> {
        match self.axes.all() {
            [] => Some(self.start),
            [axis] => (axis.strides == [1]).then(|| self.start.wrapping_add(first)),
            [outer @ .., last] => {
                let is_within = last.strides == [1] && first % last.extent + len <= last.extent;
                is_within.then(|| {
                    let [at] = self.axes.offsets(outer.len(), first / last.extent);
                    self.start.wrapping_offset(at).wrapping_add(first % last.extent)
                })
            }
        }
    }

    /// Elements from `first` on, copied.
    ///
    /// # Safety
    /// The elements are there; the buffer is writable for as many.
    pub(super) unsafe fn copy(&self, first: usize, len: usize, buffer: *mut E) {
        self.runs(first, len, |start, stride, done, count| {
            // SAFETY: passed on to the caller.
            unsafe {
                let to = buffer.add(done);
                match stride {
                    1 => std::ptr::copy_nonoverlapping(start, to, count),
                    0 => std::slice::from_raw_parts_mut(to, count).fill(*start),
                    _ => {
                        for i in 0..count {
                            *to.add(i) = *start.wrapping_offset(i.cast_signed() * stride);
                        }
                    }
                }
            }
        });
    }

    /// Elements from `first` on, side by side: where they lie, or copied into the buffer.
    ///
    /// # Safety
    /// The elements are there and nothing writes them; the buffer is writable for as many while the slice lives.
    pub(super) unsafe fn read<'r>(&self, first: usize, len: usize, buffer: *mut E) -> &'r [E] {
        // SAFETY: passed on to the caller.
        unsafe {
            if let Some(start) = self.plain(first, len) {
                return std::slice::from_raw_parts(start, len);
            }
            self.copy(first, len, buffer);
            std::slice::from_raw_parts(buffer, len)
        }
    }
}

impl<E: Element> Stream<'_, E> {
    /// Writes elements from `first` on: `fill` is given where they lie, or the buffer.
    ///
    /// # Safety
    /// The stream is of a view for writing, nothing else uses these elements, and the buffer is writable for as many.
    pub(super) unsafe fn write(
        &self,
        isa: Isa,
        first: usize,
        len: usize,
        buffer: *mut E,
        update: Update,
        fill: impl FnOnce(&mut [E]),
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            let plain = self.plain(first, len);
            if let (Some(start), Update::Replace) = (plain, update) {
                return fill(std::slice::from_raw_parts_mut(start, len));
            }
            let values = std::slice::from_raw_parts_mut(buffer, len);
            fill(values);
            if let Some(start) = plain {
                return row::add(isa, values, std::slice::from_raw_parts_mut(start, len));
            }
            self.runs(first, len, |start, stride, done, count| {
                for (i, value) in values[done..done + count].iter().enumerate() {
                    let to = start.wrapping_offset(i.cast_signed() * stride);
                    *to = if update == Update::Add { *to + *value } else { *value };
                }
            });
        }
    }
}

/// Calls `body` with buffers of a piece each, which hold anything: arrays would be filled for each piece, longer than a short one takes.
pub(super) fn with_buffers<E: Element, const N: usize, R>(body: impl FnOnce([*mut E; N]) -> R) -> R {
    with_scratch(N * PIECE, |scratch: *mut E| {
        body(std::array::from_fn(|buffer| scratch.wrapping_add(buffer * PIECE)))
    })
}

/// Runs `body` for pieces of `len` elements, where each takes as many operations: threads share them.
pub(super) fn for_pieces(len: usize, cost: usize, body: impl Fn(usize, usize) + Sync + Send) {
    if len <= PIECE {
        if len > 0 {
            body(0, len);
        }
        return;
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let operations = (len * cost) as f64;
    let threads = share::threads(operations);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some pieces")]
    let pieces = ((share::of_a_unit(operations, threads) / (cost * PIECE) as f64) as usize).max(1);
    let of_unit = pieces * PIECE;
    share::for_units(threads, len.div_ceil(of_unit), |unit| {
        let end = ((unit + 1) * of_unit).min(len);
        for first in (unit * of_unit..end).step_by(PIECE) {
            body(first, PIECE.min(end - first));
        }
    });
}
