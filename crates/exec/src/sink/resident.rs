//! What the sink of a file will hold, before there is one.

use std::path::Path;

use crate::file::size_bytes;
use crate::{ElementType, IoError, SinkOptions};

/// The bytes of memory that the sink which [`create_sink_with`](crate::create_sink_with) makes of this file keeps
/// ([`Sink::resident_bytes`](crate::Sink::resident_bytes)), without making it: pictures up to a limit are held whole.
///
/// # Errors
/// Where the extension is none that `create_sink_with` knows, or the shape does not fit the format.
///
/// ```
/// use tiled_exec::{SinkOptions, sink_resident_bytes};
/// let options = SinkOptions::default();
/// assert_eq!(sink_resident_bytes("y.npy", [1, 3, 1000, 2000], &options)?, 0);
/// assert_eq!(sink_resident_bytes("y.png", [1, 3, 1000, 2000], &options)?, 6_000_000);
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
pub fn sink_resident_bytes(
    path: impl AsRef<Path>,
    shape: [usize; 4],
    options: &SinkOptions,
) -> Result<u64, IoError> {
    let path = path.as_ref();
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref().unwrap_or_default() {
        "npy" | "raw" | "bin" => Ok(0),
        "png" => match shape {
            [1, 1 | 3, ..] => {
                let bytes = size_bytes(path, shape, options.element.unwrap_or(ElementType::U8))?;
                Ok(if bytes > options.limit_bytes { 0 } else { bytes })
            }
            got => Err(IoError::PictureShape { path: path.to_path_buf(), got }),
        },
        got => Err(IoError::Extension {
            path: path.to_path_buf(),
            expected: "npy, raw, bin, png",
            got: got.to_owned(),
        }),
    }
}
