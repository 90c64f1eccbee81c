//! Decoding JPEG: the whole file is checked first, then decoded.
//!
//! A JPEG has no checksum, and decoders make up gray for what they cannot read. So every code of it is read here once,
//! without making pixels of it: blocks must be as many as the frame says and their data must end where a marker stands.
//! Data that was changed is found because it no longer adds up; a change that leaves the number of blocks and every
//! code as they should be cannot be told from another picture.
//!
//! Source: ITU-T T.81, "Digital compression and coding of continuous-tone still images", 1992.

mod bits;
mod check;
mod frame;
mod huffman;

use std::io::Seek;

use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use self::check::Check;
use super::PictureProblem;
use super::form::{File, Form, UNCOUNTED_BYTES};
use crate::Numbers;

/// A JPEG whose header was read.
pub(super) struct Picture {
    pub(super) form: Form,
    check: Check,
}

impl Picture {
    pub(super) fn open(file: File, numbers: Numbers) -> Result<Self, PictureProblem> {
        if numbers == Numbers::Classes {
            return Err(PictureProblem::NoClasses { got: "a JPEG" });
        }
        let check = Check::open(file)?;
        let frame = check.frame();
        let form = Form {
            height: frame.height,
            width: frame.width,
            channels: if frame.components.len() == 1 { 1 } else { 3 },
            is_wide: false,
            transient_bytes: check.transient_bytes().saturating_sub(UNCOUNTED_BYTES),
        };
        Ok(Self { form, check })
    }

    /// Writes rows of pixels of channels.
    pub(super) fn decode(self, pixels: &mut [u8]) -> Result<(), PictureProblem> {
        let Self { form, check } = self;
        let mut file = check.finish()?;
        file.rewind().map_err(PictureProblem::Read)?;
        // what is not as it should be was found before: the decoder need not agree on what is an oddity
        let options = DecoderOptions::default()
            .set_strict_mode(false)
            .set_max_width(form.width)
            .set_max_height(form.height)
            .jpeg_set_max_scans(check::MOST_SCANS + 1);
        let mut decoder = JpegDecoder::new_with_options(file, options);
        let fail = |error: zune_jpeg::errors::DecodeErrors| PictureProblem::JpegDecoder {
            reason: error.to_string(),
        };
        decoder.decode_headers().map_err(fail)?;
        let space = match (form.channels, decoder.input_colorspace()) {
            (1, _) => ColorSpace::Luma,
            _ => ColorSpace::RGB,
        };
        decoder.set_options(decoder.options().jpeg_set_out_colorspace(space));
        match decoder.output_buffer_size() {
            Some(bytes) if bytes == pixels.len() => decoder.decode_into(pixels).map_err(fail),
            _ => Err(PictureProblem::JpegDecoder {
                reason: "its size is another than that of the frame".to_owned(),
            }),
        }
    }
}
