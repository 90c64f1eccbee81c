//! Exact sums of `f32` values of similar sizes, and of their squares, by plain additions.
//!
//! An `f32` is a multiple of `2^(e−150)` below `2^(E−126)`, where `e` (at least one) is the exponent field of the smallest
//! value but zero and `E` that of the largest.

use tiled_tensor::Element;

/// The rows that are taken at a time, and whose squares may be summed.
pub(crate) const TERMS: usize = 128;
const SIGN: u32 = 1 << 31;
const FRACTION_BITS: u32 = 23;
/// The exponent field of infinities and NaN.
const SPECIAL: u32 = 255;

/// How large the values of `L` interleaved sequences are, as bits of `f32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes<const L: usize> {
    largest: [u32; L],
    /// The smallest but zero, less one.
    smallest: [u32; L],
}

impl<const L: usize> Sizes<L> {
    pub(crate) const NONE: Self = Self { largest: [0; L], smallest: [u32::MAX; L] };

    #[inline(always)]
    fn add<T: Element>(&mut self, lane: usize, value: T) {
        #[expect(clippy::cast_possible_truncation, reason = "the values are f32")]
        let bits = (value.to_f64() as f32).to_bits() & !SIGN;
        self.largest[lane] = bits.max(self.largest[lane]);
        // zero becomes the largest of all
        self.smallest[lane] = bits.wrapping_sub(1).min(self.smallest[lane]);
    }

    /// The exponent field of the largest value of a lane.
    #[inline(always)]
    pub(crate) const fn field(&self, lane: usize) -> u32 {
        self.largest[lane] >> FRACTION_BITS
    }

    #[inline(always)]
    pub(crate) fn with(mut self, other: &Self) -> Self {
        for lane in 0..L {
            self.largest[lane] = self.largest[lane].max(other.largest[lane]);
            self.smallest[lane] = self.smallest[lane].min(other.smallest[lane]);
        }
        self
    }

    /// Whether the exponents of the first `lanes` are finite and at most `range` apart in each.
    #[inline(always)]
    pub(crate) fn are_within(&self, range: u32, lanes: usize) -> bool {
        let mut fit = true;
        for lane in 0..lanes {
            let largest = self.field(lane);
            let smallest = (self.smallest[lane].wrapping_add(1) >> FRACTION_BITS).max(1);
            // of zeros alone the smallest is zero as well
            fit &= largest < SPECIAL && largest <= smallest + range;
        }
        fit
    }
}

/// Sums in `f64` of `L` interleaved sequences of `f32` values, with what shows that no addition rounded.
///
/// Any sum of up to `2^b` values is a multiple of `2^(e−150)` below `2^(E−126+b)`, and fits the 53 bits of an `f64` where
/// `E − e ≤ 29 − b`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NarrowSums<const L: usize> {
    pub(crate) sums: [f64; L],
    pub(crate) sizes: Sizes<L>,
    terms: usize,
}

/// Lanes whose sums are taken together: as many as a vector has of `f64`, while one of `u32` has twice as many. In one loop over both, the
/// compiler takes the longer apart for each row.
const GROUP: usize = 8;

/// How far the exponents of the largest and the smallest value may be apart in a sum of one term; in one of twice as many, one less.
const RANGE: u32 = 29;

/// To give what was added and begin anew pays where it is done for one in so many parts.
const SEVERAL: usize = 8;

impl<const L: usize> NarrowSums<L> {
    pub(crate) const fn new() -> Self {
        Self { sums: [0.0; L], sizes: Sizes::NONE, terms: 0 }
    }

    /// The sums of some rows of values that are `f32`.
    #[inline(always)]
    pub(crate) fn of<T: Element>(rows: &[[T; L]]) -> Self {
        let mut own = Self { terms: rows.len(), ..Self::new() };
        for row in rows {
            own.add(row);
        }
        own
    }

    #[inline(always)]
    fn add<T: Element>(&mut self, row: &[T; L]) {
        for (lane, value) in row.iter().enumerate() {
            self.sizes.add(lane, *value);
        }
        for (sums, row) in self.sums.chunks_mut(GROUP).zip(row.chunks(GROUP)) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value.to_f64();
            }
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.terms == 0
    }

    /// The sums of both; whether they are exact in the first `lanes` is for [`NarrowSums::is_exact`] to say.
    #[inline(always)]
    pub(crate) fn with(mut self, other: &Self) -> Self {
        for lane in 0..L {
            self.sums[lane] += other.sums[lane];
        }
        Self { sums: self.sums, sizes: self.sizes.with(&other.sizes), terms: self.terms + other.terms }
    }

    /// Whether no addition of the first `lanes` sums rounded.
    #[inline(always)]
    pub(crate) fn is_exact(&self, lanes: usize) -> bool {
        self.is_exact_over(self.terms, lanes)
    }

    /// Whether it would be exact with [`SEVERAL`] times as many terms of these sizes.
    #[inline(always)]
    pub(crate) fn has_room(&self, lanes: usize) -> bool {
        self.is_exact_over(SEVERAL * self.terms, lanes)
    }

    #[inline(always)]
    fn is_exact_over(&self, terms: usize, lanes: usize) -> bool {
        let bits = usize::BITS - terms.saturating_sub(1).leading_zeros();
        bits <= RANGE && self.sizes.are_within(RANGE - bits, lanes)
    }
}

/// Sums in pairs of `f64` of the squares of `L` interleaved sequences of `f32` values.
///
/// A square is a multiple of `2^(2e−300)` below `2^F`, where `F = 2E − 252`. Up to `2^t` of them added to `2^(F+t+1)` stay below
/// `2^(F+t+2)`, so that each addition rounds to a multiple of `2^(F+t−51)`. What it leaves is exact, at most `2^(F+t−52)`, and sums of
/// `2^t` such remainders fit the 53 bits of an `f64` where `2·(E − e) ≤ 57 − 2t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NarrowSquares<const L: usize> {
    /// `2^(F+t+1)` of each lane.
    base: [f64; L],
    /// That and the sum of what each addition took.
    high: [f64; L],
    /// The sum of what it left.
    low: [f64; L],
    sizes: Sizes<L>,
    terms: usize,
    room: Room,
}

/// The rows that are taken at a time where their sizes are guessed.
pub(crate) const GUESSED_TERMS: usize = Room::GUESSED.terms();
/// The first of them, that tell how large the others may be.
const SEEN: usize = 8;

/// What sums of squares begin with room for.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// The most terms are two to this power, `t`.
    log_terms: u32,
    /// How much larger than that of the first values the exponent `E` of later ones may be.
    spare: u32,
}

impl Room {
    /// For several parts of values of similar sizes: what was added is given seldom.
    const LONG: Self = Self { log_terms: 9, spare: 1 };
    /// For one part of values as far apart as can be.
    const SHORT: Self = Self { log_terms: 7, spare: 0 };
    /// For values of which a few are known.
    const GUESSED: Self = Self { log_terms: 9, spare: 2 };

    const fn terms(self) -> usize {
        1 << self.log_terms
    }

    /// How far the exponents of the largest and the smallest value may be apart.
    const fn range(self) -> u32 {
        (57 - 2 * self.log_terms) / 2 - self.spare
    }

    /// `2^(F+t+1)` for values whose largest has this exponent field.
    #[inline(always)]
    const fn base(self, field: u32) -> f64 {
        f64::from_bits((2 * field as u64 + 1023 - 252 + self.log_terms as u64 + 1) << 52)
    }
}

impl<const L: usize> NarrowSquares<L> {
    pub(crate) const fn new() -> Self {
        let zeros = [0.0; L];
        Self { base: zeros, high: zeros, low: zeros, sizes: Sizes::NONE, terms: 0, room: Room::SHORT }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.terms == 0
    }

    /// Adds the squares of at most [`TERMS`] rows of values that are `f32` and of these sizes. Where they have no room beside those
    /// before, these are given to `emit` first, a value of each lane; where they have none at all, nothing happens and the answer is
    /// false. `FUSED` is as in [`crate::LaneSums::add_with_squares`].
    #[inline(always)]
    pub(crate) fn add<T: Element, const FUSED: bool>(
        &mut self,
        rows: &[[T; L]],
        sizes: Sizes<L>,
        lanes: usize,
        emit: impl FnMut([f64; L]),
    ) -> bool {
        if !sizes.are_within(Room::SHORT.range(), lanes) {
            return false;
        }
        let both = self.sizes.with(&sizes);
        let has_begun = !self.is_empty() && self.terms + rows.len() <= self.room.terms();
        if has_begun && self.has_room(&sizes, &both, lanes) {
            self.sizes = both;
        } else {
            self.flush(emit);
            self.begin(
                sizes,
                if sizes.are_within(Room::LONG.range(), lanes) { Room::LONG } else { Room::SHORT },
            );
        }
        self.terms += rows.len();
        let (mut high, mut low) = (self.high, self.low);
        for row in rows {
            add_squares::<T, L, FUSED>(row, &mut high, &mut low);
        }
        (self.high, self.low) = (high, low);
        true
    }

    /// Sets out for values of these sizes, on whose largest it depends what there is room for.
    #[inline(always)]
    fn begin(&mut self, sizes: Sizes<L>, room: Room) {
        (self.sizes, self.room) = (sizes, room);
        for lane in 0..L {
            self.base[lane] = room.base(sizes.field(lane) + room.spare);
        }
        self.high = self.base;
    }

    /// Whether values of these sizes have room, `both` with those before.
    #[inline(always)]
    fn has_room(&self, sizes: &Sizes<L>, both: &Sizes<L>, lanes: usize) -> bool {
        let mut has_room = both.are_within(self.room.range(), lanes);
        for lane in 0..lanes {
            has_room &= self.room.base(sizes.field(lane)) <= self.base[lane];
        }
        has_room
    }

    /// Adds the squares of at most [`GUESSED_TERMS`] rows as [`NarrowSquares::add`] does, while their sums and sizes are taken, and gives these:
    /// those before, or a few of these rows, tell how large they may be. Where they are larger, or too far apart, nothing was added.
    #[inline(always)]
    pub(crate) fn add_guessed<T: Element, const FUSED: bool>(
        &mut self,
        rows: &[[T; L]],
        lanes: usize,
        emit: impl FnMut([f64; L]),
    ) -> Option<NarrowSums<L>> {
        if self.is_empty() {
            self.begin(NarrowSums::of(&rows[..rows.len().min(SEEN)]).sizes, Room::GUESSED);
        } else if self.terms + rows.len() > self.room.terms() {
            let sizes = Sizes { largest: self.sizes.largest, ..Sizes::NONE };
            self.flush(emit);
            self.begin(sizes, Room::LONG);
        }
        let mut own = NarrowSums { terms: rows.len(), ..NarrowSums::new() };
        let (mut high, mut low) = (self.high, self.low);
        for row in rows {
            own.add(row);
            add_squares::<T, L, FUSED>(row, &mut high, &mut low);
        }
        let both = self.sizes.with(&own.sizes);
        if !self.has_room(&own.sizes, &both, lanes) {
            return None;
        }
        (self.high, self.low, self.sizes) = (high, low, both);
        self.terms += rows.len();
        Some(own)
    }

    /// Gives what was added to `emit`, and forgets it.
    #[inline(always)]
    pub(crate) fn flush(&mut self, mut emit: impl FnMut([f64; L])) {
        if self.is_empty() {
            return;
        }
        for lane in 0..L {
            self.high[lane] -= self.base[lane];
        }
        emit(self.high);
        emit(self.low);
        *self = Self::new();
    }
}

/// Adds the squares of a row. What the first sum leaves of each goes to the second.
#[inline(always)]
fn add_squares<T: Element, const L: usize, const FUSED: bool>(
    row: &[T; L],
    high: &mut [f64; L],
    low: &mut [f64; L],
) {
    for lane in 0..L {
        let value = row[lane].to_f64();
        // the square and what the sum leaves of it are exact, so that fused operations give the same
        if FUSED {
            let sum = value.mul_add(value, high[lane]);
            low[lane] += value.mul_add(value, high[lane] - sum);
            high[lane] = sum;
        } else {
            let square = value * value;
            let sum = high[lane] + square;
            low[lane] += square - (sum - high[lane]);
            high[lane] = sum;
        }
    }
}
