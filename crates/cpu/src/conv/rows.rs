//! The kernels of the gradient for the weights: sums of products over neighbouring pixels.

use tiled_tensor::Element;

use super::tile::Tile;
use crate::vector::{Micro, Simd};

/// Where the inputs and the gradients of a row of the image begin.
#[derive(Clone, Copy)]
pub(super) struct Line<E> {
    pub(super) x: *const E,
    pub(super) gradients: *const E,
}

/// Sums of input channels times gradients over neighbouring pixels of some lines, one line after another.
///
/// # Safety
/// In each line `x` is readable at `x_offset + r·row_step + j·pixel_step` (a row step of one where inputs are blocked),
/// `gradients` for a vector at `gradient_offset + v·vector_step + j·gradient_step`; `sums` is valid for `R·V` vectors
/// and nothing else uses it.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, E> {
    pub(super) lines: &'a [Line<E>],
    pub(super) x_offset: usize,
    pub(super) row_step: usize,
    pub(super) pixel_step: usize,
    pub(super) gradient_offset: usize,
    pub(super) gradient_step: usize,
    pub(super) vector_step: usize,
    pub(super) pixels: usize,
    pub(super) sums: *mut E,
}

/// [`Rows`] for `R` input channels by `V` vectors of output channels.
struct RowTile<'a, E, const R: usize, const V: usize, const BLOCKED: bool>(Rows<'a, E>);

impl<E: Element, const R: usize, const V: usize, const BLOCKED: bool> Micro<E>
    for RowTile<'_, E, R, V, BLOCKED>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let rows = self.0;
        let row_step = if BLOCKED { 1 } else { rows.row_step };
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [[simd.splat(E::ZERO); V]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.load(rows.sums.add((r * V + v) * S::LANES));
                }
            }
            for line in rows.lines {
                let mut x = line.x.wrapping_add(rows.x_offset);
                let mut gradients = line.gradients.wrapping_add(rows.gradient_offset);
                for _ in 0..rows.pixels {
                    let mut vectors = [simd.splat(E::ZERO); V];
                    for (v, vector) in vectors.iter_mut().enumerate() {
                        *vector = simd.load(gradients.add(v * rows.vector_step));
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let value = simd.splat(*x.add(r * row_step));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = simd.mul_add(value, vector, *sum);
                        }
                    }
                    x = x.wrapping_add(rows.pixel_step);
                    gradients = gradients.wrapping_add(rows.gradient_step);
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    simd.store(rows.sums.add((r * V + v) * S::LANES), *sum);
                }
            }
        }
    }
}

/// The rows of the highest tile with this many vectors that fits `left` rows.
pub(super) fn height<S: Simd>(left: usize, vectors: usize) -> usize {
    let highest = if vectors == 2 { S::WEIGHT_TILE } else { 2 * S::WEIGHT_TILE };
    [16, 8, 4, 3, 2].into_iter().find(|&height| height <= left.min(highest)).unwrap_or(1)
}

/// # Safety
/// As for [`Rows`] with this many rows, one of [`height`], and vectors.
pub(super) unsafe fn run_rows<S: Simd>(
    simd: S,
    rows: Rows<'_, S::E>,
    [count, vectors]: [usize; 2],
    blocked: bool,
) {
    macro_rules! tile {
        ($rows:literal, $vectors:literal, $blocked:literal) => {
            // SAFETY: passed on to the caller.
            unsafe { simd.call(RowTile::<_, $rows, $vectors, $blocked>(rows)) }
        };
    }
    macro_rules! heights {
        ($blocked:literal) => {
            match (count, vectors) {
                (1, 1) => tile!(1, 1, $blocked),
                (2, 1) => tile!(2, 1, $blocked),
                (3, 1) => tile!(3, 1, $blocked),
                (4, 1) => tile!(4, 1, $blocked),
                (8, 1) => tile!(8, 1, $blocked),
                (16, 1) if const { 16 <= 2 * S::WEIGHT_TILE } => tile!(16, 1, $blocked),
                (1, 2) => tile!(1, 2, $blocked),
                (2, 2) => tile!(2, 2, $blocked),
                (3, 2) => tile!(3, 2, $blocked),
                (4, 2) => tile!(4, 2, $blocked),
                (8, 2) if const { 8 <= S::WEIGHT_TILE } => tile!(8, 2, $blocked),
                _ => unreachable!("no tiles of {count} rows by {vectors} vectors"),
            }
        };
    }
    if blocked {
        heights!(true);
    } else {
        heights!(false);
    }
}

/// Sums of input channels at the taps of a [`Sequence`](super::dense::Sequence) times gradients over the pixels of some lines.
/// Tap t reads column `p + t` for pixel p, in steps of the stride. So the pixels whose taps read a column lie side by
/// side: it is broadcast once for all taps, and a gradient is loaded once for all of them.
///
/// # Safety
/// As for [`Rows`], but `x_offset + r·row_step + j·pixel_step` is column `columns[0] + j` and is readable before
/// `columns[1]`, which is at most `pixels + taps − 1`. There are as many pixels as taps, or more. `sums` is valid for
/// a vector at `t·tap_sums + r·row_sums + v·S::LANES`.
#[derive(Clone, Copy)]
pub(super) struct SequenceRows<'a, E> {
    pub(super) rows: Rows<'a, E>,
    /// The columns that lie inside the image: the first and the end, counted from what tap 0 reads for pixel 0.
    pub(super) columns: [usize; 2],
    pub(super) row_sums: usize,
    pub(super) tap_sums: usize,
}

/// [`SequenceRows`] for `R` input channels by `V` vectors of output channels by `T` taps.
struct SequenceTile<'a, E, const R: usize, const V: usize, const T: usize, const BLOCKED: bool>(
    SequenceRows<'a, E>,
);

impl<E: Element, const R: usize, const V: usize, const T: usize, const BLOCKED: bool> Micro<E>
    for SequenceTile<'_, E, R, V, T, BLOCKED>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        const { assert!(R <= 8 && V <= 2 && (T == 2 || T == 3), "spelled out below") };
        let SequenceRows { rows, columns: [begin, end], row_sums, tap_sums } = self.0;
        let row_step = if BLOCKED { 1 } else { rows.row_step };
        let at =
            |r: usize, t: usize, v: usize| rows.sums.wrapping_add(t * tap_sums + r * row_sums + v * S::LANES);
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [[[simd.splat(E::ZERO); V]; T]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (t, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.load(at(r, t, v));
                    }
                }
            }
            for line in rows.lines {
                let mut x = line.x.wrapping_add(rows.x_offset);
                // spelled out, because the compiler keeps sums in memory that it does not see to be distinct
                macro_rules! gradients {
                    ($pixel:expr) => {{
                        let start =
                            line.gradients.wrapping_add(rows.gradient_offset + $pixel * rows.gradient_step);
                        [simd.load(start), simd.load(start.wrapping_add((V - 1) * rows.vector_step))]
                    }};
                }
                macro_rules! multiply_add {
                    ($value:ident, -, $r:literal, $t:literal) => {};
                    ($value:ident, $gradients:ident, $r:literal, $t:literal) => {
                        let sums = &mut sums[$r % R][$t % T];
                        sums[0] = simd.mul_add($value, $gradients[0], sums[0]);
                        if V > 1 {
                            sums[1 % V] = simd.mul_add($value, $gradients[1], sums[1 % V]);
                        }
                    };
                }
                // a column, with the gradients of the taps that read it
                macro_rules! column {
                    ($first:tt $second:tt $third:tt, $($r:literal)*) => {
                        $(if $r < R {
                            let value = simd.splat(*x.wrapping_add($r * row_step));
                            multiply_add!(value, $first, $r, 0);
                            multiply_add!(value, $second, $r, 1);
                            if T > 2 {
                                multiply_add!(value, $third, $r, 2);
                            }
                        })*
                    };
                }
                let n = rows.pixels;
                if begin >= n || end < T {
                    // padding is nearly all that the row reads
                    for q in begin..end {
                        if q < n {
                            let first = gradients!(q);
                            column!(first - -, 0 1 2 3 4 5 6 7);
                        }
                        if (1..=n).contains(&q) {
                            let second = gradients!(q - 1);
                            column!(- second -, 0 1 2 3 4 5 6 7);
                        }
                        if T > 2 && q >= 2 {
                            let third = gradients!(q - 2);
                            column!(- - third, 0 1 2 3 4 5 6 7);
                        }
                        x = x.wrapping_add(rows.pixel_step);
                    }
                    continue;
                }
                let mut q = begin.max(T - 1);
                // the gradients of the pixels before
                let mut second = gradients!(q - 1);
                let mut third = if T > 2 { gradients!(q - 2) } else { second };
                if begin == 0 {
                    column!(third - -, 0 1 2 3 4 5 6 7);
                    x = x.wrapping_add(rows.pixel_step);
                }
                if T > 2 && begin <= 1 {
                    column!(second third -, 0 1 2 3 4 5 6 7);
                    x = x.wrapping_add(rows.pixel_step);
                }
                let all = end.min(n);
                while q + 3 <= all {
                    let first = gradients!(q);
                    column!(first second third, 0 1 2 3 4 5 6 7);
                    x = x.wrapping_add(rows.pixel_step);
                    third = gradients!(q + 1);
                    column!(third first second, 0 1 2 3 4 5 6 7);
                    x = x.wrapping_add(rows.pixel_step);
                    second = gradients!(q + 2);
                    column!(second third first, 0 1 2 3 4 5 6 7);
                    x = x.wrapping_add(rows.pixel_step);
                    q += 3;
                }
                while q < all {
                    let first = gradients!(q);
                    column!(first second third, 0 1 2 3 4 5 6 7);
                    x = x.wrapping_add(rows.pixel_step);
                    (second, third) = (first, second);
                    q += 1;
                }
                if end > n {
                    column!(- second third, 0 1 2 3 4 5 6 7);
                }
                if end > n + 1 {
                    x = x.wrapping_add(rows.pixel_step);
                    column!(- - second, 0 1 2 3 4 5 6 7);
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (t, sums) in sums.iter().enumerate() {
                    for (v, sum) in sums.iter().enumerate() {
                        simd.store(at(r, t, v), *sum);
                    }
                }
            }
        }
    }
}

/// The input channels of the highest tile of a sequence with this many vectors that fits `left`.
pub(super) fn sequence_height<S: Simd>(left: usize, vectors: usize) -> usize {
    let highest = S::WEIGHT_TILE / vectors;
    [8, 4, 3, 2].into_iter().find(|&height| height <= left.min(highest)).unwrap_or(1)
}

/// # Safety
/// As for [`SequenceRows`] with this many input channels, one of [`sequence_height`], vectors and taps.
pub(super) unsafe fn run_sequence<S: Simd>(
    simd: S,
    rows_of_sequence: SequenceRows<'_, S::E>,
    [count, vectors, taps]: [usize; 3],
    blocked: bool,
) {
    macro_rules! tile {
        ($rows:literal, $vectors:literal, $taps:literal) => {
            // SAFETY: passed on to the caller.
            unsafe {
                if blocked {
                    simd.call(SequenceTile::<_, $rows, $vectors, $taps, true>(rows_of_sequence))
                } else {
                    simd.call(SequenceTile::<_, $rows, $vectors, $taps, false>(rows_of_sequence))
                }
            }
        };
    }
    macro_rules! tiles {
        ($($rows:literal $vectors:literal),*) => {
            match (count, vectors, taps) {
                $(($rows, $vectors, 2) if const { $rows * $vectors <= S::WEIGHT_TILE } => tile!($rows, $vectors, 2),
                  ($rows, $vectors, 3) if const { $rows * $vectors <= S::WEIGHT_TILE } => tile!($rows, $vectors, 3),)*
                _ => unreachable!("no tiles of {count} rows by {vectors} vectors at {taps} taps"),
            }
        };
    }
    tiles!(1 1, 2 1, 3 1, 4 1, 8 1, 1 2, 2 2, 3 2, 4 2);
}

/// Sums of vectors of input channels at some neighbouring taps times gradients of a few output channels, over the pixels of a row.
///
/// # Safety
/// `x` is readable for a vector at `j·pixel_step + t·tap_step`, `gradients` at `j + o·gradient_stride`; `sums` is valid for a vector at
/// `(t·outputs + o)·S::LANES`, and nothing else uses it.
#[derive(Clone, Copy)]
pub(super) struct DotRow<E> {
    pub(super) x: *const E,
    pub(super) pixel_step: usize,
    pub(super) tap_step: usize,
    pub(super) gradients: *const E,
    pub(super) gradient_stride: usize,
    pub(super) pixels: usize,
    pub(super) sums: *mut E,
}

/// The taps of a [`DotTile`]: with three outputs nine sums, as many as multiply-adds are under way.
pub(super) const DOT_TAPS: usize = 3;

/// [`DotRow`] for `O` outputs and [`DOT_TAPS`] taps.
struct DotTile<E, const O: usize>(DotRow<E>);

impl<E: Element, const O: usize> Micro<E> for DotTile<E, O> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let row = self.0;
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [[simd.splat(E::ZERO); O]; DOT_TAPS];
            for (t, sums) in sums.iter_mut().enumerate() {
                for (o, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.load(row.sums.add((t * O + o) * S::LANES));
                }
            }
            let (mut x, mut gradients) = (row.x, row.gradients);
            for _ in 0..row.pixels {
                let mut values = [simd.splat(E::ZERO); O];
                for (o, value) in values.iter_mut().enumerate() {
                    *value = simd.splat(*gradients.add(o * row.gradient_stride));
                }
                for (t, sums) in sums.iter_mut().enumerate() {
                    let inputs = simd.load(x.add(t * row.tap_step));
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = simd.mul_add(value, inputs, *sum);
                    }
                }
                x = x.wrapping_add(row.pixel_step);
                gradients = gradients.wrapping_add(1);
            }
            for (t, sums) in sums.iter().enumerate() {
                for (o, sum) in sums.iter().enumerate() {
                    simd.store(row.sums.add((t * O + o) * S::LANES), *sum);
                }
            }
        }
    }
}

/// # Safety
/// As for [`DotRow`] with this many outputs, at most three.
pub(super) unsafe fn run_dot<S: Simd>(simd: S, row: DotRow<S::E>, outputs: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match outputs {
            1 => simd.call(DotTile::<_, 1>(row)),
            2 => simd.call(DotTile::<_, 2>(row)),
            _ => simd.call(DotTile::<_, 3>(row)),
        }
    }
}

/// Dot products of a row of `x` at some neighbouring taps with a row of gradients, pixels as lanes.
///
/// # Safety
/// `x` is readable for `vectors` vectors and as many columns more as there are taps, `gradients` for the vectors.
pub(super) struct PixelRow<'a, E> {
    pub(super) x: *const E,
    pub(super) gradients: *const E,
    pub(super) vectors: usize,
    pub(super) sums: &'a mut [E; 4],
}

impl<E: Element> Micro<E> for PixelRow<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [simd.splat(E::ZERO); 4];
            for j in 0..self.vectors {
                let gradient = simd.load(self.gradients.add(j * S::LANES));
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul_add(simd.load(self.x.add(j * S::LANES + t)), gradient, *sum);
                }
            }
            *self.sums = simd.sums(sums);
        }
    }
}
