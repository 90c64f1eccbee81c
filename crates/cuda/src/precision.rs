//! How the factors of convolutions are rounded, and by what they are multiplied.

use std::fmt;
use std::str::FromStr;

/// What carries out convolutions and their gradients in `f32`, where many channels are summed over; all else is as it is.
///
/// Part of the backend's name, as its results differ: the same bits under every plan, as in `f32`, but others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// Multiply-adds: each product and sum rounded once.
    #[default]
    F32,
    /// Tensor cores, factors rounded to 10 bits after the point: each product errs by 2⁻¹⁰ of itself. Infinities stay what they are.
    Tf32,
    /// Tensor cores, each factor a sum of two such numbers, three of whose products are added up: each product errs by 2⁻²⁰ of itself.
    /// An infinite factor gives NaN, and what is left of factors below 2⁻¹⁰⁰ may be lost.
    F32x3,
}

/// The precisions by their names.
pub const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Tf32, Precision::F32x3];

/// No precision has such a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown precision `{0}`: known are f32, tf32, f32x3")]
pub struct UnknownPrecision(String);

impl Precision {
    /// The largest error of a factor, as a part of it, before it is multiplied: half of that of a product.
    #[must_use]
    pub const fn rounding(self) -> f64 {
        match self {
            Self::F32 => 0.0,
            Self::Tf32 => 1.0 / 2048.0,
            Self::F32x3 => 1.0 / 2_097_152.0,
        }
    }
}

/// The nearest number with ten bits after the point, of two alike the larger in magnitude: as kernels round what is an `f32`.
pub(crate) fn to_tf32(value: f64) -> f64 {
    if !value.is_finite() {
        return value;
    }
    // what is too small for its own exponent is rounded to a multiple of the smallest one's
    let unit = f64::from(f32::MIN_POSITIVE).max(f64::from_bits(value.to_bits() & (0x7ff << 52))) / 1024.0;
    (value / unit).round() * unit
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F32x3 => "f32x3",
        })
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(name: &str) -> Result<Self, UnknownPrecision> {
        let known = PRECISIONS.into_iter().find(|precision| precision.to_string() == name);
        known.ok_or_else(|| UnknownPrecision(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_rounded_to_ten_bits_after_the_point() {
        let last = 1.0 / 1024.0;
        for (value, rounded) in [
            (1.0, 1.0),
            (1.0 + 0.5 * last, 1.0 + last),
            (-1.0 - 0.5 * last, -1.0 - last),
            (1.0 + 0.49 * last, 1.0),
            (2.0 - 0.25 * last, 2.0),
            (f64::from(f32::MIN_POSITIVE) * 0.75 * last, f64::from(f32::MIN_POSITIVE) * last),
            (f64::INFINITY, f64::INFINITY),
        ] {
            assert_eq!(to_tf32(value).to_bits(), rounded.to_bits(), "{value}");
        }
        assert!(to_tf32(f64::NAN).is_nan());
    }
}
