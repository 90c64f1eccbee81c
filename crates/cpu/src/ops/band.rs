//! Rows of the output, shared among threads.

use std::marker::PhantomData;
use std::ops::Range;

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, Layout, PartMut, View};

use crate::share;

/// Elements of a copy that are worth a range of their own, about 5 µs in a cache.
pub(super) const TASK_ELEMENTS: usize = 1 << 15;

/// The most units that a thread's part of a call is cut into.
const UNITS_PER_THREAD: usize = 16;

/// Some rows of one channel block of one image, cut to the columns asked for; exclusive.
pub(crate) struct Band<'a, T> {
    start: *mut T,
    layout: Layout,
    cols: Interval,
    rows: Interval,
    n: usize,
    block: usize,
    marker: PhantomData<&'a mut [T]>,
}

impl<T: Element> Band<'_, T> {
    /// The image of the batch.
    pub(crate) const fn n(&self) -> usize {
        self.n
    }

    /// The channels of a block.
    pub(crate) const fn lanes(&self) -> usize {
        self.layout.block()
    }

    /// The channels of the whole output.
    pub(crate) const fn channels(&self) -> usize {
        self.layout.channels()
    }

    /// The channel of lane 0.
    pub(crate) const fn first_channel(&self) -> usize {
        self.block * self.layout.block()
    }

    /// The lanes that are channels.
    pub(crate) fn real_lanes(&self) -> usize {
        (self.channels() - self.first_channel()).min(self.lanes())
    }

    /// The rows.
    pub(crate) const fn rows(&self) -> Interval {
        self.rows
    }

    /// The columns.
    pub(crate) const fn cols(&self) -> Interval {
        self.cols
    }

    /// Row `y`: `cols·lanes` elements.
    ///
    /// # Panics
    /// Where it is not in the band.
    pub(crate) fn row(&mut self, y: i64) -> &mut [T] {
        assert!(self.rows.contains(y), "row {y} outside the band {}", self.rows);
        let [row] = self.adjacent(Interval::new(y, y + 1));
        row
    }

    /// All rows as one, where they lie side by side.
    pub(crate) fn joined(&mut self) -> Option<&mut [T]> {
        are_side_by_side(&self.layout, self.rows, self.cols).then(|| {
            let offset = self.layout.row_offset(self.n, self.block, self.rows.begin());
            // SAFETY: as in `adjacent`; between the rows lies nothing, so these are the elements of the band alone.
            unsafe {
                std::slice::from_raw_parts_mut(
                    self.start.add(offset),
                    extent(self.rows) * self.layout.row_stride(),
                )
            }
        })
    }

    /// The rows `rows`, at most `K`; those that are not in the band are empty.
    pub(crate) fn adjacent<const K: usize>(&mut self, rows: Interval) -> [&mut [T]; K] {
        let len = extent(self.cols) * self.layout.block();
        let skip = index(self.cols.begin() - self.layout.cols().begin()) * self.layout.block();
        let wanted = rows.intersect(self.rows);
        std::array::from_fn(|i| {
            let y = rows.begin() + signed(i);
            if !wanted.contains(y) {
                return &mut [][..];
            }
            let offset = self.layout.row_offset(self.n, self.block, y) + skip;
            // SAFETY: `for_bands` made the band of a part that lives longer than `self` and has all of these rows
            // and columns; n and block lie in the layout. Different rows
            // of a window are disjoint (a window has at most `ring` of them), different bands are disjoint, and
            // `&mut self` keeps a row from being handed out again while it is borrowed.
            unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), len) }
        })
    }
}

/// Whether there are such rows of a layout, cut to these columns, and nothing lies between them, nor the ring's end.
pub(crate) fn are_side_by_side(layout: &Layout, rows: Interval, cols: Interval) -> bool {
    !rows.is_empty()
        && layout.cols() == cols
        && layout.row_stride() == extent(cols) * layout.block()
        && extent(rows) <= layout.rows_in_order(rows.begin())
}

struct Output<T>(*mut T);

// SAFETY: it is dereferenced only through bands, which are disjoint; elements are plain floats.
unsafe impl<T: Element> Sync for Output<T> {}

/// Cuts `region` of `output` into bands and runs `work` on each, on the threads of the caller's pool.
///
/// `weight` is the cost of an element in units of copying one. Bands of one call have no row in common.
///
/// # Panics
/// Where the part does not hold the region.
pub(crate) fn for_bands<T: Element>(
    mut output: PartMut<'_, T>,
    region: Region<2>,
    weight: usize,
    work: impl Fn(&mut Band<'_, T>) + Sync,
) {
    let layout = *output.layout();
    assert!(output.region().contains_region(region), "{region} outside the part {}", output.region());
    assert!(extent(layout.rows()) <= layout.ring(), "a window has at most as many rows as its ring");
    let (rows, cols) = (region.rows(), region.cols());
    let height = extent(rows);
    let count = layout.batch() * layout.blocks() * height;
    let start = Output(output.as_mut_ptr());
    let least = (TASK_ELEMENTS / (extent(cols) * layout.block() * weight).max(1)).max(1);
    split(0, count, least, &|from, to| {
        let start = &start;
        let mut at = from;
        while at < to {
            let (plane, row) = (at / height, at % height);
            let end = to.min((plane + 1) * height);
            let band_rows = Interval::new(rows.begin() + signed(row), rows.begin() + signed(row + end - at));
            work(&mut Band {
                start: start.0,
                layout,
                cols,
                rows: band_rows,
                n: plane / layout.blocks(),
                block: plane % layout.blocks(),
                marker: PhantomData,
            });
            at = end;
        }
    });
}

/// Runs `work` on ranges that partition `[from, to)`, each of about `least` at least where it was cut.
///
/// Outside a pool it is one range: the global pool is never used.
pub(crate) fn split(from: usize, to: usize, least: usize, work: &(impl Fn(usize, usize) + Sync)) {
    shares(to - from, least, |ranges| ranges.for_each(|range| work(from + range.start, from + range.end)));
}

/// Runs `work` on threads, each with ranges that together partition `[0, count)`, of about `least` at least.
pub(super) fn shares(
    count: usize,
    least: usize,
    work: impl Fn(&mut dyn Iterator<Item = Range<usize>>) + Sync,
) {
    let threads = threads_for(count, least);
    let units = if threads > 1 { (threads * UNITS_PER_THREAD).min(count / least.max(1)) } else { 1 };
    let at = |unit: usize| count * unit / units;
    share::for_ranges(threads, units, |ranges| {
        work(&mut ranges.map(|range| at(range.start)..at(range.end)));
    });
}

/// The threads that share `count` pieces of work of which so many are the least for a thread.
pub(crate) fn threads_for(count: usize, least: usize) -> usize {
    let threads = rayon::current_thread_index().map_or(1, |_| rayon::current_num_threads());
    threads.min(count / least.max(1)).max(1)
}

/// The elements of the columns `cols` of row `y` of channel block `block` of image `n`.
///
/// # Panics
/// Where the window does not hold them.
pub(crate) fn span<'a, T: Element>(
    view: &View<'a, T>,
    [n, block]: [usize; 2],
    y: i64,
    cols: Interval,
) -> &'a [T] {
    let layout = view.layout();
    assert!(layout.rows().contains(y), "row {y} outside the window {}", layout.region());
    let from = index(cols.begin() - layout.cols().begin()) * layout.block();
    &view.row(n, block, y)[from..from + extent(cols) * layout.block()]
}

/// The length of an interval as an index.
#[inline(always)]
pub(crate) fn extent(interval: Interval) -> usize {
    index(interval.len())
}

/// A coordinate difference as an index.
///
/// # Panics
/// Where it is negative.
#[inline(always)]
pub(crate) fn index(difference: i64) -> usize {
    usize::try_from(difference).expect("the window holds the coordinate")
}

/// An index as a coordinate difference.
#[inline(always)]
pub(crate) const fn signed(index: usize) -> i64 {
    index.cast_signed() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_side_by_side_up_to_the_end_of_the_ring() {
        let cols = Interval::new(-2, 5);
        let region = Region::from_rows_cols(Interval::new(9, 14), cols);
        // rows 9, 10 and 11 are the last of a ring of six, 12 and 13 its first
        let layout = Layout::new(2, 16, 8, region, 6).unwrap();
        let are = |rows: [i64; 2], cols| are_side_by_side(&layout, Interval::new(rows[0], rows[1]), cols);
        assert_eq!(
            [[9, 12], [12, 14], [9, 13], [11, 14], [9, 9]].map(|rows| are(rows, cols)),
            [true, true, false, false, false]
        );
        assert!(!are([9, 12], Interval::new(-2, 4)));
    }
}
