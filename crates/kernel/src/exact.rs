//! Sums without rounding.

use tiled_tensor::Element;

use crate::lanes::fold_slice;

/// A sum of `f64` values and of products of two `f64` kept without rounding, so that it does not depend on
/// the order of its terms or on how partial sums were merged.
///
/// A fixed-point number of 4288 bits in two's complement whose unit is `2^-2148`, the square of the smallest
/// `f64`: it holds every sum of up to `2^90` finite values or products. Equal sums have equal bits, so `==`
/// compares sums exactly. A zero sum is `+0`.
///
/// Infinities and NaN are remembered beside it: any NaN, or infinities of both signs, make NaN; otherwise an
/// infinity wins. A product of finite factors counts exactly even where it overflows `f64`.
///
/// ```
/// use tiled_kernel::ExactSum;
/// let mut sum = ExactSum::default();
/// for value in [1e300, 1.0, -1e300, 2f64.powi(-60)] {
///     sum.add(value);
/// }
/// assert_eq!(sum.value(), 1.0); // 1 + 2^-60, rounded once
/// ```
///
/// Source: Kulisch, *Computer Arithmetic and Validity* (2008), the complete accumulator. The lazily carried
/// one of Neal, "Fast exact summation using small and large superaccumulators" (2015), adds faster, but
/// takes twice the memory for the range of products and has many forms for one sum; the speed comes from
/// [`crate::LaneSums`] instead, which hands over a few values in place of hundreds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExactSum {
    limbs: [u64; LIMBS],
    specials: u8,
}

impl ExactSum {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.remember(value);
            return;
        }
        let (mantissa, exponent) = decode(value);
        let shift = exponent + SINGLE_OFFSET;
        let (limb, bits) = (shift / 64, shift % 64);
        let wide = u128::from(mantissa) << bits;
        self.accumulate(limb, [low_word(wide), high_word(wide)], value.is_sign_negative());
    }

    /// Adds the product of two values without rounding it.
    #[inline]
    pub fn add_product(&mut self, a: f64, b: f64) {
        if !(a.is_finite() && b.is_finite()) {
            self.remember(a * b);
            return;
        }
        let ((a_mantissa, a_exponent), (b_mantissa, b_exponent)) = (decode(a), decode(b));
        let product = u128::from(a_mantissa) * u128::from(b_mantissa);
        let shift = a_exponent + b_exponent;
        let (limb, bits) = (shift / 64, shift % 64);
        let wide = product << bits;
        let top = if bits == 0 { 0 } else { low_word(product >> (128 - bits)) };
        let negative = a.is_sign_negative() != b.is_sign_negative();
        self.accumulate(limb, [low_word(wide), high_word(wide), top], negative);
    }

    /// Adds every value of a slice; the same sum as adding them one by one, many times faster.
    ///
    /// ```
    /// use tiled_kernel::ExactSum;
    /// let (mut at_once, mut one_by_one) = (ExactSum::default(), ExactSum::default());
    /// at_once.add_slice(&[0.1_f32; 1000]);
    /// (0..1000).for_each(|_| one_by_one.add(f64::from(0.1_f32)));
    /// assert_eq!(at_once, one_by_one);
    /// ```
    pub fn add_slice<T: Element>(&mut self, values: &[T]) {
        fold_slice(values, |part| self.add(part));
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        let mut carry = 0;
        for (limb, add) in self.limbs.iter_mut().zip(&other.limbs) {
            let (partial, first) = limb.overflowing_add(*add);
            let (total, second) = partial.overflowing_add(carry);
            *limb = total;
            carry = u64::from(first | second);
        }
        self.specials |= other.specials;
    }

    /// Adds `Σ digits[i]·2^(32·i − 2148)`: a sum as a device gathers it, in words that overlap by 32 bits. At most 132 digits are not zero.
    ///
    /// ```
    /// use tiled_kernel::ExactSum;
    /// let mut digits = [0_i64; 80];
    /// digits[67] = 1 << 4; // 2^(32·67 − 2148) is 2^-4
    /// digits[68] = -3; // −3·2^28
    /// let mut sum = ExactSum::default();
    /// sum.add_digits(digits);
    /// assert_eq!(sum.value(), 1.0 - 3.0 * 2f64.powi(28));
    /// ```
    ///
    /// # Panics
    /// Where there are more digits than a sum has.
    pub fn add_digits(&mut self, digits: impl IntoIterator<Item = i64>) {
        for (place, digit) in digits.into_iter().enumerate() {
            if digit != 0 {
                let wide = u128::from(digit.unsigned_abs()) << (32 * (place % 2));
                self.accumulate(place / 2, [low_word(wide), high_word(wide)], digit < 0);
            }
        }
    }

    /// The sum, rounded once to the nearest `f64`, ties to even; infinite where it overflows.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self.specials {
            0 => {}
            POSITIVE => return f64::INFINITY,
            NEGATIVE => return f64::NEG_INFINITY,
            _ => return f64::NAN,
        }
        let negative = self.limbs[LIMBS - 1] >> 63 == 1;
        let magnitude = if negative { negate(&self.limbs) } else { self.limbs };
        let Some(top) = magnitude.iter().rposition(|limb| *limb != 0) else {
            return 0.0;
        };
        let top_bit = 64 * top + 63 - leading_zeros(magnitude[top]);
        // the last bit kept: 53 bits from the top, but never below the smallest subnormal
        let last = (top_bit.saturating_sub(52)).max(SINGLE_OFFSET);
        let kept = bits_from(&magnitude, last);
        let half = (magnitude[(last - 1) / 64] >> ((last - 1) % 64)) & 1 == 1;
        let below = magnitude[..(last - 1) / 64].iter().any(|limb| *limb != 0)
            || magnitude[(last - 1) / 64] & ((1 << ((last - 1) % 64)) - 1) != 0;
        let mantissa = kept + u64::from(half && (below || kept & 1 == 1));
        // the leading bit of a normal mantissa, and a carry out of it, add to the exponent field
        let bits = (((last - SINGLE_OFFSET) as u64) << 52) + mantissa;
        let value = f64::from_bits(bits.min(f64::INFINITY.to_bits()));
        if negative { -value } else { value }
    }

    fn remember(&mut self, special: f64) {
        self.specials |= if special.is_nan() {
            POSITIVE | NEGATIVE
        } else if special > 0.0 {
            POSITIVE
        } else {
            NEGATIVE
        };
    }

    /// Adds or subtracts `words` at limb `at`, the carry running as far as it must.
    ///
    /// A negative number is added as its two's complement, so that the sign costs no branch: signs are random.
    #[inline]
    fn accumulate<const W: usize>(&mut self, at: usize, words: [u64; W], negative: bool) {
        let sign = 0_u64.wrapping_sub(u64::from(negative));
        let limbs = &mut self.limbs[at..];
        let mut carry = u64::from(negative);
        for (limb, word) in limbs.iter_mut().zip(words) {
            let (partial, first) = limb.overflowing_add(word ^ sign);
            let (total, second) = partial.overflowing_add(carry);
            *limb = total;
            carry = u64::from(first | second);
        }
        // what is left to add is the carry and, of a negative number, a one in every bit: +1, 0 or −1
        if carry == u64::from(negative) {
            return;
        }
        for limb in &mut limbs[W..] {
            let (total, overflows) = if negative { limb.overflowing_sub(1) } else { limb.overflowing_add(1) };
            *limb = total;
            if !overflows {
                return;
            }
        }
    }
}

impl Default for ExactSum {
    fn default() -> Self {
        Self { limbs: [0; LIMBS], specials: 0 }
    }
}

impl std::fmt::Debug for ExactSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ExactSum").field(&self.value()).finish()
    }
}

/// 2148 bits below one, 2048 for the largest product, 92 for the sign and the number of terms.
const LIMBS: usize = 67;
/// The bit of the smallest subnormal, `2^-1074`.
const SINGLE_OFFSET: usize = 1074;
const POSITIVE: u8 = 1;
const NEGATIVE: u8 = 2;

/// The mantissa `m` and exponent `e` with `|value| = m·2^(e − 1074)`.
#[inline(always)]
fn decode(value: f64) -> (u64, usize) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let field = (bits >> 52) & 0x7ff;
    let mantissa = if field == 0 { fraction } else { fraction | 1 << 52 };
    let exponent = field.max(1) as usize - 1;
    (mantissa, exponent)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "taking the low half is the purpose")]
const fn low_word(wide: u128) -> u64 {
    wide as u64
}

#[inline(always)]
const fn high_word(wide: u128) -> u64 {
    low_word(wide >> 64)
}

fn leading_zeros(limb: u64) -> usize {
    usize::try_from(limb.leading_zeros()).expect("invariant: at most 64")
}

fn negate(limbs: &[u64; LIMBS]) -> [u64; LIMBS] {
    let mut carry = true;
    limbs.map(|limb| {
        let (negated, overflow) = (!limb).overflowing_add(u64::from(carry));
        carry = overflow;
        negated
    })
}

/// The 64 bits of a number from bit `at` on.
fn bits_from(limbs: &[u64; LIMBS], at: usize) -> u64 {
    let (limb, bits) = (at / 64, at % 64);
    let high = limbs.get(limb + 1).copied().unwrap_or(0);
    low_word((u128::from(limbs[limb]) | u128::from(high) << 64) >> bits)
}
