//! The 16-bit formats of numbers, which are read only.

/// IEEE 754 binary16 as `f64`, exact.
///
/// ```
/// assert_eq!(tiled_tensor::f16_to_f64(0x3c00), 1.0);
/// ```
#[must_use]
pub fn f16_to_f64(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match exponent {
        0 => fraction * 2.0_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
    };
    if bits >> 15 == 0 { magnitude } else { -magnitude }
}

/// The upper half of an IEEE 754 binary32 as `f64`, exact.
///
/// ```
/// assert_eq!(tiled_tensor::bf16_to_f64(0xc040), -3.0);
/// ```
#[must_use]
pub fn bf16_to_f64(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_has_the_values_of_the_standard() {
        let values = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0x3555, 0.333_251_953_125),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x03ff, 6.097_555_160_522_461e-5),
            (0x0400, 6.103_515_625e-5),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ];
        for (bits, value) in values {
            assert_eq!(f16_to_f64(bits), value, "{bits:#06x}");
        }
        assert!(f16_to_f64(0x8000).is_sign_negative());
        assert!(f16_to_f64(0x7e00).is_nan());
    }

    #[test]
    fn f16_grows_with_its_bits() {
        for bits in 0..0x7c00 {
            assert!(f16_to_f64(bits) < f16_to_f64(bits + 1), "{bits:#06x}");
        }
    }

    #[test]
    fn bf16_is_the_upper_half_of_f32() {
        for value in [0.0_f32, 1.0, -2.5, 3.0e38, 1.0e-40, f32::INFINITY] {
            let bits = value.to_bits() >> 16;
            let expected = f32::from_bits(bits << 16);
            assert_eq!(bf16_to_f64(u16::try_from(bits).unwrap()), f64::from(expected));
        }
    }
}
