//! Pixels with all their channels: a run of pixels of a row at a time, a few channels after another.
//!
//! Vectors hold pixels, so that what is summed over the channels of a pixel is summed in their order, whatever the blocks of the
//! windows. Channel blocks are transposed on the way.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, Layout, PartMut, View, transpose};

use super::band::{TASK_ELEMENTS, extent, index, signed, span, split};

/// The most pixels of a run.
pub(super) const PIXELS: usize = 64;

/// The channels that are taken at a time.
pub(super) const GROUP: usize = 16;

/// A channel of a run of pixels.
pub(super) type Plane<T> = [T; PIXELS];

/// A few channels of a run of pixels.
pub(super) type Planes<T> = [Plane<T>; GROUP];

/// A run of pixels of the output, with all their channels; exclusive.
pub(super) struct Run<T> {
    start: *mut T,
    layout: Layout,
    n: usize,
    y: i64,
    cols: Interval,
}

impl<T: Element> Run<T> {
    /// The channels of the output.
    pub(super) const fn channels(&self) -> usize {
        self.layout.channels()
    }

    /// The first channels of all groups of [`GROUP`].
    pub(super) fn groups(&self) -> impl Iterator<Item = usize> + use<T> {
        (0..self.channels()).step_by(GROUP)
    }

    /// The channels of the group that begins with `first`, of these pixels of an input; lanes past the last pixel, and channels
    /// past the last one, hold what they held.
    pub(super) fn read<'p>(
        &self,
        view: &View<'_, T>,
        first: usize,
        planes: &'p mut Planes<T>,
    ) -> &'p [Plane<T>] {
        let (block, pixels) = (view.layout().block(), extent(self.cols));
        let count = GROUP.min(view.layout().channels() - first);
        let mut done = 0;
        while done < count {
            let channel = first + done;
            let lane = channel % block;
            let lanes = (block - lane).min(count - done);
            let values = &span(view, [self.n, channel / block], self.y, self.cols)[lane..];
            if block == 1 {
                planes[done][..pixels].copy_from_slice(values);
            } else {
                transpose(values, block, planes[done..].as_flattened_mut(), PIXELS, [pixels, lanes]);
            }
            done += lanes;
        }
        &planes[..count]
    }

    /// Writes the channels of the group that begins with `first`.
    pub(super) fn write(&mut self, first: usize, planes: &Planes<T>) {
        let (block, pixels) = (self.layout.block(), extent(self.cols));
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

    /// The pixels of a channel block.
    fn row(&mut self, block: usize) -> &mut [T] {
        let len = extent(self.cols) * self.layout.block();
        let skip = index(self.cols.begin() - self.layout.cols().begin()) * self.layout.block();
        assert!(block < self.layout.blocks(), "block {block} of {}", self.layout.blocks());
        let offset = self.layout.row_offset(self.n, block, self.y) + skip;
        // SAFETY: `for_runs` made the run of a part that outlives it and holds this row and these columns; image and block lie in
        // the layout. Blocks are disjoint, runs are disjoint, and `&mut self` keeps pixels from being handed out again while they
        // are borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), len) }
    }
}

struct Output<T>(*mut T);

// SAFETY: it is dereferenced only through runs, which are disjoint; elements are plain floats.
unsafe impl<T: Element> Sync for Output<T> {}

/// Cuts `region` of `output` into runs of pixels and does `work` on each, on the threads of the caller's pool.
///
/// `weight` is the cost of an element in units of copying one.
///
/// # Panics
/// Where the part does not hold the region, or an input has other channels.
pub(super) fn for_runs<T: Element>(
    inputs: &[View<'_, T>],
    mut output: PartMut<'_, T>,
    region: Region<2>,
    weight: usize,
    work: impl Fn(&mut Run<T>) + Sync,
) {
    let layout = *output.layout();
    assert!(output.region().contains_region(region), "{region} outside the part {}", output.region());
    assert!(extent(layout.rows()) <= layout.ring(), "a window has at most as many rows as its ring");
    for input in inputs {
        assert_eq!(input.layout().channels(), layout.channels(), "channels of the input and of the output");
    }
    let (rows, cols) = (region.rows(), region.cols());
    let (height, runs) = (extent(rows), extent(cols).div_ceil(PIXELS));
    let start = Output(output.as_mut_ptr());
    let least = TASK_ELEMENTS.div_ceil(PIXELS * layout.channels() * weight);
    split(0, layout.batch() * height * runs, least, &|from, to| {
        let start = &start;
        for at in from..to {
            let (row, run) = (at / runs, at % runs);
            let begin = cols.begin() + signed(run * PIXELS);
            work(&mut Run {
                start: start.0,
                layout,
                n: row / height,
                y: rows.begin() + signed(row % height),
                cols: Interval::new(begin, (begin + signed(PIXELS)).min(cols.end())),
            });
        }
    });
}
