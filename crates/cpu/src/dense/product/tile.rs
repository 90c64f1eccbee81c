//! Register tiles of a product: `P` rows by `V` vectors of columns, over one block of k.

use tiled_tensor::Element;

use crate::isa::Isa;
use crate::vector::{Micro, Simd, prefetch, prefetch_far};

/// The bytes of a row of a block of k: what is packed of the rows of a tile then lies in the first cache.
const BLOCK_BYTES: usize = 1024;

/// The terms of a block of k: a sum over more is the sum of the sums of blocks.
pub(super) const fn block_terms<E>() -> usize {
    BLOCK_BYTES / size_of::<E>()
}

/// From a row of a packed tile to the next, where terms lie side by side: off the powers of two, by which rows would meet in one
/// set of the cache.
pub(super) const fn row_step<E>() -> usize {
    block_terms::<E>() + 64 / size_of::<E>()
}

/// From a term of a packed tile to the next, where rows lie side by side: whole vectors of them.
pub(super) const fn term_step<S: Simd>() -> usize {
    rows::<S>().next_multiple_of(8)
}

/// The elements of a packed tile.
pub(super) const fn tile_len<S: Simd>() -> usize {
    term_step::<S>() * row_step::<S::E>()
}

/// The vectors of columns of a panel.
pub(super) const VECTORS: usize = 2;

/// The rows of a tile, by the registers that an instruction set has.
pub(super) const fn rows<S: Simd>() -> usize {
    match S::ISA {
        Isa::Portable | Isa::Avx2 => 6,
        Isa::Avx512 => 14,
    }
}

/// How many terms ahead columns are fetched into the first cache.
const AHEAD: usize = 8;

/// Rows of memory, of a block of k each, that are fetched while a tile is computed: a line with each term, sixteen to a row.
#[derive(Clone, Copy)]
pub(super) struct Ahead<E> {
    pub(super) start: *const E,
    /// From a row to the next.
    pub(super) step: isize,
}

/// The rows that are fetched with a block of terms.
pub(super) const fn ahead_rows<E>() -> usize {
    block_terms::<E>() / LINES
}

/// The lines of a row of a block of k.
const LINES: usize = BLOCK_BYTES / 64;

/// What a tile multiplies.
#[derive(Clone, Copy)]
pub(super) struct Operands<E> {
    /// A packed tile of rows.
    pub(super) a: *const E,
    /// The first vector of columns of the first term.
    pub(super) b: *const E,
    /// From the columns of a term to those of the next.
    pub(super) b_step: usize,
    pub(super) terms: usize,
    pub(super) store: Store<E>,
    pub(super) ahead: Ahead<E>,
}

/// Where the sums of a tile go, and what is added to them on the way, in this order.
#[derive(Clone, Copy)]
pub(super) struct Store<E> {
    pub(super) to: *mut E,
    /// From a row to the next, and from a vector of columns to the next.
    pub(super) steps: [isize; 2],
    /// The sums of the blocks of k before, `[vector][row][lane]`.
    pub(super) totals: Option<*const E>,
    /// One for each column.
    pub(super) bias: Option<*const E>,
    /// Whether they are added to what is there.
    pub(super) adds: bool,
}

impl<E> Store<E> {
    /// To `[vector][row][lane]`.
    pub(super) fn plain<S: Simd<E = E>>(to: *mut E, height: usize) -> Self {
        let steps = [S::LANES.cast_signed(), (height * S::LANES).cast_signed()];
        Self { to, steps, totals: None, bias: None, adds: false }
    }
}

/// # Safety
/// The operands are readable and what is stored writable at the extents that they name. `SIDE` says that the terms of a row lie side by side
/// ([`row_step`]), else its rows do ([`term_step`]).
struct Tile<E, const P: usize, const V: usize, const SIDE: bool>(Operands<E>);

impl<E: Element, const P: usize, const V: usize, const SIDE: bool> Micro<E> for Tile<E, P, V, SIDE> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Operands { mut a, mut b, b_step, terms, store, ahead } = self.0;
        let (row_apart, term) = if SIDE { (row_step::<E>(), 1) } else { (1, term_step::<S>()) };
        let mut sums = [[simd.splat(E::ZERO); V]; P];
        let mut row_ahead = ahead.start;
        // by rows that are fetched: to find the line of each term by itself takes as many instructions as the vectors of AVX2
        for first in (0..terms).step_by(LINES) {
            let mut line = row_ahead;
            row_ahead = row_ahead.wrapping_offset(ahead.step);
            for _ in first..terms.min(first + LINES) {
                prefetch_far(line);
                line = line.wrapping_add(64 / size_of::<E>());
                // SAFETY: as the type asks.
                unsafe {
                    let mut vectors = [simd.splat(E::ZERO); V];
                    for (v, vector) in vectors.iter_mut().enumerate() {
                        if (v * S::LANES * size_of::<E>()).is_multiple_of(64) {
                            prefetch(b.wrapping_add(AHEAD * b_step + v * S::LANES));
                        }
                        *vector = simd.load(b.add(v * S::LANES));
                    }
                    for (p, sums) in sums.iter_mut().enumerate() {
                        let value = simd.splat(*a.add(p * row_apart));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = simd.mul_add(value, vector, *sum);
                        }
                    }
                }
                a = a.wrapping_add(term);
                b = b.wrapping_add(b_step);
            }
        }
        // SAFETY: as the type asks.
        unsafe {
            if let Some(totals) = store.totals {
                for (p, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.add(simd.load(totals.add((v * P + p) * S::LANES)), *sum);
                    }
                }
            }
            if let Some(bias) = store.bias {
                for v in 0..V {
                    let bias = simd.load(bias.add(v * S::LANES));
                    for sums in &mut sums {
                        sums[v] = simd.add(sums[v], bias);
                    }
                }
            }
            let mut to = store.to;
            for sums in sums {
                let mut at = to;
                for sum in sums {
                    simd.store(at, if store.adds { simd.add(simd.load(at), sum) } else { sum });
                    at = at.wrapping_offset(store.steps[1]);
                }
                to = to.wrapping_offset(store.steps[0]);
            }
        }
    }
}

/// The rows of the smallest tile that has as many: what its sums are laid out by.
pub(super) const fn height(rows: usize) -> usize {
    rows.next_multiple_of(2)
}

/// Sums of a tile of [`height`] rows and one or two vectors.
///
/// # Safety
/// As of [`Tile`].
pub(super) unsafe fn run<S: Simd>(
    simd: S,
    operands: Operands<S::E>,
    [height, vectors]: [usize; 2],
    side: bool,
) {
    macro_rules! tile {
        ($rows:literal, $vectors:literal) => {
            // SAFETY: passed on to the caller.
            unsafe {
                if side {
                    simd.call(Tile::<_, $rows, $vectors, true>(operands))
                } else {
                    simd.call(Tile::<_, $rows, $vectors, false>(operands))
                }
            }
        };
    }
    macro_rules! heights {
        ($($rows:literal)*) => {
            match (height, vectors) {
                $(($rows, 1) if const { $rows <= rows::<S>() } => tile!($rows, 1),
                  ($rows, 2) if const { $rows <= rows::<S>() } => tile!($rows, 2),)*
                _ => unreachable!("no register tiles of {height} by {vectors}"),
            }
        };
    }
    heights!(2 4 6 8 10 12 14);
}
