//! Tensors in memory as sources.

use std::ops::Range;
use std::path::Path;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use tiled_geometry::{Interval, Region};
use tiled_kernel::worth_sharing_seconds;
use tiled_tensor::{Element, Layout, Tensor, ViewMut, transpose};

use super::{Source, check_access, count, index};
use crate::IoError;

/// A tensor in memory, borrowed or owned, with any strides.
#[derive(Debug, Clone)]
pub struct MemorySource<'a, T: Element> {
    data: Data<'a, T>,
    places: Places,
}

#[derive(Debug, Clone)]
enum Data<'a, T: Element> {
    Borrowed(&'a [T]),
    Owned(Tensor<T>),
}

impl<'a, T: Element> MemorySource<'a, T> {
    /// A contiguous tensor of shape NCHW.
    ///
    /// # Errors
    /// Where `data` is shorter than the shape says.
    pub fn new(data: &'a [T], shape: [usize; 4]) -> Result<Self, IoError> {
        let places = Places::contiguous(shape)?;
        places.check_len(data.len())?;
        Ok(Self { data: Data::Borrowed(data), places })
    }

    /// A tensor whose element (n, c, y, x) is `data[start + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]]`.
    ///
    /// Strides may be zero, which repeats elements, or negative.
    ///
    /// # Errors
    /// Where an element would lie outside `data`.
    pub fn with_strides(
        data: &'a [T],
        shape: [usize; 4],
        start: usize,
        strides: [isize; 4],
    ) -> Result<Self, IoError> {
        let places = Places::new(shape, start, strides)?;
        places.check_len(data.len())?;
        Ok(Self { data: Data::Borrowed(data), places })
    }

    /// The source that keeps the tensor itself.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn from_tensor(tensor: Tensor<T>) -> Result<MemorySource<'static, T>, IoError> {
        let places = Places::contiguous(tensor.shape())?;
        Ok(MemorySource { data: Data::Owned(tensor), places })
    }

    fn data(&self) -> &[T] {
        match &self.data {
            Data::Borrowed(data) => data,
            Data::Owned(tensor) => tensor.data(),
        }
    }
}

impl<'a, T: Element> TryFrom<&'a Tensor<T>> for MemorySource<'a, T> {
    type Error = IoError;

    fn try_from(tensor: &'a Tensor<T>) -> Result<Self, IoError> {
        Self::new(tensor.data(), tensor.shape())
    }
}

impl<T: Element> Source<T> for MemorySource<'_, T> {
    fn shape(&self) -> [usize; 4] {
        self.places.shape
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(Path::new(NAME), self.places.shape, region, output.layout())?;
        let layout = *output.layout();
        let copy = Copy { data: self.data(), places: &self.places, region, layout };
        // rows that follow one another on both sides are one long row
        let joins_rows = self.places.joins_rows(region, &layout);
        let together = if joins_rows { index(region.rows().len()).max(1) } else { 1 };
        if joins_rows
            && layout.batch() * layout.blocks() >= PLANES_SHARED
            && shares_work(region, layout.batch() * layout.channels())
        {
            let first = layout.row_offset(0, 0, region.rows().begin());
            let planes = output.data_mut()[..layout.len()].par_chunks_mut(layout.block_stride());
            planes.enumerate().for_each(|(plane, data)| {
                let place = [plane / layout.blocks(), plane % layout.blocks()];
                copy.rows(place, region.rows().begin(), together, &mut data[first..]);
            });
        } else if shares_work(region, layout.batch() * layout.channels()) {
            let least = LEAST_SHARED.div_ceil(layout.row_stride());
            let planes = output.data_mut()[..layout.len()].par_chunks_mut(layout.block_stride());
            planes.enumerate().for_each(|(plane, data)| {
                // what follows the rows is no part of them
                let rows = data[..layout.ring() * layout.row_stride()].par_chunks_mut(layout.row_stride());
                rows.enumerate()
                    .with_min_len(least)
                    .for_each(|(stored, row)| copy.stored_row(plane, stored, row));
            });
        } else if self.places.joins_planes(region, &layout) {
            let data = &self.data()[self.places.start..];
            output.data_mut()[..layout.len()].copy_from_slice(&data[..layout.len()]);
        } else if !region.is_empty() {
            for plane in 0..layout.batch() * layout.blocks() {
                for y in (region.rows().begin()..region.rows().end()).step_by(together) {
                    let (n, block) = (plane / layout.blocks(), plane % layout.blocks());
                    let start = layout.row_offset(n, block, y);
                    let rows = &mut output.data_mut()[start..start + together * layout.row_stride()];
                    copy.rows([n, block], y, together, rows);
                }
            }
        }
        Ok(())
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }

    fn in_memory(&self) -> Option<&[T]> {
        self.places.contiguous_range().map(|range| &self.data()[range])
    }

    fn resident_bytes(&self) -> u64 {
        match &self.data {
            Data::Borrowed(_) => 0,
            Data::Owned(tensor) => size_of_val(tensor.data()) as u64,
        }
    }
}

/// The least elements that a thread takes of a copy that is shared.
pub(crate) const LEAST_SHARED: usize = 1 << 15;

/// Planes from which on threads share them whole; fewer are shared by their rows.
const PLANES_SHARED: usize = 8;

/// Elements that a thread copies or looks at in a second, about.
const ELEMENTS_PER_SECOND: f64 = 5e9;

/// Whether so many elements are worth sharing with other threads, awake or not.
#[expect(clippy::cast_precision_loss, reason = "an estimate of the work")]
pub(crate) fn is_worth_sharing(elements: usize) -> bool {
    elements as f64 >= worth_sharing_seconds() * ELEMENTS_PER_SECOND
}

/// Whether the threads of the pool that this runs in share the copy of a region of so many planes.
pub(crate) fn shares_work(region: Region<2>, planes: usize) -> bool {
    let elements = usize::try_from(region.volume()).unwrap_or(0).saturating_mul(planes);
    is_worth_sharing(elements) && rayon::current_thread_index().is_some() && rayon::current_num_threads() > 1
}

/// A region on its way from a tensor to a window.
struct Copy<'a, T> {
    data: &'a [T],
    places: &'a Places,
    region: Region<2>,
    layout: Layout,
}

impl<T: Element> Copy<'_, T> {
    /// A row of storage of a plane, the blocks of all images counted; nothing where it holds no row of the region.
    fn stored_row(&self, plane: usize, stored: usize, row: &mut [T]) {
        let (ring, blocks) = (self.layout.ring(), self.layout.blocks());
        let (begin, end) = (self.region.rows().begin(), self.region.rows().end());
        let ring = i64::try_from(ring).unwrap_or(i64::MAX);
        let stored = i64::try_from(stored).unwrap_or(i64::MAX);
        let y = begin + (stored - begin).rem_euclid(ring);
        if y < end {
            self.rows([plane / blocks, plane % blocks], y, 1, row);
        }
    }

    /// Rows from `y` on of a channel block of an image, more than one where they follow one another.
    fn rows(&self, [n, block]: [usize; 2], y: i64, count: usize, row: &mut [T]) {
        let (lanes, first) = (self.layout.block(), block * self.layout.block());
        let cols = self.region.cols();
        let skipped = index(cols.begin() - self.layout.cols().begin()) * lanes;
        let row = &mut row[skipped..];
        let channels = lanes.min(self.layout.channels() - first);
        let len = count * index(cols.len());
        let [.., channel_step, _, col_step] = self.places.strides;
        let start = self.places.at([n, first, index(y), index(cols.begin())]);
        match usize::try_from(channel_step) {
            _ if col_step == 1 && lanes == 1 => row[..len].copy_from_slice(&self.data[start..start + len]),
            Ok(step) if col_step == 1 => transpose(&self.data[start..], step, row, lanes, [channels, len]),
            _ => {
                for c in 0..channels {
                    let stretch = self.places.stretch([n, first + c], [y, cols.begin()], len);
                    for (value, i) in row[c..].iter_mut().step_by(lanes).zip(0..len) {
                        *value = self.data[stretch.at(i)];
                    }
                }
            }
        }
    }
}

/// Where the elements of a strided tensor lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    shape: [usize; 4],
    start: usize,
    strides: [isize; 4],
}

/// Where the elements of a stretch of a row lie: element i at `start + i·step`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) start: usize,
    pub(crate) step: isize,
    pub(crate) len: usize,
}

impl Stretch {
    pub(crate) fn at(self, i: usize) -> usize {
        self.start.wrapping_add_signed(self.step.wrapping_mul(i.cast_signed()))
    }
}

impl Places {
    pub(crate) fn new(shape: [usize; 4], start: usize, strides: [isize; 4]) -> Result<Self, IoError> {
        count(Path::new(NAME), shape)?;
        Ok(Self { shape, start, strides })
    }

    pub(crate) fn contiguous(shape: [usize; 4]) -> Result<Self, IoError> {
        count(Path::new(NAME), shape)?;
        let [_, channels, height, width] = shape.map(usize::cast_signed);
        // An empty tensor may have extents whose partial products overflow; its strides are never used.
        let strides =
            [channels.wrapping_mul(height).wrapping_mul(width), height.wrapping_mul(width), width, 1];
        Ok(Self { shape, start: 0, strides })
    }

    /// Where the elements lie, if they follow one another in the order NCHW.
    pub(crate) fn contiguous_range(&self) -> Option<Range<usize>> {
        let contiguous = Self::contiguous(self.shape).ok()?;
        let len = self.shape.iter().product::<usize>();
        // the stride of one element is never taken
        let follow = |axis: usize| self.shape[axis] == 1 || contiguous.strides[axis] == self.strides[axis];
        (len > 0 && (0..4).all(follow)).then(|| self.start..self.start + len)
    }

    /// Whether neighbouring columns are neighbours in memory.
    pub(crate) const fn is_in_rows(&self) -> bool {
        self.strides[3] == 1
    }

    pub(crate) const fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Checks that every element lies in storage of `len` elements.
    pub(crate) fn check_len(&self, len: usize) -> Result<(), IoError> {
        if self.shape.contains(&0) {
            return Ok(());
        }
        let mut first = i128::try_from(self.start).unwrap_or(i128::MAX);
        let mut last = first;
        for (extent, stride) in self.shape.iter().zip(self.strides) {
            // At most 2⁶³ · 2⁶³ each, so that four of them fit.
            let reach = i128::from(stride as i64) * (*extent as i128 - 1);
            first += reach.min(0);
            last += reach.max(0);
        }
        let reached = usize::try_from(last + 1).ok().filter(|_| first >= 0);
        match reached {
            Some(reached) if reached <= len => Ok(()),
            _ => Err(IoError::Elements {
                path: NAME.into(),
                expected: reached.unwrap_or(usize::MAX),
                got: len,
            }),
        }
    }

    /// Checks that no two elements share a place: sorted by stride, each axis steps over all the axes before it.
    pub(crate) fn check_disjoint(&self) -> Result<(), IoError> {
        let mut axes =
            [0, 1, 2, 3].map(|axis| (i128::from(self.strides[axis] as i64).abs(), self.shape[axis] as i128));
        axes.sort_unstable();
        let mut reach = 0;
        for (stride, extent) in axes.into_iter().filter(|(_, extent)| *extent > 1) {
            if stride <= reach {
                return Err(IoError::Overlap { path: NAME.into(), got: self.strides });
            }
            reach += stride * (extent - 1);
        }
        Ok(())
    }

    /// The stretch of some pixels of a channel from (y, x) on.
    pub(crate) fn stretch(&self, [n, c]: [usize; 2], [y, x]: [i64; 2], len: usize) -> Stretch {
        Stretch { start: self.at([n, c, index(y), index(x)]), step: self.strides[3], len }
    }

    /// Whether the rows of a region follow one another both here and in a window.
    pub(crate) fn joins_rows(&self, region: Region<2>, layout: &Layout) -> bool {
        let [.., width] = self.shape;
        let whole = Interval::new(0, i64::try_from(width).unwrap_or(i64::MAX));
        let ring = i64::try_from(layout.ring()).unwrap_or(i64::MAX).max(1);
        self.is_in_rows()
            && usize::try_from(self.strides[2]) == Ok(width)
            && [region.cols(), layout.cols()] == [whole; 2]
            && region.rows().begin().rem_euclid(ring) + region.rows().len() <= ring
    }

    /// Whether a region is all of both, whose elements follow one another in the same order.
    pub(crate) fn joins_planes(&self, region: Region<2>, layout: &Layout) -> bool {
        region == layout.region()
            && self.contiguous_range().is_some()
            && Layout::nchw(self.shape).is_ok_and(|whole| whole == *layout)
    }

    /// The index of an element; `check_len` has shown that no sum leaves the storage.
    fn at(&self, element: [usize; 4]) -> usize {
        element.iter().zip(self.strides).fold(self.start, |sum, (index, stride)| {
            sum.wrapping_add_signed(stride.wrapping_mul(index.cast_signed()))
        })
    }
}

const NAME: &str = "<memory>";
