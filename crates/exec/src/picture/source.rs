//! Reading pictures.

use std::path::{Path, PathBuf};

use image::{ColorType, ImageDecoder, ImageError, ImageReader, Limits};
use tiled_geometry::Region;
use tiled_tensor::{Element, OutOfMemory, ViewMut, zero_bytes};

use crate::source::{Lanes, check_access, index};
use crate::{FileSource, IoError, Source};

/// A PNG or JPEG picture.
///
/// Formats of pictures are decoded from the first row to the last, so that the whole picture is held, as 8 or
/// 16 bits a channel: [`Source::resident_bytes`] says how much. While a JPEG is decoded, the bytes of the file are
/// held too (and a progressive one's coefficients, 2 bytes each). Alpha is dropped; an orientation in the
/// metadata is not applied.
#[derive(Debug)]
pub struct PictureSource {
    path: PathBuf,
    /// Rows of pixels of channels, of one byte or of two in the byte order of this machine.
    pixels: Vec<u8>,
    format: Format,
    shape: [usize; 4],
}

#[derive(Debug, Clone, Copy)]
struct Format {
    /// The channels of the tensor.
    channels: usize,
    /// The channels held, with alpha.
    stored: usize,
    /// Whether a channel is two bytes.
    wide: bool,
}

impl PictureSource {
    /// Decodes a picture, where it takes at most `limit_bytes` decoded.
    ///
    /// # Errors
    /// Where the picture takes more, is malformed or truncated, and where the file cannot be read.
    pub fn open(path: impl AsRef<Path>, limit_bytes: u64) -> Result<Self, IoError> {
        let path = path.as_ref();
        let read = |source| IoError::Read { path: path.to_path_buf(), source };
        let picture = |source| match source {
            ImageError::IoError(source) => read(source),
            source => IoError::Picture { path: path.to_path_buf(), source },
        };
        let file = std::io::BufReader::new(FileSource::open(path)?);
        let mut reader = ImageReader::new(file).with_guessed_format().map_err(read)?;
        // The check below says more than the decoder's would.
        reader.limits(Limits::no_limits());
        let decoder = reader.into_decoder().map_err(picture)?;
        let (width, height) = decoder.dimensions();
        let got = decoder.total_bytes();
        if got > limit_bytes {
            return Err(IoError::PictureSize { path: path.to_path_buf(), expected: limit_bytes, got });
        }
        let format = Format::new(decoder.color_type()).ok_or_else(|| {
            let kind = image::error::UnsupportedErrorKind::Color(decoder.original_color_type());
            let hint = image::error::ImageFormatHint::Unknown;
            let source = image::error::UnsupportedError::from_format_and_kind(hint, kind);
            IoError::Picture { path: path.to_path_buf(), source: ImageError::Unsupported(source) }
        })?;
        let [width, height] = [width, height].map(|extent| extent as usize);
        let shape = [1, format.channels, height, width];
        let len = usize::try_from(got)
            .map_err(|_| IoError::Overflow { path: path.to_path_buf(), got: shape.to_vec() })?;
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: path.to_path_buf(), bytes };
        let mut pixels = zero_bytes(len).map_err(refused)?;
        decoder.read_image(&mut pixels).map_err(picture)?;
        Ok(Self { path: path.to_path_buf(), pixels, format, shape })
    }
}

impl Format {
    fn new(color: ColorType) -> Option<Self> {
        let (channels, stored, wide) = match color {
            ColorType::L8 => (1, 1, false),
            ColorType::La8 => (1, 2, false),
            ColorType::Rgb8 => (3, 3, false),
            ColorType::Rgba8 => (3, 4, false),
            ColorType::L16 => (1, 1, true),
            ColorType::La16 => (1, 2, true),
            ColorType::Rgb16 => (3, 3, true),
            ColorType::Rgba16 => (3, 4, true),
            _ => return None,
        };
        Some(Self { channels, stored, wide })
    }
}

impl<T: Element> Source<T> for PictureSource {
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(&self.path, self.shape, region, output.layout())?;
        if region.is_empty() {
            return Ok(());
        }
        let layout = *output.layout();
        let [cols, first] = [region.cols().len(), region.cols().begin()].map(index);
        for c in 0..self.format.channels {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(&layout, region, 0, c, y);
                let output = output.data_mut()[lanes.start..].iter_mut().step_by(lanes.step).take(cols);
                let start = (index(y) * self.shape[3] + first) * self.format.stored + c;
                if self.format.wide {
                    let (pairs, _) = self.pixels.as_chunks::<2>();
                    let values = pairs[start..].iter().step_by(self.format.stored);
                    for (output, pair) in output.zip(values) {
                        *output = share(u16::from_ne_bytes(*pair), u16::MAX);
                    }
                } else {
                    let values = self.pixels[start..].iter().step_by(self.format.stored);
                    for (output, byte) in output.zip(values) {
                        *output = share(u16::from(*byte), u16::from(u8::MAX));
                    }
                }
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.pixels.len() as u64
    }
}

/// `value / most`, rounded once.
fn share<T: Element>(value: u16, most: u16) -> T {
    T::from_f64(f64::from(value)) / T::from_f64(f64::from(most))
}
