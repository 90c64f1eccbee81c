//! Elements as bytes.

use tiled_tensor::{DType, Element};

use crate::Numbers;

/// The bytes that pass through the stack of the calling thread at a time.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// The type of the elements of a file, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Integers of 8 bits without a sign.
    U8,
    /// Integers of 8 bits.
    I8,
    /// Integers of 16 bits without a sign.
    U16,
    /// Integers of 16 bits.
    I16,
    /// Integers of 32 bits without a sign.
    U32,
    /// Integers of 32 bits.
    I32,
    /// Integers of 64 bits without a sign.
    U64,
    /// Integers of 64 bits.
    I64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl ElementType {
    /// Every type.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F32,
        Self::F64,
    ];

    /// The size of an element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name, as Rust has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// The number that becomes one under [`Numbers::Scaled`], where the type is that of pictures.
    #[must_use]
    pub const fn full(self) -> Option<u16> {
        match self {
            Self::U8 => Some(u8::MAX as u16),
            Self::U16 => Some(u16::MAX),
            _ => None,
        }
    }

    /// Whether elements of this type are scaled under `numbers`.
    #[must_use]
    pub const fn is_scaled(self, numbers: Numbers) -> bool {
        matches!(numbers, Numbers::Scaled) && self.full().is_some()
    }

    /// Writes the elements in `bytes` to every `step`-th place of `output`.
    pub(super) fn decode<T: Element>(self, numbers: Numbers, bytes: &[u8], output: &mut [T], step: usize) {
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
            Self::U8 if numbers == Numbers::Scaled => {
                decode::<T, 1>(bytes, output, step, |[b]| share(u16::from(b), u16::from(u8::MAX)));
            }
            Self::U16 if numbers == Numbers::Scaled => {
                decode::<T, 2>(bytes, output, step, |b| share(u16::from_le_bytes(b), u16::MAX));
            }
            Self::U8 => decode::<T, 1>(bytes, output, step, |[b]| T::from_f64(f64::from(b))),
            Self::I8 => {
                decode::<T, 1>(bytes, output, step, |b| T::from_f64(f64::from(i8::from_le_bytes(b))));
            }
            Self::U16 => {
                decode::<T, 2>(bytes, output, step, |b| T::from_f64(f64::from(u16::from_le_bytes(b))));
            }
            Self::I16 => {
                decode::<T, 2>(bytes, output, step, |b| T::from_f64(f64::from(i16::from_le_bytes(b))));
            }
            Self::U32 => {
                decode::<T, 4>(bytes, output, step, |b| T::from_f64(f64::from(u32::from_le_bytes(b))));
            }
            Self::I32 => {
                decode::<T, 4>(bytes, output, step, |b| T::from_f64(f64::from(i32::from_le_bytes(b))));
            }
            Self::U64 => decode::<T, 8>(bytes, output, step, |b| nearest_u64(u64::from_le_bytes(b))),
            Self::I64 => decode::<T, 8>(bytes, output, step, |b| nearest_i64(i64::from_le_bytes(b))),
        }
    }

    /// Writes every `step`-th element of `input` to `bytes`.
    ///
    /// # Panics
    /// For integers, which are only read.
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
            _ => unreachable!("sinks store f32 or f64"),
        }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }
}

/// `value / full`, rounded once.
pub(crate) fn share<T: Element>(value: u16, full: u16) -> T {
    T::from_f64(f64::from(value)) / T::from_f64(f64::from(full))
}

#[expect(clippy::cast_precision_loss, reason = "the nearest number is what is wanted")]
fn nearest_u64<T: Element>(value: u64) -> T {
    match T::DTYPE {
        // not by way of f64, which would round twice
        DType::F32 => T::from_f64(f64::from(value as f32)),
        DType::F64 => T::from_f64(value as f64),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest number is what is wanted")]
fn nearest_i64<T: Element>(value: i64) -> T {
    match T::DTYPE {
        DType::F32 => T::from_f64(f64::from(value as f32)),
        DType::F64 => T::from_f64(value as f64),
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
