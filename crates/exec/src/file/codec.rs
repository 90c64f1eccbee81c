//! Elements as bytes.

use half::{bf16, f16};
use tiled_tensor::{DType, Element};

use crate::{Changes, Numbers, Stored, with_stored};

/// The bytes that pass through the stack of the calling thread at a time.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

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
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an IEEE 754 binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl ElementType {
    /// Every type.
    pub const ALL: [Self; 12] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// The size of an element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
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
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
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

    /// The least and the largest finite number of the type.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the ends of 64-bit integers round to powers of two")]
    pub const fn range(self) -> [f64; 2] {
        match self {
            Self::U8 => [0.0, u8::MAX as f64],
            Self::I8 => [i8::MIN as f64, i8::MAX as f64],
            Self::U16 => [0.0, u16::MAX as f64],
            Self::I16 => [i16::MIN as f64, i16::MAX as f64],
            Self::U32 => [0.0, u32::MAX as f64],
            Self::I32 => [i32::MIN as f64, i32::MAX as f64],
            Self::U64 => [0.0, u64::MAX as f64],
            Self::I64 => [i64::MIN as f64, i64::MAX as f64],
            Self::F16 => [f16::MIN.to_f64_const(), f16::MAX.to_f64_const()],
            Self::Bf16 => [bf16::MIN.to_f64_const(), bf16::MAX.to_f64_const()],
            Self::F32 => [f32::MIN as f64, f32::MAX as f64],
            Self::F64 => [f64::MIN, f64::MAX],
        }
    }

    /// Whether all numbers of the computation's types are stored as they are, or to the nearest of `f32`.
    #[must_use]
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Whether elements of this type are scaled under `numbers`.
    #[must_use]
    pub const fn is_scaled(self, numbers: Numbers) -> bool {
        matches!(numbers, Numbers::Scaled) && self.full().is_some()
    }

    /// Writes the elements in `bytes` to every `step`-th place of `output`.
    pub(crate) fn decode<T: Element>(self, numbers: Numbers, bytes: &[u8], output: &mut [T], step: usize) {
        with_stored!(self, S => decode::<T, S>(numbers, bytes, output, step));
    }

    /// Writes every `step`-th element of `input` to `bytes`, and counts in `changes`, which are of this type, what is not stored
    /// as it is.
    pub(super) fn encode<T: Element>(
        self,
        input: &[T],
        step: usize,
        bytes: &mut [u8],
        changes: &mut Changes,
    ) {
        with_stored!(self, S => encode::<T, S>(input, step, bytes, changes));
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

fn decode<T: Element, S: Stored>(numbers: Numbers, bytes: &[u8], output: &mut [T], step: usize) {
    let elements = bytes.chunks_exact(size_of::<S>());
    // a loop of its own where places follow one another: it is vectorised
    if step == 1 {
        for (output, element) in output.iter_mut().zip(elements) {
            *output = S::from_le(element).load(numbers);
        }
    } else {
        for (output, element) in output.iter_mut().step_by(step).zip(elements) {
            *output = S::from_le(element).load(numbers);
        }
    }
}

fn encode<T: Element, S: Stored>(input: &[T], step: usize, bytes: &mut [u8], changes: &mut Changes) {
    let elements = bytes.chunks_exact_mut(size_of::<S>());
    if step == 1 {
        for (element, value) in elements.zip(input) {
            S::store(*value, changes).to_le(element);
        }
    } else {
        for (element, value) in elements.zip(input.iter().step_by(step)) {
            S::store(*value, changes).to_le(element);
        }
    }
}
