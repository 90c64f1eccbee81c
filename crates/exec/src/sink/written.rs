//! What every sink counts.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tiled_geometry::Region;
use tiled_tensor::Layout;

use crate::IoError;
use crate::source::{check_access, count};

/// The shape of a sink, how much of it is written, and whether it is open, prepared or closed.
#[derive(Debug)]
pub(crate) struct Written {
    path: Cow<'static, Path>,
    shape: [usize; 4],
    expected: u64,
    elements: AtomicU64,
    state: AtomicU8,
}

impl Written {
    pub(crate) fn new(path: impl Into<Cow<'static, Path>>, shape: [usize; 4]) -> Result<Self, IoError> {
        let path = path.into();
        let expected = count(&path, shape)? as u64;
        Ok(Self { path, shape, expected, elements: AtomicU64::new(0), state: AtomicU8::new(OPEN) })
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
        if self.state.load(Ordering::Acquire) != OPEN {
            return Err(self.closed());
        }
        check_access(&self.path, self.shape, region, layout)
    }

    /// Counts a write that has happened.
    pub(crate) fn add(&self, region: Region<2>) {
        let elements = u64::try_from(region.volume()).unwrap_or(0) * (self.shape[0] * self.shape[1]) as u64;
        self.elements.fetch_add(elements, Ordering::AcqRel);
    }

    /// Does `work`, after which nothing is left but to close the sink; once, and where every element is written. What fails
    /// closes the sink.
    pub(crate) fn prepare(&self, work: impl FnOnce() -> Result<(), IoError>) -> Result<(), IoError> {
        match self.state.compare_exchange(OPEN, CLOSED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {}
            Err(PREPARED) => return Ok(()),
            Err(_) => return Err(self.closed()),
        }
        let got = self.elements.load(Ordering::Acquire);
        if got != self.expected {
            return Err(IoError::Incomplete { path: self.path.to_path_buf(), expected: self.expected, got });
        }
        work()?;
        self.state.store(PREPARED, Ordering::Release);
        Ok(())
    }

    /// Closes the sink; an error where it is closed already or not every element is written.
    pub(crate) fn close(&self) -> Result<(), IoError> {
        self.prepare(|| Ok(()))?;
        match self.state.swap(CLOSED, Ordering::AcqRel) {
            CLOSED => Err(self.closed()),
            _ => Ok(()),
        }
    }

    /// Closes the sink whatever was written.
    pub(crate) fn abandon(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    fn closed(&self) -> IoError {
        IoError::Closed { path: self.path.to_path_buf() }
    }
}

const OPEN: u8 = 0;
/// All is written, and all that may fail is done.
const PREPARED: u8 = 1;
const CLOSED: u8 = 2;
