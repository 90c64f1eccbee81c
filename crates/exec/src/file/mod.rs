//! Tensors in files: little-endian elements in row-major `NCHW` order, read and written in place.
//!
//! Reads and writes are positioned, not mapped, so that no page of a file counts as memory of the process. Bytes
//! pass through 64 KiB on the stack of the calling thread; nothing is allocated per call.

mod codec;
mod open;
mod partial;
mod pieces;
mod positioned;
mod regular;
mod reservation;
mod sink;
mod source;
mod temporary;

use std::path::{Path, PathBuf};

use crate::IoError;

pub use codec::ElementType;
pub(crate) use codec::{BUFFER_BYTES, share};
pub use open::{
    PICTURE_LIMIT_BYTES, RawFormat, SinkOptions, SourceFacts, SourceOptions, create_sink, create_sink_with,
    inspect_source, open_source, open_source_with, open_source_within,
};
pub(crate) use partial::PartialFile;
pub use partial::remove_partial_files;
pub(crate) use positioned::{Positioned, PositionedFile};
pub use regular::open_regular;
pub use reservation::{Reservation, WrittenFile, write_whole};
pub use sink::FileSink;
pub use source::FileSource;
pub(crate) use source::len_bytes;
pub(crate) use temporary::{TemporaryFile, temporary_file};

/// The bytes of a tensor, where they fit 63 bits.
pub(crate) fn size_bytes(path: &Path, shape: [usize; 4], element: ElementType) -> Result<u64, IoError> {
    shape
        .iter()
        .try_fold(element.size_bytes() as u64, |product, extent| product.checked_mul(*extent as u64))
        .filter(|bytes| *bytes <= i64::MAX.unsigned_abs() - u64::from(u32::MAX))
        .ok_or_else(|| IoError::Overflow { path: PathBuf::from(path), got: shape.to_vec() })
}
