//! What formats of pictures have in common.

use std::io::BufReader;

pub(super) type File = BufReader<std::fs::File>;

/// What decoding may take without being counted: the rows that a format works on, its tables, the buffer of the file.
pub(super) const UNCOUNTED_BYTES: u64 = 256 * 1024;

/// What is held of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    /// Whether a channel is two bytes.
    pub(super) is_wide: bool,
    /// What decoding takes beside the pixels.
    pub(super) transient_bytes: u64,
}

impl Form {
    pub(super) const fn sample_bytes(&self) -> usize {
        if self.is_wide { 2 } else { 1 }
    }

    pub(super) fn row_bytes(&self) -> u64 {
        self.width as u64 * (self.channels * self.sample_bytes()) as u64
    }

    /// The bytes of the pixels, where they fit.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        self.row_bytes().checked_mul(self.height as u64)
    }

    pub(super) const fn shape(&self) -> [usize; 4] {
        [1, self.channels, self.height, self.width]
    }
}
