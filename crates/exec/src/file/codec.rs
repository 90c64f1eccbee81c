//! Elements as bytes.

use tiled_tensor::{DType, Element};

/// The bytes that pass through the stack of the calling thread at a time.
pub(super) const SCRATCH_BYTES: usize = 64 * 1024;

/// The type of the elements of a file, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Bytes, read as the numbers 0 to 255.
    U8,
}

impl FileType {
    pub(crate) const fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
            Self::U8 => 1,
        }
    }

    /// Writes the elements in `bytes` to every `step`-th place of `output`.
    pub(super) fn decode<T: Element>(self, bytes: &[u8], output: &mut [T], step: usize) {
        match self {
            Self::F32 if T::DTYPE == DType::F32 => {
                decode::<T, 4>(bytes, output, step, |b| T::from_le_bytes(&b))
            }
            Self::F64 if T::DTYPE == DType::F64 => {
                decode::<T, 8>(bytes, output, step, |b| T::from_le_bytes(&b))
            }
            Self::F32 => {
                decode::<T, 4>(bytes, output, step, |b| T::from_f64(f64::from(f32::from_le_bytes(b))));
            }
            Self::F64 => decode::<T, 8>(bytes, output, step, |b| T::from_f64(f64::from_le_bytes(b))),
            Self::U8 => decode::<T, 1>(bytes, output, step, |[b]| T::from_f64(f64::from(b))),
        }
    }

    /// Writes every `step`-th element of `input` to `bytes`.
    ///
    /// # Panics
    /// For bytes, which are only read.
    pub(super) fn encode<T: Element>(self, input: &[T], step: usize, bytes: &mut [u8]) {
        match self {
            Self::F32 => encode::<T, 4>(input, step, bytes, |v| {
                // The bits where the type is the same, so that signalling NaNs pass too.
                match T::DTYPE {
                    DType::F32 => low_bytes(v.to_bits_u64()),
                    DType::F64 => f32::from_f64(v.to_f64()).to_le_bytes(),
                }
            }),
            Self::F64 => encode::<T, 8>(input, step, bytes, |v| match T::DTYPE {
                DType::F64 => v.to_bits_u64().to_le_bytes(),
                DType::F32 => v.to_f64().to_le_bytes(),
            }),
            Self::U8 => unreachable!("sinks store f32 or f64"),
        }
    }
}

fn decode<T: Element, const SIZE: usize>(
    bytes: &[u8],
    output: &mut [T],
    step: usize,
    value: impl Fn([u8; SIZE]) -> T,
) {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    if step == 1 {
        for (output, element) in output.iter_mut().zip(elements) {
            *output = value(*element);
        }
    } else {
        for (output, element) in output.iter_mut().step_by(step).zip(elements) {
            *output = value(*element);
        }
    }
}

fn encode<T: Element, const SIZE: usize>(
    input: &[T],
    step: usize,
    bytes: &mut [u8],
    value: impl Fn(T) -> [u8; SIZE],
) {
    let (elements, _) = bytes.as_chunks_mut::<SIZE>();
    if step == 1 {
        for (element, input) in elements.iter_mut().zip(input) {
            *element = value(*input);
        }
    } else {
        for (element, input) in elements.iter_mut().zip(input.iter().step_by(step)) {
            *element = value(*input);
        }
    }
}

fn low_bytes(bits: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    [a, b, c, d]
}
