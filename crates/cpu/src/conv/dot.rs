//! Lanes are input channels; few output channels, each a dot product that is summed over its lanes last.
//!
//! The order of the sum is kernel row, block of input channels, kernel column, lane by lane; then over the lanes.
//! A tile has a fixed width; one that is not full reads zeros and leaves them unwritten.

use tiled_tensor::Element;

use super::class::signed;
use super::source::{MAX_SPAN, Reading, Source, Target};
use super::tile::Tile;
use crate::vector::{MAX_LANES, Micro, Simd};

/// The most output channels of a tile.
pub(super) const MAX_OUTPUTS: usize = 3;

/// Neighbouring tiles of a row, of `P` pixels (a multiple of four) by `O` output channels.
///
/// # Safety
/// As for [`super::dense::Tiles`]. `pixels` is at most `P`; where it is less, or inputs are not
/// `BLOCKED`, the reading is not [`Reading::Direct`]. `FULL` says that every block of inputs has channels for all lanes.
pub(super) struct Tiles<'a, E, const P: usize, const O: usize, const BLOCKED: bool, const FULL: bool> {
    pub(super) source: &'a Source<E>,
    pub(super) target: &'a Target<E>,
    pub(super) weights: *const E,
    pub(super) bias: *const E,
    pub(super) pixels: usize,
    pub(super) count: usize,
}

impl<E: Element, const P: usize, const O: usize, const BLOCKED: bool, const FULL: bool> Micro<E>
    for Tiles<'_, E, P, O, BLOCKED, FULL>
{
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let source = self.source;
        // what a tile that is not full leaves unwritten must be readable
        let mut buffer = [E::ZERO; MAX_LANES * MAX_SPAN];
        let buffer = buffer.as_mut_ptr();
        let step = match source.reading {
            Reading::Tap => S::LANES,
            Reading::Direct | Reading::Edge | Reading::Span => {
                super::class::index(source.pixel_step) * S::LANES
            }
        };
        let (first, end) = source.channels;
        let (mut col, mut start) = (source.col, self.target.start);
        for _ in 0..self.count {
            // SAFETY: as in `dense`.
            unsafe {
                let mut sums = [[simd.splat(E::ZERO); O]; P];
                let mut weights = self.weights;
                let mut row = source.row;
                for _ in 0..source.rows {
                    for channel in (first..end).step_by(S::LANES) {
                        let len = (end - channel).min(S::LANES);
                        let mask = simd.first(len);
                        let run = (channel, len);
                        let inputs = self.inputs::<S>(row, run, col, buffer);
                        for tap in 0..source.cols {
                            let inputs = if source.reading == Reading::Tap {
                                let col = col + signed(tap * source.tap_step);
                                self.tap::<S>(row, run, col, buffer)
                            } else {
                                inputs.wrapping_add(tap * source.tap_step * S::LANES)
                            };
                            let mut vectors = [simd.splat(E::ZERO); O];
                            for (o, vector) in vectors.iter_mut().enumerate() {
                                *vector = simd.load(weights.add(o * S::LANES));
                            }
                            weights = weights.add(O * S::LANES);
                            for (p, sums) in sums.iter_mut().enumerate() {
                                // a mask takes the register that AVX2 wants for sums
                                let from = inputs.add(p * step);
                                let value = if FULL { simd.load(from) } else { simd.load_masked(from, mask) };
                                for (sum, vector) in sums.iter_mut().zip(vectors) {
                                    *sum = simd.mul_add(value, vector, *sum);
                                }
                            }
                        }
                    }
                    row = source.next_row(row);
                }
                self.finish(simd, &sums, start);
            }
            col += signed(P) * source.pixel_step;
            start = start.wrapping_add(P * self.target.step);
        }
    }
}

impl<E: Element, const P: usize, const O: usize, const BLOCKED: bool, const FULL: bool>
    Tiles<'_, E, P, O, BLOCKED, FULL>
{
    /// The vectors of a block of channels, from the first tap of the first pixel.
    ///
    /// # Safety
    /// As for [`Source::span`].
    #[inline(always)]
    unsafe fn inputs<S: Simd<E = E>>(
        &self,
        row: usize,
        run: (usize, usize),
        col: i64,
        buffer: *mut E,
    ) -> *const E {
        let source = self.source;
        // SAFETY: passed on to the caller.
        unsafe {
            if BLOCKED {
                return match source.reading {
                    Reading::Span => source.span::<S, true>(row, run, col, self.pixels, buffer).start,
                    _ => source.direct::<S, true>(row, run.0, col).start,
                };
            }
            let steps = (self.pixels - 1) * super::class::index(source.pixel_step);
            let span = if source.reading == Reading::Tap {
                0
            } else {
                steps + (source.cols - 1) * source.tap_step + 1
            };
            self.interleave::<S>(row, run, (col, 1), span, buffer);
            buffer
        }
    }

    /// The vectors that one tap reads, next to each other.
    ///
    /// # Safety
    /// As for [`Source::tap`].
    #[inline(always)]
    unsafe fn tap<S: Simd<E = E>>(
        &self,
        row: usize,
        run: (usize, usize),
        col: i64,
        buffer: *mut E,
    ) -> *const E {
        let source = self.source;
        // SAFETY: passed on to the caller.
        unsafe {
            if BLOCKED {
                // all pixels of a tile are loaded, also those that are not wanted
                let in_place = self.pixels == P;
                return source.tap::<S, true>(row, run, col, (self.pixels, in_place), buffer).start;
            }
            self.interleave::<S>(row, run, (col, source.pixel_step), self.pixels, buffer);
            buffer
        }
    }

    /// Copies columns of planes into vectors.
    ///
    /// # Safety
    /// The row is one that the window holds, the channels are the image's, and the buffer has room for the pixels.
    #[cold]
    #[inline(never)]
    unsafe fn interleave<S: Simd<E = E>>(
        &self,
        row: usize,
        (channel, len): (usize, usize),
        (col, step): (i64, i64),
        pixels: usize,
        buffer: *mut E,
    ) {
        let source = self.source;
        for p in 0..pixels {
            let col = col + step * signed(p);
            let inside = 0 <= col && col < source.width;
            for lane in 0..len {
                let offset = (channel + lane) * source.block_stride + row * source.row_stride;
                // SAFETY: a column inside the image is held; the buffer has room for it.
                unsafe {
                    *buffer.add(p * S::LANES + lane) = if inside {
                        *source.start.add(offset + super::class::index(col - source.first_col))
                    } else {
                        E::ZERO
                    };
                }
            }
        }
    }

    /// Sums over the lanes, adds the bias and writes the tile.
    ///
    /// # Safety
    /// As for the tiles.
    #[inline(always)]
    unsafe fn finish<S: Simd<E = E>>(&self, simd: S, sums: &[[S::V; O]; P], start: *mut E) {
        let target = self.target;
        // spelled out, because the compiler does not unroll loops of so much
        macro_rules! four_pixels {
            ($($o:literal $p:literal)*) => {
                $(if $o < O && $p < P {
                    let [a, b, c, d] = [sums[$p][$o], sums[$p + 1][$o], sums[$p + 2][$o], sums[$p + 3][$o]];
                    // SAFETY: the target is valid for these pixels and channels, the bias for the channels.
                    unsafe {
                        let sums = simd.sums([a, b, c, d]);
                        self.write(sums, start.add((target.channel + $o) * target.block_stride), $o, $p);
                    }
                })*
            };
        }
        four_pixels!(0 0 0 4 1 0 1 4 2 0 2 4);
    }

    /// Writes four pixels from the `p`th of channel `o`.
    ///
    /// # Safety
    /// As for the tiles; `start` is the first pixel of the channel.
    #[inline(always)]
    unsafe fn write(&self, sums: [E; 4], start: *mut E, o: usize, p: usize) {
        let target = self.target;
        // SAFETY: passed on to the caller.
        unsafe {
            let bias = *self.bias.add(o);
            let values = sums.map(|value| {
                let value = value + bias;
                target.limits.value(value)
            });
            if self.pixels == P && target.step == 1 {
                start.add(p).cast::<[E; 4]>().write(values);
                return;
            }
            for (i, value) in values.into_iter().enumerate().take(self.pixels.saturating_sub(p)) {
                *start.add((p + i) * target.step) = value;
            }
        }
    }
}

/// Pixels of a tile.
pub(super) const fn width<S: Simd>() -> usize {
    if S::TILE > 6 { 8 } else { 4 }
}

/// Which of the instances of [`Tiles`] to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) pixels: usize,
    pub(super) outputs: usize,
    pub(super) blocked: bool,
    /// How many tiles.
    pub(super) count: usize,
}

/// Runs tiles of a shape.
///
/// # Safety
/// As for [`Tiles`]; the outputs are at most [`MAX_OUTPUTS`].
pub(super) unsafe fn run<S: Simd>(
    simd: S,
    source: &Source<S::E>,
    target: &Target<S::E>,
    weights: *const S::E,
    bias: *const S::E,
    shape: Shape,
) {
    let Shape { pixels, outputs, blocked, count } = shape;
    macro_rules! tiles {
        ($pixels:literal, $blocked:literal, $full:literal, $($outputs:literal)*) => {
            match outputs {
                $($outputs => {
                    let tiles = Tiles::<_, $pixels, $outputs, $blocked, $full> {
                        source, target, weights, bias, pixels, count,
                    };
                    // SAFETY: passed on to the caller.
                    unsafe { simd.call(tiles) }
                })*
                _ => unreachable!("tiles have at most {MAX_OUTPUTS} outputs"),
            }
        };
    }
    let full = (source.channels.1 - source.channels.0).is_multiple_of(S::LANES);
    match (blocked, full) {
        (true, true) if const { width::<S>() == 8 } => tiles!(8, true, true, 1 2 3),
        (true, false) if const { width::<S>() == 8 } => tiles!(8, true, false, 1 2 3),
        (false, _) if const { width::<S>() == 8 } => tiles!(8, false, false, 1 2 3),
        (true, true) => tiles!(4, true, true, 1 2 3),
        (true, false) => tiles!(4, true, false, 1 2 3),
        (false, _) => tiles!(4, false, false, 1 2 3),
    }
}
