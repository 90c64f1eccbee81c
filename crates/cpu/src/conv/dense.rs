//! Lanes are output channels of one group; inputs are broadcast.
//!
//! A tile is `P` neighbouring outputs of a class by one or two vectors of output channels. Its whole sum is kept in
//! registers, in one order (kernel row, run of input channels, kernel column, input channel), whatever the tile.
//! Kernel rows outside the image are left out; columns outside it are read as zeros from a small buffer.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::{index, signed};
use crate::vector::{MAX_LANES, MAX_TILE, Micro, Simd};

/// The image that a tile reads, and where.
#[derive(Clone, Copy)]
pub(super) struct Source<E> {
    /// Row 0 of storage of block 0 of the image.
    pub(super) start: *const E,
    /// The row of storage of the first kernel row inside the image, and the step to the next, modulo `ring`.
    pub(super) row: usize,
    pub(super) row_step: usize,
    pub(super) ring: usize,
    pub(super) row_stride: usize,
    pub(super) block_stride: usize,
    /// Kernel rows inside the image.
    pub(super) rows: usize,
    /// The input column of the first tap of the first pixel; columns between pixels and between taps.
    pub(super) col: i64,
    pub(super) pixel_step: i64,
    pub(super) tap_step: i64,
    /// Kernel columns.
    pub(super) cols: usize,
    /// The columns of the image, and the first column held.
    pub(super) width: i64,
    pub(super) first_col: i64,
    /// The input channels: first, end, and how many are summed between two kernel columns.
    pub(super) channels: (usize, usize),
    pub(super) run: usize,
    /// Whether inputs are read through the buffer of zeros.
    pub(super) gathered: bool,
}

/// The outputs that a tile writes.
#[derive(Clone, Copy)]
pub(super) struct Target<E> {
    /// The first pixel in block 0 of the image.
    pub(super) start: *mut E,
    /// Elements between pixels, and between blocks.
    pub(super) step: usize,
    pub(super) block_stride: usize,
    pub(super) block: usize,
    /// The first output channel, and how many there are from there in the group.
    pub(super) channel: usize,
    pub(super) channels: usize,
    /// Whether vectors are whole blocks.
    pub(super) whole: bool,
    pub(super) relu: bool,
}

/// A tile of `P` pixels by `V` vectors of output channels.
///
/// # Safety
/// `weights` holds the terms of the rows, `bias` the vectors; every input that the source names lies in
/// storage where it is inside the image, and every column is inside the image unless `gathered`; the target is
/// valid for writing and nothing else uses it. `BLOCKED` says that a block of inputs is a vector, else it is
/// one channel; `STRIDE` is the pixel step unless `gathered`.
pub(super) struct Tile<'a, E, const P: usize, const V: usize, const BLOCKED: bool, const STRIDE: usize> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
}

type Buffer<E> = [MaybeUninit<E>; MAX_LANES * MAX_TILE];

impl<E: Element, const P: usize, const V: usize, const BLOCKED: bool, const STRIDE: usize> Micro<E>
    for Tile<'_, E, P, V, BLOCKED, STRIDE>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self) {
        let source = self.source;
        let mut buffer: Buffer<E> = [MaybeUninit::uninit(); MAX_LANES * MAX_TILE];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        // SAFETY: offsets below stay inside the storage that the source names, the packed weights and the
        // buffer, which holds MAX_TILE pixels of MAX_LANES channels.
        unsafe {
            let mut sums = [[S::splat(E::ZERO); V]; P];
            for v in 0..V {
                let bias = S::load(self.bias.add(v * S::LANES));
                for pixel in &mut sums {
                    pixel[v] = bias;
                }
            }
            let mut weights = self.weights;
            let mut row = source.row;
            for _ in 0..source.rows {
                let row_start = source.start.add(row * source.row_stride);
                row += source.row_step;
                row = if row >= source.ring { row - source.ring } else { row };
                let (mut channel, end) = source.channels;
                while channel < end {
                    let lane = channel % source.run;
                    let len = (source.run - lane).min(end - channel);
                    let start = if BLOCKED {
                        row_start.add(channel / S::LANES * source.block_stride + channel % S::LANES)
                    } else {
                        row_start.add(channel * source.block_stride)
                    };
                    for tap in 0..source.cols {
                        let col = source.col + source.tap_step * signed(tap);
                        let (inputs, channel_step) = if source.gathered {
                            let block = if BLOCKED { start.sub(channel % S::LANES) } else { start };
                            self.gather::<S>(block, col, len, buffer);
                            let lane = if BLOCKED { channel % S::LANES } else { 0 };
                            (buffer.add(lane).cast_const(), if BLOCKED { 1 } else { P })
                        } else {
                            let col = index(col - source.first_col);
                            if BLOCKED {
                                (start.add(col * S::LANES), 1)
                            } else {
                                (start.add(col), source.block_stride)
                            }
                        };
                        let step = if BLOCKED { S::LANES * STRIDE } else { STRIDE };
                        weights = accumulate::<S, P, V>(&mut sums, inputs, step, channel_step, len, weights);
                    }
                    channel += len;
                }
            }
            finish::<S, P, V>(self.target, &mut sums, buffer);
        }
    }
}

impl<E: Element, const P: usize, const V: usize, const BLOCKED: bool, const STRIDE: usize>
    Tile<'_, E, P, V, BLOCKED, STRIDE>
{
    /// Copies what one tap reads into the buffer, zeros where that is outside the image.
    ///
    /// # Safety
    /// As for the tile; `start` is the first column held, of a block or of the first of `channels` planes.
    #[inline(always)]
    unsafe fn gather<S: Simd<E = E>>(&self, start: *const E, col: i64, channels: usize, buffer: *mut E) {
        let source = self.source;
        for p in 0..P {
            let col = col + source.pixel_step * signed(p);
            let inside = 0 <= col && col < source.width;
            let offset = if inside { index(col - source.first_col) } else { 0 };
            // SAFETY: columns inside the image are held; the buffer holds P pixels of a block, or of
            // `channels <= MAX_LANES` planes.
            unsafe {
                if BLOCKED {
                    let value =
                        if inside { S::load(start.add(offset * S::LANES)) } else { S::splat(E::ZERO) };
                    S::store(buffer.add(p * S::LANES), value);
                } else {
                    for c in 0..channels {
                        let value =
                            if inside { *start.add(c * source.block_stride + offset) } else { E::ZERO };
                        *buffer.add(c * P + p) = value;
                    }
                }
            }
        }
    }
}

/// Applies the activation and writes a tile.
///
/// # Safety
/// The target is valid for `P` pixels of `V` vectors; `buffer` holds `P` vectors.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, const P: usize, const V: usize>(
    target: &Target<S::E>,
    sums: &mut [[S::V; V]; P],
    buffer: *mut S::E,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        if target.relu {
            for pixel in sums.iter_mut() {
                for value in pixel {
                    *value = S::relu(*value);
                }
            }
        }
        for v in 0..V {
            let channel = target.channel + v * S::LANES;
            if target.whole {
                let start = target.start.add(channel / S::LANES * target.block_stride);
                for (p, pixel) in sums.iter().enumerate() {
                    S::store(start.add(p * target.step), pixel[v]);
                }
            } else {
                for (p, pixel) in sums.iter().enumerate() {
                    S::store(buffer.add(p * S::LANES), pixel[v]);
                }
                scatter(target, v * S::LANES, S::LANES, P, buffer);
            }
        }
    }
}

/// Writes the lanes of `pixels` vectors one by one.
///
/// # Safety
/// As for the tile that calls it.
#[inline(never)]
unsafe fn scatter<E: Element>(target: &Target<E>, first: usize, lanes: usize, pixels: usize, from: *const E) {
    for lane in 0..lanes.min(target.channels - first) {
        let channel = target.channel + first + lane;
        let offset = channel / target.block * target.block_stride + channel % target.block;
        for p in 0..pixels {
            // SAFETY: the channel is one of the target's, the pixel one of the tile's.
            unsafe { *target.start.add(offset + p * target.step) = *from.add(p * lanes + lane) };
        }
    }
}

/// Adds `len` input channels of one tap; returns the weights that follow.
///
/// # Safety
/// `inputs` is readable at `p·step + c·channel_step`, `weights` for `len·V` vectors.
#[inline(always)]
unsafe fn accumulate<S: Simd, const P: usize, const V: usize>(
    sums: &mut [[S::V; V]; P],
    inputs: *const S::E,
    step: usize,
    channel_step: usize,
    len: usize,
    weights: *const S::E,
) -> *const S::E {
    let (mut inputs, mut weights) = (inputs, weights);
    for _ in 0..len {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut vectors = [S::splat(S::E::ZERO); V];
            for (v, vector) in vectors.iter_mut().enumerate() {
                *vector = S::load(weights.add(v * S::LANES));
            }
            for p in 0..P {
                let value = S::splat(*inputs.add(p * step));
                for v in 0..V {
                    sums[p][v] = S::mul_add(value, vectors[v], sums[p][v]);
                }
            }
            inputs = inputs.wrapping_add(channel_step);
            weights = weights.add(V * S::LANES);
        }
    }
    weights
}

/// Runs the tile of `pixels` pixels and `vectors` vectors.
///
/// # Safety
/// As for [`Tile`], for the widths named; `pixels` is at most the tile of the instruction set.
pub(super) unsafe fn run<S: Simd>(
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    [pixels, vectors]: [usize; 2],
    blocked: bool,
) {
    macro_rules! tile {
        ($pixels:literal, $vectors:literal, $blocked:literal, $stride:literal) => {
            // SAFETY: passed on to the caller.
            unsafe {
                S::call(Tile::<_, $pixels, $vectors, $blocked, $stride> { source, target, weights, bias })
            }
        };
    }
    macro_rules! widths {
        ($blocked:literal, $stride:literal, $($pixels:literal)*) => {
            match (pixels, vectors) {
                $(($pixels, 1) if $pixels <= S::TILE => tile!($pixels, 1, $blocked, $stride),
                  ($pixels, 2) if $pixels <= S::TILE => tile!($pixels, 2, $blocked, $stride),)*
                _ => unreachable!("tiles have at most {} pixels", S::TILE),
            }
        };
    }
    match (blocked, source.pixel_step == 1 || source.gathered) {
        (true, true) => widths!(true, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (true, false) => widths!(true, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (false, true) => widths!(false, 1, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        (false, false) => widths!(false, 2, 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
    }
}
