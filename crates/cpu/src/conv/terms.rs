//! Terms of the sums of a tile: some input channels of one tap, or of a sequence of taps that share broadcasts.

use tiled_tensor::Element;

use super::source::{EDGE_COLUMNS, Inputs};
use super::tile::Tile;
use crate::vector::{Simd, prefetch};

/// How many terms ahead weights are fetched into the first level cache, as they go by once a tile.
const AHEAD: usize = 16;

/// The vectors of a cache line, or one.
const fn per_line<S: Simd>() -> usize {
    let bytes = S::LANES * size_of::<S::E>();
    if bytes < 64 { 64 / bytes } else { 1 }
}

/// The elements of a cache line, or of a vector where that is longer.
const fn line<S: Simd>() -> usize {
    S::LANES * per_line::<S>()
}

/// Pixels that the sums come to next, from the one at `at`, a step apart: their lines are fetched into the first level
/// cache, some with each term. A tile reads each of its lines in one run of channels alone, all of them with the first
/// channel of the run, and would wait for the second level cache there.
///
/// They are guessed: that another tile follows, as wide as this one, and that no column is outside the image.
#[derive(Clone, Copy)]
pub(super) struct Next<E> {
    pub(super) at: *const E,
    pub(super) step: usize,
}

impl<E: Element> Next<E> {
    /// Fetches lines of `pixels` pixels, so many that all are fetched with a whole run of channels.
    #[inline(always)]
    fn fetch<S: Simd<E = E>>(&mut self, pixels: usize) {
        let lines = (pixels * self.step.min(line::<S>())).div_ceil(line::<S>());
        for _ in 0..lines.div_ceil(S::LANES) {
            prefetch(self.at);
            self.at = self.at.wrapping_add(self.step.max(line::<S>()));
        }
    }
}

/// Adds `len` input channels of one tap, and fetches `next`; returns the weights that follow.
///
/// # Safety
/// `inputs` is readable at `p·step + c·channel_step`, `weights` for `len·V` vectors.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, const P: usize, const V: usize>(
    simd: S,
    sums: &mut [[S::V; V]; P],
    inputs: Inputs<S::E>,
    step: usize,
    mut next: Option<Next<S::E>>,
    len: usize,
    mut weights: *const S::E,
) -> *const S::E {
    let Inputs { start: mut inputs, channel_step } = inputs;
    for _ in 0..len {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut vectors = [simd.splat(S::E::ZERO); V];
            for (v, vector) in vectors.iter_mut().enumerate() {
                if v.is_multiple_of(per_line::<S>()) {
                    prefetch(weights.wrapping_add((v + AHEAD * V) * S::LANES));
                }
                *vector = simd.load(weights.add(v * S::LANES));
            }
            for (p, sums) in sums.iter_mut().enumerate() {
                let value = simd.splat(*inputs.add(p * step));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = simd.mul_add(value, vector, *sum);
                }
            }
            if let Some(next) = &mut next {
                next.fetch::<S>(P);
            }
            inputs = inputs.wrapping_add(channel_step);
            weights = weights.add(V * S::LANES);
        }
    }
    weights
}

/// The most pixels that a tile and its taps read of a row.
pub(super) const MOST_PLACES: usize = 26;

/// Where the pixels that a tile and its taps read of a row lie, from the first one on.
#[derive(Clone, Copy)]
pub(super) enum Places<'a> {
    /// A step apart that is known when the tile is compiled.
    Even(usize),
    /// As listed.
    Listed(&'a [usize; MOST_PLACES]),
}

impl Places<'_> {
    #[inline(always)]
    const fn at(self, pixel: usize) -> usize {
        match self {
            Self::Even(step) => pixel * step,
            Self::Listed(places) => places[pixel],
        }
    }
}

/// Adds `len` input channels of `T` taps that share broadcasts, and fetches `next`; returns the weights that follow.
///
/// # Safety
/// `inputs` is readable at pixel p of the places, `+ c·channel_step` for `T − 1` more pixels than `P`, `weights` for `len·T·V` vectors.
#[inline(always)]
pub(super) unsafe fn accumulate_sequence<S: Simd, const P: usize, const V: usize, const T: usize>(
    simd: S,
    sums: &mut [[S::V; V]; P],
    inputs: Inputs<S::E>,
    places: Places<'_>,
    next: Option<Next<S::E>>,
    len: usize,
    weights: *const S::E,
) -> *const S::E {
    let ends = [inputs.start; 2 * EDGE_COLUMNS];
    // SAFETY: passed on to the caller.
    unsafe { accumulate_shared::<S, P, V, T, false>(simd, sums, (inputs, ends), places, next, len, weights) }
}

/// The same for three taps where the first and the last [`EDGE_COLUMNS`] columns are read from the ends.
///
/// # Safety
/// The same, but `inputs` is readable between the ends, and the ends at `c·channel_step`.
#[inline(always)]
pub(super) unsafe fn accumulate_edge<S: Simd, const P: usize, const V: usize>(
    simd: S,
    sums: &mut [[S::V; V]; P],
    inputs: (Inputs<S::E>, [*const S::E; 2 * EDGE_COLUMNS]),
    places: Places<'_>,
    next: Next<S::E>,
    len: usize,
    weights: *const S::E,
) -> *const S::E {
    // SAFETY: passed on to the caller.
    unsafe { accumulate_shared::<S, P, V, 3, true>(simd, sums, inputs, places, Some(next), len, weights) }
}

/// See [`accumulate_sequence`] and, where `EDGE`, [`accumulate_edge`].
#[inline(always)]
unsafe fn accumulate_shared<S: Simd, const P: usize, const V: usize, const T: usize, const EDGE: bool>(
    simd: S,
    sums: &mut [[S::V; V]; P],
    (inputs, mut ends): (Inputs<S::E>, [*const S::E; 2 * EDGE_COLUMNS]),
    places: Places<'_>,
    mut next: Option<Next<S::E>>,
    len: usize,
    mut weights: *const S::E,
) -> *const S::E {
    const { assert!(V <= 2 && P + T - 1 <= MOST_PLACES && T <= 3, "spelled out below") };
    let Inputs { start: mut inputs, channel_step } = inputs;
    for _ in 0..len {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut vectors = [[simd.splat(S::E::ZERO); V]; T];
            for (t, vectors) in vectors.iter_mut().enumerate() {
                for (v, vector) in vectors.iter_mut().enumerate() {
                    // where pairs could share, one vector of outputs has few weights
                    let few = V == 1 && S::SHARED_TILES[1] > 0;
                    if !few && (t * V + v).is_multiple_of(per_line::<S>()) {
                        prefetch(weights.wrapping_add(((t + AHEAD) * V + v) * S::LANES));
                    }
                    *vector = simd.load(weights.add((t * V + v) * S::LANES));
                }
            }
            // spelled out, because the compiler does not unroll so long a loop, and then keeps the sums in memory
            macro_rules! multiply_add {
                ($value:ident, $q:literal, $($t:literal $v:literal),*) => {
                    $(if $t < T && $t <= $q && $q - usize::min($t, $q) < P && $v < V {
                        let sum = &mut sums[$q - usize::min($t, $q)][$v % V];
                        *sum = simd.mul_add($value, vectors[$t % T][$v % V], *sum);
                    })*
                };
            }
            macro_rules! broadcasts {
                ($($q:literal)*) => {
                    $(if $q < P + T - 1 {
                        let value = if EDGE && $q < EDGE_COLUMNS {
                            *ends[usize::min($q, EDGE_COLUMNS - 1)]
                        } else if EDGE && $q >= P {
                            *ends[EDGE_COLUMNS + $q - P]
                        } else {
                            *inputs.add(places.at($q))
                        };
                        let value = simd.splat(value);
                        multiply_add!(value, $q, 0 0, 0 1, 1 0, 1 1, 2 0, 2 1);
                    })*
                };
            }
            broadcasts!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25);
            if let Some(next) = &mut next {
                next.fetch::<S>(P + T - 1);
            }
            inputs = inputs.wrapping_add(channel_step);
            ends = ends.map(|end| end.wrapping_add(channel_step));
            weights = weights.add(T * V * S::LANES);
        }
    }
    weights
}
