//! Tensors in files: little-endian elements in row-major `NCHW` order, read and written in place.
//!
//! Reads and writes are positioned, not mapped, so that no page of a file counts as memory of the process. Bytes
//! pass through 64 KiB on the stack of the calling thread; nothing is allocated per call.

mod codec;
mod partial;
mod pieces;
mod positioned;
mod regular;
mod reservation;
mod scratch;
mod sink;
mod source;

use std::path::{Path, PathBuf};

use tiled_tensor::{DType, Element};

use crate::picture::{PictureSink, PictureSource};
use crate::{IoError, Sink, Source};

pub(crate) use codec::FileType;
pub(crate) use partial::PartialFile;
pub use partial::remove_partial_files;
pub use regular::open_regular;
pub use reservation::{Reservation, write_whole};
pub(crate) use scratch::ScratchFile;
pub use sink::FileSink;
pub use source::FileSource;
pub(crate) use source::len_bytes;

/// The memory that [`open_source`] lets a picture take, decoded: 1 GiB.
pub const PICTURE_LIMIT_BYTES: u64 = 1 << 30;

/// Opens the tensor in a file by its extension: `.npy`, `.png`, `.jpg`, `.jpeg`.
///
/// # Errors
/// Where the extension is another, and where the file cannot be read; a truncated file is found here.
pub fn open_source<T: Element>(path: impl AsRef<Path>) -> Result<Box<dyn Source<T>>, IoError> {
    open_source_within(path, PICTURE_LIMIT_BYTES)
}

/// Opens the tensor in a file as [`open_source`] does, where a picture may take `limit_bytes` of memory.
///
/// # Errors
/// As [`open_source`].
pub fn open_source_within<T: Element>(
    path: impl AsRef<Path>,
    limit_bytes: u64,
) -> Result<Box<dyn Source<T>>, IoError> {
    let path = path.as_ref();
    match extension(path).as_str() {
        "npy" => Ok(Box::new(FileSource::open_npy(path)?)),
        "png" | "jpg" | "jpeg" => Ok(Box::new(PictureSource::open(path, limit_bytes)?)),
        "raw" | "bin" => Err(IoError::ShapeUnknown { path: path.to_path_buf() }),
        _ => Err(unknown(path, "npy, png, jpg, jpeg")),
    }
}

/// Creates the file of a tensor by its extension: `.npy`, `.raw` and `.bin` (elements alone), `.png`.
///
/// Elements are stored as `T`. The file stands under `path` only after [`Sink::finish`].
///
/// # Errors
/// Where the extension is another, the shape does not fit the format, the file cannot be made, or the disk is
/// too small.
pub fn create_sink<T: Element>(
    path: impl AsRef<Path>,
    shape: [usize; 4],
) -> Result<Box<dyn Sink<T>>, IoError> {
    let path = path.as_ref();
    match extension(path).as_str() {
        "npy" => Ok(Box::new(FileSink::create_npy(path, shape, T::DTYPE)?)),
        "raw" | "bin" => Ok(Box::new(FileSink::create_raw(path, shape, T::DTYPE)?)),
        "png" => Ok(Box::new(PictureSink::create(path, shape)?)),
        _ => Err(unknown(path, "npy, raw, bin, png")),
    }
}

/// The bytes of a tensor, where they fit 63 bits.
pub(crate) fn size_bytes(path: &Path, shape: [usize; 4], element: FileType) -> Result<u64, IoError> {
    shape
        .iter()
        .try_fold(element.size_bytes() as u64, |product, extent| product.checked_mul(*extent as u64))
        .filter(|bytes| *bytes <= i64::MAX.unsigned_abs() - u64::from(u32::MAX))
        .ok_or_else(|| IoError::Overflow { path: PathBuf::from(path), got: shape.to_vec() })
}

impl From<DType> for FileType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

fn unknown(path: &Path, expected: &'static str) -> IoError {
    IoError::Extension { path: path.to_path_buf(), expected, got: extension(path) }
}
