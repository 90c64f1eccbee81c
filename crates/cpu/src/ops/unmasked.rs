//! Stores of whole vectors where the compiler would store some lanes.

use std::hint::black_box;

use tiled_tensor::{DType, Element};

use super::math::{narrow, widen};

/// Makes values of which the compiler does not see that they may be those that lie where they are stored.
///
/// Where it does, as in `*held = if x > *held { x } else { *held }`, it stores the others alone, under a mask, which some cores of AMD are
/// slow at with vectors of 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Unmasked {
    zero: u64,
}

impl Unmasked {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { zero: black_box(0) }
    }

    /// The value.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "zero")]
    pub(crate) fn value<T: Element>(self, value: T) -> T {
        match T::DTYPE {
            DType::F32 => widen(f32::from_bits(narrow(value).to_bits() | self.zero as u32)),
            DType::F64 => T::from_f64(f64::from_bits(value.to_f64().to_bits() | self.zero)),
        }
    }
}
