//! Lanes are output channels of several groups: depthwise and narrow groups.
//!
//! Lane l of an output vector reads, for each input c of its group, one lane of one input vector; so inputs are
//! loaded as vectors and permuted (depthwise: as they are). The order of the sum is input of the group, kernel
//! row, kernel column.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::{index, signed};
use super::source::{Buffer, MAX_SPAN, Reading, Source, Target, finish};
use super::tile::Tile;
use crate::vector::{MAX_LANES, Micro, Simd};

/// Neighbouring tiles of a row, of `P` pixels by one vector of output channels.
///
/// # Safety
/// As for [`super::dense::Tiles`]; `weights` is the start of the vector's weights.
pub(super) struct Tiles<'a, E, const P: usize, const STRIDE: usize, const PERMUTED: bool> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) groups: &'a Groups,
    pub(super) count: usize,
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
    pub(super) fn source(&self, output: usize) -> usize {
        output / self.out_group * self.in_group
    }

    /// The lanes of an input vector that the output channels from `output` read as input `c` of their group.
    pub(super) fn permutation(&self, output: usize, c: usize, lanes: usize) -> [u8; MAX_LANES] {
        std::array::from_fn(|l| u8::try_from((self.source(output + l) + c) % lanes).unwrap_or(0))
    }
}

impl<E: Element, const P: usize, const STRIDE: usize, const PERMUTED: bool> Micro<E>
    for Tiles<'_, E, P, STRIDE, PERMUTED>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let (source, target, groups) = (self.source, self.target, self.groups);
        let mut buffer: Buffer<E> = [MaybeUninit::uninit(); MAX_LANES * MAX_SPAN];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        let block = groups.source(target.channel) / S::LANES;
        // inputs of a group are fewer than lanes, see `Problem::new`
        let permutations: [S::Index; MAX_LANES] = std::array::from_fn(|c| {
            let lanes = if PERMUTED && c < groups.in_group {
                groups.permutation(target.channel, c, S::LANES)
            } else {
                [0; MAX_LANES]
            };
            simd.index(&lanes)
        });
        let (mut col, mut start) = (source.col, target.start);
        for _ in 0..self.count {
            // SAFETY: as in `dense`.
            unsafe {
                let bias = simd.load(self.bias);
                let mut sums = [[bias; 1]; P];
                for c in 0..groups.in_group {
                    let lanes = permutations[c % MAX_LANES];
                    let mut row = source.row;
                    let first = (c * groups.rows + groups.first_row) * source.cols;
                    let mut weights = self.weights.add(first * S::LANES);
                    for _ in 0..source.rows {
                        for tap in 0..source.cols {
                            let col = col + signed(tap * source.tap_step);
                            let row = source.start.add(row * source.row_stride);
                            let inputs = if source.reading == Reading::Direct {
                                row.add(
                                    block * source.block_stride + index(col - source.first_col) * S::LANES,
                                )
                            } else {
                                self.copy::<S>(row, block, col, buffer);
                                buffer.cast_const()
                            };
                            let weight = simd.load(weights);
                            weights = weights.add(S::LANES);
                            for (p, sum) in sums.iter_mut().enumerate() {
                                let mut value = simd.load(inputs.add(p * STRIDE * S::LANES));
                                if PERMUTED {
                                    value = simd.permute(value, lanes);
                                }
                                sum[0] = simd.mul_add(value, weight, sum[0]);
                            }
                        }
                        row = source.next_row(row);
                    }
                }
                finish::<S, P, 1>(simd, target, start, &mut sums, buffer);
            }
            col += signed(P) * source.pixel_step;
            start = start.wrapping_add(P * target.step);
        }
    }
}

impl<E: Element, const P: usize, const STRIDE: usize, const PERMUTED: bool>
    Tiles<'_, E, P, STRIDE, PERMUTED>
{
    /// Copies the vectors that one tap reads into the buffer, zeros where that is outside the image.
    ///
    /// # Safety
    /// As for the tiles.
    #[cold]
    #[inline(never)]
    unsafe fn copy<S: Simd<E = E>>(&self, row: *const E, block: usize, col: i64, buffer: *mut E) {
        let (source, groups) = (self.source, self.groups);
        for p in 0..P {
            let col = col + source.pixel_step * signed(p);
            // SAFETY: columns inside the image are held; the buffer holds P vectors.
            unsafe {
                let to = buffer.add(p * S::LANES);
                to.write_bytes(0, S::LANES);
                if col < 0 || source.width <= col {
                    continue;
                }
                let col = index(col - source.first_col);
                if groups.blocked {
                    to.copy_from_nonoverlapping(
                        row.add(block * source.block_stride + col * S::LANES),
                        S::LANES,
                    );
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

/// Runs `count` tiles of `pixels` pixels.
///
/// # Safety
/// As for [`Tiles`]; `pixels` is one of [`super::cut::WIDTHS`].
pub(super) unsafe fn run<S: Simd>(
    simd: S,
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    [pixels, count]: [usize; 2],
    groups: &Groups,
) {
    macro_rules! tiles {
        ($pixels:literal, $stride:literal, $permuted:literal) => {{
            let tiles =
                Tiles::<_, $pixels, $stride, $permuted> { source, target, weights, bias, groups, count };
            // SAFETY: passed on to the caller.
            unsafe { simd.call(tiles) }
        }};
    }
    macro_rules! widths {
        ($stride:literal, $permuted:literal, $($pixels:literal)*) => {
            match pixels {
                $($pixels if const { $pixels <= S::TILE } => tiles!($pixels, $stride, $permuted),)*
                _ => unreachable!("no tiles of {pixels} pixels"),
            }
        };
    }
    let permuted = groups.in_group > 1 || groups.out_group > 1;
    match (permuted, source.pixel_step == 1 || source.reading != Reading::Direct) {
        (true, true) => widths!(1, true, 1 2 4 6 8 10 12 14),
        (true, false) => widths!(2, true, 1 2 4 6 8 10 12 14),
        (false, true) => widths!(1, false, 1 2 4 6 8 10 12 14),
        (false, false) => widths!(2, false, 1 2 4 6 8 10 12 14),
    }
}
