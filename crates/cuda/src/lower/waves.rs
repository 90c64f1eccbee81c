//! Blocks of threads over the multiprocessors.
//!
//! ```text
//! waves   = ceil(blocks / multiprocessors)            a multiprocessor shares its arithmetic among the blocks that it holds
//! seconds = waves · arithmetic of a block / (that of a multiprocessor · share reached)
//! full    = arithmetic of the call / (that of the device · share that the best tile for its channels reaches)
//! ```

use tiled_tensor::DType;

use crate::driver::Facts;
use crate::precision::Precision;

/// The share of the multiply-adds that the largest tiles reach between their beginning and their end, on an H200: what is left goes to loads
/// and addresses, and to registers of which an instruction waits for several.
const SHARE_OF_PEAK: f64 = 0.66;
/// The same of tensor cores, in one product and in three: instructions of a warp reach less than those of several, which the peak is of.
const SHARE_OF_TENSOR_PEAK: f64 = 0.3;
const SHARE_IN_THREE: f64 = 0.38;

/// The floating-point operations a second that the largest tiles are taken to reach.
pub(crate) fn reached(facts: &Facts, dtype: DType, precision: Precision) -> f64 {
    match precision {
        Precision::F32 => facts.flops(dtype.size_bytes()) * SHARE_OF_PEAK,
        Precision::Tf32 => facts.tensor_flops() * SHARE_OF_TENSOR_PEAK,
        Precision::F32x3 => facts.tensor_flops() * SHARE_IN_THREE / 3.0,
    }
}

/// What a launch takes of a device.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Waves {
    /// The blocks of threads.
    pub blocks: f64,
    /// The blocks that a multiprocessor takes one after another.
    pub waves: f64,
    /// The seconds that they take.
    pub seconds: f64,
    /// What they would take if every multiprocessor had as much to do, in the best tiles for their channels, and no tile were ragged.
    pub full_seconds: f64,
}

/// So many blocks alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) count: f64,
    /// The multiply-adds of one.
    pub(super) work: f64,
    /// The share of what the largest tiles reach that these do.
    pub(super) share: f64,
    /// The same of the tiles that would be best if there were no end of pixels.
    pub(super) best_share: f64,
    /// The multiply-adds of all of them that are wanted.
    pub(super) wanted: f64,
}

impl Blocks {
    pub(super) fn waves(&self, facts: &Facts, dtype: DType, precision: Precision) -> Waves {
        let multiprocessors = f64::from(facts.multiprocessors);
        let reached = reached(facts, dtype, precision) / 2.0;
        let waves = (self.count / multiprocessors).ceil();
        Waves {
            blocks: self.count,
            waves,
            seconds: waves * self.work * multiprocessors / (reached * self.share),
            full_seconds: self.wanted / (reached * self.best_share),
        }
    }
}

impl Waves {
    /// So many of the same launches.
    pub(crate) fn times(self, launches: f64) -> Self {
        let Self { blocks, waves, seconds, full_seconds } = self;
        let [blocks, waves] = [blocks, waves].map(|number| number * launches);
        Self { blocks, waves, seconds: seconds * launches, full_seconds: full_seconds * launches }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(crate) const fn as_f64(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_more_than_there_are_multiprocessors_takes_a_wave_more() {
        let facts = Facts::h200();
        let of = |count: f64| {
            Blocks { count, work: 1e6, share: 0.9, best_share: 0.9, wanted: count * 1e6 }.waves(
                &facts,
                DType::F32,
                Precision::F32,
            )
        };
        assert_eq!([of(1.0), of(132.0), of(133.0), of(264.0)].map(|waves| waves.waves), [1.0, 1.0, 2.0, 2.0]);
        assert!((of(264.0).seconds - of(264.0).full_seconds).abs() < 1e-12, "nothing is lost");
        assert!((of(66.0).seconds - 2.0 * of(66.0).full_seconds).abs() < 1e-12, "half is");
    }
}
