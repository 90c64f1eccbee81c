//! Lanes are output channels of several groups: depthwise and narrow groups.
//!
//! Lane l of an output vector reads, for each input c of its group, one lane of one input vector; so inputs are
//! loaded as vectors and permuted (depthwise: as they are). The order of the sum is input of the group, kernel
//! row, kernel column.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::{index, signed};
use super::dense::{Source, Target};
use crate::vector::{MAX_LANES, MAX_TILE, Micro, Simd};

/// A tile of `P` pixels by one vector of output channels.
///
/// # Safety
/// As for [`super::dense::Tile`]; `weights` is the start of the vector's weights.
pub(super) struct Tile<'a, E, const P: usize, const STRIDE: usize, const PERMUTED: bool> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) groups: &'a Groups,
}

/// How output channels read input channels.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub(super) in_group: usize,
    pub(super) out_group: usize,
    /// All kernel rows, and the first one inside the image.
    pub(super) rows: usize,
    pub(super) first_row: usize,
    /// Whether a block of inputs is a vector, else one channel.
    pub(super) blocked: bool,
    /// All input channels.
    pub(super) inputs: usize,
}

impl Groups {
    /// The first input channel of the group of an output channel.
    fn source(&self, output: usize) -> usize {
        output / self.out_group * self.in_group
    }
}

impl<E: Element, const P: usize, const STRIDE: usize, const PERMUTED: bool> Micro<E>
    for Tile<'_, E, P, STRIDE, PERMUTED>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self) {
        let (source, target, groups) = (self.source, self.target, self.groups);
        let mut buffer = [MaybeUninit::<E>::uninit(); MAX_LANES * MAX_TILE];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        let block = groups.source(target.channel) / S::LANES;
        // SAFETY: offsets stay inside the storage that the source names, the packed weights and the buffer,
        // which holds MAX_TILE vectors.
        unsafe {
            let bias = S::load(self.bias);
            let mut sums = [[bias; 1]; P];
            for c in 0..groups.in_group {
                let mut lanes = [0; MAX_LANES];
                if PERMUTED {
                    for (l, lane) in lanes.iter_mut().enumerate().take(S::LANES) {
                        let from = (groups.source(target.channel + l) + c) % S::LANES;
                        *lane = u8::try_from(from).unwrap_or(0);
                    }
                }
                let lanes = S::index(&lanes);
                let mut row = source.row;
                let first = (c * groups.rows + groups.first_row) * source.cols;
                let mut weights = self.weights.add(first * S::LANES);
                for _ in 0..source.rows {
                    let row_start = source.start.add(row * source.row_stride);
                    row += source.row_step;
                    row = if row >= source.ring { row - source.ring } else { row };
                    for tap in 0..source.cols {
                        let col = source.col + source.tap_step * signed(tap);
                        let inputs = if source.gathered {
                            self.gather::<S>(row_start, block, col, buffer);
                            buffer.cast_const()
                        } else {
                            row_start
                                .add(block * source.block_stride + index(col - source.first_col) * S::LANES)
                        };
                        let weight = S::load(weights);
                        weights = weights.add(S::LANES);
                        for (p, sum) in sums.iter_mut().enumerate() {
                            let mut value = S::load(inputs.add(p * STRIDE * S::LANES));
                            if PERMUTED {
                                value = S::permute(value, lanes);
                            }
                            sum[0] = S::mul_add(value, weight, sum[0]);
                        }
                    }
                }
            }
            super::dense::finish::<S, P, 1>(target, &mut sums, buffer);
        }
    }
}

impl<E: Element, const P: usize, const STRIDE: usize, const PERMUTED: bool> Tile<'_, E, P, STRIDE, PERMUTED> {
    /// Copies the vectors that one tap reads into the buffer, zeros where that is outside the image.
    ///
    /// # Safety
    /// As for the tile.
    #[inline(always)]
    unsafe fn gather<S: Simd<E = E>>(&self, row: *const E, block: usize, col: i64, buffer: *mut E) {
        let (source, groups) = (self.source, self.groups);
        for p in 0..P {
            let col = col + source.pixel_step * signed(p);
            // SAFETY: columns inside the image are held; the buffer holds P vectors.
            unsafe {
                let to = buffer.add(p * S::LANES);
                S::store(to, S::splat(E::ZERO));
                if col < 0 || source.width <= col {
                    continue;
                }
                let col = index(col - source.first_col);
                if groups.blocked {
                    S::store(to, S::load(row.add(block * source.block_stride + col * S::LANES)));
                } else {
                    let first = block * S::LANES;
                    for l in 0..S::LANES.min(groups.inputs - first) {
                        *to.add(l) = *row.add((first + l) * source.block_stride + col);
                    }
                }
            }
        }
    }
}

/// Runs the tile of `pixels` pixels.
///
/// # Safety
/// As for [`Tile`]; `pixels` is at most the tile of the instruction set.
pub(super) unsafe fn run<S: Simd>(
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    pixels: usize,
    groups: &Groups,
) {
    macro_rules! tile {
        ($pixels:literal, $stride:literal, $permuted:literal) => {
            // SAFETY: passed on to the caller.
            unsafe {
                S::call(Tile::<_, $pixels, $stride, $permuted> { source, target, weights, bias, groups })
            }
        };
    }
    macro_rules! widths {
        ($stride:literal, $permuted:literal, $($pixels:literal)*) => {
            match pixels {
                $($pixels if $pixels <= S::TILE => tile!($pixels, $stride, $permuted),)*
                _ => unreachable!("tiles have at most {} pixels", S::TILE),
            }
        };
    }
    let permuted = groups.in_group > 1 || groups.out_group > 1;
    match (permuted, source.pixel_step == 1 || source.gathered) {
        (true, true) => widths!(1, true, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (true, false) => widths!(2, true, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (false, true) => widths!(1, false, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (false, false) => widths!(2, false, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    }
}
