//! Convolutions of so many terms that no near cache keeps the weights of a tile.

use std::ops::Range;

use super::super::class::Class;
use super::super::dense::Sharing;
use super::super::problem::Path;
use super::Call;
use crate::costs::core_cache_bytes;
use crate::vector::{Lane, Simd};

/// The weights of a tile that the first level cache keeps, beside what is read and written.
const WEIGHTS_BYTES: usize = 24 << 10;

/// The terms of which all output channels of all pixels of a unit take their products before the next ones: then a tile reads its weights
/// from the first level cache, and the inputs of a unit stay in the second while the weights, in the order that they lie in, go by once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AtOnce {
    kernel_rows: usize,
    /// The input channels, of one kernel row where they are not all.
    channels: usize,
}

/// Some terms of all, in the order of their sums.
pub(super) struct Terms {
    pub(super) kernel_rows: Range<usize>,
    /// Input channels of a group: first and end.
    pub(super) channels: [usize; 2],
    pub(super) is_first: bool,
}

impl AtOnce {
    const ALL: Self = Self { kernel_rows: usize::MAX, channels: usize::MAX };

    /// Whether terms do not take turns.
    pub(super) fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// All terms of so many kernel rows and input channels.
    pub(super) fn turns(self, rows: usize, channels: usize) -> impl Iterator<Item = Terms> {
        let of_rows = (0..rows.max(1)).step_by(self.kernel_rows.min(rows.max(1)));
        of_rows.flat_map(move |row| {
            (0..channels).step_by(self.channels.min(channels)).map(move |channel| Terms {
                kernel_rows: row..row.saturating_add(self.kernel_rows).min(rows),
                channels: [channel, channel.saturating_add(self.channels).min(channels)],
                is_first: row == 0 && channel == 0,
            })
        })
    }

    /// How many tiles have their inputs of these terms in the second level cache, where those of one channel and row take so many bytes.
    pub(super) fn tiles(self, row_bytes: usize) -> usize {
        core_cache_bytes() / 3 / self.channels.saturating_mul(self.kernel_rows * row_bytes).max(1)
    }
}

impl<T: Lane> Call<'_, T> {
    /// Where the weights of a tile are much of what the second level cache keeps, terms take turns, but where taps share broadcasts: those read
    /// half the weights for a multiply-add, and gain nothing. The sums wait in the output meanwhile, where vectors are whole blocks, so that no bit
    /// changes: kernel rows come before channels in them.
    pub(super) fn at_once<S: Simd<E = T>>(&self, [rows, cols]: &[Class; 2]) -> AtOnce {
        let problem = self.problem;
        let in_blocks = problem.groups == 1 && self.output.layout().block() == S::LANES;
        let channel_bytes = cols.taps * problem.tile_vectors(cols) * S::LANES * size_of::<T>();
        let weights_bytes = rows.taps * problem.in_group * channel_bytes;
        let is_deep = weights_bytes >= core_cache_bytes() / 4 && problem.sharing(cols) == Sharing::None;
        if problem.path != Path::Dense || !in_blocks || !is_deep {
            return AtOnce::ALL;
        }
        of_weights([rows.taps, problem.in_group], problem.run, channel_bytes, WEIGHTS_BYTES)
    }
}

/// Those whose weights take at most so many bytes: whole kernel rows, or equal parts of one, of whole runs of channels.
fn of_weights([rows, channels]: [usize; 2], run: usize, channel_bytes: usize, most_bytes: usize) -> AtOnce {
    let row_bytes = (channels * channel_bytes).max(1);
    let parts = row_bytes.div_ceil(most_bytes.max(1)).max(1);
    let kernel_rows = (most_bytes / row_bytes).max(1);
    if parts == 1 && kernel_rows >= rows {
        return AtOnce::ALL;
    }
    AtOnce { kernel_rows, channels: channels.div_ceil(parts).next_multiple_of(run.max(1)).min(channels) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_near_cache_are_taken_at_once() {
        // three taps by two vectors of 64 bytes
        let of_a_megabyte = |rows: usize, channels: usize| of_weights([rows, channels], 16, 3 * 128, 1 << 20);
        assert_eq!(of_a_megabyte(7, 512), AtOnce { kernel_rows: 5, channels: 512 });
        assert_eq!(of_a_megabyte(5, 512), AtOnce::ALL);
        assert_eq!(of_a_megabyte(3, 1250), AtOnce { kernel_rows: 2, channels: 1250 });
        assert_eq!(of_a_megabyte(3, 3000), AtOnce { kernel_rows: 1, channels: 1504 });
        // a run is never cut
        assert_eq!(of_weights([1, 100], 100, 384, 1000), AtOnce { kernel_rows: 1, channels: 100 });
    }

    #[test]
    fn turns_are_all_terms_in_their_order() {
        let turns = |at_once: AtOnce, rows: usize, channels: usize| -> Vec<_> {
            at_once
                .turns(rows, channels)
                .map(|terms| (terms.kernel_rows, terms.channels, terms.is_first))
                .collect()
        };
        assert_eq!(turns(AtOnce::ALL, 3, 8), [(0..3, [0, 8], true)]);
        let of_rows = AtOnce { kernel_rows: 2, channels: 8 };
        assert_eq!(turns(of_rows, 3, 8), [(0..2, [0, 8], true), (2..3, [0, 8], false)]);
        let of_channels = AtOnce { kernel_rows: 1, channels: 16 };
        let expected =
            [(0..1, [0, 16], true), (0..1, [16, 24], false), (1..2, [0, 16], false), (1..2, [16, 24], false)];
        assert_eq!(turns(of_channels, 2, 24), expected);
    }
}
