//! Files that a caller is going to write after its work: places that are known to be free, and small files written whole.

use std::io::Write;
use std::path::Path;

use super::PartialFile;
use crate::IoError;

/// The place of a file that is going to be written after long work, and its room on the disk.
///
/// What can be known of the place is checked when it is taken: that the folder is there and may be written to, that no
/// folder, device or file that is write-protected has the name, that the disk has the room. The room stays taken until
/// this is dropped, which is the moment to write the file; what stands under the name stays as it is.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use tiled_exec::{Reservation, write_whole};
/// let path = folder.path().join("report.txt");
/// let place = Reservation::new(&path, 1 << 20)?;
/// let report = "the work of a night";
/// drop(place);
/// write_whole(&path, report.as_bytes())?;
/// assert!(Reservation::new(folder.path().join("missing/report.txt"), 0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reservation {
    /// Removed when it is dropped.
    _room: PartialFile,
}

impl Reservation {
    /// Takes the place of a file of about `len_bytes`.
    ///
    /// # Errors
    /// Where the file could not be created now.
    pub fn new(path: impl AsRef<Path>, len_bytes: u64) -> Result<Self, IoError> {
        Ok(Self { _room: PartialFile::create(path.as_ref(), len_bytes)? })
    }
}

/// A file that is written and has not its name yet: of several that belong together none takes it before all are written.
///
/// It is removed where it is dropped unfinished; what stands under the name stays as it is until then.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use tiled_exec::WrittenFile;
/// let [a, b] = ["a.txt", "b.txt"].map(|name| folder.path().join(name));
/// let first = WrittenFile::of_bytes(&a, b"one half")?;
/// let second = WrittenFile::of_bytes(&b, b"the other")?;
/// assert!(!a.exists() && !b.exists());
/// first.finish()?;
/// second.finish()?;
/// assert!(a.exists() && b.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it is removed where it is not finished"]
pub struct WrittenFile {
    file: PartialFile,
}

impl WrittenFile {
    /// Brings what was written to the disk, so that giving it its name is all that is left.
    pub(crate) fn of(file: PartialFile) -> Result<Self, IoError> {
        file.sync()?;
        Ok(Self { file })
    }

    /// Writes these bytes.
    ///
    /// # Errors
    /// Where the file cannot be created or written.
    pub fn of_bytes(path: impl AsRef<Path>, bytes: &[u8]) -> Result<Self, IoError> {
        let path = path.as_ref();
        let file = PartialFile::create(path, bytes.len() as u64)?;
        file.stream().write_all(bytes).map_err(|source| IoError::from_write(path, source))?;
        Self::of(file)
    }

    /// Gives the file its name; what stood there before is replaced at once.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn finish(self) -> Result<(), IoError> {
        self.file.finish()
    }
}

/// Writes a file that stands under `path` whole or not at all; what stood there before is replaced at once.
///
/// # Errors
/// Where it cannot be created or written.
pub fn write_whole(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), IoError> {
    WrittenFile::of_bytes(path, bytes)?.finish()
}
