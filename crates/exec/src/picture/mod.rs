//! Pictures as tensors: one image of one channel (gray) or three (red, green, blue).
//!
//! ```text
//!   file ─ header ─► size checked against the limit ─► png: row by row     ─► pixels, one or two bytes a channel
//!                                                      jpeg: checked, then decoded
//! ```

mod form;
mod jpeg;
mod pixels;
mod png;
mod problem;
mod sink;
mod source;

pub use problem::{JpegDamage, PictureProblem};
pub use sink::PictureSink;
pub use source::PictureSource;
