//! Lanes are output channels of one group; inputs are broadcast.
//!
//! A tile is `P` neighbouring outputs of a class by one or two vectors of output channels. Its whole sum is kept in
//! registers, in one order (kernel row, run of input channels, kernel column, input channel), whatever the tile.
//! Kernel rows outside the image are left out; columns outside it are read as zeros, from a small buffer or, at the
//! ends of a tile whose taps share broadcasts, from a block of zeros.
//!
//! With one vector of output channels each multiply-add would need a load of its own, and loads would limit; with two,
//! loads still take power that multiply-adds could use. So where three taps lie next to each other, an input is
//! broadcast once for the three outputs that read it; the order is then kernel row, run, input channel, kernel column.

use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::signed;
use super::source::{Buffer, EDGE_COLUMNS, MAX_SPAN, Reading, Source, Target, finish};
use crate::vector::{MAX_LANES, Micro, Simd, prefetch};

/// Taps of a kernel row that share a broadcast.
pub(super) const SHARED_TAPS: usize = 3;

/// How many terms ahead weights are fetched into the first level cache, as they go by once a tile.
const AHEAD: usize = 16;

/// The vectors of a cache line.
const fn per_line<S: Simd>() -> usize {
    let bytes = S::LANES * size_of::<S::E>();
    if bytes < 64 { 64 / bytes } else { 1 }
}

/// Neighbouring tiles of a row, of `P` pixels by `V` vectors of output channels.
///
/// # Safety
/// `weights` holds the terms of the rows, `bias` the vectors; every input that the source names lies in
/// storage where it is inside the image, and is read as [`Source::inputs`] asks; the target is valid for writing and
/// nothing else uses it. `BLOCKED` says that a block of inputs is a vector, else it is one channel; `STRIDE`
/// is the pixel step unless the reading is [`Reading::Tap`]. Where `SHARED`, there are [`SHARED_TAPS`]
/// columns side by side, stride one, and the reading is not [`Reading::Tap`]. `EDGE` says that it is
/// [`Reading::Edge`]: then it is `SHARED` and `BLOCKED`, and there are at least [`EDGE_COLUMNS`] pixels.
pub(super) struct Tiles<
    'a,
    E,
    const P: usize,
    const V: usize,
    const BLOCKED: bool,
    const STRIDE: usize,
    const SHARED: bool,
    const EDGE: bool,
> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) count: usize,
}

impl<
    E: Element,
    const P: usize,
    const V: usize,
    const BLOCKED: bool,
    const STRIDE: usize,
    const SHARED: bool,
    const EDGE: bool,
> Micro<E> for Tiles<'_, E, P, V, BLOCKED, STRIDE, SHARED, EDGE>
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
                            let ends = source.ends::<P>(inputs.start, unit, col);
                            weights = accumulate_shared::<S, P, V, EDGE>(
                                &mut sums,
                                inputs.start,
                                ends,
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
                if v.is_multiple_of(per_line::<S>()) {
                    prefetch(weights.wrapping_add((v + AHEAD * V) * S::LANES));
                }
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
/// Where `EDGE`, the first and the last [`EDGE_COLUMNS`] columns are read from `ends`.
///
/// # Safety
/// `inputs` is readable at `p·step + c·channel_step` for two more pixels than `P`, or at those between the ends,
/// and the ends at `c·channel_step`; `weights` for `len·3·V` vectors.
#[inline(always)]
unsafe fn accumulate_shared<S: Simd, const P: usize, const V: usize, const EDGE: bool>(
    sums: &mut [[S::V; V]; P],
    inputs: *const S::E,
    mut ends: [*const S::E; 2 * EDGE_COLUMNS],
    step: usize,
    channel_step: usize,
    len: usize,
    weights: *const S::E,
) -> *const S::E {
    const { assert!(V <= 2 && P + SHARED_TAPS - 1 <= 26 && SHARED_TAPS == 3, "spelled out below") };
    let (mut inputs, mut weights) = (inputs, weights);
    for _ in 0..len {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut vectors = [[S::splat(S::E::ZERO); V]; SHARED_TAPS];
            for (t, vectors) in vectors.iter_mut().enumerate() {
                for (v, vector) in vectors.iter_mut().enumerate() {
                    if (t * V + v).is_multiple_of(per_line::<S>()) {
                        prefetch(weights.wrapping_add(((t + AHEAD) * V + v) * S::LANES));
                    }
                    *vector = S::load(weights.add((t * V + v) * S::LANES));
                }
            }
            // spelled out, because the compiler does not unroll so long a loop, and then keeps the sums in memory
            macro_rules! multiply_add {
                ($value:ident, $q:literal, $($t:literal $v:literal),*) => {
                    $(if $t <= $q && $q - usize::min($t, $q) < P && $v < V {
                        let sum = &mut sums[$q - usize::min($t, $q)][$v % V];
                        *sum = S::mul_add($value, vectors[$t][$v % V], *sum);
                    })*
                };
            }
            macro_rules! broadcasts {
                ($($q:literal)*) => {
                    $(if $q < P + SHARED_TAPS - 1 {
                        let value = if EDGE && $q < EDGE_COLUMNS {
                            *ends[usize::min($q, EDGE_COLUMNS - 1)]
                        } else if EDGE && $q >= P {
                            *ends[EDGE_COLUMNS + $q - P]
                        } else {
                            *inputs.add($q * step)
                        };
                        let value = S::splat(value);
                        multiply_add!(value, $q, 0 0, 0 1, 1 0, 1 1, 2 0, 2 1);
                    })*
                };
            }
            broadcasts!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25);
            inputs = inputs.wrapping_add(channel_step);
            ends = ends.map(|end| end.wrapping_add(channel_step));
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
    /// Whether the reading is [`Reading::Edge`].
    pub(super) edge: bool,
    /// How many tiles.
    pub(super) count: usize,
}

/// Runs tiles of a shape.
///
/// # Safety
/// As for [`Tiles`]; the pixels are one of the widths of [`super::cut`].
pub(super) unsafe fn run<S: Simd>(
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    shape: Shape,
) {
    let Shape { pixels, vectors, blocked, shared, edge, count } = shape;
    macro_rules! tiles {
        ($pixels:literal, $vectors:literal, $blocked:literal, $stride:literal, $shared:literal, $edge:literal) => {{
            let tiles = Tiles::<_, $pixels, $vectors, $blocked, $stride, $shared, $edge> {
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
                $(($pixels, 1) if $pixels <= S::TILE => tiles!($pixels, 1, $blocked, $stride, false, false),
                  ($pixels, 2) if $pixels <= S::TILE => tiles!($pixels, 2, $blocked, $stride, false, false),)*
                _ => unreachable!("no tiles of {pixels} pixels"),
            }
        };
    }
    macro_rules! shared_widths {
        ($blocked:literal, $edge:literal, [$($single:literal)*], [$($pair:literal)*]) => {
            match (pixels, vectors) {
                $(($single, 1) if $single <= S::SHARED_TILES[0] => tiles!($single, 1, $blocked, 1, true, $edge),)*
                $(($pair, 2) if $pair <= S::SHARED_TILES[1] => tiles!($pair, 2, $blocked, 1, true, $edge),)*
                _ => unreachable!("no shared tiles of {pixels} pixels"),
            }
        };
    }
    let dense = source.pixel_step == 1 || source.reading == Reading::Tap;
    // one vector has the widths of both: it may be what remains beside pairs
    match (shared, blocked, dense) {
        (true, true, _) if edge => {
            shared_widths!(true, true, [2 4 6 8 10 11 12 16 20 24], [2 4 6 8 10 11 12]);
        }
        (true, true, _) => {
            shared_widths!(true, false, [1 2 4 6 8 10 11 12 16 20 24], [1 2 4 6 8 10 11 12]);
        }
        (true, false, _) => {
            shared_widths!(false, false, [1 2 4 6 8 10 11 12 16 20 24], [1 2 4 6 8 10 11 12]);
        }
        (false, true, true) => widths!(true, 1, 1 2 4 6 8 10 12 14),
        (false, true, false) => widths!(true, 2, 1 2 4 6 8 10 12 14),
        (false, false, true) => widths!(false, 1, 1 2 4 6 8 10 12 14),
        (false, false, false) => widths!(false, 2, 1 2 4 6 8 10 12 14),
    }
}
