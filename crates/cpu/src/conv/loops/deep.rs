//! Convolutions of so many channels that no cache keeps the weights of a tile.

use super::super::class::Class;
use super::super::problem::Path;
use super::Call;
use crate::vector::{Lane, Simd};

/// What the weights that a tile goes through should take of the second level cache.
const WEIGHTS_OF_A_TILE_BYTES: usize = 1 << 20;

impl<T: Lane> Call<'_, T> {
    /// The kernel rows of which all tiles of a strip take their products before the next ones: where the weights of a tile are more than
    /// the second level cache keeps, each tile would read all of them from further away. The sums wait in the output meanwhile, where
    /// vectors are whole blocks, so that no bit changes.
    pub(super) fn kernel_rows_at_once<S: Simd<E = T>>(&self, cols: &Class, tiles: usize) -> usize {
        let problem = self.problem;
        let in_blocks = problem.groups == 1 && self.output.layout().block() == S::LANES;
        if problem.path != Path::Dense || !in_blocks || tiles == 1 {
            return usize::MAX;
        }
        rows_at_once(problem.in_group * cols.taps * problem.tile_vectors(cols) * S::LANES * size_of::<T>())
    }
}

/// Those whose weights, so many bytes each, fit; at least one.
fn rows_at_once(row_bytes: usize) -> usize {
    (WEIGHTS_OF_A_TILE_BYTES / row_bytes.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_megabyte_are_taken_at_once() {
        // three taps by two vectors of 64 bytes
        assert_eq!([512, 1250, 3000].map(|channels| rows_at_once(channels * 3 * 128)), [5, 2, 1]);
    }
}
