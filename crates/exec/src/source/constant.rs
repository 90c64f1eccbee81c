//! A tensor of one value.

use std::path::Path;

use tiled_geometry::Region;
use tiled_tensor::{Element, ViewMut};

use super::{Source, check_access, count};
use crate::IoError;

/// A tensor whose elements all have one value: the gradient of a sum is all ones.
#[derive(Debug, Clone, Copy)]
pub struct ConstantSource<T> {
    shape: [usize; 4],
    value: T,
}

impl<T: Element> ConstantSource<T> {
    /// The tensor of shape NCHW filled with `value`.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn new(shape: [usize; 4], value: T) -> Result<Self, IoError> {
        count(Path::new(NAME), shape)?;
        Ok(Self { shape, value })
    }

    /// The tensor of ones.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn ones(shape: [usize; 4]) -> Result<Self, IoError> {
        Self::new(shape, T::ONE)
    }
}

impl<T: Element> Source<T> for ConstantSource<T> {
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(Path::new(NAME), self.shape, region, output.layout())?;
        super::write_points(region, output, |_| self.value);
        Ok(())
    }
}

const NAME: &str = "<constant>";
