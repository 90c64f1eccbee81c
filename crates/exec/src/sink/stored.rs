//! Tensors in memory of the caller whose elements have another type than the computation's.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_geometry::Region;
use tiled_tensor::{Element, View};

use super::memory::Parts;
use super::{Sink, Written};
use crate::source::{Lanes, Places, index};
use crate::{Changes, IoError, Numbers, Stored};

/// A sink over memory of the caller of any [`Stored`] type, with any strides under which no two elements share a place: class
/// numbers in bytes, pictures with channels last. After a run that failed the memory may be written in part.
///
/// ```
/// use tiled_exec::{Numbers, Sink, StoredSink};
/// use tiled_tensor::Tensor;
///
/// let classes = Tensor::<f32>::from_fn([1, 1, 2, 2], |[_, _, y, x]| (y + 2 * x) as f32).unwrap();
/// let mut bytes = [0_u8; 4];
/// let sink = StoredSink::new(&mut bytes, classes.shape())?.with_numbers(Numbers::AsIs);
/// sink.write(classes.view().region(), &classes.view())?;
/// Sink::<f32>::finish(&sink)?;
/// assert_eq!(bytes, [0, 2, 1, 3]);
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
#[derive(Debug)]
pub struct StoredSink<'a, S> {
    written: Written,
    places: Places,
    memory: Parts<'a, S>,
    /// Their type and numbers are those of the memory.
    changes: Mutex<Changes>,
}

impl<'a, S: Stored> StoredSink<'a, S> {
    /// A contiguous tensor of shape NCHW.
    ///
    /// # Errors
    /// Where `data` is shorter than the shape says.
    pub fn new(data: &'a mut [S], shape: [usize; 4]) -> Result<Self, IoError> {
        Self::with_places(data, Places::contiguous(shape)?)
    }

    /// A tensor whose element (n, c, y, x) is `data[start + n·strides[0] + c·strides[1] + y·strides[2] + x·strides[3]]`.
    ///
    /// # Errors
    /// Where an element would lie outside `data`, or where two elements may share a place.
    pub fn with_strides(
        data: &'a mut [S],
        shape: [usize; 4],
        start: usize,
        strides: [isize; 4],
    ) -> Result<Self, IoError> {
        Self::with_places(data, Places::new(shape, start, strides)?)
    }

    fn with_places(data: &'a mut [S], places: Places) -> Result<Self, IoError> {
        places.check_len(data.len())?;
        places.check_disjoint()?;
        let written = Written::new(Path::new(NAME), places.shape())?;
        let changes = Mutex::new(Changes::new(S::ELEMENT, Numbers::default()));
        Ok(Self { written, places, memory: Parts::new(data, &places), changes })
    }

    /// The same memory, where integers stand for `numbers`; [`Numbers::Scaled`] where this is not said.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        let changes = Mutex::new(Changes { numbers, ..*self.lock() });
        Self { changes, ..self }
    }

    /// Plain data, which stays valid whatever panicked while it was held.
    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element, S: Stored> Sink<T> for StoredSink<'_, S> {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        let mut changes = Changes::new(S::ELEMENT, self.lock().numbers);
        let cols = index(region.cols().len());
        for n in 0..input.layout().batch() {
            for c in 0..input.layout().channels() {
                for y in region.rows().begin()..region.rows().end() {
                    let lanes = Lanes::new(input.layout(), region, n, c, y);
                    let values = input.data()[lanes.start..].iter().step_by(lanes.step).take(cols);
                    let stretch = self.places.stretch([n, c], [y, region.cols().begin()], cols);
                    self.memory.write(stretch, values.map(|value| S::store(*value, &mut changes)));
                }
            }
        }
        self.lock().add(&changes);
        self.written.add(region);
        Ok(())
    }

    fn transfer_bytes(&self) -> u64 {
        0
    }

    fn finish(&self) -> Result<(), IoError> {
        self.written.close()
    }

    fn abort(&self) {
        self.written.abandon();
    }

    fn changes(&self) -> Option<Changes> {
        Some(*self.lock()).filter(|changes| !changes.element.is_float())
    }
}

const NAME: &str = "<memory>";
