//! Tensors in memory whose elements have another type than the computation's.

use std::path::Path;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use tiled_geometry::Region;
use tiled_tensor::{Element, ViewMut};

use super::{LEAST_SHARED, Places, Source, check_access, index, shares_work};
use crate::{IoError, Numbers, Stored};

/// A borrowed tensor in memory of any [`Stored`] type, with any strides: bytes of a picture as a camera or another library
/// holds them, channels last, or weights of 16 bits.
///
/// ```
/// use tiled_exec::{Source, StoredSource};
/// use tiled_tensor::Tensor;
///
/// // one pixel after another: height 1, width 2, three channels last
/// let pixels = [255_u8, 0, 51, 0, 255, 102];
/// let source = StoredSource::with_strides(&pixels, [1, 3, 1, 2], 0, [6, 1, 6, 3])?;
/// let mut read = Tensor::<f64>::zeros([1, 3, 1, 2]).unwrap();
/// source.read(read.view().region(), &mut read.view_mut())?;
/// assert_eq!(read.data(), [1.0, 0.0, 0.0, 1.0, 0.2, 0.4]);
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StoredSource<'a, S> {
    data: &'a [S],
    places: Places,
    numbers: Numbers,
}

impl<'a, S: Stored> StoredSource<'a, S> {
    /// A contiguous tensor of shape NCHW.
    ///
    /// # Errors
    /// Where `data` is shorter than the shape says.
    pub fn new(data: &'a [S], shape: [usize; 4]) -> Result<Self, IoError> {
        Self::with_places(data, Places::contiguous(shape)?)
    }

    /// A tensor whose element (n, c, y, x) is `data[start + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]]`.
    ///
    /// Strides may be zero, which repeats elements, or negative.
    ///
    /// # Errors
    /// Where an element would lie outside `data`.
    pub fn with_strides(
        data: &'a [S],
        shape: [usize; 4],
        start: usize,
        strides: [isize; 4],
    ) -> Result<Self, IoError> {
        Self::with_places(data, Places::new(shape, start, strides)?)
    }

    fn with_places(data: &'a [S], places: Places) -> Result<Self, IoError> {
        places.check_len(data.len())?;
        Ok(Self { data, places, numbers: Numbers::default() })
    }

    /// The same tensor, where integers stand for `numbers`; [`Numbers::Scaled`] where this is not said.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }
}

impl<T: Element, S: Stored> Source<T> for StoredSource<'_, S> {
    fn shape(&self) -> [usize; 4] {
        self.places.shape()
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(Path::new(NAME), self.places.shape(), region, output.layout())?;
        if region.is_empty() {
            return Ok(());
        }
        let layout = *output.layout();
        let (block, cols) = (layout.block(), index(region.cols().len()));
        let skipped = index(region.cols().begin() - layout.cols().begin()) * block;
        // a row of a block of channels of an image
        let row = |n: usize, first: usize, y: i64, row: &mut [T]| {
            for c in first..layout.channels().min(first + block) {
                let stretch = self.places.stretch([n, c], [y, region.cols().begin()], cols);
                let places = row[skipped + c - first..].iter_mut().step_by(block);
                for (value, i) in places.zip(0..cols) {
                    *value = self.data[stretch.at(i)].load(self.numbers);
                }
            }
        };
        let rows = region.rows().begin()..region.rows().end();
        if !shares_work(region, layout.batch() * layout.channels()) {
            for plane in 0..layout.batch() * layout.blocks() {
                let (n, place) = (plane / layout.blocks(), plane % layout.blocks());
                for y in rows.clone() {
                    let start = layout.row_offset(n, place, y);
                    row(n, place * block, y, &mut output.data_mut()[start..start + layout.row_stride()]);
                }
            }
            return Ok(());
        }
        // rows of storage of every block, in the order in which they lie
        let least = LEAST_SHARED.div_ceil(layout.row_stride());
        let planes = output.data_mut()[..layout.len()].par_chunks_mut(layout.block_stride());
        planes.enumerate().for_each(|(plane, data)| {
            // what follows the rows is no part of them
            let of_plane = data[..layout.ring() * layout.row_stride()].par_chunks_mut(layout.row_stride());
            of_plane.enumerate().with_min_len(least).for_each(|(stored, data)| {
                let (ring, stored) = (layout.ring().cast_signed() as i64, stored.cast_signed() as i64);
                let y = rows.start + (stored - rows.start).rem_euclid(ring);
                if y < rows.end {
                    row(plane / layout.blocks(), plane % layout.blocks() * block, y, data);
                }
            });
        });
        Ok(())
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }
}

const NAME: &str = "<memory>";
