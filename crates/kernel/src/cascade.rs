//! Exact sums of `f32` values of sizes far apart, each in several `f64`.
//!
//! Each level but the last adds to a number so large that the sum is rounded to a multiple of some power of two, which makes it exact in
//! few bits; what that leaves, which is exact as well, goes on to the next level.
//! Source: Demmel and Nguyen, "Parallel reproducible summation" (2015), section 3, with as many levels as values need.

use tiled_tensor::Element;

use crate::narrow::Sizes;

/// The most values of a sum are two to this power.
const LOG_TERMS: i64 = 10;

/// How far the exponent fields of the largest and the smallest value may be apart where so many levels round.
///
/// Values below `2^F`, of which there are at most `2^b`, are added to `1.5·2^(F+b+2)`, so that the sum stays in one binade, whose unit is
/// `2^(F+b−50)`: what is left is at most half of that, `2^(F+b−51)`. After k levels it is at most `2^(F+k·(b−51))`, and sums of it below
/// `2^(F+k·(b−51)+b)`. An `f32` is a multiple of `2^(e−150)` below `2^(E−126)`, so that those fit the 53 bits of an `f64` where
/// `E − 126 + k·(b − 51) + b − (e − 150) ≤ 53`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a few levels"
)]
const fn range(levels: usize) -> u32 {
    (53 - 24 - LOG_TERMS + levels as i64 * (51 - LOG_TERMS)) as u32
}

/// Sums of `L` interleaved sequences of `f32` values, by so many levels that round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cascade<const L: usize, const LEVELS: usize> {
    /// What a level began with.
    bases: [[f64; L]; LEVELS],
    /// That and the sum of what it took.
    sums: [[f64; L]; LEVELS],
    /// The sum of what they left.
    rest: [f64; L],
    sizes: Sizes<L>,
    terms: usize,
}

impl<const L: usize, const LEVELS: usize> Cascade<L, LEVELS> {
    const RANGE: u32 = range(LEVELS);

    pub(crate) const fn new() -> Self {
        Self {
            bases: [[0.0; L]; LEVELS],
            sums: [[0.0; L]; LEVELS],
            rest: [0.0; L],
            sizes: Sizes::NONE,
            terms: 0,
        }
    }

    /// Adds rows of values that are `f32` and of these sizes. Where they have no room beside those before, these are given to `emit` first, as
    /// lane and value; where they have none at all, nothing happens and the answer is false.
    #[inline(always)]
    pub(crate) fn add<T: Element>(
        &mut self,
        rows: &[[T; L]],
        sizes: Sizes<L>,
        lanes: usize,
        emit: impl FnMut(usize, f64),
    ) -> bool {
        if !sizes.are_within(Self::RANGE, lanes) || rows.len() > 1 << LOG_TERMS {
            return false;
        }
        let both = self.sizes.with(&sizes);
        let mut is_covered = self.terms > 0
            && self.terms + rows.len() <= 1 << LOG_TERMS
            && both.are_within(Self::RANGE, lanes);
        for lane in 0..lanes {
            is_covered &= sizes.field(lane) <= self.sizes.field(lane);
        }
        if is_covered {
            self.sizes = both;
        } else {
            self.flush(lanes, emit);
            for (level, bases) in (0..).zip(&mut self.bases) {
                for (lane, base) in bases.iter_mut().enumerate() {
                    *base = base_of(sizes.field(lane), level);
                }
            }
            self.sums = self.bases;
            self.sizes = sizes;
        }
        self.terms += rows.len();
        let (mut sums, mut rest) = (self.sums, self.rest);
        for row in rows {
            for lane in 0..L {
                let mut value = row[lane].to_f64();
                for sums in &mut sums {
                    value = take(&mut sums[lane], value);
                }
                rest[lane] += value;
            }
        }
        (self.sums, self.rest) = (sums, rest);
        true
    }

    /// Gives what was added to `emit`, and forgets it.
    #[inline(always)]
    pub(crate) fn flush(&mut self, lanes: usize, mut emit: impl FnMut(usize, f64)) {
        if self.terms == 0 {
            return;
        }
        for lane in 0..lanes {
            let levels = self.sums.iter().zip(&self.bases).map(|(sum, base)| sum[lane] - base[lane]);
            // most lanes leave nothing for the last levels
            levels.chain([self.rest[lane]]).filter(|value| *value != 0.0).for_each(|value| emit(lane, value));
        }
        *self = Self::new();
    }
}

/// Adds a value, and returns what the addition rounded off.
#[inline(always)]
fn take(sum: &mut f64, value: f64) -> f64 {
    let next = *sum + value;
    let left = value - (next - *sum);
    *sum = next;
    left
}

/// What a level begins with, for values whose largest has this exponent field.
#[inline(always)]
const fn base_of(field: u32, level: i64) -> f64 {
    let below = field as i64 - 126 - (51 - LOG_TERMS) * level;
    1.5 * f64::from_bits(((below + LOG_TERMS + 2 + 1023) << 52).cast_unsigned())
}
