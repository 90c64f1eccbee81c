//! Pixels with all their channels: a run of pixels of a row at a time, a few channels after another.
//!
//! Vectors hold pixels, so that what is summed over the channels of a pixel is summed in their order, whatever the blocks of the
//! windows. Channel blocks are transposed on the way.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, Layout, PartMut, View, transpose};

use crate::vector::prefetch;

use super::band::{TASK_ELEMENTS, extent, index, shares, signed, span};

/// The most pixels of a run.
pub(super) const PIXELS: usize = 64;

/// The channels that are taken at a time.
pub(super) const GROUP: usize = 16;

/// A channel of a run of pixels.
pub(super) type Plane<T> = [T; PIXELS];

/// A few channels of a run of pixels.
pub(super) type Planes<T> = [Plane<T>; GROUP];

/// Neighbouring pixels of a row, at most [`PIXELS`].
#[derive(Clone, Copy)]
pub(super) struct Pixels {
    n: usize,
    y: i64,
    cols: Interval,
}

impl Pixels {
    /// The pixels of some columns of a row of an image, one run after another.
    pub(super) fn of_row(n: usize, y: i64, cols: Interval) -> impl Iterator<Item = Self> {
        (0..runs_of(cols)).map(move |run| Self::of_run(n, y, cols, run))
    }

    fn of_run(n: usize, y: i64, cols: Interval, run: usize) -> Self {
        let begin = cols.begin() + signed(run * PIXELS);
        Self { n, y, cols: Interval::new(begin, (begin + signed(PIXELS)).min(cols.end())) }
    }

    /// The row.
    pub(super) const fn y(&self) -> i64 {
        self.y
    }

    /// The columns.
    pub(super) const fn cols(&self) -> Interval {
        self.cols
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        extent(self.cols)
    }

    /// These pixels of a channel block of an input.
    pub(super) fn span<'v, T: Element>(&self, view: &View<'v, T>, block: usize) -> &'v [T] {
        span(view, [self.n, block], self.y, self.cols)
    }

    /// All that lies in an input from these pixels of a channel block on.
    pub(super) fn rest<'v, T: Element>(&self, view: &View<'v, T>, block: usize) -> &'v [T] {
        let layout = view.layout();
        let skip = index(self.cols.begin() - layout.cols().begin()) * layout.block();
        &view.data()[layout.row_offset(self.n, block, self.y) + skip..]
    }

    /// The channels of the group that begins with `first`, of these pixels of an input; lanes past the last pixel, and channels
    /// past the last one, hold what they held.
    pub(super) fn read<'p, T: Element>(
        &self,
        view: &View<'_, T>,
        first: usize,
        planes: &'p mut Planes<T>,
    ) -> &'p [Plane<T>] {
        let (block, pixels) = (view.layout().block(), self.len());
        let count = GROUP.min(view.layout().channels() - first);
        let mut done = 0;
        while done < count {
            let channel = first + done;
            let lane = channel % block;
            let lanes = (block - lane).min(count - done);
            let values = &span(view, [self.n, channel / block], self.y, self.cols)[lane..];
            if lane == 0 {
                fetch(values.as_ptr().wrapping_add(values.len()), values.len());
            }
            if block == 1 {
                planes[done][..pixels].copy_from_slice(values);
            } else {
                transpose(values, block, planes[done..].as_flattened_mut(), PIXELS, [pixels, lanes]);
            }
            done += lanes;
        }
        &planes[..count]
    }
}

/// The first channels of all groups of [`GROUP`].
pub(super) fn groups(channels: usize) -> impl Iterator<Item = usize> {
    (0..channels).step_by(GROUP)
}

/// A run of pixels of the output, with all their channels; exclusive.
pub(super) struct Run<T> {
    start: *mut T,
    layout: Layout,
    pixels: Pixels,
}

impl<T: Element> Run<T> {
    /// Its pixels.
    pub(super) const fn pixels(&self) -> Pixels {
        self.pixels
    }

    /// The channels of the output.
    pub(super) const fn channels(&self) -> usize {
        self.layout.channels()
    }

    /// Where and how its elements lie.
    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The first channels of all groups of [`GROUP`].
    pub(super) fn groups(&self) -> impl Iterator<Item = usize> + use<T> {
        groups(self.channels())
    }

    /// As [`Pixels::read`].
    pub(super) fn read<'p>(
        &self,
        view: &View<'_, T>,
        first: usize,
        planes: &'p mut Planes<T>,
    ) -> &'p [Plane<T>] {
        self.pixels.read(view, first, planes)
    }

    /// Writes the channels of the group that begins with `first`.
    pub(super) fn write(&mut self, first: usize, planes: &Planes<T>) {
        let (block, pixels) = (self.layout.block(), self.pixels.len());
        let count = GROUP.min(self.channels() - first);
        let mut done = 0;
        while done < count {
            let channel = first + done;
            let lane = channel % block;
            let lanes = (block - lane).min(count - done);
            let values = &mut self.row(channel / block)[lane..];
            if block == 1 {
                values.copy_from_slice(&planes[done][..pixels]);
            } else {
                transpose(planes[done..].as_flattened(), PIXELS, values, block, [lanes, pixels]);
            }
            done += lanes;
        }
    }

    /// The channel blocks of an input, from which those of the output can be computed without a transposition: those that lie alike.
    pub(super) fn alike<'v>(&self, view: &View<'v, T>) -> Option<impl Iterator<Item = &'v [T]> + use<'v, T>> {
        let (view, Pixels { n, y, cols }) = (*view, self.pixels);
        let layout = view.layout();
        (layout.block() == self.layout.block())
            .then(|| (0..layout.blocks()).map(move |block| span(&view, [n, block], y, cols)))
    }

    /// The pixels of a channel block.
    pub(super) fn row(&mut self, block: usize) -> &mut [T] {
        let Pixels { n, y, cols } = self.pixels;
        let len = extent(cols) * self.layout.block();
        let skip = index(cols.begin() - self.layout.cols().begin()) * self.layout.block();
        assert!(block < self.layout.blocks(), "block {block} of {}", self.layout.blocks());
        let offset = self.layout.row_offset(n, block, y) + skip;
        // SAFETY: `for_runs` made the run of a part that outlives it and holds this row and these columns; image and block lie in
        // the layout. Blocks are disjoint, runs are disjoint, and `&mut self` keeps pixels from being handed out again while they
        // are borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), len) }
    }
}

struct Output<T>(*mut T);

// SAFETY: it is dereferenced only through runs, which are disjoint; elements are plain floats.
unsafe impl<T: Element> Sync for Output<T> {}

/// The groups whose channels are kept: those of 256 channels, 64 KiB of `f32`.
pub(super) const KEPT_GROUPS: usize = 16;

/// The channels of an input that a run comes back to: transposing them again would take longer than what is done with them. Of
/// many channels the first ones are kept.
pub(super) struct Kept<T> {
    /// Filled when they are first needed: a task may have few channels, and few pixels.
    groups: [Option<Planes<T>>; KEPT_GROUPS],
    /// How many of them hold this run's.
    held: usize,
    /// Of a group that is not kept.
    other: Planes<T>,
}

impl<T: Element> Kept<T> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { groups: [None; KEPT_GROUPS], held: 0, other: [[T::ZERO; PIXELS]; GROUP] }
    }

    /// Forgets the run before.
    pub(super) const fn clear(&mut self) {
        self.held = 0;
    }

    /// As [`Pixels::read`], of the same input throughout a run, whose groups are first read in their order.
    pub(super) fn read(&mut self, pixels: Pixels, view: &View<'_, T>, first: usize) -> &[Plane<T>] {
        let Self { groups, held, other } = self;
        let group = first / GROUP;
        let Some(kept) = groups.get_mut(group) else { return pixels.read(view, first, other) };
        let kept = kept.get_or_insert([[T::ZERO; PIXELS]; GROUP]);
        if group < *held {
            return &kept[..GROUP.min(view.layout().channels() - first)];
        }
        *held = group + 1;
        pixels.read(view, first, kept)
    }
}

/// Fetches what the next run reads of a channel block, beside the work on this one: a run is too short for the core to notice that it is
/// followed.
fn fetch<T>(start: *const T, len: usize) {
    for element in (0..len).step_by(64 / size_of::<T>()) {
        prefetch(start.wrapping_add(element));
    }
}

/// Runs of a part of the region, one after another.
pub(super) struct Runs<'r, T> {
    start: *mut T,
    layout: Layout,
    region: Region<2>,
    /// The numbers of those left: in a row, then row by row, then image by image.
    left: &'r mut dyn Iterator<Item = usize>,
}

impl<T: Element> Iterator for Runs<'_, T> {
    type Item = Run<T>;

    fn next(&mut self) -> Option<Run<T>> {
        let at = self.left.next()?;
        let (rows, cols) = (self.region.rows(), self.region.cols());
        let (height, runs) = (extent(rows), runs_of(cols));
        let (row, run) = (at / runs, at % runs);
        let pixels = Pixels::of_run(row / height, rows.begin() + signed(row % height), cols, run);
        Some(Run { start: self.start, layout: self.layout, pixels })
    }
}

/// The runs of a row of so many columns.
fn runs_of(cols: Interval) -> usize {
    extent(cols).div_ceil(PIXELS)
}

/// Cuts `region` of `output` into runs of pixels and does `work` on each, on the threads of the caller's pool.
///
/// `weight` is the cost of an element in units of copying one.
///
/// # Panics
/// Where the part does not hold the region, or an input has other channels.
pub(super) fn for_runs<T: Element>(
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
    weight: usize,
    work: impl Fn(&mut Run<T>) + Sync,
) {
    for_tasks(inputs, output, region, weight, |runs| runs.for_each(|mut run| work(&mut run)));
}

/// The same with all runs of a thread at once, for which `work` may keep something.
///
/// # Panics
/// As [`for_runs`].
pub(super) fn for_tasks<T: Element>(
    inputs: &[View<'_, T>],
    mut output: PartMut<'_, T>,
    region: Region<2>,
    weight: usize,
    work: impl Fn(Runs<'_, T>) + Sync,
) {
    let layout = *output.layout();
    assert!(output.region().contains_region(region), "{region} outside the part {}", output.region());
    assert!(extent(layout.rows()) <= layout.ring(), "a window has at most as many rows as its ring");
    for input in inputs {
        assert_eq!(input.layout().channels(), layout.channels(), "channels of the input and of the output");
    }
    let count = layout.batch() * extent(region.rows()) * runs_of(region.cols());
    let start = Output(output.as_mut_ptr());
    let least = TASK_ELEMENTS.div_ceil(PIXELS * layout.channels() * weight);
    shares(count, least, |ranges| {
        let start = &start;
        work(Runs { start: start.0, layout, region, left: &mut ranges.flatten() });
    });
}
