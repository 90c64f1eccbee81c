//! Pictures as tensors: one image of one channel (gray) or three (red, green, blue), values from 0 to 1.

mod sink;
mod source;

pub use sink::PictureSink;
pub use source::PictureSource;
