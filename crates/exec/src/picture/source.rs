//! Reading pictures.

use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use tiled_geometry::Region;
use tiled_tensor::{Element, OutOfMemory, ViewMut, zero_bytes};

use super::form::Form;
use super::{PictureProblem, jpeg, png};
use crate::file::share;
use crate::source::{Lanes, check_access, index};
use crate::{ElementType, FileSource, IoError, Numbers, Source, SourceFacts};

/// A PNG or JPEG picture.
///
/// Formats of pictures are decoded from the first row to the last, so that the whole picture is held, as 8 or
/// 16 bits a channel: [`Source::resident_bytes`] says how much. The file passes through a small buffer; while a
/// progressive JPEG is decoded, its coefficients are held too, 2 bytes each: [`PictureSource::inspect`] says how much that
/// is, from the header alone. Alpha is dropped; colour profiles, texts and an orientation in the metadata are not read.
///
/// A picture that is cut off or damaged is an error: PNG by its checksums, JPEG by what its blocks must be.
#[derive(Debug)]
pub struct PictureSource {
    path: PathBuf,
    /// Rows of pixels of channels, of one byte or of two in the byte order of this machine.
    pixels: Vec<u8>,
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

    /// The bytes held afterwards, and the most that are held until then.
    fn bytes(&self, path: &Path, limit_bytes: u64) -> Result<[u64; 2], IoError> {
        let form = self.form();
        let overflow = || IoError::Overflow { path: path.to_path_buf(), got: form.shape().to_vec() };
        let resident = form.resident_bytes().filter(|bytes| isize::try_from(*bytes).is_ok());
        let resident = resident.ok_or_else(overflow)?;
        let opening = resident.saturating_add(form.transient_bytes);
        if opening > limit_bytes {
            let (expected, got) = (limit_bytes, opening);
            return Err(IoError::PictureSize { path: path.to_path_buf(), expected, got });
        }
        Ok([resident, opening])
    }
}

impl PictureSource {
    /// Decodes a picture, where that takes at most `limit_bytes`; its integers become 0 to 1.
    ///
    /// # Errors
    /// Where the picture takes more, is malformed, damaged or cut off, and where the file cannot be read.
    pub fn open(path: impl AsRef<Path>, limit_bytes: u64) -> Result<Self, IoError> {
        Self::open_with(path, Numbers::Scaled, limit_bytes)
    }

    /// The same where integers stand for `numbers`.
    ///
    /// # Errors
    /// As [`PictureSource::open`], and where class numbers are wanted of a JPEG or of colours.
    pub fn open_with(path: impl AsRef<Path>, numbers: Numbers, limit_bytes: u64) -> Result<Self, IoError> {
        let path = path.as_ref();
        let header = Header::read(path, numbers)?;
        let [resident, _] = header.bytes(path, limit_bytes)?;
        let form = *header.form();
        let refused = |OutOfMemory { bytes }| IoError::OutOfMemory { path: path.to_path_buf(), bytes };
        let mut pixels = zero_bytes(usize::try_from(resident).unwrap_or(usize::MAX)).map_err(refused)?;
        let decoded = match header {
            Header::Png(picture) => picture.decode(&mut pixels),
            Header::Jpeg(picture) => picture.decode(&mut pixels),
        };
        decoded.map_err(|problem| IoError::Picture { path: path.to_path_buf(), problem })?;
        Ok(Self { path: path.to_path_buf(), pixels, form, numbers })
    }

    /// What [`PictureSource::open_with`] would hold, from the header alone.
    ///
    /// # Errors
    /// Where the header is malformed or cut off, where decoding takes more than `limit_bytes`, and where the file cannot be
    /// read.
    pub fn inspect(
        path: impl AsRef<Path>,
        numbers: Numbers,
        limit_bytes: u64,
    ) -> Result<SourceFacts, IoError> {
        let path = path.as_ref();
        let header = Header::read(path, numbers)?;
        let [resident_bytes, opening_bytes] = header.bytes(path, limit_bytes)?;
        let form = header.form();
        Ok(SourceFacts {
            shape: form.shape(),
            element: if form.is_wide { ElementType::U16 } else { ElementType::U8 },
            is_scaled: numbers == Numbers::Scaled,
            resident_bytes,
            opening_bytes,
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
        for c in 0..channels {
            for y in region.rows().begin()..region.rows().end() {
                let lanes = Lanes::new(&layout, region, 0, c, y);
                let output = output.data_mut()[lanes.start..].iter_mut().step_by(lanes.step).take(cols);
                let start = (index(y) * self.form.width + first) * channels + c;
                if self.form.is_wide {
                    let (pairs, _) = self.pixels.as_chunks::<2>();
                    for (output, pair) in output.zip(pairs[start..].iter().step_by(channels)) {
                        *output = number(u16::from_ne_bytes(*pair));
                    }
                } else {
                    for (output, byte) in output.zip(self.pixels[start..].iter().step_by(channels)) {
                        *output = number(u16::from(*byte));
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

const PNG: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
const JPEG: [u8; 2] = [0xff, 0xd8];
const BUFFER_BYTES: usize = 64 * 1024;
