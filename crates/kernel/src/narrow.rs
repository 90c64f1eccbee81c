//! Exact sums of `f32` values of similar sizes by plain additions.

use tiled_tensor::Element;

/// Sums in `f64` of `L` interleaved sequences of `f32` values, with what shows that no addition rounded.
///
/// An `f32` is a multiple of `2^(e−150)` below `2^(E−126)`, where `e` (at least one) is the exponent field of the smallest
/// value but zero and `E` that of the largest. So any sum of up to 128 values is a multiple of `2^(e−150)` below
/// `2^(E−119)`, and fits the 53 bits of an `f64` where `E − e ≤ 22`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NarrowSums<const L: usize> {
    pub(crate) sums: [f64; L],
    /// The bits of the largest size of a lane, and those of the smallest but zero, less one.
    largest: [u32; L],
    smallest: [u32; L],
    terms: usize,
}

/// The values that may be summed.
pub(crate) const TERMS: usize = 128;
/// How far the exponents of the largest and the smallest value may be apart.
const RANGE: u32 = 22;
const SIGN: u32 = 1 << 31;
const FRACTION_BITS: u32 = 23;
/// The exponent field of infinities and NaN.
const SPECIAL: u32 = 255;

impl<const L: usize> NarrowSums<L> {
    pub(crate) const fn new() -> Self {
        Self { sums: [0.0; L], largest: [0; L], smallest: [u32::MAX; L], terms: 0 }
    }

    /// The sums of some rows of values that are `f32`.
    #[inline(always)]
    pub(crate) fn of<T: Element>(rows: &[[T; L]]) -> Self {
        let (mut sums, mut largest, mut smallest) = ([0.0; L], [0; L], [u32::MAX; L]);
        for row in rows {
            for lane in 0..L {
                let value = row[lane].to_f64();
                #[expect(clippy::cast_possible_truncation, reason = "the values are f32")]
                let bits = (value as f32).to_bits() & !SIGN;
                sums[lane] += value;
                largest[lane] = bits.max(largest[lane]);
                // zero becomes the largest of all
                smallest[lane] = bits.wrapping_sub(1).min(smallest[lane]);
            }
        }
        Self { sums, largest, smallest, terms: rows.len() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.terms == 0
    }

    /// The sums of both; whether they are exact in the first `lanes` is for [`NarrowSums::is_exact`] to say.
    #[inline(always)]
    pub(crate) fn with(mut self, other: &Self) -> Self {
        for lane in 0..L {
            self.sums[lane] += other.sums[lane];
            self.largest[lane] = self.largest[lane].max(other.largest[lane]);
            self.smallest[lane] = self.smallest[lane].min(other.smallest[lane]);
        }
        Self { terms: self.terms + other.terms, ..self }
    }

    /// Whether no addition of the first `lanes` sums rounded.
    #[inline(always)]
    pub(crate) fn is_exact(&self, lanes: usize) -> bool {
        let mut fits = self.terms <= TERMS;
        for lane in 0..lanes {
            let largest = self.largest[lane] >> FRACTION_BITS;
            let smallest = (self.smallest[lane].wrapping_add(1) >> FRACTION_BITS).max(1);
            // of zeros alone the smallest is zero as well
            fits &= largest < SPECIAL && largest <= smallest + RANGE;
        }
        fits
    }
}
