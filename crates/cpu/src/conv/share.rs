//! Sharing one call among threads.

use std::marker::PhantomData;

use rayon::prelude::*;
use tiled_tensor::{Element, Layout, PartMut};

/// Work below this many operations is not worth waking a thread for: about 50 µs on one core.
const WORTH_SHARING: f64 = 8e6;

/// Pieces per thread, so that a thread that was held up does not hold up the call.
const PIECES_PER_THREAD: usize = 4;

/// The threads that share a call: one outside a pool, and where there is little to do.
///
/// The global pool of rayon is never used.
pub(super) fn threads(operations: f64) -> usize {
    match rayon::current_thread_index() {
        Some(_) if operations >= WORTH_SHARING => rayon::current_num_threads(),
        _ => 1,
    }
}

/// How many pieces a call is cut into whose pieces may be small.
pub(super) fn pieces(operations: f64) -> usize {
    match threads(operations) {
        1 => 1,
        threads => threads * PIECES_PER_THREAD,
    }
}

/// Runs `body` for each piece, in parallel.
pub(super) fn for_pieces(pieces: usize, body: impl Fn(usize) + Sync + Send) {
    if pieces <= 1 {
        return body(0);
    }
    (0..pieces).into_par_iter().with_max_len(1).for_each(body);
}

/// A part of a window that several threads write at once, each its own elements.
#[derive(Clone, Copy)]
pub(super) struct SharedOutput<'a, T> {
    start: *mut T,
    layout: Layout,
    borrow: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> SharedOutput<'a, T> {
    pub(super) fn new(part: &'a mut PartMut<'_, T>) -> Self {
        Self { start: part.as_mut_ptr(), layout: *part.layout(), borrow: PhantomData }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The element at `offset`; `offset` may be at most the length of the layout.
    pub(super) fn at(&self, offset: usize) -> *mut T {
        assert!(offset <= self.layout.len(), "offset {offset} in a window of {}", self.layout.len());
        // SAFETY: `start` is valid for the length of the layout, as the view asserts.
        unsafe { self.start.add(offset) }
    }
}

// SAFETY: it gives out raw pointers only; whoever writes through them shows that no two threads write the
// same element. The elements are plain floats.
unsafe impl<T: Element> Sync for SharedOutput<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Element> Send for SharedOutput<'_, T> {}
