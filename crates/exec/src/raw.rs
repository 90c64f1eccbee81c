//! Raw files: elements alone, whose shape and type the caller knows.

use std::path::Path;

use crate::file::{FileSink, FileSource, len_bytes, size_bytes};
use crate::{ElementType, IoError};

impl FileSource {
    /// Opens a file that holds nothing but the little-endian elements of a tensor of shape NCHW, of a [`DType`](tiled_tensor::DType) or any
    /// other [`ElementType`].
    ///
    /// # Errors
    /// Where the file is not as long as the shape says, and where it cannot be opened.
    pub fn open_raw(
        path: impl AsRef<Path>,
        shape: [usize; 4],
        element: impl Into<ElementType>,
    ) -> Result<Self, IoError> {
        let path = path.as_ref();
        let element = element.into();
        let file = Self::open(path)?;
        let expected = size_bytes(path, shape, element)?;
        let got = len_bytes(path, &file)?;
        if got > expected {
            return Err(IoError::FileSize { path: path.to_path_buf(), expected, got });
        }
        Self::new(path, file, element, shape, 0)
    }
}

impl FileSink {
    /// Creates a file of nothing but the little-endian elements of a tensor of shape NCHW, of a [`DType`](tiled_tensor::DType) or
    /// any other [`ElementType`].
    ///
    /// # Errors
    /// Where the shape overflows, the file cannot be made, or the disk is too small.
    pub fn create_raw(
        path: impl AsRef<Path>,
        shape: [usize; 4],
        element: impl Into<ElementType>,
    ) -> Result<Self, IoError> {
        Self::create(path.as_ref(), shape, element.into(), &[])
    }
}
