//! Rows of channels to channels of a pixel, and back.

use std::any::TypeId;

use crate::Element;

/// Transposes a matrix: `to[c·to_stride + r] = from[r·from_stride + c]` for `r` below `rows` and `c` below `cols`.
///
/// The rows of a few channels become the pixels of a channel block, or the other way round.
///
/// # Panics
/// Where the matrix leaves `from` or `to`.
///
/// ```
/// // two rows of three pixels become three pixels of two channels
/// let mut pixels = [0.0_f32; 6];
/// tiled_tensor::transpose(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, &mut pixels, 2, [2, 3]);
/// assert_eq!(pixels, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// ```
pub fn transpose<T: Element>(
    from: &[T],
    from_stride: usize,
    to: &mut [T],
    to_stride: usize,
    [rows, cols]: [usize; 2],
) {
    if rows == 0 || cols == 0 {
        return;
    }
    let last = |stride: usize, lines: usize, len: usize| {
        stride.checked_mul(lines - 1).and_then(|start| start.checked_add(len))
    };
    assert!(
        last(from_stride, rows, cols).is_some_and(|end| end <= from.len()),
        "{rows}×{cols} of {}",
        from.len()
    );
    assert!(last(to_stride, cols, rows).is_some_and(|end| end <= to.len()), "{cols}×{rows} of {}", to.len());
    let mut done = [0, 0];
    if cfg!(target_arch = "x86_64") && TypeId::of::<T>() == TypeId::of::<f32>() {
        done = [rows / 4 * 4, cols / 4 * 4];
        // SAFETY: the elements are f32; the matrix lies in both slices, as asserted, which do not overlap.
        unsafe { squares(from.as_ptr().cast(), from_stride, to.as_mut_ptr().cast(), to_stride, done) };
    }
    for c in 0..cols {
        let first = if c < done[1] { done[0] } else { 0 };
        for r in first..rows {
            to[c * to_stride + r] = from[r * from_stride + c];
        }
    }
}

/// The pixels that are taken at a time: a few rows of them stay in the first cache.
#[cfg(target_arch = "x86_64")]
const PIXELS: usize = 16;

/// Transposes squares of four by four; `rows` and `cols` are multiples of four.
///
/// # Safety
/// Both matrices are valid and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn squares(
    from: *const f32,
    from_stride: usize,
    to: *mut f32,
    to_stride: usize,
    [rows, cols]: [usize; 2],
) {
    use std::arch::x86_64::{
        _mm_loadu_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps,
    };
    for begin in (0..cols).step_by(PIXELS) {
        for r in (0..rows).step_by(4) {
            for c in (begin..cols.min(begin + PIXELS)).step_by(4) {
                // SAFETY: the square lies in both matrices; SSE is part of every x86-64.
                unsafe {
                    let [a, b, d, e] =
                        [0, 1, 2, 3].map(|i| _mm_loadu_ps(from.add((r + i) * from_stride + c)));
                    let (low, high) = (
                        [_mm_unpacklo_ps(a, b), _mm_unpacklo_ps(d, e)],
                        [_mm_unpackhi_ps(a, b), _mm_unpackhi_ps(d, e)],
                    );
                    let to = to.add(c * to_stride + r);
                    _mm_storeu_ps(to, _mm_movelh_ps(low[0], low[1]));
                    _mm_storeu_ps(to.add(to_stride), _mm_movehl_ps(low[1], low[0]));
                    _mm_storeu_ps(to.add(2 * to_stride), _mm_movelh_ps(high[0], high[1]));
                    _mm_storeu_ps(to.add(3 * to_stride), _mm_movehl_ps(high[1], high[0]));
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn squares(_: *const f32, _: usize, _: *mut f32, _: usize, _: [usize; 2]) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(value: impl Fn(usize) -> T) {
        for [rows, cols] in [[1, 1], [3, 5], [4, 4], [16, 37], [37, 16], [5, 64], [0, 3]] {
            let (from_stride, to_stride) = (cols + 3, rows + 1);
            let from: Vec<T> = (0..rows * from_stride).map(&value).collect();
            let mut to = vec![value(usize::MAX >> 40); cols * to_stride];
            let before = to.clone();
            transpose(&from, from_stride, &mut to, to_stride, [rows, cols]);
            for c in 0..cols {
                for r in 0..to_stride {
                    let expected =
                        if r < rows { from[r * from_stride + c] } else { before[c * to_stride + r] };
                    assert!(to[c * to_stride + r] == expected, "{rows}×{cols}: row {r} column {c}");
                }
            }
        }
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn every_element_goes_to_its_mirror_and_nothing_else_changes() {
        check(|i| i as f32);
        check(|i| i as f64);
    }

    #[test]
    #[should_panic(expected = "4×4 of 15")]
    fn a_matrix_that_leaves_its_slice_is_refused() {
        transpose(&[0.0_f32; 15], 4, &mut [0.0; 16], 4, [4, 4]);
    }
}
