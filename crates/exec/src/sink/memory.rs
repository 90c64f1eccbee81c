//! Tensors in memory as sinks.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use tiled_geometry::Region;
use tiled_tensor::{Borrowed, Element, Layout, PartMut, SharedTensor, Tensor, View, ViewMut, transpose};

use super::{Sink, Written};
use crate::IoError;
use crate::source::{LEAST_SHARED, Places, Run, index, shares_work};

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
        let written = Written::new(NAME, shape)?;
        let places = Places::contiguous(shape)?;
        let tensor =
            Tensor::zeros(shape).map_err(|_| IoError::Overflow { path: NAME.into(), got: shape.to_vec() })?;
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
        copy(&self.places, region, input, &Part(Mutex::new(self.tensor.claim(region))));
        self.written.add(region);
        Ok(())
    }

    fn write_in_place(
        &self,
        region: Region<2>,
        compute: &mut dyn FnMut(PartMut<'_, T>),
    ) -> Result<bool, IoError> {
        self.written.check(region, self.tensor.layout())?;
        compute(self.tensor.claim(region));
        self.written.add(region);
        Ok(true)
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
    /// The memory, until the first region comes.
    whole: Mutex<Option<&'a mut [T]>>,
    memory: OnceLock<Held<'a, T>>,
}

/// How the memory of the caller is shared by the threads that write.
#[derive(Debug)]
enum Held<'a, T: Element> {
    /// By places, for what is copied.
    Parts(Parts<'a, T>),
    /// By regions of a contiguous tensor, for what is computed there.
    Tensor(SharedTensor<Borrowed<'a, T>, T>),
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
        let written = Written::new(NAME, places.shape())?;
        Ok(Self { written, places, whole: Mutex::new(Some(data)), memory: OnceLock::new() })
    }

    /// The memory, to be shared by regions if the first who asks wants that and the tensor is contiguous.
    fn memory(&self, by_regions: bool) -> &Held<'a, T> {
        self.memory.get_or_init(|| {
            let data = lock(&self.whole).take().unwrap_or_default();
            let layout = Layout::nchw(self.places.shape()).ok();
            match (self.places.contiguous_range(), layout) {
                (Some(range), Some(layout)) if by_regions => {
                    Held::Tensor(ViewMut::new(&mut data[range], layout).into())
                }
                _ => Held::Parts(Parts::new(data, if self.places.is_in_rows() { PARTS } else { 1 })),
            }
        })
    }
}

impl<T: Element> Sink<T> for SliceSink<'_, T> {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        match self.memory(false) {
            Held::Parts(parts) => copy(&self.places, region, input, parts),
            Held::Tensor(tensor) => {
                let places = Places::contiguous(self.shape())?;
                copy(&places, region, input, &Part(Mutex::new(tensor.claim(region))));
            }
        }
        self.written.add(region);
        Ok(())
    }

    fn write_in_place(
        &self,
        region: Region<2>,
        compute: &mut dyn FnMut(PartMut<'_, T>),
    ) -> Result<bool, IoError> {
        let Held::Tensor(tensor) = self.memory(true) else { return Ok(false) };
        self.written.check(region, tensor.layout())?;
        compute(tensor.claim(region));
        self.written.add(region);
        Ok(true)
    }

    fn finish(&self) -> Result<(), IoError> {
        self.written.close()
    }

    fn abort(&self) {
        self.written.abandon();
    }
}

const NAME: &str = "<memory>";

/// The guard of plain data, which stays valid whatever panicked while it was held.
fn lock<D>(mutex: &Mutex<D>) -> MutexGuard<'_, D> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parts of memory that threads lock apart.
const PARTS: usize = 64;

/// Memory that several threads write at once, a lock for each part of it.
#[derive(Debug)]
struct Parts<'a, T> {
    len: usize,
    parts: Vec<Mutex<&'a mut [T]>>,
}

impl<'a, T: Element> Parts<'a, T> {
    fn new(data: &'a mut [T], count: usize) -> Self {
        let len = data.len().div_ceil(count).max(1);
        Self { len, parts: data.chunks_mut(len).map(Mutex::new).collect() }
    }
}

/// A region of a contiguous tensor, which one thread copies: memory moves faster than anything that computes it.
struct Part<'a, T>(Mutex<PartMut<'a, T>>);

/// Memory that is written through locks.
trait Memory<T>: Sync {
    /// Whether threads can write at once.
    fn is_shared(&self) -> bool;
    /// Writes neighbouring elements.
    fn write(&self, start: usize, values: &[T]);
    /// Writes a run of elements that may lie apart.
    fn write_run(&self, run: Run, values: impl Iterator<Item = T>);
}

impl<T: Element> Memory<T> for Part<'_, T> {
    fn is_shared(&self) -> bool {
        false
    }

    fn write(&self, start: usize, values: &[T]) {
        lock(&self.0).write(start, values);
    }

    fn write_run(&self, run: Run, values: impl Iterator<Item = T>) {
        let mut part = lock(&self.0);
        for (i, value) in values.enumerate() {
            part.write(run.at(i), &[value]);
        }
    }
}

impl<T: Element> Memory<T> for Parts<'_, T> {
    fn is_shared(&self) -> bool {
        self.parts.len() > 1
    }

    fn write(&self, mut start: usize, mut values: &[T]) {
        while !values.is_empty() {
            let offset = start % self.len;
            let (now, later) = values.split_at(values.len().min(self.len - offset));
            lock(&self.parts[start / self.len])[offset..offset + now.len()].copy_from_slice(now);
            start += now.len();
            values = later;
        }
    }

    fn write_run(&self, run: Run, values: impl Iterator<Item = T>) {
        // a sink whose elements lie apart has one part, see `SliceSink::memory`
        let mut data = lock(&self.parts[0]);
        for (i, value) in values.enumerate() {
            data[run.at(i)] = value;
        }
    }
}

/// Elements that are regrouped at a time, in the first cache.
const REGROUPED: usize = 4096;

fn copy<T: Element>(places: &Places, region: Region<2>, input: &View<'_, T>, memory: &impl Memory<T>) {
    if region.is_empty() {
        return;
    }
    let layout = *input.layout();
    let width = index(region.cols().len());
    // rows that follow one another on both sides are one long row
    let together = if places.joins_rows(region, &layout) { index(region.rows().len()) } else { 1 };
    let lines = index(region.rows().len()) / together;
    let rows = layout.batch() * layout.blocks() * lines;
    let one = |buffer: &mut [T; REGROUPED], place: usize| {
        let y = region.rows().begin() + i64::try_from(place % lines).unwrap_or(i64::MAX);
        let (plane, x) = (place / lines, region.cols().begin());
        let start = [plane / layout.blocks(), plane % layout.blocks()];
        copy_row(places, start, [y, x], width * together, input, memory, buffer);
    };
    let buffer = || [T::ZERO; REGROUPED];
    if memory.is_shared() && shares_work(region, layout.batch() * layout.channels()) {
        let least = (LEAST_SHARED / (together * layout.row_stride()).max(1)).max(1);
        (0..rows).into_par_iter().with_min_len(least).for_each_init(buffer, one);
    } else {
        let mut buffer = buffer();
        (0..rows).for_each(|place| one(&mut buffer, place));
    }
}

/// Copies `len` pixels of a channel block from (y, x) on.
fn copy_row<T: Element>(
    places: &Places,
    [n, block]: [usize; 2],
    [y, x]: [i64; 2],
    len: usize,
    input: &View<'_, T>,
    memory: &impl Memory<T>,
    buffer: &mut [T],
) {
    let layout = input.layout();
    let (lanes, first) = (layout.block(), block * layout.block());
    let channels = lanes.min(layout.channels() - first);
    let row = &input.data()[layout.offset(n, first, y, x)..];
    let runs = |c: usize| places.run([n, first + c], [y, x], len);
    if !places.is_in_rows() {
        (0..channels).for_each(|c| {
            memory.write_run(runs(c), row.iter().skip(c).step_by(lanes).copied().take(runs(c).len))
        });
    } else if lanes == 1 {
        memory.write(runs(0).start, &row[..runs(0).len]);
    } else {
        let width = REGROUPED / lanes;
        for begin in (0..len).step_by(width) {
            let count = width.min(len - begin);
            transpose(&row[begin * lanes..], lanes, buffer, width, [count, channels]);
            for c in 0..channels {
                memory.write(runs(c).start + begin, &buffer[c * width..c * width + count]);
            }
        }
    }
}
