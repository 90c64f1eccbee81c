//! Writing tensors to files.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_geometry::Region;
use tiled_tensor::{Element, View};

use super::codec::BUFFER_BYTES;
use super::pieces::visit_pieces;
use super::{ElementType, PartialFile, size_bytes};
use crate::sink::Written;
use crate::{Changes, IoError, Numbers, Sink};

/// A tensor that becomes an `.npy` or raw file.
///
/// It is written to a temporary file beside its final name, whose room is taken at once: a disk that is too
/// small is found before any work. Elements of another type are converted to the nearest: integers of pictures stand for 0 to 1,
/// see [`Numbers`], and what integers and 16 bits do not hold is counted, see [`Sink::changes`]. A write passes 64 KiB of the
/// stack of the calling thread and allocates nothing.
#[derive(Debug)]
pub struct FileSink {
    written: Written,
    file: PartialFile,
    /// What of the values is not stored as it is; its type and numbers are those of the file.
    changes: Mutex<Changes>,
    /// Where the elements begin.
    offset_bytes: u64,
}

impl FileSink {
    /// A file that begins with `header`, then the elements.
    pub(crate) fn create(
        path: &Path,
        shape: [usize; 4],
        element: ElementType,
        header: &[u8],
    ) -> Result<Self, IoError> {
        Self::create_with(path, shape, element, header, PartialFile::create)
    }

    /// The same, where `create` makes a file of a length.
    pub(crate) fn create_with(
        path: &Path,
        shape: [usize; 4],
        element: ElementType,
        header: &[u8],
        create: impl FnOnce(&Path, u64) -> Result<PartialFile, IoError>,
    ) -> Result<Self, IoError> {
        let written = Written::new(path.to_owned(), shape)?;
        let offset_bytes = header.len() as u64;
        let file = create(path, size_bytes(path, shape, element)?.saturating_add(offset_bytes))?;
        file.write_at(header, 0)?;
        let changes = Mutex::new(Changes::new(element, Numbers::default()));
        Ok(Self { written, file, changes, offset_bytes })
    }

    /// The same file, where integers stand for `numbers`; [`Numbers::Scaled`] where this is not said.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        let changes = Mutex::new(Changes { numbers, ..*self.lock() });
        Self { changes, ..self }
    }

    /// Plain data, which stays valid whatever panicked while it was held.
    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element> Sink<T> for FileSink {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        let Changes { element, numbers, .. } = *self.lock();
        let mut changes = Changes::new(element, numbers);
        encode_region(self.written.shape(), &mut changes, region, input, |bytes, position| {
            self.file.write_at(bytes, self.offset_bytes + position)
        })?;
        self.lock().add(&changes);
        self.written.add(region);
        Ok(())
    }

    fn prepare(&self) -> Result<(), IoError> {
        self.written.prepare(|| self.file.sync()).inspect_err(|error| self.file.discard_after(error))
    }

    fn finish(&self) -> Result<(), IoError> {
        Sink::<T>::prepare(self)?;
        self.file.publish()
    }

    fn abort(&self) {
        self.written.abandon();
        self.file.discard();
    }

    fn changes(&self) -> Option<Changes> {
        Some(*self.lock()).filter(|changes| !changes.element.is_float())
    }
}

/// Hands the elements of a region to `write`, as the bytes of contiguous pieces with the position of each in a
/// file of the whole tensor; `changes` says how they are stored, and counts.
pub(super) fn encode_region<T: Element>(
    shape: [usize; 4],
    changes: &mut Changes,
    region: Region<2>,
    input: &View<'_, T>,
    mut write: impl FnMut(&[u8], u64) -> Result<(), IoError>,
) -> Result<(), IoError> {
    let layout = *input.layout();
    let element = changes.element;
    let size = element.size_bytes();
    let mut buffer = [0; BUFFER_BYTES];
    visit_pieces(shape, region, BUFFER_BYTES / size, |piece| {
        let bytes = &mut buffer[..piece.len * size];
        for part in piece.segments(region) {
            let bytes = &mut bytes[part.start * size..(part.start + part.len) * size];
            let start = layout.offset(piece.n, piece.c, part.y, part.x);
            element.encode(&input.data()[start..], layout.block(), bytes, changes);
        }
        write(bytes, piece.position * size as u64)
    })
}

#[cfg(test)]
mod tests;
