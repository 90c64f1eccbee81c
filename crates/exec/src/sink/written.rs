//! What every sink counts.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tiled_geometry::Region;
use tiled_tensor::Layout;

use crate::IoError;
use crate::source::{check_access, count};

/// The shape of a sink, how much of it is written, and whether it is still open.
#[derive(Debug)]
pub(crate) struct Written {
    path: Cow<'static, Path>,
    shape: [usize; 4],
    expected: u64,
    elements: AtomicU64,
    closed: AtomicBool,
}

impl Written {
    pub(crate) fn new(path: impl Into<Cow<'static, Path>>, shape: [usize; 4]) -> Result<Self, IoError> {
        let path = path.into();
        let expected = count(&path, shape)? as u64;
        Ok(Self { path, shape, expected, elements: AtomicU64::new(0), closed: AtomicBool::new(false) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// The elements of the tensor.
    pub(crate) const fn elements(&self) -> u64 {
        self.expected
    }

    /// Checks a write before it happens.
    pub(crate) fn check(&self, region: Region<2>, layout: &Layout) -> Result<(), IoError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(IoError::Closed { path: self.path.to_path_buf() });
        }
        check_access(&self.path, self.shape, region, layout)
    }

    /// Counts a write that has happened.
    pub(crate) fn add(&self, region: Region<2>) {
        let elements = u64::try_from(region.volume()).unwrap_or(0) * (self.shape[0] * self.shape[1]) as u64;
        self.elements.fetch_add(elements, Ordering::AcqRel);
    }

    /// Closes the sink; an error where it is closed already or not every element is written.
    pub(crate) fn close(&self) -> Result<(), IoError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(IoError::Closed { path: self.path.to_path_buf() });
        }
        let got = self.elements.load(Ordering::Acquire);
        if got != self.expected {
            return Err(IoError::Incomplete { path: self.path.to_path_buf(), expected: self.expected, got });
        }
        Ok(())
    }

    /// Closes the sink whatever was written; whether it was open.
    pub(crate) fn abandon(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }
}
