//! Writing pictures.

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_geometry::Region;
use tiled_tensor::{Element, OutOfMemory, View, zero_bytes};

use crate::file::{PartialFile, share};
use crate::sink::Written;
use crate::source::{Lanes, index};
use crate::{IoError, Sink};

/// A tensor that becomes a PNG picture, 8 bits a channel: `round(255·v)`, where v is cut to 0 to 1 and NaN is 0. What is
/// changed so is counted: [`Sink::picture_changes`].
///
/// PNG is compressed from the first row to the last and regions come in any order, so that the whole picture
/// is held, one byte a channel: [`Sink::resident_bytes`] says how much.
#[derive(Debug)]
pub struct PictureSink {
    written: Written,
    file: PartialFile,
    picture: Mutex<Picture>,
}

#[derive(Debug)]
struct Picture {
    /// Rows of pixels of channels.
    pixels: Vec<u8>,
    changes: PictureChanges,
}

/// What of a tensor a picture does not hold as it is.
///
/// ```
/// use tiled_exec::PictureChanges;
///
/// let changes = PictureChanges { values: 40, cut: 9, least: -3.2, largest: 7.9, nan: 3, rounded: 0 };
/// assert_eq!(changes.to_string(), "9 of 40 values cut to 0…1 (least -3.2, largest 7.9), 3 NaN written as 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureChanges {
    /// The values written so far.
    pub values: u64,
    /// Those below 0 or above 1.
    pub cut: u64,
    /// The least of all; infinity where there is none.
    pub least: f64,
    /// The largest of all; minus infinity where there is none.
    pub largest: f64,
    /// Those that are no number, written as 0.
    pub nan: u64,
    /// Those between 0 and 1 that are read back as another number, at most 1/510 away.
    pub rounded: u64,
}

impl Default for PictureChanges {
    fn default() -> Self {
        Self { values: 0, cut: 0, least: f64::INFINITY, largest: f64::NEG_INFINITY, nan: 0, rounded: 0 }
    }
}

impl PictureChanges {
    /// Whether every value is read back as it was written.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.cut == 0 && self.nan == 0 && self.rounded == 0
    }

    /// Takes a value, and gives it as the picture has it.
    fn take<T: Element>(&mut self, value: T) -> u8 {
        let number = value.to_f64();
        let byte = byte(number);
        self.values += 1;
        self.least = self.least.min(number);
        self.largest = self.largest.max(number);
        if number.is_nan() {
            self.nan += 1;
        } else if !(0.0..=1.0).contains(&number) {
            self.cut += 1;
        } else if share::<T>(u16::from(byte), u16::from(u8::MAX)) != value {
            self.rounded += 1;
        }
        byte
    }
}

impl fmt::Display for PictureChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { values, cut, least, largest, nan, rounded } = self;
        let mut parts = Vec::new();
        if *cut > 0 {
            parts.push(format!("{cut} of {values} values cut to 0…1 (least {least}, largest {largest})"));
        }
        if *nan > 0 {
            parts.push(format!("{nan} NaN written as 0"));
        }
        if *rounded > 0 {
            parts.push(format!("{rounded} of {values} values rounded to a 255th"));
        }
        f.write_str(&if parts.is_empty() { "no value changed".to_owned() } else { parts.join(", ") })
    }
}

impl PictureSink {
    /// A picture of shape `1×1×H×W` (gray) or `1×3×H×W` (red, green, blue).
    ///
    /// # Errors
    /// Where the shape is another, and where the file cannot be made.
    pub fn create(path: impl AsRef<Path>, shape: [usize; 4]) -> Result<Self, IoError> {
        let path = path.as_ref();
        let written = Written::new(path.to_owned(), shape)?;
        let fits = |extent: usize| extent > 0 && i32::try_from(extent).is_ok();
        if !matches!(shape, [1, 1 | 3, height, width] if fits(height) && fits(width)) {
            return Err(IoError::PictureShape { path: path.to_path_buf(), got: shape });
        }
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: path.to_path_buf(), bytes };
        let pixels = zero_bytes(shape.iter().product()).map_err(refused)?;
        let picture = Mutex::new(Picture { pixels, changes: PictureChanges::default() });
        Ok(Self { file: PartialFile::create(path, 0)?, written, picture })
    }

    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
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
        rows.write_all(&self.picture().pixels)?;
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
        let mut picture = self.picture();
        let Picture { pixels, changes } = &mut *picture;
        for c in 0..channels {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(input.layout(), region, 0, c, y);
                let start = (index(y) * width + first) * channels + c;
                let places = pixels[start..].iter_mut().step_by(channels).take(cols);
                for (place, value) in places.zip(input.data()[lanes.start..].iter().step_by(lanes.step)) {
                    *place = changes.take(*value);
                }
            }
        }
        drop(picture);
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
        self.picture().pixels.len() as u64
    }

    fn picture_changes(&self) -> Option<PictureChanges> {
        Some(self.picture().changes)
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
