//! Reads and writes at a position, from several threads at once.

use std::fs::File;
use std::io;

/// Storage of bytes that is read and written at positions. Files are; tests put a full disk here.
pub(crate) trait Positioned: Send + Sync + std::fmt::Debug {
    /// Fills `bytes` from `position` on.
    fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()>;
    /// Writes all of `bytes` from `position` on.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Returns after the bytes have reached the disk.
    fn sync(&self) -> io::Result<()>;
}

/// An open file.
#[derive(Debug)]
pub(crate) struct PositionedFile {
    #[cfg(unix)]
    file: File,
    // Elsewhere a position is a state of the file.
    #[cfg(not(unix))]
    file: std::sync::Mutex<File>,
}

#[cfg(unix)]
impl PositionedFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file }
    }
}

#[cfg(unix)]
impl Positioned for PositionedFile {
    fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, bytes, position)
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, position)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

#[cfg(not(unix))]
impl PositionedFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file: std::sync::Mutex::new(file) }
    }

    fn at(&self, position: u64) -> io::Result<std::sync::MutexGuard<'_, File>> {
        use std::io::Seek;
        let mut file = self.file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(io::SeekFrom::Start(position))?;
        Ok(file)
    }
}

#[cfg(not(unix))]
impl Positioned for PositionedFile {
    fn read_at(&self, bytes: &mut [u8], position: u64) -> io::Result<()> {
        io::Read::read_exact(&mut *self.at(position)?, bytes)
    }
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        io::Write::write_all(&mut *self.at(position)?, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.at(0)?.sync_all()
    }
}
