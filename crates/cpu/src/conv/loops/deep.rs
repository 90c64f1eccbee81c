//! Convolutions of so many channels that no cache keeps the weights of a tile.

use super::super::class::Class;
use super::super::problem::Path;
use super::Call;
use crate::costs::core_cache_bytes;
use crate::vector::{Lane, Simd};

/// The terms of which all tiles of a strip take their products before the next ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AtOnce {
    pub(super) kernel_rows: usize,
    /// The input channels, of one kernel row where they are not all.
    pub(super) channels: usize,
}

impl<T: Lane> Call<'_, T> {
    /// Where the weights of a tile are more than the second level cache keeps, each tile would read all of them from further away. The sums
    /// wait in the output meanwhile, where vectors are whole blocks, so that no bit changes: kernel rows come before channels in them.
    pub(super) fn at_once<S: Simd<E = T>>(&self, cols: &Class, tiles: usize) -> AtOnce {
        let problem = self.problem;
        let in_blocks = problem.groups == 1 && self.output.layout().block() == S::LANES;
        if problem.path != Path::Dense || !in_blocks || tiles == 1 {
            return AtOnce { kernel_rows: usize::MAX, channels: problem.inputs() };
        }
        let channel_bytes = cols.taps * problem.tile_vectors(cols) * S::LANES * size_of::<T>();
        of_weights(problem.in_group, problem.run, channel_bytes, core_cache_bytes() / 2)
    }
}

/// Those whose weights take at most so many bytes: whole kernel rows, or equal parts of one, of whole runs of channels.
fn of_weights(channels: usize, run: usize, channel_bytes: usize, most_bytes: usize) -> AtOnce {
    let row_bytes = (channels * channel_bytes).max(1);
    let parts = row_bytes.div_ceil(most_bytes.max(1)).max(1);
    AtOnce {
        kernel_rows: (most_bytes / row_bytes).max(1),
        channels: channels.div_ceil(parts).next_multiple_of(run.max(1)).min(channels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_half_a_cache_are_taken_at_once() {
        // three taps by two vectors of 64 bytes
        let of_a_megabyte = |channels: usize| of_weights(channels, 16, 3 * 128, 1 << 20);
        assert_eq!(of_a_megabyte(512), AtOnce { kernel_rows: 5, channels: 512 });
        assert_eq!(of_a_megabyte(1250), AtOnce { kernel_rows: 2, channels: 1250 });
        assert_eq!(of_a_megabyte(3000), AtOnce { kernel_rows: 1, channels: 1504 });
        // a run is never cut
        assert_eq!(of_weights(100, 100, 384, 1000), AtOnce { kernel_rows: 1, channels: 100 });
    }
}
