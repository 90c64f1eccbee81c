//! Tensors in memory as sources.

use std::path::Path;

use tiled_geometry::Region;
use tiled_tensor::{Element, Tensor, ViewMut};

use super::{Lanes, Source, check_access, count, index};
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
        let data = self.data();
        self.places.for_each_row(region, |n, c, y, places| {
            let lanes = Lanes::new(&layout, region, n, c, y);
            let output = &mut output.data_mut()[lanes.start..];
            if lanes.step == 1 && places.step == 1 {
                output[..places.len].copy_from_slice(&data[places.start..places.start + places.len]);
            } else {
                for (output, i) in output.iter_mut().step_by(lanes.step).zip(0..places.len) {
                    *output = data[places.at(i)];
                }
            }
        });
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        match &self.data {
            Data::Borrowed(_) => 0,
            Data::Owned(tensor) => size_of_val(tensor.data()) as u64,
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

/// Where the elements of one run of a row lie: element i at `start + i·step`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) step: isize,
    pub(crate) len: usize,
}

impl Run {
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
        let mut axes: Vec<(i128, i128)> = self
            .shape
            .iter()
            .zip(self.strides)
            .filter(|(extent, _)| **extent > 1)
            .map(|(extent, stride)| (i128::from(stride as i64).abs(), *extent as i128))
            .collect();
        axes.sort_unstable();
        let mut reach = 0;
        for (stride, extent) in axes {
            if stride <= reach {
                return Err(IoError::Overlap { path: NAME.into(), got: self.strides });
            }
            reach += stride * (extent - 1);
        }
        Ok(())
    }

    /// Calls `visit(n, c, y, run)` for every row of every channel of `region`.
    pub(crate) fn for_each_row(&self, region: Region<2>, mut visit: impl FnMut(usize, usize, i64, Run)) {
        if region.is_empty() {
            return;
        }
        let [batch, channels, ..] = self.shape;
        let len = index(region.cols().len());
        for n in 0..batch {
            for c in 0..channels {
                for y in region.rows().begin()..region.rows().end() {
                    visit(
                        n,
                        c,
                        y,
                        Run {
                            start: self.at([n, c, index(y), index(region.cols().begin())]),
                            step: self.strides[3],
                            len,
                        },
                    );
                }
            }
        }
    }

    /// The place of an element; `check_len` has shown that no sum leaves the storage.
    fn at(&self, element: [usize; 4]) -> usize {
        element.iter().zip(self.strides).fold(self.start, |place, (index, stride)| {
            place.wrapping_add_signed(stride.wrapping_mul(index.cast_signed()))
        })
    }
}

const NAME: &str = "<memory>";
