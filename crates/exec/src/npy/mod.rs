//! NumPy's `.npy` files.
//!
//! ```text
//!   \x93NUMPY  major minor  header length (u16; u32 from version 2 on)
//!   {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 512, 512), }   padded with spaces, then \n
//!   elements
//! ```
//!
//! Source: NumPy, "NEP 1 — A simple file format for NumPy arrays", and `numpy.lib.format`, versions 1.0 to 3.0.

mod header;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::file::{FileSink, FileSource, len_bytes, size_bytes};
use crate::{ElementType, IoError, NpyProblem};

pub use header::NpyHeader;

impl FileSource {
    /// Opens an `.npy` file of NCHW, CHW or HW.
    ///
    /// Elements are `<f2`, `<f4`, `<f8`, or integers of 8 to 64 bits, little-endian; `|u1` and `<u2` are scaled to 0 to 1, as
    /// in pictures, where [`FileSource::with_numbers`] does not say another thing.
    ///
    /// # Errors
    /// Where the header is malformed or says another type, big-endian elements, Fortran order or other axes,
    /// where the file is shorter or longer than its shape says, and where it cannot be opened.
    pub fn open_npy(path: impl AsRef<Path>) -> Result<Self, IoError> {
        let path = path.as_ref();
        let file = Self::open(path)?;
        let (header, got) = read_header(path, &file)?;
        let shape = header.nchw().map_err(|problem| IoError::Npy { path: path.to_path_buf(), problem })?;
        let expected = size_bytes(path, shape, header.element())?.saturating_add(header.len_bytes());
        if got > expected {
            return Err(IoError::FileSize { path: path.to_path_buf(), expected, got });
        }
        Self::new(path, file, header.element(), shape, header.len_bytes())
    }
}

impl FileSink {
    /// Creates an `.npy` file of shape NCHW, version 1.0, of a [`tiled_tensor::DType`] or any other [`ElementType`] but `bf16`.
    ///
    /// # Errors
    /// Where the format has no such type, the shape overflows, the file cannot be made, or the disk is too small.
    pub fn create_npy(
        path: impl AsRef<Path>,
        shape: [usize; 4],
        element: impl Into<ElementType>,
    ) -> Result<Self, IoError> {
        let (path, element) = (path.as_ref(), element.into());
        let header = NpyHeader::format(&shape, element)
            .map_err(|problem| IoError::Npy { path: path.to_path_buf(), problem })?;
        Self::create(path, shape, element, &header)
    }
}

/// The header of a file that has just been opened, and the bytes of the file.
pub(crate) fn read_header(path: &Path, file: &File) -> Result<(NpyHeader, u64), IoError> {
    let got = len_bytes(path, file)?;
    let mut bytes = Vec::new();
    file.take(NpyHeader::MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|source| IoError::Read { path: path.to_path_buf(), source })?;
    let header = NpyHeader::parse(&bytes).map_err(|problem| match problem {
        NpyProblem::Truncated { expected } => IoError::Truncated { path: path.to_path_buf(), expected, got },
        problem => IoError::Npy { path: path.to_path_buf(), problem },
    })?;
    Ok((header, got))
}
