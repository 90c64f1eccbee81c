//! Writing pictures.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_geometry::Region;
use tiled_tensor::{Element, OutOfMemory, View, zero_bytes};

use crate::file::PartialFile;
use crate::sink::Written;
use crate::source::{Lanes, index};
use crate::{IoError, Sink};

/// A tensor that becomes a PNG picture, 8 bits a channel: `round(255·v)`, where v is cut to 0 to 1 and NaN is 0.
///
/// PNG is compressed from the first row to the last and regions come in any order, so that the whole picture
/// is held, one byte a channel: [`Sink::resident_bytes`] says how much.
#[derive(Debug)]
pub struct PictureSink {
    written: Written,
    file: PartialFile,
    /// Rows of pixels of channels.
    pixels: Mutex<Vec<u8>>,
}

impl PictureSink {
    /// A picture of shape `1×1×H×W` (gray) or `1×3×H×W` (red, green, blue).
    ///
    /// # Errors
    /// Where the shape is another, and where the file cannot be made.
    pub fn create(path: impl AsRef<Path>, shape: [usize; 4]) -> Result<Self, IoError> {
        let path = path.as_ref();
        let written = Written::new(path, shape)?;
        let fits = |extent: usize| extent > 0 && i32::try_from(extent).is_ok();
        if !matches!(shape, [1, 1 | 3, height, width] if fits(height) && fits(width)) {
            return Err(IoError::PictureShape { path: path.to_path_buf(), got: shape });
        }
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: path.to_path_buf(), bytes };
        let pixels = Mutex::new(zero_bytes(shape.iter().product()).map_err(refused)?);
        Ok(Self { file: PartialFile::create(path, 0)?, written, pixels })
    }

    fn pixels(&self) -> MutexGuard<'_, Vec<u8>> {
        self.pixels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn encode(&self) -> Result<(), png::EncodingError> {
        let [_, channels, height, width] = self.written.shape();
        let [width, height] = [width, height].map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        let mut stream = BufWriter::with_capacity(BUFFER_BYTES, self.file.stream());
        let mut encoder = png::Encoder::new(&mut stream, width, height);
        encoder.set_color(if channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        let mut rows = writer.stream_writer_with_size(BUFFER_BYTES)?;
        rows.write_all(&self.pixels())?;
        rows.finish()?;
        writer.finish()?;
        stream.flush()?;
        Ok(())
    }
}

impl<T: Element> Sink<T> for PictureSink {
    fn shape(&self) -> [usize; 4] {
        self.written.shape()
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        self.written.check(region, input.layout())?;
        if region.is_empty() {
            return Ok(());
        }
        let [_, channels, _, width] = self.written.shape();
        let [cols, first] = [region.cols().len(), region.cols().begin()].map(index);
        let mut pixels = self.pixels();
        for c in 0..channels {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(input.layout(), region, 0, c, y);
                let start = (index(y) * width + first) * channels + c;
                let places = pixels[start..].iter_mut().step_by(channels).take(cols);
                for (place, value) in places.zip(input.data()[lanes.start..].iter().step_by(lanes.step)) {
                    *place = byte(value.to_f64());
                }
            }
        }
        drop(pixels);
        self.written.add(region);
        Ok(())
    }

    fn finish(&self) -> Result<(), IoError> {
        match self.written.close() {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, IoError::Incomplete { .. }) {
                    self.file.discard();
                }
                return Err(error);
            }
        }
        self.encode().map_err(|error| {
            self.file.discard();
            let source = match error {
                png::EncodingError::IoError(source) => source,
                error => io::Error::other(error),
            };
            IoError::from_write(self.written.path(), source)
        })?;
        self.file.finish()
    }

    fn abort(&self) {
        if self.written.abandon() {
            self.file.discard();
        }
    }

    fn resident_bytes(&self) -> u64 {
        self.pixels().len() as u64
    }
}

const BUFFER_BYTES: usize = 64 * 1024;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cut to 0 to 255 before; NaN becomes 0"
)]
fn byte(value: f64) -> u8 {
    (value.clamp(0.0, 1.0) * 255.0).round() as u8
}
