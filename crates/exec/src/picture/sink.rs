//! Writing pictures.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tiled_geometry::Region;
use tiled_tensor::{Element, View};

use super::pixels::Pixels;
use crate::file::{PartialFile, size_bytes};
use crate::sink::Written;
use crate::source::{Lanes, index};
use crate::{Changes, ElementType, IoError, Sink, SinkOptions};

/// A tensor that becomes a PNG picture of 8 or 16 bits a channel: `round(255·v)` or `round(65535·v)`, where v is cut to 0 to 1
/// and NaN is 0; or, by [`PictureSink::create_with`], the whole numbers nearest to the values. What is changed so is counted:
/// [`Sink::changes`].
///
/// PNG is compressed from the first row to the last and regions come in any order, so that the whole picture
/// is kept: in memory, of which [`Sink::resident_bytes`] says how much, or where that is more than
/// [`SinkOptions::limit_bytes`] in a file without a name beside the picture.
#[derive(Debug)]
pub struct PictureSink {
    written: Written,
    file: PartialFile,
    picture: Mutex<Picture>,
}

#[derive(Debug)]
struct Picture {
    /// Of one byte a channel, or of two, the high one first.
    pixels: Pixels,
    /// Its type and numbers are those of the picture.
    changes: Changes,
}

impl PictureSink {
    /// A picture of shape `1×1×H×W` (gray) or `1×3×H×W` (red, green, blue), of 8 bits a channel.
    ///
    /// # Errors
    /// Where the shape is another, and where the file cannot be made.
    pub fn create(path: impl AsRef<Path>, shape: [usize; 4]) -> Result<Self, IoError> {
        Self::create_with(path, shape, &SinkOptions::default())
    }

    /// The same of `u8` or `u16`, with what integers stand for and a limit of memory.
    ///
    /// # Errors
    /// As [`PictureSink::create`], where the elements are others, and where the disk is too small for a picture over the limit.
    pub fn create_with(
        path: impl AsRef<Path>,
        shape: [usize; 4],
        options: &SinkOptions,
    ) -> Result<Self, IoError> {
        let path = path.as_ref();
        let (element, numbers) = (options.element.unwrap_or(ElementType::U8), options.numbers);
        if !matches!(element, ElementType::U8 | ElementType::U16) {
            return Err(IoError::PictureType { path: path.to_path_buf(), got: element.name() });
        }
        let written = Written::new(path.to_owned(), shape)?;
        let fits = |extent: usize| extent > 0 && i32::try_from(extent).is_ok();
        if !matches!(shape, [1, 1 | 3, height, width] if fits(height) && fits(width)) {
            return Err(IoError::PictureShape { path: path.to_path_buf(), got: shape });
        }
        let bytes = size_bytes(path, shape, element)?;
        let pixels = if bytes > options.limit_bytes {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Pixels::file(folder.unwrap_or(Path::new(".")), bytes)?
        } else {
            Pixels::hold(path, bytes)?
        };
        let picture = Mutex::new(Picture { pixels, changes: Changes::new(element, numbers) });
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
        let is_wide = self.picture().changes.element == ElementType::U16;
        encoder.set_depth(if is_wide { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        let mut rows = writer.stream_writer_with_size(BUFFER_BYTES)?;
        let picture = self.picture();
        let bytes = self.written.elements() * picture.changes.element.size_bytes() as u64;
        let mut buffer = vec![0; BUFFER_BYTES];
        for start in (0..bytes).step_by(BUFFER_BYTES) {
            let len = usize::try_from(bytes - start).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            rows.write_all(picture.pixels.read(start, len, &mut buffer)?)?;
        }
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
        let size = changes.element.size_bytes();
        let mut buffer = [0; BUFFER_BYTES];
        let most = (BUFFER_BYTES / (channels * size)).min(cols);
        for y in region.rows().begin()..region.rows().end() {
            for from in (0..cols).step_by(most) {
                let len = most.min(cols - from);
                let bytes = &mut buffer[..len * channels * size];
                for c in 0..channels {
                    let lanes = Lanes::new(input.layout(), region, 0, c, y);
                    let values = input.data()[lanes.start + from * lanes.step..].iter().step_by(lanes.step);
                    let samples = bytes.chunks_exact_mut(size).skip(c).step_by(channels);
                    for (sample, value) in samples.zip(values) {
                        #[expect(
                            clippy::cast_possible_truncation,
                            clippy::cast_sign_loss,
                            reason = "a whole number within the range of the type"
                        )]
                        let whole = changes.whole(*value) as u16;
                        sample.copy_from_slice(&whole.to_be_bytes()[2 - size..]);
                    }
                }
                let start =
                    (index(y) as u64 * width as u64 + (first + from) as u64) * (channels * size) as u64;
                pixels
                    .write(start, bytes)
                    .map_err(|error| IoError::from_write(self.written.path(), error))?;
            }
        }
        drop(picture);
        self.written.add(region);
        Ok(())
    }

    fn prepare(&self) -> Result<(), IoError> {
        let fail = |error| {
            let source = match error {
                png::EncodingError::IoError(source) => source,
                error => io::Error::other(error),
            };
            IoError::from_write(self.written.path(), source)
        };
        let encode = || self.encode().map_err(fail).and_then(|()| self.file.sync());
        self.written.prepare(encode).inspect_err(|error| self.file.discard_after(error))
    }

    fn finish(&self) -> Result<(), IoError> {
        Sink::<T>::prepare(self)?;
        self.file.publish()
    }

    fn abort(&self) {
        self.written.abandon();
        self.file.discard();
    }

    fn resident_bytes(&self) -> u64 {
        self.picture().pixels.resident_bytes()
    }

    fn changes(&self) -> Option<Changes> {
        Some(self.picture().changes)
    }
}

const BUFFER_BYTES: usize = 64 * 1024;
