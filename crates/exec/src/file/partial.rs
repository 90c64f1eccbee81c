//! Files that stand under their final name only when they are complete.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::positioned::{Positioned, PositionedFile};
use crate::IoError;

/// A file under a temporary name beside its final one, removed unless it is finished.
#[derive(Debug)]
pub(crate) struct PartialFile {
    /// As the caller wrote it, for errors.
    path: PathBuf,
    /// Where it is going to stand: `path` with links resolved.
    target: PathBuf,
    temporary: PathBuf,
    file: Box<dyn Positioned>,
    live: AtomicBool,
}

impl PartialFile {
    /// A file that is going to stand at `path`, with room for `len` bytes.
    pub(crate) fn create(path: &Path, len: u64) -> Result<Self, IoError> {
        Self::create_with(path, len, |file| Box::new(PositionedFile::new(file)))
    }

    /// The same, where `open` stands between the file and its writers.
    pub(crate) fn create_with(
        path: &Path,
        len: u64,
        open: impl FnOnce(File) -> Box<dyn Positioned>,
    ) -> Result<Self, IoError> {
        let target = resolve(path)?;
        let (temporary, file) =
            create_beside(&target).map_err(|source| IoError::Create { path: path.to_path_buf(), source })?;
        // From here on, dropping it removes the temporary file.
        let mut partial = Self {
            path: path.to_path_buf(),
            target,
            temporary,
            file: Box::new(Unopened),
            live: AtomicBool::new(true),
        };
        reserve(path, &file, len)?;
        partial.file = open(file);
        Ok(partial)
    }

    pub(crate) fn write_at(&self, bytes: &[u8], position: u64) -> Result<(), IoError> {
        self.file.write_at(bytes, position).map_err(|source| IoError::from_write(&self.path, source))
    }

    /// The file as a stream of bytes from its start.
    pub(crate) fn stream(&self) -> Stream<'_> {
        Stream { file: &*self.file, position: 0 }
    }

    /// Brings the bytes to the disk and gives the file its final name, replacing what stood there.
    pub(crate) fn finish(&self) -> Result<(), IoError> {
        if !self.live.swap(false, Ordering::AcqRel) {
            return Err(IoError::Closed { path: self.path.clone() });
        }
        let finished = self.file.sync().and_then(|()| fs::rename(&self.temporary, &self.target));
        finished.map_err(|source| {
            self.remove();
            IoError::from_write(&self.path, source)
        })
    }

    /// Removes the file unless it is finished.
    pub(crate) fn discard(&self) {
        if self.live.swap(false, Ordering::AcqRel) {
            self.remove();
        }
    }

    fn remove(&self) {
        // Nothing can be done about a file that cannot be removed, and its name says what it is.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The bytes of a file one after the other.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    file: &'a dyn Positioned,
    position: u64,
}

impl io::Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.position)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stands in while the room for a file is made.
#[derive(Debug)]
struct Unopened;

impl Positioned for Unopened {
    fn read_at(&self, _bytes: &mut [u8], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
    fn write_at(&self, _bytes: &[u8], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
}

/// The file that `path` means; what is no file (a folder, `/dev/null`) must not be replaced by one.
fn resolve(path: &Path) -> Result<PathBuf, IoError> {
    let open = |source| IoError::Open { path: path.to_path_buf(), source };
    if path.file_name().is_none() {
        return Err(IoError::NotAFile { path: path.to_path_buf() });
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_path_buf()),
        Err(error) => return Err(IoError::Create { path: path.to_path_buf(), source: error }),
        Ok(_) => {}
    }
    let target = fs::canonicalize(path).map_err(open)?;
    if !fs::metadata(&target).map_err(open)?.is_file() {
        return Err(IoError::NotAFile { path: path.to_path_buf() });
    }
    Ok(target)
}

fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let mut attempts = 0;
    loop {
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        let count = CREATED.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".partial-{}-{count}", std::process::id()));
        let temporary = target.with_file_name(name);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&temporary) {
            // Left by a process of the same number that was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < MAX_ATTEMPTS => {
                attempts += 1;
            }
            opened => return opened.map(|file| (temporary, file)),
        }
    }
}

const MAX_ATTEMPTS: usize = 1000;

/// Makes room for `len` bytes, so that a full disk is found before any work.
pub(super) fn reserve(path: &Path, file: &File, len: u64) -> Result<(), IoError> {
    #[cfg(unix)]
    if let Ok(disk) = rustix::fs::fstatvfs(file) {
        let got = disk.f_bavail.saturating_mul(disk.f_frsize);
        // Some virtual file systems do not count.
        if disk.f_blocks > 0 && len > got {
            return Err(IoError::NoSpace { path: path.to_path_buf(), expected: len, got });
        }
    }
    file.set_len(len).map_err(|source| IoError::from_write(path, source))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if len > 0
        && let Err(error) = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len)
    {
        // Not every file system can; then a full disk is found where it is written to.
        let error = IoError::from_write(path, error.into());
        if matches!(error, IoError::DiskFull { .. }) {
            return Err(error);
        }
    }
    Ok(())
}
