//! Lanes are output channels of one group; inputs are broadcast.
//!
//! A tile is `P` neighbouring outputs of a class by one or two vectors of output channels. Its whole sum is kept in
//! registers, in one order (kernel row, run of input channels, kernel column, input channel), whatever the tile.
//! Kernel rows outside the image are left out; columns outside it are read as zeros from a small buffer.
//!
//! With one vector of output channels each multiply-add would need a load of its own, and loads would limit. So where
//! three taps lie next to each other, an input is broadcast once for the three outputs that read it; the
//! order is then kernel row, run, input channel, kernel column.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::signed;
use super::source::{Buffer, MAX_SPAN, Reading, Source, Target, finish};
use crate::vector::{MAX_LANES, Micro, Simd};

/// Taps of a kernel row that share a broadcast.
pub(super) const SHARED_TAPS: usize = 3;

/// Neighbouring tiles of a row, of `P` pixels by `V` vectors of output channels.
///
/// # Safety
/// `weights` holds the terms of the rows, `bias` the vectors; every input that the source names lies in
/// storage where it is inside the image, and is read as [`Source::inputs`] asks; the target is valid for writing and
/// nothing else uses it. `BLOCKED` says that a block of inputs is a vector, else it is one channel; `STRIDE`
/// is the pixel step unless the reading is [`Reading::Tap`]. Where `SHARED`, there are [`SHARED_TAPS`]
/// columns side by side, one vector, stride one, and the reading is not [`Reading::Tap`].
pub(super) struct Tiles<
    'a,
    E,
    const P: usize,
    const V: usize,
    const BLOCKED: bool,
    const STRIDE: usize,
    const SHARED: bool,
> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) count: usize,
}

impl<E: Element, const P: usize, const V: usize, const BLOCKED: bool, const STRIDE: usize, const SHARED: bool>
    Micro<E> for Tiles<'_, E, P, V, BLOCKED, STRIDE, SHARED>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self) {
        let source = self.source;
        let mut buffer: Buffer<E> = [MaybeUninit::uninit(); MAX_LANES * MAX_SPAN];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        let unit = if BLOCKED { S::LANES } else { 1 };
        let (first, end) = source.channels;
        let phase = first % source.run;
        let (mut col, mut start) = (source.col, self.target.start);
        for _ in 0..self.count {
            self.target.prefetch(start);
            // SAFETY: the source holds what it names, the packed weights are as long as the terms, and the buffer
            // holds MAX_SPAN pixels.
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
                    let mut channel = first;
                    let mut len = (source.run - phase).min(end - first);
                    while channel < end {
                        let run = (channel, len);
                        let inputs = source.inputs::<S, BLOCKED>(row, run, col, P, buffer);
                        if SHARED {
                            weights = accumulate_shared::<S, P, V>(
                                &mut sums,
                                inputs.start,
                                unit,
                                inputs.channel_step,
                                len,
                                weights,
                            );
                        } else {
                            for tap in 0..source.cols {
                                let (inputs, step) = if source.reading == Reading::Tap {
                                    let col = col + signed(tap * source.tap_step);
                                    (source.tap::<S, BLOCKED>(row, run, col, P, buffer), unit)
                                } else {
                                    let start = inputs.start.wrapping_add(tap * source.tap_step * unit);
                                    (super::source::Inputs { start, ..inputs }, unit * STRIDE)
                                };
                                weights = accumulate::<S, P, V>(
                                    &mut sums,
                                    inputs.start,
                                    step,
                                    inputs.channel_step,
                                    len,
                                    weights,
                                );
                            }
                        }
                        channel += len;
                        len = source.run.min(end - channel);
                    }
                    row = source.next_row(row);
                }
                finish::<S, P, V>(self.target, start, &mut sums, buffer);
            }
            col += signed(P) * source.pixel_step;
            start = start.wrapping_add(P * self.target.step);
        }
    }
}

/// Adds `len` input channels of one tap; returns the weights that follow.
///
/// # Safety
/// `inputs` is readable at `p·step + c·channel_step`, `weights` for `len·V` vectors.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, const P: usize, const V: usize>(
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
            for (p, sums) in sums.iter_mut().enumerate() {
                let value = S::splat(*inputs.add(p * step));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = S::mul_add(value, vector, *sum);
                }
            }
            inputs = inputs.wrapping_add(channel_step);
            weights = weights.add(V * S::LANES);
        }
    }
    weights
}

/// Adds `len` input channels of [`SHARED_TAPS`] neighbouring taps; returns the weights that follow.
///
/// # Safety
/// `inputs` is readable at `p·step + c·channel_step` for two more pixels than `P`, `weights` for `len·3·V` vectors.
#[inline(always)]
unsafe fn accumulate_shared<S: Simd, const P: usize, const V: usize>(
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
            let mut vectors = [[S::splat(S::E::ZERO); V]; SHARED_TAPS];
            for (t, vectors) in vectors.iter_mut().enumerate() {
                for (v, vector) in vectors.iter_mut().enumerate() {
                    *vector = S::load(weights.add((t * V + v) * S::LANES));
                }
            }
            // spelled out, because the compiler does not unroll so long a loop
            macro_rules! broadcasts {
                ($($q:literal)*) => {
                    $(if $q < P + SHARED_TAPS - 1 {
                        let value = S::splat(*inputs.add($q * step));
                        for (t, vectors) in vectors.iter().enumerate() {
                            if t <= $q && $q - t < P {
                                for (sum, vector) in sums[$q - t].iter_mut().zip(vectors) {
                                    *sum = S::mul_add(value, *vector, *sum);
                                }
                            }
                        }
                    })*
                };
            }
            broadcasts!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25);
            inputs = inputs.wrapping_add(channel_step);
            weights = weights.add(SHARED_TAPS * V * S::LANES);
        }
    }
    weights
}

/// Which of the instances of [`Tiles`] to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) pixels: usize,
    pub(super) vectors: usize,
    pub(super) blocked: bool,
    pub(super) shared: bool,
    /// How many tiles.
    pub(super) count: usize,
}

/// Runs tiles of a shape.
///
/// # Safety
/// As for [`Tiles`]; the pixels are one of [`super::source::widths`].
pub(super) unsafe fn run<S: Simd>(
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    shape: Shape,
) {
    let Shape { pixels, vectors, blocked, shared, count } = shape;
    macro_rules! tiles {
        ($pixels:literal, $vectors:literal, $blocked:literal, $stride:literal, $shared:literal) => {{
            let tiles = Tiles::<_, $pixels, $vectors, $blocked, $stride, $shared> {
                source,
                target,
                weights,
                bias,
                count,
            };
            // SAFETY: passed on to the caller.
            unsafe { S::call(tiles) }
        }};
    }
    macro_rules! widths {
        ($blocked:literal, $stride:literal, $($pixels:literal)*) => {
            match (pixels, vectors) {
                $(($pixels, 1) if $pixels <= S::TILE => tiles!($pixels, 1, $blocked, $stride, false),
                  ($pixels, 2) if $pixels <= S::TILE => tiles!($pixels, 2, $blocked, $stride, false),)*
                _ => unreachable!("no tiles of {pixels} pixels"),
            }
        };
    }
    macro_rules! shared_widths {
        ($blocked:literal, $($pixels:literal)*) => {
            match pixels {
                $($pixels if $pixels <= S::SHARED_TILE => tiles!($pixels, 1, $blocked, 1, true),)*
                _ => unreachable!("no shared tiles of {pixels} pixels"),
            }
        };
    }
    let dense = source.pixel_step == 1 || source.reading == Reading::Tap;
    match (shared, blocked, dense) {
        (true, true, _) => {
            shared_widths!(true, 1 2 4 8 12 16 20 24);
        }
        (true, false, _) => {
            shared_widths!(false, 1 2 4 8 12 16 20 24);
        }
        (false, true, true) => widths!(true, 1, 1 2 4 6 8 10 12 14),
        (false, true, false) => widths!(true, 2, 1 2 4 6 8 10 12 14),
        (false, false, true) => widths!(false, 1, 1 2 4 6 8 10 12 14),
        (false, false, false) => widths!(false, 2, 1 2 4 6 8 10 12 14),
    }
}
