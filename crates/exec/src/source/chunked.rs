//! Sources that are read in chunks.

use std::marker::PhantomData;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use tiled_geometry::{Interval, Region};
use tiled_graph::Chunks;
use tiled_tensor::{Element, ViewMut, filled, with_room};

use super::{Source, check_access, count, index};
use crate::{IoError, Numbers, Stored};

/// A source that is read in chunks: those of a compressed array, or the tiles of a picture.
///
/// A plan that knows of the chunks ([`PlanOptions::chunks`](tiled_graph::PlanOptions::chunks)) has memory for as many decoded ones as
/// the run needs at a time. Most sources are a [`ChunkedSource`]; others may have this beside their [`Source::read`].
pub trait Chunked<T: Element>: Send + Sync {
    /// The chunks.
    fn chunks(&self) -> Chunks;

    /// Memory for so many decoded chunks.
    ///
    /// # Errors
    /// Where it is refused.
    fn slots(&self, count: usize) -> Result<Box<dyn ChunkSlots<T> + '_>, IoError>;
}

/// Memory for decoded chunks of a source, which is asked from several threads at once, but never for a slot that is being read.
pub trait ChunkSlots<T: Element>: Send + Sync {
    /// Decodes the chunk in this row and column of chunks into a slot.
    ///
    /// It may not wait for the threads that run the plan (a parallel loop of `rayon` on them would): another of them may wait
    /// for the chunk.
    ///
    /// # Errors
    /// Where the data cannot be read.
    fn read(&self, slot: usize, chunk: [usize; 2]) -> Result<(), IoError>;

    /// Gives the numbers of a part of a slot: those of column `x` and channel `c` as element `(x − cols.start)·block + c − channels.start`.
    fn convert(&self, slot: usize, part: &ChunkPart, block: usize, output: &mut [T]);
}

/// A stretch of a row of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPart {
    /// The image.
    pub image: usize,
    /// The channels.
    pub channels: Range<usize>,
    /// The row within the chunk.
    pub row: usize,
    /// The columns within the chunk.
    pub cols: Range<usize>,
}

/// A source whose chunks a function decodes.
///
/// The function is given the row and the column of a chunk, in chunks, and memory for all of it: `[image][channel][row][column]`
/// without gaps, also where the chunk reaches beyond the image; what lies there is never looked at. It is called from
/// several threads at once.
///
/// ```
/// use tiled_exec::{ChunkedSource, Source};
/// use tiled_tensor::Tensor;
///
/// // 3 rows and 5 columns in chunks of 2×2: bytes that say which chunk they are in
/// let source = ChunkedSource::new("x", [1, 1, 3, 5], [2, 2], |[row, col], chunk: &mut [u8]| {
///     chunk.fill(u8::try_from(10 * row + col).expect("few chunks"));
///     Ok(())
/// })?
/// .with_numbers(tiled_exec::Numbers::AsIs);
/// let mut read = Tensor::<f32>::zeros([1, 1, 3, 5]).unwrap();
/// source.read(read.view().region(), &mut read.view_mut())?;
/// assert_eq!(read.data()[..5], [0.0, 0.0, 1.0, 1.0, 2.0]);
/// assert_eq!(read.data()[10..], [10.0, 10.0, 11.0, 11.0, 12.0]);
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
pub struct ChunkedSource<S, F> {
    path: PathBuf,
    shape: [usize; 4],
    chunks: Chunks,
    numbers: Numbers,
    read: F,
    stored: PhantomData<fn() -> S>,
}

impl<S: Stored, F> ChunkedSource<S, F>
where
    F: Fn([usize; 2], &mut [S]) -> Result<(), IoError> + Send + Sync,
{
    /// A source of shape NCHW in chunks of so many rows and columns; `name` stands in errors.
    ///
    /// # Errors
    /// Where a chunk has no rows or columns, and where a size overflows.
    pub fn new(name: &str, shape: [usize; 4], chunk: [usize; 2], read: F) -> Result<Self, IoError> {
        let path = PathBuf::from(name);
        count(&path, shape)?;
        count(&path, [shape[0], shape[1], chunk[0], chunk[1]])?;
        let Some(chunks) = Chunks::new(chunk, size_of::<S>()) else {
            return Err(IoError::Chunk { path, got: chunk });
        };
        Ok(Self { path, shape, chunks, numbers: Numbers::default(), read, stored: PhantomData })
    }

    /// The same source, where integers stand for `numbers`; [`Numbers::Scaled`] where this is not said.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }
}

impl<T, S, F> Source<T> for ChunkedSource<S, F>
where
    T: Element,
    S: Stored,
    F: Fn([usize; 2], &mut [S]) -> Result<(), IoError> + Send + Sync,
{
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Reads each chunk of the region into memory for one.
    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(&self.path, self.shape, region, output.layout())?;
        if region.is_empty() {
            return Ok(());
        }
        let slots = Chunked::<T>::slots(self, 1)?;
        let [rows, cols] = [0, 1].map(|axis| self.chunks.along(axis, region.axis(axis)));
        for row in rows.begin()..rows.end() {
            for col in cols.begin()..cols.end() {
                slots.read(0, [index(row), index(col)])?;
                let chunk = [row, col];
                copy_chunk(&*slots, 0, self.chunks, chunk, part_of(self.chunks, chunk, region), output);
            }
        }
        Ok(())
    }

    fn transfer_bytes(&self) -> u64 {
        self.chunks.chunk_bytes(self.shape[0], self.shape[1]).unwrap_or(u64::MAX)
    }

    fn chunked(&self) -> Option<&dyn Chunked<T>> {
        Some(self)
    }
}

impl<T, S, F> Chunked<T> for ChunkedSource<S, F>
where
    T: Element,
    S: Stored,
    F: Fn([usize; 2], &mut [S]) -> Result<(), IoError> + Send + Sync,
{
    fn chunks(&self) -> Chunks {
        self.chunks
    }

    fn slots(&self, count: usize) -> Result<Box<dyn ChunkSlots<T> + '_>, IoError> {
        let [rows, cols] = self.chunks.shape();
        let [batch, channels, ..] = self.shape;
        let refused = |error: tiled_tensor::OutOfMemory| IoError::OutOfMemory {
            path: self.path.clone(),
            bytes: error.bytes,
        };
        let mut slots = with_room(count).map_err(refused)?;
        let zero = S::from_le(&[0; 8][..size_of::<S>()]);
        for _ in 0..count {
            slots.push(RwLock::new(filled(batch * channels * rows * cols, zero).map_err(refused)?));
        }
        let (numbers, read) = (self.numbers, &self.read);
        Ok(Box::new(StoredSlots { slots, channels, chunk: [rows, cols], numbers, read }))
    }
}

impl<S, F> std::fmt::Debug for ChunkedSource<S, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkedSource")
            .field("path", &self.path)
            .field("shape", &self.shape)
            .field("chunks", &self.chunks)
            .finish_non_exhaustive()
    }
}

/// Chunks as a function decodes them.
struct StoredSlots<'a, S, F> {
    slots: Vec<RwLock<Vec<S>>>,
    channels: usize,
    chunk: [usize; 2],
    numbers: Numbers,
    read: &'a F,
}

impl<T, S, F> ChunkSlots<T> for StoredSlots<'_, S, F>
where
    T: Element,
    S: Stored,
    F: Fn([usize; 2], &mut [S]) -> Result<(), IoError> + Send + Sync,
{
    fn read(&self, slot: usize, chunk: [usize; 2]) -> Result<(), IoError> {
        (self.read)(chunk, &mut self.slots[slot].write().unwrap_or_else(PoisonError::into_inner))
    }

    fn convert(&self, slot: usize, part: &ChunkPart, block: usize, output: &mut [T]) {
        let data = self.slots[slot].read().unwrap_or_else(PoisonError::into_inner);
        let [rows, cols] = self.chunk;
        for (lane, channel) in part.channels.clone().enumerate() {
            let start = ((part.image * self.channels + channel) * rows + part.row) * cols;
            let stored = &data[start + part.cols.start..start + part.cols.end];
            if block == 1 {
                for (value, stored) in output.iter_mut().zip(stored) {
                    *value = stored.load(self.numbers);
                }
            } else {
                for (value, stored) in output[lane..].iter_mut().step_by(block).zip(stored) {
                    *value = stored.load(self.numbers);
                }
            }
        }
    }
}

/// What of a region lies in a chunk.
pub(crate) fn part_of(chunks: Chunks, chunk: [i64; 2], region: Region<2>) -> Region<2> {
    let [rows, cols] = [0, 1].map(|axis| whole_chunk(chunks, axis, chunk[axis]).intersect(region.axis(axis)));
    Region::from_rows_cols(rows, cols)
}

/// The coordinates of a chunk along an axis, beyond the image too.
pub(crate) fn whole_chunk(chunks: Chunks, axis: usize, chunk: i64) -> Interval {
    let extent = i64::try_from(chunks.shape()[axis]).unwrap_or(i64::MAX);
    let begin = chunk.saturating_mul(extent);
    Interval::new(begin, begin.saturating_add(extent))
}

/// Gives a window the numbers of a region that lies in one chunk.
pub(crate) fn copy_chunk<T: Element>(
    slots: &dyn ChunkSlots<T>,
    slot: usize,
    chunks: Chunks,
    chunk: [i64; 2],
    region: Region<2>,
    output: &mut ViewMut<'_, T>,
) {
    let layout = *output.layout();
    let block = layout.block();
    let origin = [0, 1].map(|axis| whole_chunk(chunks, axis, chunk[axis]).begin());
    let cols = index(region.cols().begin() - origin[1])..index(region.cols().end() - origin[1]);
    let skipped = index(region.cols().begin() - layout.cols().begin()) * block;
    for plane in 0..layout.batch() * layout.blocks() {
        let (image, place) = (plane / layout.blocks(), plane % layout.blocks());
        let channels = place * block..layout.channels().min((place + 1) * block);
        for y in region.rows().begin()..region.rows().end() {
            let start = layout.row_offset(image, place, y) + skipped;
            let row = &mut output.data_mut()[start..start + cols.len() * block];
            let part = ChunkPart {
                image,
                channels: channels.clone(),
                row: index(y - origin[0]),
                cols: cols.clone(),
            };
            slots.convert(slot, &part, block, row);
        }
    }
}
