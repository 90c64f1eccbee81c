//! Functions as sinks.

use std::path::PathBuf;

use tiled_geometry::Region;
use tiled_tensor::{Element, View};

use super::{Sink, Written};
use crate::IoError;

/// A sink that hands every region to a function.
///
/// The function gets the region and a window that holds it, from several threads at once.
pub struct FnSink<F> {
    written: Written,
    function: F,
}

impl<F> FnSink<F> {
    /// A sink of shape NCHW; `name` stands in errors.
    ///
    /// # Errors
    /// Where the size of the shape overflows.
    pub fn new<T: Element>(name: &str, shape: [usize; 4], function: F) -> Result<Self, IoError>
    where
        F: Fn(Region<2>, &View<'_, T>) -> Result<(), IoError> + Send + Sync,
    {
        Ok(Self { written: Written::new(PathBuf::from(name), shape)?, function })
    }
}

impl<T: Element, F> Sink<T> for FnSink<F>
where
    F: Fn(Region<2>, &View<'_, T>) -> Result<(), IoError> + Send + Sync,
{
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        (self.function)(region, input)?;
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

impl<F> std::fmt::Debug for FnSink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FnSink").field("written", &self.written).finish_non_exhaustive()
    }
}
