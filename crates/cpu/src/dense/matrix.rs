//! Matrices and rows somewhere in memory, as kernels take them, and memory for the length of a call.

use std::cell::Cell;

use tiled_tensor::Element;

/// A matrix: its first element, and the elements from a row to the next and from a column to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<P> {
    pub(super) start: P,
    pub(super) strides: [isize; 2],
}

impl<P> Matrix<P> {
    /// The matrix with rows for columns.
    pub(super) fn transposed(self) -> Self {
        let [rows, cols] = self.strides;
        Self { start: self.start, strides: [cols, rows] }
    }
}

impl<E> Matrix<*const E> {
    /// Where an element lies.
    #[inline(always)]
    pub(super) const fn at(&self, row: usize, col: usize) -> *const E {
        self.start.wrapping_offset(offset(self.strides, [row, col]))
    }

    pub(super) const fn from(self, row: usize, col: usize) -> Self {
        Self { start: self.at(row, col), ..self }
    }
}

impl<E> Matrix<*mut E> {
    /// Where an element lies.
    #[inline(always)]
    pub(super) const fn at(&self, row: usize, col: usize) -> *mut E {
        self.start.wrapping_offset(offset(self.strides, [row, col]))
    }

    pub(super) const fn from(self, row: usize, col: usize) -> Self {
        Self { start: self.at(row, col), ..self }
    }

    /// The same, for reading.
    pub(super) const fn read(self) -> Matrix<*const E> {
        Matrix { start: self.start.cast_const(), strides: self.strides }
    }
}

const fn offset(strides: [isize; 2], [row, col]: [usize; 2]) -> isize {
    row.cast_signed().wrapping_mul(strides[0]).wrapping_add(col.cast_signed().wrapping_mul(strides[1]))
}

/// Pointers that threads share: whoever writes through one shows that no two threads write the same element.
#[derive(Clone, Copy)]
pub(super) struct Shared<P>(pub(super) P);

// SAFETY: it is plain data with pointers into memory that the caller of a kernel has borrowed for the length of the call; elements are
// plain floats, and each thread writes its own.
unsafe impl<P> Send for Shared<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Shared<P> {}

impl<P: Copy> Shared<P> {
    /// What it holds; a method, so that a closure takes all of it and not the pointer alone.
    pub(super) const fn get(&self) -> P {
        self.0
    }
}

/// Each axis of views of one shape: its extent, and the strides of all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis<const N: usize> {
    pub(super) extent: usize,
    pub(super) strides: [isize; N],
}

/// As many axes need no memory of their own.
const FEW: usize = 6;

/// The axes of views of one shape, outermost first: without those of one element, and neighbours that lie in memory as one are one.
#[derive(Debug)]
pub(super) struct Axes<const N: usize> {
    few: [Axis<N>; FEW],
    many: Vec<Axis<N>>,
    len: usize,
}

impl<const N: usize> Axes<N> {
    pub(super) fn new(shape: &[usize], strides: [&[isize]; N]) -> Self {
        let none = Axis { extent: 1, strides: [0; N] };
        let mut axes = Self { few: [none; FEW], many: Vec::new(), len: 0 };
        for (i, extent) in shape.iter().enumerate() {
            axes.push(Axis { extent: *extent, strides: strides.map(|strides| strides[i]) });
        }
        axes
    }

    fn push(&mut self, axis: Axis<N>) {
        if axis.extent == 1 {
            return;
        }
        if let Some(last) = self.last_mut() {
            let joins = |i: usize| last.strides[i] == axis.strides[i].wrapping_mul(axis.extent.cast_signed());
            if last.extent == 0 || (0..N).all(joins) {
                *last = Axis { extent: last.extent * axis.extent, ..axis };
                return;
            }
        }
        if self.len < FEW {
            self.few[self.len] = axis;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(axis);
        }
        self.len += 1;
    }

    fn last_mut(&mut self) -> Option<&mut Axis<N>> {
        if self.many.is_empty() { self.few[..self.len].last_mut() } else { self.many.last_mut() }
    }

    pub(super) fn all(&self) -> &[Axis<N>] {
        if self.many.is_empty() { &self.few[..self.len] } else { &self.many }
    }

    /// How far into each view the element is that is the `index`th in row-major order of the first `count` axes.
    pub(super) fn offsets(&self, count: usize, mut index: usize) -> [isize; N] {
        let mut offsets = [0_isize; N];
        for (outer, axis) in self.all()[..count].iter().enumerate().rev() {
            // what is left belongs to the outermost: a division takes as long as a short row
            let place = if outer == 0 { index } else { index % axis.extent }.cast_signed();
            if outer > 0 {
                index /= axis.extent;
            }
            for (offset, stride) in offsets.iter_mut().zip(axis.strides) {
                *offset += place * stride;
            }
        }
        offsets
    }
}

pub(super) fn require(what: &str, shape: &[usize], expected: &[usize]) {
    assert_eq!(shape, expected, "{what}: this shape, where the other is needed");
}

/// A line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "memory for other types")] [u8; 64]);

/// What a thread keeps for its next call; more is given back.
const KEPT_BYTES: usize = 5 << 18;

thread_local! {
    static SCRATCH: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Calls `body` with memory for `len` elements, which hold anything, aligned to a line of the cache.
///
/// A thread keeps up to [`KEPT_BYTES`] of it between calls: to take it from the system anew costs a page fault for each 4 KiB, longer than
/// a small product.
pub(super) fn with_scratch<E: Element, R>(len: usize, body: impl FnOnce(*mut E) -> R) -> R {
    let lines = (len * size_of::<E>()).div_ceil(size_of::<Line>());
    // what a call within this one would find is empty, and is given back to the system when that ends
    let mut memory = SCRATCH.take();
    if memory.len() < lines {
        memory = vec![Line([0; 64]); lines];
    }
    let result = body(memory.as_mut_ptr().cast());
    if memory.len() * size_of::<Line>() <= KEPT_BYTES {
        SCRATCH.set(memory);
    }
    result
}
