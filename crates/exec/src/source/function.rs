//! Functions as sources.

use std::path::PathBuf;

use tiled_geometry::Region;
use tiled_tensor::{Element, ViewMut};

use super::{Source, check_access, count, write_points};
use crate::IoError;

/// A source that asks a function for every region.
///
/// The function gets the region and a window that holds it, from several threads at once, and writes every
/// image and channel of the region into the window.
pub struct FnSource<F> {
    path: PathBuf,
    shape: [usize; 4],
    function: F,
}

impl<F> FnSource<F> {
    /// A source of shape NCHW; `name` stands in errors.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn new<T: Element>(name: &str, shape: [usize; 4], function: F) -> Result<Self, IoError>
    where
        F: Fn(Region<2>, &mut ViewMut<'_, T>) -> Result<(), IoError> + Send + Sync,
    {
        let path = PathBuf::from(name);
        count(&path, shape)?;
        Ok(Self { path, shape, function })
    }
}

impl<T: Element, F> Source<T> for FnSource<F>
where
    F: Fn(Region<2>, &mut ViewMut<'_, T>) -> Result<(), IoError> + Send + Sync,
{
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(&self.path, self.shape, region, output.layout())?;
        (self.function)(region, output)
    }
}

impl<F> std::fmt::Debug for FnSource<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FnSource")
            .field("path", &self.path)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// A source whose element (n, c, y, x) is `function([n, c, y, x])`.
pub struct PointSource<F> {
    path: PathBuf,
    shape: [usize; 4],
    function: F,
}

impl<F> PointSource<F> {
    /// A source of shape NCHW; `name` stands in errors.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn new<T: Element>(name: &str, shape: [usize; 4], function: F) -> Result<Self, IoError>
    where
        F: Fn([usize; 4]) -> T + Send + Sync,
    {
        let path = PathBuf::from(name);
        count(&path, shape)?;
        Ok(Self { path, shape, function })
    }
}

impl<T: Element, F: Fn([usize; 4]) -> T + Send + Sync> Source<T> for PointSource<F> {
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(&self.path, self.shape, region, output.layout())?;
        write_points(region, output, &self.function);
        Ok(())
    }
}

impl<F> std::fmt::Debug for PointSource<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PointSource")
            .field("path", &self.path)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
