//! Tensors in memory as sinks.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tiled_geometry::{Interval, Region};
use tiled_tensor::{
    Borrowed, Element, Layout, OutOfMemory, PartMut, SharedTensor, Tensor, TensorError, View, ViewMut,
    transpose,
};

use super::{Sink, SinkInMemory, Written};
use crate::IoError;
use crate::source::{LEAST_SHARED, Places, Stretch, index, shares_work};

/// A sink that becomes a tensor.
///
/// ```
/// # use tiled_exec::{MemorySink, Sink};
/// # use tiled_tensor::Tensor;
/// let input = Tensor::from_fn([1, 2, 3, 4], |[_, c, y, x]| (c + y + x) as f32).unwrap();
/// let sink = MemorySink::<f32>::new(input.shape()).unwrap();
/// sink.write(input.view().region(), &input.view()).unwrap();
/// sink.finish().unwrap();
/// assert_eq!(sink.into_tensor().data(), input.data());
/// ```
#[derive(Debug)]
pub struct MemorySink<T: Element> {
    written: Written,
    places: Places,
    tensor: SharedTensor<Tensor<T>, T>,
}

impl<T: Element> MemorySink<T> {
    /// A sink for a tensor of shape NCHW, which it allocates.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn new(shape: [usize; 4]) -> Result<Self, IoError> {
        let written = Written::new(Path::new(NAME), shape)?;
        let places = Places::contiguous(shape)?;
        let tensor = Tensor::zeros(shape).map_err(|error| match error {
            TensorError::OutOfMemory(OutOfMemory { bytes }) => {
                IoError::OutOfMemory { path: NAME.into(), bytes }
            }
            _ => IoError::Overflow { path: NAME.into(), got: shape.to_vec() },
        })?;
        Ok(Self { written, places, tensor: tensor.into() })
    }

    /// The tensor, with zeros where nothing was written.
    #[must_use]
    pub fn into_tensor(self) -> Tensor<T> {
        self.tensor.into_tensor()
    }
}

impl<T: Element> Sink<T> for MemorySink<T> {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        copy(&self.places, region, input, |part, planes| self.tensor.claim_planes(part, planes));
        self.written.add(region);
        Ok(())
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }

    fn in_memory(&self) -> Option<&dyn SinkInMemory<T>> {
        Some(self)
    }

    fn finish(&self) -> Result<(), IoError> {
        self.written.close()
    }

    fn abort(&self) {
        self.written.abandon();
    }

    fn resident_bytes(&self) -> u64 {
        (self.tensor.layout().len() * size_of::<T>()) as u64
    }
}

/// A sink over memory of the caller, with any strides under which no two elements share a place. After a run that failed the
/// memory may be written in part.
#[derive(Debug)]
pub struct SliceSink<'a, T: Element> {
    written: Written,
    places: Places,
    memory: Elements<'a, T>,
}

/// How the memory of the caller is shared by the threads that write.
#[derive(Debug)]
enum Elements<'a, T: Element> {
    /// By regions of a contiguous tensor.
    Tensor(SharedTensor<Borrowed<'a, T>, T>),
    /// By places of any other.
    Strided(Parts<'a, T>),
}

impl<'a, T: Element> SliceSink<'a, T> {
    /// A contiguous tensor of shape NCHW.
    ///
    /// # Errors
    /// Where `data` is shorter than the shape says.
    pub fn new(data: &'a mut [T], shape: [usize; 4]) -> Result<Self, IoError> {
        Self::with_places(data, Places::contiguous(shape)?)
    }

    /// A tensor whose element (n, c, y, x) is `data[start + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]]`.
    ///
    /// # Errors
    /// Where an element would lie outside `data`, or where two elements may share a place.
    pub fn with_strides(
        data: &'a mut [T],
        shape: [usize; 4],
        start: usize,
        strides: [isize; 4],
    ) -> Result<Self, IoError> {
        Self::with_places(data, Places::new(shape, start, strides)?)
    }

    fn with_places(data: &'a mut [T], places: Places) -> Result<Self, IoError> {
        places.check_len(data.len())?;
        places.check_disjoint()?;
        let written = Written::new(Path::new(NAME), places.shape())?;
        let memory = match (places.contiguous_range(), Layout::nchw(places.shape())) {
            (Some(range), Ok(layout)) => Elements::Tensor(ViewMut::new(&mut data[range], layout).into()),
            _ => Elements::Strided(Parts::new(data, &places)),
        };
        Ok(Self { written, places, memory })
    }
}

impl<T: Element> Sink<T> for SliceSink<'_, T> {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        match &self.memory {
            Elements::Tensor(tensor) => {
                let places = Places::contiguous(self.shape())?;
                copy(&places, region, input, |part, planes| tensor.claim_planes(part, planes));
            }
            Elements::Strided(parts) => copy(&self.places, region, input, |_, _| parts),
        }
        self.written.add(region);
        Ok(())
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }

    fn in_memory(&self) -> Option<&dyn SinkInMemory<T>> {
        matches!(self.memory, Elements::Tensor(_)).then_some(self)
    }

    fn finish(&self) -> Result<(), IoError> {
        self.written.close()
    }

    fn abort(&self) {
        self.written.abandon();
    }
}

impl<T: Element> SinkInMemory<T> for MemorySink<T> {
    fn write_in_place(
        &self,
        region: Region<2>,
        compute: &mut dyn FnMut(PartMut<'_, T>),
    ) -> Result<(), IoError> {
        self.written.check(region, self.tensor.layout())?;
        compute(self.tensor.claim(region));
        self.written.add(region);
        Ok(())
    }
}

impl<T: Element> SinkInMemory<T> for SliceSink<'_, T> {
    fn write_in_place(
        &self,
        region: Region<2>,
        compute: &mut dyn FnMut(PartMut<'_, T>),
    ) -> Result<(), IoError> {
        let Elements::Tensor(tensor) = &self.memory else {
            panic!("invariant: it does not say that it lies so")
        };
        self.written.check(region, tensor.layout())?;
        compute(tensor.claim(region));
        self.written.add(region);
        Ok(())
    }
}

const NAME: &str = "<memory>";

/// The guard of plain data, which stays valid whatever panicked while it was held.
fn lock<D>(mutex: &Mutex<D>) -> MutexGuard<'_, D> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parts of memory that threads lock apart.
const PARTS: usize = 64;

/// Memory that several threads write at once, a lock for each part of it; one where neighbouring columns lie apart.
#[derive(Debug)]
pub(super) struct Parts<'a, S> {
    len: usize,
    parts: Vec<Mutex<&'a mut [S]>>,
}

impl<'a, S> Parts<'a, S> {
    pub(super) fn new(data: &'a mut [S], places: &Places) -> Self {
        let count = if places.is_in_rows() { PARTS } else { 1 };
        let len = data.len().div_ceil(count).max(1);
        Self { len, parts: data.chunks_mut(len).map(Mutex::new).collect() }
    }

    /// Writes a stretch of elements.
    pub(super) fn write(&self, stretch: Stretch, mut values: impl Iterator<Item = S>) {
        if self.parts.len() == 1 {
            let mut data = lock(&self.parts[0]);
            for (i, value) in (0..stretch.len).zip(values) {
                data[stretch.at(i)] = value;
            }
            return;
        }
        let (mut start, end) = (stretch.start, stretch.start + stretch.len);
        while start < end {
            let offset = start % self.len;
            let count = (end - start).min(self.len - offset);
            let mut data = lock(&self.parts[start / self.len]);
            for (place, value) in data[offset..offset + count].iter_mut().zip(values.by_ref()) {
                *place = value;
            }
            start += count;
        }
    }
}

/// Memory that a thread writes.
trait Memory<T> {
    /// Writes neighbouring elements.
    fn write(&mut self, start: usize, values: &[T]);
    /// Writes a stretch of elements that may lie apart.
    fn write_stretch(&mut self, stretch: Stretch, values: impl Iterator<Item = T>);
}

impl<T: Element> Memory<T> for PartMut<'_, T> {
    fn write(&mut self, start: usize, values: &[T]) {
        PartMut::write(self, start, values);
    }

    fn write_stretch(&mut self, stretch: Stretch, values: impl Iterator<Item = T>) {
        for (i, value) in values.enumerate() {
            PartMut::write(self, stretch.at(i), &[value]);
        }
    }
}

impl<T: Element> Memory<T> for &Parts<'_, T> {
    fn write(&mut self, mut start: usize, mut values: &[T]) {
        while !values.is_empty() {
            let offset = start % self.len;
            let (now, later) = values.split_at(values.len().min(self.len - offset));
            lock(&self.parts[start / self.len])[offset..offset + now.len()].copy_from_slice(now);
            start += now.len();
            values = later;
        }
    }

    fn write_stretch(&mut self, stretch: Stretch, values: impl Iterator<Item = T>) {
        Parts::write(self, stretch, values);
    }
}

/// Parts of a region for each thread that shares its copy.
const PARTS_PER_THREAD: usize = 4;

/// Elements that are regrouped at a time, in the first cache.
const REGROUPED: usize = 4096;

/// Copies a region, whose parts the threads of this pool share if there is enough to do; `memory` is where a part of it may
/// be written, in some planes.
fn copy<T: Element, M: Memory<T>>(
    places: &Places,
    region: Region<2>,
    input: &View<'_, T>,
    memory: impl Fn(Region<2>, Range<usize>) -> M + Sync,
) {
    if region.is_empty() {
        return;
    }
    let layout = input.layout();
    // blocks of channels, of all images
    let blocks = layout.batch() * layout.blocks();
    if !places.is_in_rows() || !shares_work(region, layout.batch() * layout.channels()) {
        return copy_blocks(places, region, input, 0..blocks, &memory);
    }
    // blocks, or rows where they are few
    let height = index(region.rows().len());
    let elements = blocks * layout.block() * height * index(region.cols().len());
    let count = (PARTS_PER_THREAD * rayon::current_num_threads()).min(elements / LEAST_SHARED).max(1);
    let parts = count.min(blocks);
    let bands = count.div_ceil(parts).min(height);
    (0..parts * bands).into_par_iter().for_each(|index| {
        let (part, band) = (index / bands, index % bands);
        let rows = [band, band + 1].map(|band| i64::try_from(height * band / bands).unwrap_or(i64::MAX));
        let rows = Interval::new(region.rows().begin() + rows[0], region.rows().begin() + rows[1]);
        let band = Region::from_rows_cols(rows, region.cols());
        copy_blocks(places, band, input, blocks * part / parts..blocks * (part + 1) / parts, &memory);
    });
}

/// Copies a region that has elements, in some blocks of channels.
fn copy_blocks<T: Element, M: Memory<T>>(
    places: &Places,
    region: Region<2>,
    input: &View<'_, T>,
    blocks: Range<usize>,
    memory: &impl Fn(Region<2>, Range<usize>) -> M,
) {
    let layout = *input.layout();
    let plane = |block: usize| {
        let (n, block) = (block / layout.blocks(), block % layout.blocks());
        n * layout.channels() + block * layout.block()
    };
    let mut memory = memory(region, plane(blocks.start)..plane(blocks.end));
    if places.joins_planes(region, &layout) {
        let part = blocks.start * layout.block_stride()..blocks.end * layout.block_stride();
        let start = places.stretch([0, 0], [0, 0], 0).start + part.start;
        return memory.write(start, &input.data()[part]);
    }
    let [height, width] = region.axes().map(|axis| index(axis.len()));
    // rows that follow one another on both sides are one long row
    let together = if places.joins_rows(region, &layout) { height } else { 1 };
    let mut buffer = [T::ZERO; REGROUPED];
    for block in blocks {
        let start = [block / layout.blocks(), block % layout.blocks()];
        for y in (region.rows().begin()..region.rows().end()).step_by(together) {
            let at = [y, region.cols().begin()];
            copy_row(places, start, at, width * together, input, &mut memory, &mut buffer);
        }
    }
}

/// Copies `len` pixels of a channel block from (y, x) on.
fn copy_row<T: Element>(
    places: &Places,
    [n, block]: [usize; 2],
    [y, x]: [i64; 2],
    len: usize,
    input: &View<'_, T>,
    memory: &mut impl Memory<T>,
    buffer: &mut [T],
) {
    let layout = input.layout();
    let (lanes, first) = (layout.block(), block * layout.block());
    let channels = lanes.min(layout.channels() - first);
    let row = &input.data()[layout.offset(n, first, y, x)..];
    let stretch = |c: usize| places.stretch([n, first + c], [y, x], len);
    if !places.is_in_rows() {
        (0..channels).for_each(|c| {
            memory.write_stretch(stretch(c), row.iter().skip(c).step_by(lanes).copied().take(stretch(c).len))
        });
    } else if lanes == 1 {
        memory.write(stretch(0).start, &row[..stretch(0).len]);
    } else {
        let width = REGROUPED / lanes;
        for begin in (0..len).step_by(width) {
            let count = width.min(len - begin);
            transpose(&row[begin * lanes..], lanes, buffer, width, [count, channels]);
            for c in 0..channels {
                memory.write(stretch(c).start + begin, &buffer[c * width..c * width + count]);
            }
        }
    }
}
