//! Where the executor reads a tensor from.

mod chunked;
mod constant;
mod device;
mod function;
mod memory;
mod normalized;
mod stored;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tiled_geometry::Region;
use tiled_graph::TRANSFER_BYTES;
use tiled_tensor::{DeviceTensor, Element, Layout, ViewMut};

use crate::{IoError, LabelCensus};

pub use chunked::{ChunkPart, ChunkSlots, Chunked, ChunkedSource};
pub(crate) use chunked::{copy_chunk, part_of, whole_chunk};
pub use constant::ConstantSource;
pub use device::DeviceSource;
pub use function::{FnSource, PointSource};
pub use memory::MemorySource;
pub(crate) use memory::{LEAST_SHARED, Places, Stretch, is_worth_sharing, shares_work};
pub use normalized::{Normalization, NormalizedSource};
pub use stored::StoredSource;

/// An `NCHW` tensor that is read region by region, from several threads at once.
pub trait Source<T: Element>: Send + Sync {
    /// The shape, NCHW.
    fn shape(&self) -> [usize; 4];

    /// Writes every image and channel of `region`, in global coordinates, into the window.
    ///
    /// Only the elements of `region` change; the lanes past the last channel may.
    ///
    /// # Errors
    /// Where `region` is not inside the tensor and the window, where the window has another batch or other
    /// channels, and where the data cannot be read.
    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError>;

    /// The elements, where they lie in memory in the order NCHW without gaps: a kernel may then read them there.
    fn in_memory(&self) -> Option<&[T]> {
        None
    }

    /// The tensor itself, where it lies in the memory of a device: then the device copies it, and [`Source::read`] is an error.
    fn on_device(&self) -> Option<&DeviceTensor<T>> {
        None
    }

    /// The bytes of memory that the source itself keeps as long as it lives, the caller's own data not counted.
    fn resident_bytes(&self) -> u64 {
        0
    }

    /// The bytes that it may hold for each lane, or each thread that reads for a device, while it reads and converts elements.
    fn transfer_bytes(&self) -> u64 {
        TRANSFER_BYTES
    }

    /// How it is read in chunks, where it is stored so: a plan that knows of them reads each as seldom as its memory allows.
    fn chunked(&self) -> Option<&dyn Chunked<T>> {
        None
    }

    /// The count of class numbers, where they were counted and checked before: see [`crate::Labels`].
    fn label_census(&self) -> Option<LabelCensus> {
        None
    }
}

macro_rules! forward {
    ($($type:ty),*) => {$(
        impl<T: Element, S: Source<T> + ?Sized> Source<T> for $type {
            fn shape(&self) -> [usize; 4] {
                (**self).shape()
            }
            fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
                (**self).read(region, output)
            }
            fn in_memory(&self) -> Option<&[T]> {
                (**self).in_memory()
            }
            fn on_device(&self) -> Option<&DeviceTensor<T>> {
                (**self).on_device()
            }
            fn resident_bytes(&self) -> u64 {
                (**self).resident_bytes()
            }
            fn transfer_bytes(&self) -> u64 {
                (**self).transfer_bytes()
            }
            fn chunked(&self) -> Option<&dyn Chunked<T>> {
                (**self).chunked()
            }
            fn label_census(&self) -> Option<LabelCensus> {
                (**self).label_census()
            }
        }
    )*};
}

forward!(&S, Box<S>, Arc<S>);

/// The whole of the rows and columns of a tensor.
pub(crate) fn whole(shape: [usize; 4]) -> Region<2> {
    Region::whole([shape[2], shape[3]].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX)))
}

/// Checks, once per call, what reading and writing rely on.
pub(crate) fn check_access(
    path: &Path,
    shape: [usize; 4],
    region: Region<2>,
    layout: &Layout,
) -> Result<(), IoError> {
    let expected = [shape[0], shape[1]];
    let got = [layout.batch(), layout.channels()];
    if expected != got {
        return Err(IoError::Window { path: path.to_path_buf(), expected, got });
    }
    for expected in [whole(shape), layout.region()] {
        if !expected.contains_region(region) {
            return Err(IoError::Region { path: path.to_path_buf(), expected, got: region });
        }
    }
    Ok(())
}

/// The elements of a tensor, where they fit the address space.
pub(crate) fn count(path: &Path, shape: [usize; 4]) -> Result<usize, IoError> {
    shape
        .iter()
        .try_fold(1_usize, |product, extent| product.checked_mul(*extent))
        .filter(|product| i64::try_from(*product).is_ok_and(|product| product.checked_mul(8).is_some()))
        .ok_or_else(|| IoError::Overflow { path: PathBuf::from(path), got: shape.to_vec() })
}

/// The lanes of one row of one channel of a window: what a stretch of elements is copied into or out of.
///
/// Element x of the run lies at `start + (x − region.cols.begin)·step` of the window's storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    pub(crate) start: usize,
    pub(crate) step: usize,
}

impl Lanes {
    /// The lanes of row `y` of channel `c` of image `n`, from the first column of `region`.
    pub(crate) fn new(layout: &Layout, region: Region<2>, n: usize, c: usize, y: i64) -> Self {
        Self { start: layout.offset(n, c, y, region.cols().begin()), step: layout.block() }
    }
}

/// A coordinate inside a tensor as an index.
pub(crate) fn index(coordinate: i64) -> usize {
    usize::try_from(coordinate).expect("invariant: coordinates inside a tensor are not negative")
}

/// Writes `value([n, c, y, x])` into every element of `region`.
pub(crate) fn write_points<T: Element>(
    region: Region<2>,
    output: &mut ViewMut<'_, T>,
    value: impl Fn([usize; 4]) -> T,
) {
    let layout = *output.layout();
    let [rows, cols] = region.axes().map(|axis| index(axis.begin())..index(axis.end()));
    if rows.is_empty() || cols.is_empty() {
        return;
    }
    for n in 0..layout.batch() {
        for c in 0..layout.channels() {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(&layout, region, n, c, y);
                let places = output.data_mut()[lanes.start..].iter_mut().step_by(lanes.step);
                for (x, place) in cols.clone().zip(places) {
                    *place = value([n, c, index(y), x]);
                }
            }
        }
    }
}
