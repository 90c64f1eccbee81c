//! Sharing one call among threads.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use tiled_kernel::{ThreadsAwake, worth_sharing_seconds};
use tiled_tensor::{Element, Layout, PartMut};

/// Operations of a core in a second, about.
const OPERATIONS_PER_SECOND: f64 = 160e9;

/// The most operations of a unit, of which threads take one after another.
const MOST_OF_A_UNIT: f64 = 2e6;

/// The units that a thread finds at least, where there is little to do.
const LEAST_UNITS_OF_A_THREAD: f64 = 2.0;

/// The most parts that units are divided into; more threads than this take turns at them.
const MOST_PARTS: usize = 64;

/// How often a thread that is done looks whether the others are, about 50 µs.
const MOST_SPINS: usize = 2000;

/// The threads that share a call: one outside a pool, and where there is little to do.
///
/// The global pool of rayon is never used.
pub(crate) fn threads(operations: f64) -> usize {
    match rayon::current_thread_index() {
        Some(_) if operations >= worth_sharing_seconds() * OPERATIONS_PER_SECOND => {
            rayon::current_num_threads()
        }
        _ => 1,
    }
}

/// The operations of a unit of work that is shared by so many threads.
#[expect(clippy::cast_precision_loss, reason = "a number of threads")]
pub(crate) fn of_a_unit(operations: f64, threads: usize) -> f64 {
    MOST_OF_A_UNIT.min(operations / (LEAST_UNITS_OF_A_THREAD * threads as f64))
}

/// Runs `body` for each piece, in parallel; in order on a thread outside a pool.
pub(crate) fn for_pieces(pieces: usize, body: impl Fn(usize) + Sync + Send) {
    if pieces <= 1 {
        return body(0);
    }
    if rayon::current_thread_index().is_none() {
        return (0..pieces).for_each(body);
    }
    (0..pieces).into_par_iter().with_max_len(1).for_each(body);
}

/// Runs `body` for each of `units`, in parallel ([`for_shares`]).
pub(crate) fn for_units(threads: usize, units: usize, body: impl Fn(usize) + Sync + Send) {
    for_shares(threads, units, |share| share.for_each(&body));
}

/// Runs `body` on each of some threads, with the units that it takes. A thread takes its part of them one after another, then parts that no
/// thread has taken, and then the last ones of the others' parts, so that a thread that was held up does not hold up the call.
pub(crate) fn for_shares(
    threads: usize,
    units: usize,
    body: impl Fn(&mut dyn Iterator<Item = usize>) + Sync + Send,
) {
    share_out(threads, units, |_| 1, |ranges| body(&mut ranges.flatten()));
}

/// The same for work that is faster on several units side by side: a thread takes half of what is left of a part, again and again. So ranges are
/// few and long, and short at last, and threads end together. One that is held up keeps the others waiting for its range.
pub(crate) fn for_ranges(
    threads: usize,
    units: usize,
    body: impl Fn(&mut dyn Iterator<Item = Range<usize>>) + Sync + Send,
) {
    share_out(threads, units, |left| left.div_ceil(2), body);
}

/// Shares out units to threads, each of which takes `some(left)` at a time of what is left of a part.
fn share_out(
    threads: usize,
    units: usize,
    some: impl Fn(usize) -> usize + Sync + Send,
    body: impl Fn(&mut dyn Iterator<Item = Range<usize>>) + Sync + Send,
) {
    if threads <= 1 {
        return body(&mut (units > 0).then_some(0..units).into_iter());
    }
    let count = threads.min(MOST_PARTS);
    let parts: [Mutex<Part>; MOST_PARTS] = std::array::from_fn(|part| {
        let at = |part: usize| units * part.min(count) / count;
        Mutex::new(Part { units: at(part)..at(part + 1), taken: false })
    });
    let caller = rayon::current_thread_index();
    let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for_pieces(threads, |thread| {
        begun.fetch_add(1, Ordering::Relaxed);
        // a lock ends with its statement, before the units begin
        let part =
            |other: usize| parts[(thread + other) % count].lock().unwrap_or_else(PoisonError::into_inner);
        let (mut other, mut is_own) = (0, false);
        body(&mut std::iter::from_fn(|| {
            while other < count {
                is_own = is_own || !std::mem::replace(&mut part(other).taken, true);
                if is_own && let Some(range) = part(other).take_first(&some) {
                    return Some(range);
                }
                (other, is_own) = (other + 1, false);
            }
            (0..count).find_map(|other| part(other).take_last(&some))
        }));
        done.fetch_add(1, Ordering::Release);
        if caller == rayon::current_thread_index() && ThreadsAwake::is_so() {
            // whoever has begun mostly ends within a short range: to look for other work takes longer than to wait
            let waits = || done.load(Ordering::Acquire) < begun.load(Ordering::Relaxed);
            (0..MOST_SPINS).take_while(|_| waits()).for_each(|_| std::hint::spin_loop());
        }
    });
}

/// The units that are left of a part, and whether a thread has taken it for its own.
struct Part {
    units: Range<usize>,
    taken: bool,
}

impl Part {
    /// Some of what is left, from its beginning.
    fn take_first(&mut self, some: impl Fn(usize) -> usize) -> Option<Range<usize>> {
        let Range { start, end } = self.units;
        self.units.start += some(end - start).min(end - start);
        (start < end).then_some(start..self.units.start)
    }

    /// Some of it, from its end.
    fn take_last(&mut self, some: impl Fn(usize) -> usize) -> Option<Range<usize>> {
        let Range { start, end } = self.units;
        self.units.end -= some(end - start).min(end - start);
        (start < end).then_some(self.units.end..end)
    }
}

/// A part of a window that several threads write at once, each its own elements.
#[derive(Clone, Copy)]
pub(crate) struct SharedOutput<'a, T> {
    start: *mut T,
    layout: Layout,
    borrow: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> SharedOutput<'a, T> {
    pub(crate) fn new(part: &'a mut PartMut<'_, T>) -> Self {
        Self { start: part.as_mut_ptr(), layout: *part.layout(), borrow: PhantomData }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The same storage, laid out otherwise.
    ///
    /// # Panics
    /// Where the layouts do not have the same storage.
    pub(crate) fn with_layout(self, layout: Layout) -> Self {
        assert_eq!(layout.len(), self.layout.len(), "the elements of a layout");
        Self { layout, ..self }
    }

    /// The element at `offset`; `offset` may be at most the length of the layout.
    pub(crate) fn at(&self, offset: usize) -> *mut T {
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_unit_is_run_once_whoever_takes_it() {
        for workers in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().unwrap();
            // fewer units than threads, parts of different sizes, more threads than parts
            for (threads, units) in [(1, 5), (2, 0), (2, 1), (3, 50), (7, 5), (MOST_PARTS + 6, 500)] {
                let runs: Vec<AtomicUsize> = (0..units).map(|_| AtomicUsize::new(0)).collect();
                pool.install(|| {
                    for_units(threads, units, |unit| {
                        runs[unit].fetch_add(1, Ordering::Relaxed);
                    })
                });
                assert!(
                    runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1),
                    "{units} units, {threads} threads of {workers}: {runs:?}"
                );
            }
        }
    }

    #[test]
    fn ranges_partition_the_units_and_grow_short() {
        for workers in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().unwrap();
            for (threads, units) in [(1, 0), (1, 5), (2, 0), (2, 1), (2, 64), (3, 50), (MOST_PARTS + 6, 500)]
            {
                let taken = Mutex::new(Vec::new());
                pool.install(|| {
                    for_ranges(threads, units, |ranges| {
                        ranges.for_each(|range| taken.lock().unwrap().push(range));
                    })
                });
                let mut taken = taken.into_inner().unwrap();
                // of two parts of 32 units each thread takes ranges of 16, 8, 4, 2, 1 and 1
                assert!((threads, units) != (2, 64) || taken.len() <= 12, "{taken:?}");
                taken.sort_by_key(|range| range.start);
                let all: Vec<usize> = taken.iter().cloned().flatten().collect();
                assert_eq!(
                    all,
                    (0..units).collect::<Vec<_>>(),
                    "{units} units, {threads} threads of {workers}"
                );
            }
        }
    }

    #[test]
    fn a_thread_that_is_held_up_keeps_its_range_alone() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let others = AtomicUsize::new(0);
        pool.install(|| {
            for_ranges(2, 16, |ranges| {
                for range in ranges {
                    if range.start == 0 {
                        // of its part of eight it has taken four
                        assert_eq!(range, 0..4);
                        let start = Instant::now();
                        while others.load(Ordering::Acquire) < 12 {
                            assert!(start.elapsed() < Duration::from_secs(60), "the rest waits for it");
                            std::thread::yield_now();
                        }
                    } else {
                        others.fetch_add(range.len(), Ordering::Release);
                    }
                }
            })
        });
    }

    #[test]
    fn a_thread_alone_takes_units_in_their_order() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let order = Mutex::new(Vec::new());
        pool.install(|| for_units(3, 20, |unit| order.lock().unwrap().push(unit)));
        assert_eq!(order.into_inner().unwrap(), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_that_is_held_up_loses_its_units_to_another() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let others = AtomicUsize::new(0);
        pool.install(|| {
            for_units(2, 10, |unit| {
                if unit == 0 {
                    // goes on when all the others are done, the rest of its own part among them
                    let start = Instant::now();
                    while others.load(Ordering::Acquire) < 9 {
                        assert!(start.elapsed() < Duration::from_secs(60), "its units wait for it");
                        std::thread::yield_now();
                    }
                } else {
                    others.fetch_add(1, Ordering::Release);
                }
            })
        });
        assert_eq!(others.into_inner(), 9);
    }
}
