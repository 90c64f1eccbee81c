//! Decoding PNG, row by row.
//!
//! Source: W3C, "Portable Network Graphics (PNG) Specification", third edition, 2025.

use png::{BitDepth, ColorType, DecodeOptions, Decoder, DecodingError, Limits, Reader, Transformations};

use super::PictureProblem;
use super::form::{File, Form, UNCOUNTED_BYTES};
use super::pixels::Pixels;
use crate::Numbers;

/// A PNG whose header was read.
pub(super) struct Picture {
    pub(super) form: Form,
    decoder: Decoder<File>,
    /// The bits of a sample that is not yet one byte: those of a gray picture that is read as it is, or of a palette.
    packed_bits: u8,
    is_interlaced: bool,
}

impl Picture {
    pub(super) fn open(file: File, numbers: Numbers) -> Result<Self, PictureProblem> {
        let mut options = DecodeOptions::default();
        // a profile or a text may be a thousand times as large as the file
        options.set_ignore_iccp_chunk(true);
        options.set_ignore_text_chunk(true);
        options.set_ignore_adler32(false);
        options.set_skip_ancillary_crc_failures(false);
        let mut decoder = Decoder::new_with_options(file, options);
        let header = decoder.read_header_info().map_err(|source| PictureProblem::PngHeader { source })?;
        let (color, depth, is_interlaced) = (header.color_type, header.bit_depth, header.interlaced);
        let [height, width] = [header.height, header.width].map(|extent| extent as usize);
        // the rows that the decoder keeps, of all channels that the file has
        let raw_row_bytes = (header.raw_row_length() as u64).saturating_mul(2);
        let is_whole = numbers == Numbers::Scaled;
        let channels = match (color, numbers) {
            (ColorType::Rgb | ColorType::Rgba, Numbers::Classes) => {
                return Err(PictureProblem::NoClasses { got: "a PNG of colours" });
            }
            (ColorType::Grayscale | ColorType::GrayscaleAlpha, _)
            | (ColorType::Indexed, Numbers::Classes) => 1,
            (ColorType::Rgb | ColorType::Rgba | ColorType::Indexed, _) => 3,
        };
        // colours of a palette are eight bits
        let is_packed = match color {
            ColorType::Grayscale => !is_whole,
            ColorType::Indexed => numbers == Numbers::Classes,
            _ => false,
        };
        let packed_bits = if is_packed { (depth as u8).min(8) } else { 8 };
        let is_wide = depth == BitDepth::Sixteen;
        let transformations = if is_packed { Transformations::IDENTITY } else { Transformations::EXPAND };
        decoder.set_transformations(transformations);
        let mut form = Form { height, width, channels, is_wide, transient_bytes: 0 };
        let row_bytes = form.row_bytes().saturating_mul(2).saturating_add(raw_row_bytes);
        form.transient_bytes = row_bytes.saturating_sub(UNCOUNTED_BYTES);
        let bytes = usize::try_from(row_bytes.saturating_add(OTHER_CHUNKS_BYTES)).unwrap_or(usize::MAX);
        decoder.set_limits(Limits { bytes });
        Ok(Self { form, decoder, packed_bits, is_interlaced })
    }

    /// Whether its rows come one after another, so that it need not be held.
    pub(super) const fn comes_in_rows(&self) -> bool {
        !self.is_interlaced
    }

    /// Writes rows of pixels of channels, without alpha; the rows of an interlaced picture only into memory.
    pub(super) fn decode(self, pixels: &mut Pixels) -> Result<(), PictureProblem> {
        let Self { form, decoder, packed_bits, is_interlaced } = self;
        let mut filed = match pixels {
            Pixels::Held(_) => Vec::new(),
            Pixels::Filed(_) => vec![0; form.width * form.channels * form.sample_bytes()],
        };
        let mut reader = decoder.read_info().map_err(|source| PictureProblem::PngHeader { source })?;
        let mut row =
            reader.output_line_size(reader.info().width).map(|bytes| vec![0; bytes]).unwrap_or_default();
        let samples = reader.output_color_type().0.samples();
        let whole = [Pass { begin: [0, 0], step: [1, 1] }];
        for pass in if is_interlaced { &ADAM7[..] } else { &whole } {
            let [lines, cols] = pass.extents([form.height, form.width]);
            if lines == 0 || cols == 0 {
                continue;
            }
            for line in 0..lines {
                let y = pass.begin[0] + line * pass.step[0];
                let fail = |source| PictureProblem::PngRow { row: y, rows: form.height, source };
                read_row(&mut reader, &mut row).map_err(fail)?;
                let start = (y * form.width + pass.begin[1]) * form.channels * form.sample_bytes();
                let places = match pixels {
                    Pixels::Held(held) => &mut held[start..],
                    Pixels::Filed(_) => &mut filed[..],
                };
                if packed_bits < 8 {
                    unpack(&row, packed_bits, places, pass.step[1], cols);
                } else {
                    place(&form, samples, &row, places, pass.step[1], cols);
                }
                if !filed.is_empty() {
                    pixels.write(start as u64, &filed).map_err(PictureProblem::Write)?;
                }
            }
        }
        reader.finish().map_err(|source| PictureProblem::PngEnd { rows: form.height, source })
    }
}

/// Every so many rows and columns.
struct Pass {
    begin: [usize; 2],
    step: [usize; 2],
}

impl Pass {
    fn extents(&self, whole: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|axis| whole[axis].saturating_sub(self.begin[axis]).div_ceil(self.step[axis]))
    }
}

/// The passes of an interlaced picture: rows, columns (section 8.2).
const ADAM7: [Pass; 7] = [
    Pass { begin: [0, 0], step: [8, 8] },
    Pass { begin: [0, 4], step: [8, 8] },
    Pass { begin: [4, 0], step: [8, 4] },
    Pass { begin: [0, 2], step: [4, 4] },
    Pass { begin: [2, 0], step: [4, 2] },
    Pass { begin: [0, 1], step: [2, 2] },
    Pass { begin: [1, 0], step: [2, 1] },
];

/// What the decoder may take for chunks that are neither pixels, profile nor text.
const OTHER_CHUNKS_BYTES: u64 = 16 << 20;

fn read_row(reader: &mut Reader<File>, row: &mut [u8]) -> Result<(), DecodingError> {
    match reader.read_row(row)? {
        Some(_) => Ok(()),
        None => Err(DecodingError::IoError(std::io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Copies the samples of a row but alpha to every `step`-th pixel.
fn place(form: &Form, samples: usize, row: &[u8], places: &mut [u8], step: usize, cols: usize) {
    let size = form.sample_bytes();
    let kept = form.channels * size;
    if step == 1 && samples == form.channels && !form.is_wide {
        places[..cols * kept].copy_from_slice(&row[..cols * kept]);
        return;
    }
    for (to, from) in places.chunks_mut(step * kept).zip(row.chunks_exact(samples * size)).take(cols) {
        to[..kept].copy_from_slice(&from[..kept]);
        if form.is_wide {
            let (pairs, _) = to[..kept].as_chunks_mut::<2>();
            for pair in pairs {
                *pair = u16::from_be_bytes(*pair).to_ne_bytes();
            }
        }
    }
}

/// Copies samples of less than a byte, the first in the high bits, to every `step`-th pixel.
fn unpack(row: &[u8], bits: u8, places: &mut [u8], step: usize, cols: usize) {
    let bits = usize::from(bits);
    let mask = u8::MAX >> (8 - bits);
    for (x, place) in places.iter_mut().step_by(step).take(cols).enumerate() {
        let shift = 8 - bits - x * bits % 8;
        *place = row[x * bits / 8] >> shift & mask;
    }
}
