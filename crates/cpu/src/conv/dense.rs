//! Lanes are output channels of one group; inputs are broadcast.
//!
//! A tile is `P` neighbouring outputs of a class by one or two vectors of output channels. Its whole sum is kept in
//! registers, in one order (kernel row, run of input channels, kernel column, input channel), whatever the tile.
//! Kernel rows outside the image are left out, and so are its columns where many outputs have the same ones outside ([`ColumnPart`](super::columns::ColumnPart)):
//! multiplied, they would be half of the work of a small image under a large dilation. Other columns outside are read as zeros, from a small buffer
//! or, at the ends of a tile whose three taps share broadcasts, from a block of zeros.
//!
//! With one vector of output channels each multiply-add would need a load of its own, and loads would limit; with two,
//! loads still take power that multiply-adds could use. So where up to three taps form a [`Sequence`], an input is
//! broadcast once for the outputs that read it; the order is then kernel row, run, sequence, input channel, kernel column.

use std::hint::black_box;
use std::mem::MaybeUninit;

use tiled_tensor::Element;

use super::class::{index, signed};
use super::point::Points;
use super::source::{AHEAD_ROWS, Buffer, MAX_SPAN, Reading, Source, Target, finish};
use super::terms::{MOST_PLACES, Next, Places, accumulate, accumulate_edge, accumulate_sequence};
use super::tile::Tile;
use crate::vector::{MAX_LANES, Micro, Simd, prefetch_far};

/// Taps of a kernel row, a stride apart, that share broadcasts: where one of them reads an input for a pixel, the
/// next reads it for the pixel before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sequence {
    pub(super) first: usize,
    pub(super) taps: usize,
}

impl Sequence {
    /// The most taps of a sequence: more would leave too few registers for sums.
    pub(super) const MOST_TAPS: usize = 3;

    /// The sequences of `taps` neighbouring taps, in the order of the sum.
    pub(super) fn all(taps: usize, stride: usize) -> impl Iterator<Item = Self> {
        (0..stride.min(taps)).flat_map(move |phase| {
            (phase..taps)
                .step_by(Self::MOST_TAPS * stride)
                .map(move |first| Self { first, taps: (taps - first).div_ceil(stride).min(Self::MOST_TAPS) })
        })
    }
}

/// How the taps of a kernel row take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// One by one.
    None,
    /// There is one, and tiles are [`Points`].
    Point,
    /// Sequence by sequence.
    Sequences,
    /// They are one sequence of three, of stride one.
    Triple,
    /// The same, and the reading is [`Reading::Edge`].
    Edge,
    /// As [`Sharing::Triple`], of columns that lie apart in storage.
    Apart,
    /// As [`Sharing::Edge`], of such columns.
    ApartEdge,
}

/// [`Sharing`] as a parameter of types.
const NONE: u8 = Sharing::None as u8;
const SEQUENCES: u8 = Sharing::Sequences as u8;
const TRIPLE: u8 = Sharing::Triple as u8;
const EDGE: u8 = Sharing::Edge as u8;
const APART: u8 = Sharing::Apart as u8;
const APART_EDGE: u8 = Sharing::ApartEdge as u8;

/// Neighbouring tiles of a row, of `P` pixels by `V` vectors of output channels.
///
/// # Safety
/// `weights` holds the terms of the rows, `bias` the vectors; every input that the source names lies in
/// storage where it is inside the image, and is read as [`Reading`] says; the target is valid for writing and
/// nothing else uses it. `BLOCKED` says that a block of inputs is a vector, else it is one channel; `STRIDE`
/// is the pixel step unless the reading is [`Reading::Tap`]. `SHARING` is a [`Sharing`]: unless it is none, columns lie
/// side by side unless it says that they lie apart, or the reading is a copy, and that is not [`Reading::Tap`]; for columns that lie apart and for
/// edges it is `BLOCKED`, for edges there are at least [`super::source::EDGE_COLUMNS`] pixels.
pub(super) struct Tiles<
    'a,
    E,
    const P: usize,
    const V: usize,
    const BLOCKED: bool,
    const STRIDE: usize,
    const SHARING: u8,
> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) count: usize,
}

impl<E: Element, const P: usize, const V: usize, const BLOCKED: bool, const STRIDE: usize, const SHARING: u8>
    Micro<E> for Tiles<'_, E, P, V, BLOCKED, STRIDE, SHARING>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let source = self.source;
        let mut buffer: Buffer<E> = [MaybeUninit::uninit(); MAX_LANES * MAX_SPAN];
        let buffer = buffer.as_mut_ptr().cast::<E>();
        let lanes = if BLOCKED { S::LANES } else { 1 };
        let unit = if matches!(SHARING, APART | APART_EDGE) { lanes * source.apart } else { lanes };
        // listed where the step is no constant: where the compiler knew one to be a sum of another, it would keep broadcasts beside the sums, and
        // these in memory
        let listed: [usize; MOST_PLACES] = if matches!(SHARING, APART | APART_EDGE) {
            black_box(std::array::from_fn(|pixel| pixel * unit))
        } else {
            [0; MOST_PLACES]
        };
        let places = if matches!(SHARING, APART | APART_EDGE) {
            Places::Listed(&listed)
        } else {
            Places::Even(unit * STRIDE)
        };
        let (first, end) = source.channels;
        let phase = first % source.run;
        let (mut col, mut start) = (source.col, self.target.start);
        let mut direct = source.direct::<S, BLOCKED>(source.row, first, col);
        for tile in 0..self.count {
            self.target.prefetch::<S>(start, [P, V]);
            source.weights_ahead.fetch(tile);
            // SAFETY: the source holds what it names, the packed weights are as long as the terms, and the buffer
            // holds MAX_SPAN pixels.
            unsafe {
                let mut sums: [[S::V; V]; P] = self.target.first(simd, start, self.bias);
                let mut weights = self.weights;
                let mut row = source.row;
                for kernel_row in 0..source.rows {
                    let ahead = source.ahead[kernel_row % AHEAD_ROWS];
                    let skipped = tile * P * STRIDE * unit + first / lanes * source.block_stride;
                    let mut far = ahead.start.wrapping_add(skipped);
                    let (row_after, row_direct) = if kernel_row + 1 < source.rows {
                        let row = source.next_row(row);
                        (row, source.direct::<S, BLOCKED>(row, first, col))
                    } else {
                        let col = col + signed(P) * source.pixel_step;
                        (row, source.direct::<S, BLOCKED>(source.row, first, col))
                    };
                    // little is left to do between runs: a run of 16 channels takes as long as three hundred loads
                    let (mut left, mut len, mut lane) =
                        (end - first, (source.run - phase).min(end - first), phase);
                    while left > 0 {
                        if BLOCKED {
                            for pixel in 0..ahead.pixels {
                                prefetch_far(far.wrapping_add(pixel * S::LANES));
                            }
                            far = far.wrapping_add(source.block_stride);
                        }
                        let run = (end - left, len);
                        let inputs = if source.reading == Reading::Span {
                            source.span::<S, BLOCKED>(row, run, col, P, buffer)
                        } else {
                            direct
                        };
                        left -= len;
                        direct = if left == 0 {
                            row_direct
                        } else if BLOCKED {
                            direct.after(source.block_stride.wrapping_sub(lane))
                        } else {
                            direct.after(len * source.block_stride)
                        };
                        let next = |tap: usize| Next {
                            at: direct.start.wrapping_add(tap * source.tap_step * unit),
                            step: unit * STRIDE,
                        };
                        match SHARING {
                            NONE => {
                                let of_tap = len * V * S::LANES;
                                weights = weights.wrapping_add(source.taps[0] * of_tap);
                                for tap in source.taps[0]..source.taps[1] {
                                    let sums = &mut sums;
                                    weights = if source.reading == Reading::Tap {
                                        let col = col + signed(tap * source.tap_step);
                                        // pixels that lie further apart than any other reading takes them
                                        let apart = source.pixel_step != 1;
                                        if STRIDE == 1 && apart && source.holds(col, P) {
                                            let inputs = source.direct::<S, BLOCKED>(row, run.0, col);
                                            let step = unit * index(source.pixel_step);
                                            accumulate::<S, P, V>(
                                                simd, sums, inputs, step, None, len, weights,
                                            )
                                        } else {
                                            let inputs =
                                                source.tap::<S, BLOCKED>(row, run, col, (P, true), buffer);
                                            // the same pixels of the next run, where these lie in place
                                            let next = (BLOCKED && source.holds(col, P)).then(|| Next {
                                                at: inputs.start.wrapping_add(source.block_stride),
                                                step: unit,
                                            });
                                            accumulate::<S, P, V>(
                                                simd, sums, inputs, unit, next, len, weights,
                                            )
                                        }
                                    } else {
                                        let inputs = inputs.after(tap * source.tap_step * unit);
                                        let (step, next) = (unit * STRIDE, BLOCKED.then_some(next(tap)));
                                        accumulate::<S, P, V>(simd, sums, inputs, step, next, len, weights)
                                    };
                                }
                                weights = weights.wrapping_add((source.cols - source.taps[1]) * of_tap);
                            }
                            SEQUENCES => {
                                // as `Sequence::all` lists them
                                for phase in 0..STRIDE {
                                    let mut tap = phase;
                                    while tap < source.cols {
                                        let taps = (source.cols - tap).div_ceil(STRIDE);
                                        let inputs = inputs.after(tap * unit);
                                        let next = BLOCKED.then_some(next(tap));
                                        let sums = &mut sums;
                                        weights = match taps {
                                            1 => accumulate_sequence::<S, P, V, 1>(
                                                simd, sums, inputs, places, next, len, weights,
                                            ),
                                            2 => accumulate_sequence::<S, P, V, 2>(
                                                simd, sums, inputs, places, next, len, weights,
                                            ),
                                            _ => accumulate_sequence::<S, P, V, 3>(
                                                simd, sums, inputs, places, next, len, weights,
                                            ),
                                        };
                                        tap += Sequence::MOST_TAPS * STRIDE;
                                    }
                                }
                            }
                            TRIPLE | APART => {
                                let next = BLOCKED.then_some(next(0));
                                weights = accumulate_sequence::<S, P, V, 3>(
                                    simd, &mut sums, inputs, places, next, len, weights,
                                );
                            }
                            _ => {
                                let ends = source.ends::<P>(inputs.start, unit, col);
                                weights = accumulate_edge::<S, P, V>(
                                    simd,
                                    &mut sums,
                                    (inputs, ends),
                                    places,
                                    next(0),
                                    len,
                                    weights,
                                );
                            }
                        }
                        (len, lane) = (source.run.min(left), 0);
                    }
                    row = row_after;
                }
                finish::<S, P, V>(simd, self.target, start, &mut sums, buffer);
            }
            col += signed(P) * source.pixel_step;
            start = start.wrapping_add(P * self.target.step);
        }
    }
}

/// Which of the instances of [`Tiles`] to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) pixels: usize,
    pub(super) vectors: usize,
    pub(super) blocked: bool,
    pub(super) sharing: Sharing,
    /// How many tiles.
    pub(super) count: usize,
}

/// Runs tiles of a shape.
///
/// # Safety
/// As for [`Tiles`]; the pixels are one of the widths of [`super::cut`].
pub(super) unsafe fn run<S: Simd>(
    simd: S,
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    shape: Shape,
) {
    let Shape { pixels, vectors, blocked, sharing, count } = shape;
    macro_rules! tiles {
        ($pixels:literal, $vectors:literal, $blocked:literal, $stride:literal, $sharing:expr) => {{
            let tiles = Tiles::<_, $pixels, $vectors, $blocked, $stride, { $sharing }> {
                source,
                target,
                weights,
                bias,
                count,
            };
            // SAFETY: passed on to the caller.
            unsafe { simd.call(tiles) }
        }};
    }
    macro_rules! point {
        ($pixels:literal, $vectors:literal, $stride:literal) => {{
            let points = Points::<_, $pixels, $vectors, $stride> { source, target, weights, bias, count };
            // SAFETY: passed on to the caller.
            unsafe { simd.call(points) }
        }};
    }
    macro_rules! widths {
        ($blocked:literal, $stride:literal, $($pixels:literal)*) => {
            match (pixels, vectors) {
                $(($pixels, 1) if const { $pixels <= S::TILE } => tiles!($pixels, 1, $blocked, $stride, NONE),
                  ($pixels, 2) if const { $pixels <= S::TILE } => tiles!($pixels, 2, $blocked, $stride, NONE),)*
                _ => unreachable!("no tiles of {pixels} pixels"),
            }
        };
    }
    // one vector has the widths of both: it may be what remains beside pairs
    macro_rules! shared_widths {
        ($blocked:literal, $stride:literal, $sharing:expr, [$($single:literal)*], [$($pair:literal)*]) => {
            match (pixels, vectors) {
                $(($single, 1) if const { $single <= S::SHARED_TILES[0] } => tiles!($single, 1, $blocked, $stride, $sharing),)*
                $(($pair, 2) if const { $pair <= S::SHARED_TILES[1] } => tiles!($pair, 2, $blocked, $stride, $sharing),)*
                _ => unreachable!("no shared tiles of {pixels} pixels"),
            }
        };
    }
    macro_rules! sequences {
        ($blocked:literal, $stride:literal) => {
            shared_widths!($blocked, $stride, SEQUENCES, [1 2 4 8 10 11 12 16 24], [1 2 4 8 12])
        };
    }
    let dense = source.pixel_step == 1 || source.reading == Reading::Tap;
    macro_rules! points {
        ($stride:literal, [$($pixels:literal)*], [$($wide:literal)*]) => {
            match (pixels, vectors) {
                $(($pixels, 1) if const { $pixels <= S::POINT_TILE } => point!($pixels, 1, $stride),
                  ($pixels, 2) if const { $pixels <= S::TILE } => point!($pixels, 2, $stride),)*
                $(($wide, 1) if const { $wide <= S::POINT_TILE } => point!($wide, 1, $stride),)*
                _ => unreachable!("no points of {pixels} pixels"),
            }
        };
    }
    match (sharing, blocked, dense) {
        (Sharing::Point, _, true) => points!(1, [1 2 4 6 8 10 12 14], [20 24 28]),
        (Sharing::Point, _, false) => points!(2, [1 2 4 6 8 10 12 14], []),
        (Sharing::Edge, _, _) => {
            shared_widths!(true, 1, EDGE, [2 4 6 8 10 11 12 16 20 24], [2 4 6 8 10 11 12]);
        }
        (Sharing::ApartEdge, _, _) if const { S::SHARED_TILES[1] > 0 } => {
            shared_widths!(true, 1, APART_EDGE, [2 4 6 8 10 11 12], [2 4 6 8 10 11 12]);
        }
        (Sharing::Apart, _, _) if const { S::SHARED_TILES[1] > 0 } => {
            shared_widths!(true, 1, APART, [1 2 4 6 8 10 11 12], [1 2 4 6 8 10 11 12]);
        }
        (Sharing::Apart | Sharing::ApartEdge, _, _) => {
            unreachable!("no columns apart without pairs of vectors")
        }
        (Sharing::Triple, true, _) => {
            shared_widths!(true, 1, TRIPLE, [1 2 4 6 8 10 11 12 16 20 24], [1 2 4 6 8 10 11 12]);
        }
        (Sharing::Triple, false, _) => {
            shared_widths!(false, 1, TRIPLE, [1 2 4 6 8 10 11 12 16 20 24], [1 2 4 6 8 10 11 12]);
        }
        (Sharing::Sequences, true, true) => sequences!(true, 1),
        (Sharing::Sequences, true, false) => sequences!(true, 2),
        (Sharing::Sequences, false, true) => sequences!(false, 1),
        (Sharing::Sequences, false, false) => sequences!(false, 2),
        (Sharing::None, true, true) => widths!(true, 1, 1 2 4 6 8 10 12 14),
        (Sharing::None, true, false) => widths!(true, 2, 1 2 4 6 8 10 12 14),
        (Sharing::None, false, true) => widths!(false, 1, 1 2 4 6 8 10 12 14),
        (Sharing::None, false, false) => widths!(false, 2, 1 2 4 6 8 10 12 14),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tap_is_in_one_sequence_a_stride_after_the_one_before() {
        for (taps, stride) in (1..12).flat_map(|taps| (1..4).map(move |stride| (taps, stride))) {
            let mut seen: Vec<usize> = Sequence::all(taps, stride)
                .inspect(|sequence| assert!((1..=Sequence::MOST_TAPS).contains(&sequence.taps)))
                .flat_map(|sequence| (0..sequence.taps).map(move |i| sequence.first + i * stride))
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..taps).collect::<Vec<_>>(), "{taps} taps, stride {stride}");
        }
        let sequences: Vec<_> = Sequence::all(7, 2).map(|sequence| (sequence.first, sequence.taps)).collect();
        assert_eq!(sequences, [(0, 3), (6, 1), (1, 3)]);
    }
}
