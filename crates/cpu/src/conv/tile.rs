//! The sizes of register tiles, by the registers that an instruction set has.

use crate::Isa;
use crate::vector::Simd;

/// Register tiles of an instruction set.
pub(super) trait Tile: Simd {
    /// Pixels of a tile that keeps two vectors of accumulators for each.
    const TILE: usize = match Self::ISA {
        Isa::Portable | Isa::Avx2 => 6,
        Isa::Avx512 => 14,
    };
    /// Pixels of a tile that keeps one vector of accumulators for each and three of weights; two and six. One less than registers
    /// would hold on AVX2: of twelve the compiler keeps one in memory, and each multiply-add waits for the one before.
    const SHARED_TILES: [usize; 2] = match Self::ISA {
        Isa::Portable => [8, 0],
        Isa::Avx2 => [11, 0],
        Isa::Avx512 => [24, 12],
    };
    /// Pixels of a tile of a convolution of one tap that keeps one vector of accumulators for each and one of weights.
    const POINT_TILE: usize = match Self::ISA {
        Isa::Portable => 6,
        Isa::Avx2 => 12,
        Isa::Avx512 => 28,
    };
    /// Input channels of a tile of weight gradients that keeps two vectors of accumulators for each, or three, one for each
    /// tap of a sequence.
    const WEIGHT_TILE: usize = match Self::ISA {
        Isa::Portable | Isa::Avx2 => 4,
        Isa::Avx512 => 8,
    };
}

impl<S: Simd> Tile for S {}
