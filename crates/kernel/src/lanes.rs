//! Exact sums of many values at the speed of ordinary ones.

use tiled_tensor::{DType, Element};

use crate::ExactSum;
use crate::cascade::Cascade;
use crate::narrow::{self, NarrowSquares, NarrowSums};

/// Exact sums of `L` interleaved sequences, as channel-blocked rows hold them: lane `i` belongs to sum `i`.
///
/// The sums are bit for bit those of [`ExactSum::add`] for each value; the cost is that of a dozen vector
/// operations for `L` values. Terms wait in a buffer; what is still in it is added when the value is dropped.
/// Lanes past the end of `sums` (padding lanes) are ignored whatever they hold. Several sequences may be parts of one sum: see
/// [`LaneSums::spread`].
///
/// ```
/// use tiled_kernel::{ExactSum, LaneBuffer, LaneSums};
/// let row = [1.0_f32, 10.0, 2.0, 20.0, 3.0, 30.0]; // three pixels of two channels
/// let mut moments = [ExactSum::default(); 4];
/// let (sums, squares) = moments.split_at_mut(2);
/// let (mut buffer, mut square_buffer) = (LaneBuffer::default(), LaneBuffer::default());
/// let mut lanes = LaneSums::<2>::new(sums, &mut buffer);
/// let mut square_lanes = LaneSums::<2>::new(squares, &mut square_buffer);
/// for pixel in row.as_chunks::<2>().0 {
///     let pixel = pixel.map(f64::from);
///     lanes.add(pixel);
///     square_lanes.add(pixel.map(|x| x * x)); // the square of an `f32` is exact in `f64`
/// }
/// drop((lanes, square_lanes));
/// assert_eq!(moments.map(|sum| sum.value()), [6.0, 60.0, 14.0, 1400.0]);
/// ```
///
/// # How
/// For up to 128 values below `2^E`, adding and subtracting `1.5·2^(E+6)` rounds a value to a multiple of
/// `2^(E−46)`, exactly; such multiples sum to at most `2^53` units, so plain additions of them are exact. The
/// remainders go the same way with the unit `2^(E−93)`. Where a remainder is left after that, or a value is
/// not finite, the lane's values go to the accumulator one by one.
/// Source: Demmel and Nguyen, "Parallel reproducible summation" (2015), section 3, made exact by the check.
/// Values of `f32` need no buffer: see `narrow.rs` and `cascade.rs`.
///
/// Everything is inlined, so that a caller compiled for wider vectors gets them.
#[derive(Debug)]
pub struct LaneSums<'a, const L: usize> {
    /// One for each lane, or one for all.
    sums: &'a mut [ExactSum],
    /// The lanes that count.
    lanes: usize,
    rows: &'a mut [[f64; L]; ROWS],
    len: usize,
    narrow: NarrowSums<L>,
    /// For values of sizes up to 18 digits apart, and for all others.
    short_cascade: Cascade<L, 1>,
    cascade: Cascade<L, 3>,
    squares: NarrowSquares<L>,
    /// How many parts on end were not what was guessed of them.
    misses: usize,
}

/// Where the terms of a [`LaneSums`] wait. Whoever adds to many sums one after another clears these 16 KiB once.
#[derive(Clone, Debug)]
pub struct LaneBuffer {
    values: [f64; MOST_LANES * ROWS],
}

impl Default for LaneBuffer {
    fn default() -> Self {
        Self { values: [0.0; MOST_LANES * ROWS] }
    }
}

/// After so many nothing is guessed any more.
const MOST_MISSES: usize = 4;

/// The most lanes of a [`LaneSums`].
const MOST_LANES: usize = 16;

impl<'a, const L: usize> LaneSums<'a, L> {
    /// Adds to these sums; fewer than `L` where the last lanes are padding.
    ///
    /// # Panics
    /// Where there are more sums than lanes.
    #[must_use]
    pub fn new(sums: &'a mut [ExactSum], buffer: &'a mut LaneBuffer) -> Self {
        assert!(sums.len() <= L, "{} sums for {L} lanes", sums.len());
        let lanes = sums.len();
        Self::over(sums, lanes, buffer)
    }

    /// Adds the first `lanes` sequences to one sum: the same as merging a sum for each, without the time that takes.
    ///
    /// ```
    /// use tiled_kernel::{ExactSum, LaneBuffer, LaneSums};
    /// let (mut sum, mut buffer) = (ExactSum::default(), LaneBuffer::default());
    /// LaneSums::<2>::spread(&mut sum, 2, &mut buffer).add_rows(&[[1.0_f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(sum.value(), 10.0);
    /// ```
    /// # Panics
    /// Where there are not so many lanes.
    #[must_use]
    pub fn spread(sum: &'a mut ExactSum, lanes: usize, buffer: &'a mut LaneBuffer) -> Self {
        assert!(lanes <= L, "{lanes} of {L} lanes");
        Self::over(std::slice::from_mut(sum), lanes, buffer)
    }

    fn over(sums: &'a mut [ExactSum], lanes: usize, buffer: &'a mut LaneBuffer) -> Self {
        const { assert!(L <= MOST_LANES, "the lanes have room in the buffer") }
        let (rows, _) = buffer.values.as_chunks_mut::<L>();
        let rows = rows.first_chunk_mut().expect("invariant: a buffer holds the rows of the most lanes");
        Self {
            sums,
            lanes,
            rows,
            len: 0,
            narrow: NarrowSums::new(),
            short_cascade: Cascade::new(),
            cascade: Cascade::new(),
            squares: NarrowSquares::new(),
            misses: 0,
        }
    }

    /// Adds a value to each sum.
    ///
    /// In a hot loop fill `values` by a loop over the lanes: `<[_; 16]>::map` and `array::from_fn` become calls for each element there.
    #[inline(always)]
    pub fn add(&mut self, values: [f64; L]) {
        self.rows[self.len % ROWS] = values;
        self.len += 1;
        if self.len == ROWS {
            self.flush();
        }
    }

    /// Adds rows of values, one to each sum; `f32` values several times faster than one by one, those of similar sizes most of all.
    #[inline(always)]
    pub fn add_rows<T: Element>(&mut self, rows: &[[T; L]]) {
        for rows in rows.chunks(narrow::TERMS) {
            match T::DTYPE {
                DType::F32 => self.add_single(rows, &NarrowSums::of(rows)),
                DType::F64 => self.add_wide(rows),
            }
        }
    }

    /// Whether [`LaneSums::add_with_squares`] computes both in one loop with vectors of so many bytes: where there are registers for it.
    #[must_use]
    #[inline(always)]
    pub const fn reads_once(vector: usize) -> bool {
        vector >= 64
    }

    /// Adds rows of values to these sums as [`LaneSums::add_rows`] does, and their squares, which are not rounded, to others. `FUSED` says that
    /// the caller is compiled for fused multiply-adds, which makes it faster; elsewhere they are calls of a function, many times slower. `VECTOR` are the
    /// bytes of its vectors: see [`LaneSums::reads_once`].
    #[inline(always)]
    pub fn add_with_squares<T: Element, const FUSED: bool, const VECTOR: usize>(
        &mut self,
        squares: &mut LaneSums<'_, L>,
        rows: &[[T; L]],
    ) {
        if T::DTYPE == DType::F64 {
            self.add_wide(rows);
            squares.add_wide_squares(rows);
            return;
        }
        for part in rows.chunks(narrow::GUESSED_TERMS) {
            let LaneSums { sums, lanes, squares: narrow, misses, .. } = &mut *squares;
            let mut emit = |values| give(sums, *lanes, values);
            if Self::reads_once(VECTOR) && *misses < MOST_MISSES {
                if let Some(own) = narrow.add_guessed::<T, FUSED>(part, *lanes, &mut emit) {
                    *misses = 0;
                    self.add_single(part, &own);
                    continue;
                }
                *misses += 1;
            }
            for rows in part.chunks(narrow::TERMS) {
                let own = NarrowSums::of(rows);
                self.add_single(rows, &own);
                let LaneSums { sums, lanes, squares: narrow, .. } = &mut *squares;
                if !narrow.add::<T, FUSED>(rows, own.sizes, *lanes, |values| give(sums, *lanes, values)) {
                    squares.add_wide_squares(rows);
                }
            }
        }
    }

    #[inline(always)]
    fn add_wide<T: Element>(&mut self, rows: &[[T; L]]) {
        for row in rows {
            self.add(wide(row));
        }
    }

    #[inline(always)]
    fn add_wide_squares<T: Element>(&mut self, rows: &[[T; L]]) {
        for row in rows {
            let mut values = wide(row);
            match T::DTYPE {
                DType::F32 => {
                    for value in &mut values {
                        *value *= *value;
                    }
                    self.add(values);
                }
                DType::F64 => self.add_products(values, values),
            }
        }
    }

    /// Adds rows of `f32` values, whose sums by plain additions are known, in the first way that does not round:
    /// by plain additions to those before, by plain additions that have room for more, in a cascade, by plain additions alone, or in `f64`.
    #[inline(always)]
    fn add_single<T: Element>(&mut self, rows: &[[T; L]], own: &NarrowSums<L>) {
        let Self { sums, short_cascade, cascade, .. } = self;
        let lanes = self.lanes;
        let both = self.narrow.with(own);
        if both.is_exact(lanes) {
            self.narrow = both;
        } else if own.has_room(lanes) {
            self.flush_narrow();
            self.narrow = *own;
        } else if short_cascade.add(rows, own.sizes, lanes, |lane, value| of(sums, lane).add(value))
            || cascade.add(rows, own.sizes, lanes, |lane, value| of(sums, lane).add(value))
        {
            // they have room there
        } else if own.is_exact(lanes) {
            self.flush_narrow();
            self.narrow = *own;
        } else {
            self.add_wide(rows);
        }
    }

    fn flush_narrow(&mut self) {
        if self.narrow.is_empty() {
            return;
        }
        give(self.sums, self.lanes, self.narrow.sums);
        self.narrow = NarrowSums::new();
    }

    /// Adds to each sum the product of two values without rounding it.
    ///
    /// Products of two `f32` are exact in `f64`: for those, multiply and call [`LaneSums::add`].
    #[inline(always)]
    pub fn add_products(&mut self, a: [f64; L], b: [f64; L]) {
        // the product and its rounding error are both exact while the error stays a normal number
        let (mut product, mut error, mut exact) = ([0.0; L], [0.0; L], true);
        for i in 0..L {
            product[i] = a[i] * b[i];
            error[i] = a[i].mul_add(b[i], -product[i]);
            let size = product[i].abs();
            let splits = (SMALLEST_SPLIT..LARGEST_SPLIT).contains(&size) || a[i] == 0.0 || b[i] == 0.0;
            exact &= splits || i >= self.lanes;
        }
        if exact {
            self.add(product);
            self.add(error);
        } else {
            for lane in 0..self.lanes {
                of(self.sums, lane).add_product(a[lane], b[lane]);
            }
        }
    }

    /// Adds what waits in the buffer.
    #[inline(always)]
    pub fn flush(&mut self) {
        let lanes = self.lanes;
        if self.len > 0 {
            fold(&self.rows[..self.len], lanes, |lane, part| of(self.sums, lane).add(part));
            self.len = 0;
        }
        self.flush_narrow();
        let Self { sums, short_cascade, cascade, squares, .. } = self;
        short_cascade.flush(lanes, |lane, value| of(sums, lane).add(value));
        cascade.flush(lanes, |lane, value| of(sums, lane).add(value));
        squares.flush(|values| give(sums, lanes, values));
    }
}

impl<const L: usize> Drop for LaneSums<'_, L> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The sum of a lane: its own, or the one of all.
#[inline(always)]
fn of(sums: &mut [ExactSum], lane: usize) -> &mut ExactSum {
    let last = sums.len() - 1;
    &mut sums[lane.min(last)]
}

/// Adds a finite value of each of the first `lanes`; where all are of one sum, what they add up to and what these additions round off, which
/// is mostly nothing: an exact sum takes longer for a value than all of them.
#[inline(always)]
fn give<const L: usize>(sums: &mut [ExactSum], lanes: usize, mut values: [f64; L]) {
    if sums.len() == lanes {
        for (sum, value) in sums.iter_mut().zip(values) {
            sum.add(value);
        }
        return;
    }
    let [sum] = sums else { return };
    values[lanes..].fill(0.0);
    let (mut errors, mut count) = ([0.0; L], L);
    while count > 1 {
        let half = count.div_ceil(2);
        for lane in half..count {
            (values[lane - half], errors[lane]) = two_sum(values[lane - half], values[lane]);
        }
        count = half;
    }
    sum.add(values[0]);
    if errors.iter().any(|error| *error != 0.0) {
        errors.iter().for_each(|error| sum.add(*error));
    }
}

/// The rounded sum of two values far from overflow, and what rounding took. Source: Knuth, *The Art of Computer Programming*, volume 2,
/// section 4.2.2, theorem B.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    (sum, (a - of_a) + (b - of_b))
}

/// Calls `emit` with few values whose exact sum is the exact sum of the slice.
pub(crate) fn fold_slice<T: Element>(values: &[T], mut emit: impl FnMut(f64)) {
    let (vectors, rest) = values.as_chunks::<SLICE_LANES>();
    let mut rows = [[0.0; SLICE_LANES]; ROWS];
    for part in vectors.chunks(ROWS) {
        for (row, vector) in rows.iter_mut().zip(part) {
            *row = vector.map(T::to_f64);
        }
        fold(&rows[..part.len()], SLICE_LANES, |_, value| emit(value));
    }
    for value in rest {
        emit(value.to_f64());
    }
}

/// A row in `f64`.
#[inline(always)]
fn wide<T: Element, const L: usize>(row: &[T; L]) -> [f64; L] {
    let mut values = [0.0; L];
    for (value, element) in values.iter_mut().zip(row) {
        *value = element.to_f64();
    }
    values
}

/// The values folded at once; 2^7, which the exponents in `splitters` rely on.
const ROWS: usize = 128;
const SLICE_LANES: usize = 8;
/// Products of at least `2^-900` have errors of at least `2^-1006`, which are normal.
const SMALLEST_SPLIT: f64 = power_of_two(-900);
const LARGEST_SPLIT: f64 = power_of_two(1000);

/// For each lane, calls `emit` with few values whose exact sum is the exact sum of the lane's values.
#[inline(always)]
fn fold<const L: usize>(rows: &[[f64; L]], lanes: usize, mut emit: impl FnMut(usize, f64)) {
    if L.is_multiple_of(GROUP) {
        for first in (0..L).step_by(GROUP) {
            fold_group::<L, GROUP>(rows, first, lanes, &mut emit);
        }
    } else {
        fold_group::<L, L>(rows, 0, lanes, &mut emit);
    }
}

/// Lanes folded together: with five vectors each, as many as 16 registers hold.
const GROUP: usize = 8;

#[inline(always)]
fn fold_group<const L: usize, const G: usize>(
    rows: &[[f64; L]],
    first: usize,
    lanes: usize,
    emit: &mut impl FnMut(usize, f64),
) {
    let mut peaks = [0.0_f64; G];
    for row in rows {
        let row = &row[first..first + G];
        for lane in 0..G {
            let size = row[lane].abs();
            peaks[lane] = if size > peaks[lane] { size } else { peaks[lane] };
        }
    }
    let split = peaks.map(splitters);
    let (coarse, fine) = (split.map(|(coarse, _)| coarse), split.map(|(_, fine)| fine));
    let (mut high, mut low, mut left) = ([0.0_f64; G], [0.0_f64; G], [0.0_f64; G]);
    for row in rows {
        let row = &row[first..first + G];
        for lane in 0..G {
            let top = (row[lane] + coarse[lane]) - coarse[lane];
            let rest = row[lane] - top;
            let bottom = (rest + fine[lane]) - fine[lane];
            high[lane] += top;
            low[lane] += bottom;
            left[lane] += (rest - bottom).abs();
        }
    }
    for lane in 0..G.min(lanes.saturating_sub(first)) {
        if left[lane] == 0.0 {
            emit(first + lane, high[lane]);
            emit(first + lane, low[lane]);
        } else {
            for row in rows {
                emit(first + lane, row[first + lane]);
            }
        }
    }
}

/// The constants whose addition and subtraction rounds a value of size at most `peak` to a multiple of
/// `2^(E−46)`, and the remainder of that to one of `2^(E−93)`, where `peak < 2^E`; NaN where there are none.
#[inline(always)]
fn splitters(peak: f64) -> (f64, f64) {
    if peak >= LARGEST_SPLIT {
        return (f64::NAN, f64::NAN);
    }
    // a larger E than needed stays correct, so values below 2^-900 share one
    let field = (peak.max(SMALLEST_SPLIT).to_bits() >> 52).cast_signed();
    let exponent = field - 1022;
    (1.5 * power_of_two(exponent + 6), 1.5 * power_of_two(exponent - 41))
}

#[inline(always)]
const fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) << 52).cast_unsigned())
}
