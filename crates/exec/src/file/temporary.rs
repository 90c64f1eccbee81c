//! Tensors that live in a file without a name, for as long as a run needs them.

use std::fs::File;
use std::path::{Path, PathBuf};

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::positioned::{Positioned, PositionedFile};
use super::sink::encode_region;
use super::{ElementType, FileSource, size_bytes};
use crate::{Changes, IoError, Numbers, Source};

/// A file without a name in a folder, with room for so many bytes.
pub(crate) fn temporary_file(folder: &Path, bytes: u64) -> Result<File, IoError> {
    let file = tempfile::tempfile_in(folder)
        .map_err(|source| IoError::Create { path: folder.to_path_buf(), source })?;
    super::partial::reserve(folder, &file, bytes)?;
    Ok(file)
}

/// A tensor in a temporary file of a folder, written and read in place. The file has no name: it is gone when
/// this is dropped, and when the process dies.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    folder: PathBuf,
    shape: [usize; 4],
    element: ElementType,
    writer: PositionedFile,
    source: FileSource,
}

impl TemporaryFile {
    /// A tensor at the beginning of a file, in `folder`, which has room for it.
    pub(crate) fn of<T: Element>(file: &File, folder: &Path, shape: [usize; 4]) -> Result<Self, IoError> {
        let element = ElementType::from(T::DTYPE);
        let same =
            || file.try_clone().map_err(|source| IoError::Create { path: folder.to_path_buf(), source });
        let source = FileSource::new(folder, same()?, element, shape, 0)?;
        Ok(Self {
            folder: folder.to_path_buf(),
            shape,
            element,
            writer: PositionedFile::new(same()?),
            source,
        })
    }

    /// The bytes of a tensor in a file of `folder`.
    pub(crate) fn bytes<T: Element>(folder: &Path, shape: [usize; 4]) -> Result<u64, IoError> {
        size_bytes(folder, shape, ElementType::from(T::DTYPE))
    }

    /// Writes a region from the window.
    pub(crate) fn write<T: Element>(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        let mut changes = Changes::new(self.element, Numbers::AsIs);
        encode_region(self.shape, &mut changes, region, input, |bytes, position| {
            let written = self.writer.write_at(bytes, position);
            written.map_err(|source| IoError::from_write(&self.folder, source))
        })
    }

    /// Reads a region into the window.
    pub(crate) fn read<T: Element>(
        &self,
        region: Region<2>,
        output: &mut ViewMut<'_, T>,
    ) -> Result<(), IoError> {
        self.source.read(region, output)
    }
}
