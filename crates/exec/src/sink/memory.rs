//! Tensors in memory as sinks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_geometry::Region;
use tiled_tensor::{Element, Tensor, View};

use super::{Sink, Written};
use crate::IoError;
use crate::source::{Lanes, Places};

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
    // One lock around the copy of a region: memory moves faster than anything that computes it.
    tensor: Mutex<Tensor<T>>,
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
        Ok(Self { written, places, tensor: Mutex::new(tensor) })
    }

    /// The tensor, with zeros where nothing was written.
    #[must_use]
    pub fn into_tensor(self) -> Tensor<T> {
        self.tensor.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element> Sink<T> for MemorySink<T> {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        copy(&self.places, region, input, lock(&self.tensor).data_mut());
        self.written.add(region);
        Ok(())
    }

    fn finish(&self) -> Result<(), IoError> {
        self.written.close()
    }

    fn abort(&self) {
        self.written.abandon();
    }

    fn resident_bytes(&self) -> u64 {
        size_of_val(lock(&self.tensor).data()) as u64
    }
}

/// A sink over memory of the caller, with any strides under which no two elements share a place.
#[derive(Debug)]
pub struct SliceSink<'a, T: Element> {
    written: Written,
    places: Places,
    data: Mutex<&'a mut [T]>,
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
        Ok(Self { written: Written::new(NAME, places.shape())?, places, data: Mutex::new(data) })
    }
}

impl<T: Element> Sink<T> for SliceSink<'_, T> {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        copy(&self.places, region, input, &mut lock(&self.data));
        self.written.add(region);
        Ok(())
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

fn copy<T: Element>(places: &Places, region: Region<2>, input: &View<'_, T>, data: &mut [T]) {
    places.for_each_row(region, |n, c, y, run| {
        let lanes = Lanes::new(input.layout(), region, n, c, y);
        let input = &input.data()[lanes.start..];
        if lanes.step == 1 && run.step == 1 {
            data[run.start..run.start + run.len].copy_from_slice(&input[..run.len]);
        } else {
            for (input, i) in input.iter().step_by(lanes.step).zip(0..run.len) {
                data[run.at(i)] = *input;
            }
        }
    });
}
