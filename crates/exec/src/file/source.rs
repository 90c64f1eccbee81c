//! Reading tensors from files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tiled_geometry::Region;
use tiled_tensor::{Element, ViewMut};

use super::codec::BUFFER_BYTES;
use super::pieces::visit_pieces;
use super::positioned::{Positioned, PositionedFile};
use super::{ElementType, open_regular, size_bytes};
use crate::source::{check_access, count};
use crate::{IoError, Numbers, Source};

/// A tensor in an `.npy` or raw file, of which only what is asked for is read.
///
/// Elements of another type are converted to the nearest; integers of pictures are scaled, see [`Numbers`]. A read passes 64 KiB of the stack of the calling thread
/// and allocates nothing.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    file: Box<dyn Positioned>,
    element: ElementType,
    numbers: Numbers,
    shape: [usize; 4],
    /// Where the elements begin.
    offset_bytes: u64,
}

impl FileSource {
    /// The tensor of `element`s that begins `offset_bytes` into `file`, which holds all of it.
    pub(crate) fn new(
        path: &Path,
        file: File,
        element: ElementType,
        shape: [usize; 4],
        offset_bytes: u64,
    ) -> Result<Self, IoError> {
        count(path, shape)?;
        let expected = size_bytes(path, shape, element)?.saturating_add(offset_bytes);
        let got = len_bytes(path, &file)?;
        if got < expected {
            return Err(IoError::Truncated { path: path.to_path_buf(), expected, got });
        }
        let path = path.to_path_buf();
        let numbers = Numbers::default();
        Ok(Self { path, file: Box::new(PositionedFile::new(file)), element, numbers, shape, offset_bytes })
    }

    /// The same tensor, where integers stand for `numbers`; [`Numbers::Scaled`] where this is not said.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    /// The type of the elements of the file.
    #[must_use]
    pub const fn element(&self) -> ElementType {
        self.element
    }

    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> Result<File, IoError> {
        open_regular(path)
    }
}

impl<T: Element> Source<T> for FileSource {
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(&self.path, self.shape, region, output.layout())?;
        let layout = *output.layout();
        let size = self.element.size_bytes();
        let mut buffer = [0; BUFFER_BYTES];
        visit_pieces(self.shape, region, BUFFER_BYTES / size, |piece| {
            let bytes = &mut buffer[..piece.len * size];
            self.file
                .read_at(bytes, self.offset_bytes + piece.position * size as u64)
                .map_err(|source| self.read_error(source))?;
            for part in piece.segments(region) {
                let bytes = &bytes[part.start * size..(part.start + part.len) * size];
                let start = layout.offset(piece.n, piece.c, part.y, part.x);
                self.element.decode(self.numbers, bytes, &mut output.data_mut()[start..], layout.block());
            }
            Ok(())
        })
    }
}

impl FileSource {
    /// The file was long enough when it was opened: a short read means that it was cut since.
    fn read_error(&self, source: io::Error) -> IoError {
        IoError::Read { path: self.path.clone(), source }
    }
}

/// The length of a file.
pub(crate) fn len_bytes(path: &Path, file: &File) -> Result<u64, IoError> {
    let metadata = file.metadata().map_err(|source| IoError::Open { path: path.to_path_buf(), source })?;
    Ok(metadata.len())
}
