//! Files that stand under their final name only when they are complete.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::positioned::{Positioned, PositionedFile};
use super::regular::without_waiting;
use crate::IoError;

/// A file under a temporary name beside its final one, removed unless it is finished.
///
/// A file that it replaces hands down its permissions, and its owner where the system lets it.
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
        let fail = |source| IoError::Create { path: path.to_path_buf(), source };
        let (target, replaced) = resolve(path)?;
        let (temporary, file) = create_beside(&target, replaced.is_some()).map_err(fail)?;
        // From here on, dropping it removes the temporary file.
        let mut partial = Self {
            path: path.to_path_buf(),
            target,
            temporary,
            file: Box::new(Unopened),
            live: AtomicBool::new(true),
        };
        if let Some(replaced) = replaced {
            inherit(&file, &replaced).map_err(fail)?;
        }
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

    /// Brings the bytes to the disk: what a full one says of them at last, it says here.
    pub(crate) fn sync(&self) -> Result<(), IoError> {
        self.file.sync().map_err(|source| IoError::from_write(&self.path, source))
    }

    /// Brings the bytes to the disk and gives the file its final name, replacing what stood there.
    pub(crate) fn finish(&self) -> Result<(), IoError> {
        self.sync()?;
        self.publish()
    }

    /// Gives the file, whose bytes are on the disk, its final name.
    pub(crate) fn publish(&self) -> Result<(), IoError> {
        if !self.live.swap(false, Ordering::AcqRel) {
            return Err(IoError::Closed { path: self.path.clone() });
        }
        match fs::rename(&self.temporary, &self.target) {
            Ok(()) => {
                live().remove(&self.temporary);
                Ok(())
            }
            Err(source) => {
                self.remove();
                Err(IoError::from_write(&self.path, source))
            }
        }
    }

    /// Removes the file unless it is finished.
    pub(crate) fn discard(&self) {
        if self.live.swap(false, Ordering::AcqRel) {
            self.remove();
        }
    }

    /// Removes the file after an error, unless that says that somebody else has ended it or is about to.
    pub(crate) fn discard_after(&self, error: &IoError) {
        if !matches!(error, IoError::Closed { .. }) {
            self.discard();
        }
    }

    fn remove(&self) {
        // Nothing can be done about a file that cannot be removed, and its name says what it is.
        let _ = fs::remove_file(&self.temporary);
        live().remove(&self.temporary);
    }
}

/// Removes the temporary file of every output of this process that is not finished.
///
/// For a program that is about to end without waiting for its runs, as on a second signal: what stands under a final
/// name stays, and a run that goes on meanwhile fails where it would have finished.
pub fn remove_partial_files() {
    for temporary in std::mem::take(&mut *live()) {
        // as above
        let _ = fs::remove_file(temporary);
    }
}

/// The temporary files that exist.
fn live() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The file that `path` means, through links, and what is there now; what is no file (a folder, `/dev/null`) must not
/// be replaced by one, nor what may not be written.
fn resolve(path: &Path) -> Result<(PathBuf, Option<fs::Metadata>), IoError> {
    let fail = |source| IoError::Create { path: path.to_path_buf(), source };
    let refuse = || IoError::NotAFile { path: path.to_path_buf() };
    if path.file_name().is_none() {
        return Err(refuse());
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((path.to_path_buf(), None)),
        Err(error) => return Err(fail(error)),
        Ok(_) => {}
    }
    let target = fs::canonicalize(path).map_err(fail)?;
    if !fs::metadata(&target).map_err(fail)?.is_file() {
        return Err(refuse());
    }
    // renaming asks the folder alone, so that a file that is write-protected would be lost
    let replaced = without_waiting(OpenOptions::new().write(true)).open(&target).map_err(fail)?;
    let metadata = replaced.metadata().map_err(fail)?;
    if metadata.is_file() { Ok((target, Some(metadata))) } else { Err(refuse()) }
}

/// Creates a file beside `target`; nobody else may read it yet where it is `private`.
fn create_beside(target: &Path, private: bool) -> io::Result<(PathBuf, File)> {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    let mut stem = target.file_name().unwrap_or_default();
    let mut attempts = 0;
    loop {
        let mut name = OsString::from(".");
        name.push(stem);
        let count = CREATED.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".partial-{}-{count}", std::process::id()));
        let temporary = target.with_file_name(name);
        // noted first, so that no moment leaves a file that nobody knows
        live().insert(temporary.clone());
        match options.open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) => {
                live().remove(&temporary);
                match error.kind() {
                    // Left by a process of the same number that was killed.
                    io::ErrorKind::AlreadyExists if attempts < MAX_ATTEMPTS => attempts += 1,
                    // The name has room for the file's own, but not for more.
                    io::ErrorKind::InvalidFilename if !stem.is_empty() => stem = "".as_ref(),
                    _ => return Err(error),
                }
            }
        }
    }
}

/// Gives a file the permissions of the one that it replaces, and its owner and group where the system lets it.
fn inherit(file: &File, replaced: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let mut mode = replaced.permissions().mode() & 0o7777;
        let own = file.metadata()?;
        let given = |wanted: u32, has: u32| (wanted != has).then_some(wanted);
        let owner = given(replaced.uid(), own.uid());
        let group = given(replaced.gid(), own.gid());
        if (owner.is_some() || group.is_some()) && fchown(file, owner, group).is_err() {
            // a file of another owner must not act in the name of this one
            mode &= 0o1777;
            if fchown(file, None, group).is_err() {
                // nor hand on to our group what the other group was allowed
                mode &= 0o1707 | ((mode & 0o007) << 3);
            }
        }
        file.set_permissions(Permissions::from_mode(mode))
    }
    #[cfg(not(unix))]
    file.set_permissions(replaced.permissions())
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
