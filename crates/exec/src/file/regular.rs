//! Opening files that are files: a pipe would block for ever, and reading a device may do anything.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use crate::IoError;

/// Opens a regular file for reading, through links; refuses folders, pipes, sockets and devices without touching them.
///
/// # Errors
/// Where there is no such file, it is of another kind, or it cannot be opened.
pub fn open_regular(path: impl AsRef<Path>) -> Result<File, IoError> {
    let path = path.as_ref();
    let fail = |source| IoError::Open { path: path.to_path_buf(), source };
    let refuse = || IoError::NotAFile { path: path.to_path_buf() };
    if !fs::metadata(path).map_err(fail)?.is_file() {
        return Err(refuse());
    }
    // what has taken the name since must not block either
    let file = without_waiting(OpenOptions::new().read(true)).open(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.is_file() { Ok(file) } else { Err(refuse()) }
}

/// Options with which opening a pipe does not wait for its other end; files do not mind.
pub(super) fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
    }
    #[cfg(not(unix))]
    options
}
