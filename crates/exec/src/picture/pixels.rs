//! The pixels of a whole picture, in memory or in a file without a name.

use std::io;
use std::path::Path;

use tiled_tensor::{OutOfMemory, zero_bytes};

use crate::IoError;
use crate::file::{Positioned, PositionedFile, temporary_file};

/// Rows of pixels of channels, one after another.
#[derive(Debug)]
pub(super) enum Pixels {
    /// In memory.
    Held(Vec<u8>),
    /// In a file that is gone when this is dropped and when the process dies.
    Filed(PositionedFile),
}

impl Pixels {
    /// Zeros in memory; `path` stands in errors.
    pub(super) fn hold(path: &Path, bytes: u64) -> Result<Self, IoError> {
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: path.to_path_buf(), bytes };
        zero_bytes(usize::try_from(bytes).unwrap_or(usize::MAX)).map(Self::Held).map_err(refused)
    }

    /// Zeros in a file of this folder, whose room is taken at once.
    pub(super) fn file(folder: &Path, bytes: u64) -> Result<Self, IoError> {
        temporary_file(folder, bytes).map(PositionedFile::new).map(Self::Filed)
    }

    /// The bytes that are held in memory.
    pub(super) const fn resident_bytes(&self) -> u64 {
        match self {
            Self::Held(bytes) => bytes.len() as u64,
            Self::Filed(_) => 0,
        }
    }

    /// Writes bytes from `start` on.
    pub(super) fn write(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Held(held) => {
                let start = place(start);
                held[start..start + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Self::Filed(file) => file.write_at(bytes, start),
        }
    }

    /// The `len` bytes from `start` on, in the memory where they lie or in `buffer`.
    pub(super) fn read<'a>(&'a self, start: u64, len: usize, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        match self {
            Self::Held(held) => Ok(&held[place(start)..place(start) + len]),
            Self::Filed(file) => {
                let bytes = &mut buffer[..len];
                file.read_at(bytes, start)?;
                Ok(bytes)
            }
        }
    }
}

fn place(start: u64) -> usize {
    usize::try_from(start).expect("invariant: within memory that is held")
}
