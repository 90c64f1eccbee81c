//! The kernels of the gradient for the weights: sums of products over neighbouring pixels.

use tiled_tensor::Element;

use crate::vector::{MAX_LANES, Micro, Simd};

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
    unsafe fn run<S: Simd<E = E>>(self) {
        let rows = self.0;
        let row_step = if BLOCKED { 1 } else { rows.row_step };
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [[S::splat(E::ZERO); V]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = S::load(rows.sums.add((r * V + v) * S::LANES));
                }
            }
            for line in rows.lines {
                let mut x = line.x.wrapping_add(rows.x_offset);
                let mut gradients = line.gradients.wrapping_add(rows.gradient_offset);
                for _ in 0..rows.pixels {
                    let mut vectors = [S::splat(E::ZERO); V];
                    for (v, vector) in vectors.iter_mut().enumerate() {
                        *vector = S::load(gradients.add(v * rows.vector_step));
                    }
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let value = S::splat(*x.add(r * row_step));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = S::mul_add(value, vector, *sum);
                        }
                    }
                    x = x.wrapping_add(rows.pixel_step);
                    gradients = gradients.wrapping_add(rows.gradient_step);
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    S::store(rows.sums.add((r * V + v) * S::LANES), *sum);
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
pub(super) unsafe fn run_rows<S: Simd>(rows: Rows<'_, S::E>, [count, vectors]: [usize; 2], blocked: bool) {
    macro_rules! tile {
        ($rows:literal, $vectors:literal, $blocked:literal) => {
            // SAFETY: passed on to the caller.
            unsafe { S::call(RowTile::<_, $rows, $vectors, $blocked>(rows)) }
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
                (16, 1) => tile!(16, 1, $blocked),
                (1, 2) => tile!(1, 2, $blocked),
                (2, 2) => tile!(2, 2, $blocked),
                (3, 2) => tile!(3, 2, $blocked),
                (4, 2) => tile!(4, 2, $blocked),
                (8, 2) => tile!(8, 2, $blocked),
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

/// Sums of a few input planes, at [`TAPS`] neighbouring taps, times gradients over neighbouring pixels.
///
/// # Safety
/// As for [`Rows`], with inputs readable for two more columns; sums of channel c at tap t lie `t·tap_sums + c` times
/// `V` vectors from the first.
pub(super) struct PlaneTile<'a, E, const C: usize, const V: usize> {
    pub(super) rows: Rows<'a, E>,
    pub(super) tap_sums: usize,
}

/// Neighbouring taps that share the gradients of [`PlaneTile`].
pub(super) const TAPS: usize = 3;

impl<E: Element, const C: usize, const V: usize> Micro<E> for PlaneTile<'_, E, C, V> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self) {
        let rows = self.rows;
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [[[S::splat(E::ZERO); V]; TAPS]; C];
            for (c, sums) in sums.iter_mut().enumerate() {
                for (t, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = S::load(rows.sums.add(((t * self.tap_sums + c) * V + v) * S::LANES));
                    }
                }
            }
            for line in rows.lines {
                let mut x = line.x.wrapping_add(rows.x_offset);
                let mut gradients = line.gradients.wrapping_add(rows.gradient_offset);
                for _ in 0..rows.pixels {
                    let mut vectors = [S::splat(E::ZERO); V];
                    for (v, vector) in vectors.iter_mut().enumerate() {
                        *vector = S::load(gradients.add(v * rows.vector_step));
                    }
                    for (c, sums) in sums.iter_mut().enumerate() {
                        for (t, sums) in sums.iter_mut().enumerate() {
                            let value = S::splat(*x.add(c * rows.row_step + t));
                            for (sum, vector) in sums.iter_mut().zip(vectors) {
                                *sum = S::mul_add(value, vector, *sum);
                            }
                        }
                    }
                    x = x.wrapping_add(rows.pixel_step);
                    gradients = gradients.wrapping_add(rows.gradient_step);
                }
            }
            for (c, sums) in sums.iter().enumerate() {
                for (t, sums) in sums.iter().enumerate() {
                    for (v, sum) in sums.iter().enumerate() {
                        S::store(rows.sums.add(((t * self.tap_sums + c) * V + v) * S::LANES), *sum);
                    }
                }
            }
        }
    }
}

/// Runs a [`PlaneTile`] of `count` channels, at most four.
///
/// # Safety
/// As for [`PlaneTile`] with this many channels and vectors.
pub(super) unsafe fn run_planes<S: Simd>(
    rows: Rows<'_, S::E>,
    [count, vectors]: [usize; 2],
    tap_sums: usize,
) {
    macro_rules! tile {
        ($channels:literal, $vectors:literal) => {
            // SAFETY: passed on to the caller.
            unsafe { S::call(PlaneTile::<_, $channels, $vectors> { rows, tap_sums }) }
        };
    }
    match (count, vectors) {
        (1, 1) => tile!(1, 1),
        (2, 1) => tile!(2, 1),
        (3, 1) => tile!(3, 1),
        (_, 1) => tile!(4, 1),
        (1, _) => tile!(1, 2),
        (2, _) => tile!(2, 2),
        (3, _) => tile!(3, 2),
        (_, _) => tile!(4, 2),
    }
}

/// One vector of sums of permuted inputs times gradients over neighbouring pixels.
///
/// # Safety
/// `x` is readable for a vector at `j·pixel_step`, `gradients` at `j·gradient_step`; `sums` is valid for a vector and
/// nothing else uses it.
pub(super) struct LaneRow<'a, E> {
    pub(super) x: *const E,
    pub(super) pixel_step: usize,
    pub(super) lanes: &'a [u8; MAX_LANES],
    pub(super) gradients: *const E,
    pub(super) gradient_step: usize,
    pub(super) pixels: usize,
    pub(super) sums: *mut E,
}

impl<E: Element> Micro<E> for LaneRow<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self) {
        // SAFETY: as the type asks.
        unsafe {
            let lanes = S::index(self.lanes);
            let mut sum = S::load(self.sums);
            for j in 0..self.pixels {
                let value = S::permute(S::load(self.x.add(j * self.pixel_step)), lanes);
                sum = S::mul_add(value, S::load(self.gradients.add(j * self.gradient_step)), sum);
            }
            S::store(self.sums, sum);
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
    unsafe fn run<S: Simd<E = E>>(self) {
        // SAFETY: as the type asks.
        unsafe {
            let mut sums = [S::splat(E::ZERO); 4];
            for j in 0..self.vectors {
                let gradient = S::load(self.gradients.add(j * S::LANES));
                for (t, sum) in sums.iter_mut().enumerate() {
                    *sum = S::mul_add(S::load(self.x.add(j * S::LANES + t)), gradient, *sum);
                }
            }
            *self.sums = S::sums(sums);
        }
    }
}
