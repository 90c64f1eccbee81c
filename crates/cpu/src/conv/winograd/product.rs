//! For one point of the transform: sums over the input channels, for neighbouring tiles and one or two vectors of outputs.

use tiled_tensor::Element;

use super::super::source::Inputs;
use super::super::terms::accumulate;
use super::super::tile::Tile;
use crate::vector::{Micro, Simd};

/// The matrices of one point.
#[derive(Clone, Copy)]
pub(super) struct Operands<E> {
    /// `[block of inputs][tile][lane]`.
    pub(super) patches: *const E,
    pub(super) inputs: usize,
    /// A multiple of the width of a register tile.
    pub(super) tiles: usize,
    /// `[input][vector][lane]`.
    pub(super) weights: *const E,
    /// `[vector][tile][lane]`.
    pub(super) sums: *mut E,
}

/// Register tiles of `P` tiles by `V` vectors.
///
/// # Safety
/// The operands are readable, and the sums writable by this call alone, at the extents that they name.
struct Product<E, const P: usize, const V: usize>(Operands<E>);

impl<E: Element, const P: usize, const V: usize> Micro<E> for Product<E, P, V> {
    #[inline(always)]
    unsafe fn run<S: Simd<E = E>>(self, simd: S) {
        let Operands { patches, inputs, tiles, weights, sums: to } = self.0;
        for first in (0..tiles).step_by(P) {
            // SAFETY: as the type asks.
            unsafe {
                let mut sums = [[simd.splat(E::ZERO); V]; P];
                let (mut weights, mut patches) = (weights, patches.add(first * S::LANES));
                let mut left = inputs;
                while left > 0 {
                    let len = left.min(S::LANES);
                    let patch = Inputs { start: patches, channel_step: 1 };
                    patches = patches.wrapping_add(tiles * S::LANES);
                    weights = accumulate::<S, P, V>(simd, &mut sums, patch, S::LANES, None, len, weights);
                    left -= len;
                }
                for (p, sums) in sums.iter().enumerate() {
                    for (v, sum) in sums.iter().enumerate() {
                        simd.store(to.add((v * tiles + first + p) * S::LANES), *sum);
                    }
                }
            }
        }
    }
}

/// Sums over the inputs with register tiles of this width and this many vectors.
///
/// # Safety
/// The operands are readable, and the sums writable by this call alone, at the extents that they name.
pub(super) unsafe fn run<S: Simd>(simd: S, operands: Operands<S::E>, [width, vectors]: [usize; 2]) {
    macro_rules! product {
        ($width:literal, $vectors:literal) => {
            // SAFETY: passed on to the caller.
            unsafe { simd.call(Product::<_, $width, $vectors>(operands)) }
        };
    }
    macro_rules! widths {
        ($($width:literal)*) => {
            match (width, vectors) {
                $(($width, 1) if const { $width <= S::TILE } => product!($width, 1),
                  ($width, 2) if const { $width <= S::TILE } => product!($width, 2),)*
                _ => unreachable!("no register tiles of {width} by {vectors}"),
            }
        };
    }
    widths!(1 2 4 6 8 10 12 14);
}
