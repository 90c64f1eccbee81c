//! Tiles of a convolution of one tap over blocks of channels, which lie in place; the last may have few.
//!
//! The sum is that of dense tiles, in their order. A tile of few channels is short, and what those do for each kernel row, run
//! and tap takes as long as its multiply-adds.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::source::{Buffer, MAX_SPAN, Reading, Source, Target, finish};
use super::terms::{Next, accumulate};
use crate::vector::{MAX_LANES, Micro, Simd, prefetch_far};

/// Neighbouring tiles of a row, of `P` pixels by `V` vectors of output channels.
///
/// # Safety
/// As for dense tiles where a block of inputs is a vector and the reading is [`Reading::Direct`]; kernel
/// rows and columns are one, and the channels begin with a block.
pub(super) struct Points<'a, E, const P: usize, const V: usize, const STRIDE: usize> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) count: usize,
}

impl<E: Element, const P: usize, const V: usize, const STRIDE: usize> Micro<E>
    for Points<'_, E, P, V, STRIDE>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let source = self.source;
        let mut buffer: Buffer<E> = [MaybeUninit::uninit(); MAX_LANES * MAX_SPAN];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        let step = S::LANES * STRIDE;
        let (first, end) = source.channels;
        let blocks = (end - first).div_ceil(S::LANES);
        let ahead = source.ahead[0];
        let begin = source.direct::<S, true>(source.row, first, source.col);
        let begin_ahead = ahead.start.wrapping_add(first / S::LANES * source.block_stride);
        let mut start = self.target.start;
        for tile in 0..self.count {
            self.target.prefetch::<S>(start, [P, V]);
            source.weights_ahead.fetch(tile);
            let mut inputs = begin.after(tile * P * step);
            let next_tile = inputs.after(P * step).start;
            let mut far = begin_ahead.wrapping_add(tile * P * step);
            let mut weights = self.weights;
            // SAFETY: as for dense tiles: the source holds the pixels of all blocks, the packed weights are as long as the terms.
            unsafe {
                let mut sums: [[S::V; V]; P] = self.target.first(simd, start, self.bias);
                for block in 0..blocks {
                    for pixel in 0..ahead.pixels {
                        prefetch_far(far.wrapping_add(pixel * S::LANES));
                    }
                    far = far.wrapping_add(source.block_stride);
                    let following = inputs.after(source.block_stride);
                    let at = if block + 1 < blocks { following.start } else { next_tile };
                    let next = Some(Next { at, step });
                    let len = (end - first - block * S::LANES).min(S::LANES);
                    weights = accumulate::<S, P, V>(simd, &mut sums, inputs, step, next, len, weights);
                    inputs = following;
                }
                finish::<S, P, V>(simd, self.target, start, &mut sums, buffer);
            }
            start = start.wrapping_add(P * self.target.step);
        }
    }
}

impl<E> Source<E> {
    /// Whether tiles that read in place may be [`Points`], where a block of inputs is a vector: their one tap is not left out.
    pub(super) fn is_point<S: Simd<E = E>>(&self) -> bool {
        let in_place = self.reading == Reading::Direct && self.channels.0.is_multiple_of(S::LANES);
        in_place && self.rows == 1 && self.cols == 1 && self.taps == [0, 1]
    }
}
