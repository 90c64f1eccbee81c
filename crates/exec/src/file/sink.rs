//! Writing tensors to files.

use std::path::Path;

use tiled_geometry::Region;
use tiled_tensor::{DType, Element, View};

use super::codec::SCRATCH_BYTES;
use super::pieces::visit_pieces;
use super::{FileType, PartialFile, size_bytes};
use crate::sink::Written;
use crate::{IoError, Sink};

/// A tensor that becomes an `.npy` or raw file.
///
/// It is written to a temporary file beside its final name, whose room is taken at once: a disk that is too
/// small is found before any work. Elements of another type are converted to the nearest. A write passes 64 KiB of the
/// stack of the calling thread and allocates nothing.
#[derive(Debug)]
pub struct FileSink {
    written: Written,
    file: PartialFile,
    element: FileType,
    /// Where the elements begin.
    offset_bytes: u64,
}

impl FileSink {
    /// A file that begins with `header`, then the elements.
    pub(crate) fn create(
        path: &Path,
        shape: [usize; 4],
        dtype: DType,
        header: &[u8],
    ) -> Result<Self, IoError> {
        Self::create_with(path, shape, dtype, header, PartialFile::create)
    }

    /// The same, where `create` makes a file of a length.
    pub(crate) fn create_with(
        path: &Path,
        shape: [usize; 4],
        dtype: DType,
        header: &[u8],
        create: impl FnOnce(&Path, u64) -> Result<PartialFile, IoError>,
    ) -> Result<Self, IoError> {
        let written = Written::new(path, shape)?;
        let element = FileType::from(dtype);
        let offset_bytes = header.len() as u64;
        let file = create(path, size_bytes(path, shape, element)?.saturating_add(offset_bytes))?;
        file.write_at(header, 0)?;
        Ok(Self { written, file, element, offset_bytes })
    }
}

impl<T: Element> Sink<T> for FileSink {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        let layout = *input.layout();
        let size = self.element.size_bytes();
        let mut scratch = [0; SCRATCH_BYTES];
        visit_pieces(self.written.shape(), region, SCRATCH_BYTES / size, |piece| {
            let bytes = &mut scratch[..piece.len * size];
            for part in piece.segments(region) {
                let bytes = &mut bytes[part.start * size..(part.start + part.len) * size];
                let start = layout.offset(piece.n, piece.c, part.y, part.x);
                self.element.encode(&input.data()[start..], layout.block(), bytes);
            }
            self.file.write_at(bytes, self.offset_bytes + piece.position * size as u64)
        })?;
        self.written.add(region);
        Ok(())
    }

    fn finish(&self) -> Result<(), IoError> {
        match self.written.close() {
            Ok(()) => self.file.finish(),
            Err(error) => {
                if matches!(error, IoError::Incomplete { .. }) {
                    self.file.discard();
                }
                Err(error)
            }
        }
    }

    fn abort(&self) {
        if self.written.abandon() {
            self.file.discard();
        }
    }
}

#[cfg(test)]
mod tests;
