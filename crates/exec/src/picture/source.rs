//! Reading pictures.

use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use tiled_geometry::Region;
use tiled_tensor::{Element, ViewMut};

use super::form::Form;
use super::pixels::Pixels;
use super::{PictureProblem, jpeg, png};
use crate::file::share;
use crate::source::{Lanes, check_access, index};
use crate::{ElementType, FileSource, IoError, Numbers, Source, SourceFacts, SourceOptions};

/// A PNG or JPEG picture.
///
/// Formats of pictures are decoded from the first row to the last, so that the whole picture is kept, as 8 or
/// 16 bits a channel: in memory, of which [`Source::resident_bytes`] says how much, or where that is too much in a temporary
/// file, see [`SourceOptions::folder`]. The file passes through a small buffer; while a
/// progressive JPEG is decoded, its coefficients are held too, 2 bytes each: [`PictureSource::inspect`] says how much that
/// is, from the header alone. Alpha is dropped; colour profiles, texts and an orientation in the metadata are not read.
///
/// A picture that is cut off or damaged is an error: PNG by its checksums, JPEG by what its blocks must be.
#[derive(Debug)]
pub struct PictureSource {
    path: PathBuf,
    /// Of one byte a channel, or of two in the byte order of this machine.
    pixels: Pixels,
    form: Form,
    numbers: Numbers,
}

enum Header {
    Png(Box<png::Picture>),
    Jpeg(Box<jpeg::Picture>),
}

impl Header {
    /// Reads the header of a picture, whose format is that of its content.
    fn read(path: &Path, numbers: Numbers) -> Result<Self, IoError> {
        let mut file = BufReader::with_capacity(BUFFER_BYTES, FileSource::open(path)?);
        let fail = |problem| IoError::Picture { path: path.to_path_buf(), problem };
        let mut magic = Vec::with_capacity(PNG.len());
        let read = file.by_ref().take(PNG.len() as u64).read_to_end(&mut magic).and_then(|_| file.rewind());
        read.map_err(|source| IoError::Read { path: path.to_path_buf(), source })?;
        if magic.starts_with(&JPEG) {
            Ok(Self::Jpeg(Box::new(jpeg::Picture::open(file, numbers).map_err(fail)?)))
        } else if magic == PNG {
            Ok(Self::Png(Box::new(png::Picture::open(file, numbers).map_err(fail)?)))
        } else {
            Err(fail(PictureProblem::Magic))
        }
    }

    const fn form(&self) -> &Form {
        match self {
            Self::Png(picture) => &picture.form,
            Self::Jpeg(picture) => &picture.form,
        }
    }

    /// Whether the format can be decoded without holding the picture.
    const fn comes_in_rows(&self) -> bool {
        match self {
            Self::Png(picture) => picture.comes_in_rows(),
            Self::Jpeg(_) => false,
        }
    }

    /// Where the pixels are going to lie.
    fn room(&self, path: &Path, options: &SourceOptions) -> Result<Room, IoError> {
        let form = self.form();
        let overflow = || IoError::Overflow { path: path.to_path_buf(), got: form.shape().to_vec() };
        let bytes = form.resident_bytes().filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(overflow)?;
        let held = bytes.saturating_add(form.transient_bytes);
        // a row of its own on the way to the file
        let filed = form.row_bytes().saturating_add(form.transient_bytes);
        let (resident_bytes, opening_bytes) = match options.folder {
            Some(_) if held > options.limit_bytes && self.comes_in_rows() => (0, filed),
            _ => (bytes, held),
        };
        if opening_bytes > options.limit_bytes {
            let (expected, got) = (options.limit_bytes, opening_bytes);
            return Err(IoError::PictureSize { path: path.to_path_buf(), expected, got });
        }
        Ok(Room { bytes, resident_bytes, opening_bytes })
    }
}

/// The bytes of a picture.
struct Room {
    /// Those of its pixels.
    bytes: u64,
    /// Those held in memory afterwards.
    resident_bytes: u64,
    /// The most that are held until then.
    opening_bytes: u64,
}

impl PictureSource {
    /// Decodes a picture, where that takes at most `limit_bytes`; its integers become 0 to 1.
    ///
    /// # Errors
    /// Where the picture takes more, is malformed, damaged or cut off, and where the file cannot be read.
    pub fn open(path: impl AsRef<Path>, limit_bytes: u64) -> Result<Self, IoError> {
        Self::open_with(path, &SourceOptions { limit_bytes, ..SourceOptions::default() })
    }

    /// The same with what integers stand for, and a folder for the pixels of a larger picture.
    ///
    /// # Errors
    /// As [`PictureSource::open`], where class numbers are wanted of a JPEG or of colours, and where the temporary file cannot be
    /// made or the disk is too small.
    pub fn open_with(path: impl AsRef<Path>, options: &SourceOptions) -> Result<Self, IoError> {
        let path = path.as_ref();
        let header = Header::read(path, options.numbers)?;
        let room = header.room(path, options)?;
        let form = *header.form();
        let mut pixels = match &options.folder {
            Some(folder) if room.resident_bytes == 0 => Pixels::file(folder, room.bytes)?,
            _ => Pixels::hold(path, room.bytes)?,
        };
        let decoded = match (header, &mut pixels) {
            (Header::Png(picture), pixels) => picture.decode(pixels),
            (Header::Jpeg(picture), Pixels::Held(held)) => picture.decode(held),
            (Header::Jpeg(_), Pixels::Filed(_)) => {
                unreachable!("only rows that come one after another are filed")
            }
        };
        decoded.map_err(|problem| IoError::Picture { path: path.to_path_buf(), problem })?;
        Ok(Self { path: path.to_path_buf(), pixels, form, numbers: options.numbers })
    }

    /// What [`PictureSource::open_with`] would hold, from the header alone.
    ///
    /// # Errors
    /// Where the header is malformed or cut off, where decoding takes more than the limit, and where the file cannot be
    /// read.
    pub fn inspect(path: impl AsRef<Path>, options: &SourceOptions) -> Result<SourceFacts, IoError> {
        let path = path.as_ref();
        let header = Header::read(path, options.numbers)?;
        let room = header.room(path, options)?;
        let form = header.form();
        Ok(SourceFacts {
            shape: form.shape(),
            element: if form.is_wide { ElementType::U16 } else { ElementType::U8 },
            is_scaled: options.numbers == Numbers::Scaled,
            resident_bytes: room.resident_bytes,
            opening_bytes: room.opening_bytes,
            temporary_bytes: room.bytes - room.resident_bytes,
        })
    }
}

impl<T: Element> Source<T> for PictureSource {
    fn shape(&self) -> [usize; 4] {
        self.form.shape()
    }

    fn read(&self, region: Region<2>, output: &mut ViewMut<'_, T>) -> Result<(), IoError> {
        check_access(&self.path, self.form.shape(), region, output.layout())?;
        if region.is_empty() {
            return Ok(());
        }
        let layout = *output.layout();
        let channels = self.form.channels;
        let [cols, first] = [region.cols().len(), region.cols().begin()].map(index);
        let full = if self.form.is_wide { u16::MAX } else { u16::from(u8::MAX) };
        let number = |value: u16| match self.numbers {
            Numbers::Scaled => share(value, full),
            Numbers::AsIs | Numbers::Classes => T::from_f64(f64::from(value)),
        };
        let size = self.form.sample_bytes();
        let mut buffer = [0; BUFFER_BYTES];
        let most = (BUFFER_BYTES / (channels * size)).min(cols);
        for y in region.rows().begin()..region.rows().end() {
            for from in (0..cols).step_by(most) {
                let len = most.min(cols - from);
                let start = (index(y) as u64 * self.form.width as u64 + (first + from) as u64)
                    * (channels * size) as u64;
                let bytes = self.pixels.read(start, len * channels * size, &mut buffer);
                let bytes = bytes.map_err(|source| IoError::Read { path: self.path.clone(), source })?;
                for c in 0..channels {
                    let lanes = Lanes::new(&layout, region, 0, c, y);
                    let output = &mut output.data_mut()[lanes.start + from * lanes.step..];
                    let output = output.iter_mut().step_by(lanes.step).take(len);
                    if self.form.is_wide {
                        let (pairs, _) = bytes.as_chunks::<2>();
                        for (output, pair) in output.zip(pairs[c..].iter().step_by(channels)) {
                            *output = number(u16::from_ne_bytes(*pair));
                        }
                    } else {
                        for (output, byte) in output.zip(bytes[c..].iter().step_by(channels)) {
                            *output = number(u16::from(*byte));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.pixels.resident_bytes()
    }
}

const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
const JPEG: [u8; 2] = [0xff, 0xd8];
const BUFFER_BYTES: usize = 64 * 1024;
