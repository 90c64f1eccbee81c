//! Gradients of weights.

use tiled_geometry::Region;
use tiled_kernel::{Conv, DeviceError};
use tiled_tensor::DType;

use super::grid::{count, of_count};
use super::waves::{Blocks, Waves, as_f64};
use super::{Launches, Shape, Window, typed};
use crate::args::{self, Part, WeightAxis, int, narrow};
use crate::block;
use crate::driver::Facts;
use crate::precision::Precision;

/// How the gradient of a convolution's weights is summed: by its geometry alone, so that its bits are those of the shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradient<'k> {
    conv: &'k Conv,
    dtype: DType,
    precision: Precision,
    path: Path,
    /// Blocks of threads for one part of the pixels.
    tiles: usize,
    /// The parts.
    splits: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// Tiles of these output channels by terms: taps and input channels in one row, the channels of a tap in whole blocks.
    Dense([usize; 2]),
    /// The same of few input channels, one by one.
    First([usize; 2]),
    /// The same of few output channels, one by one: tiles of [`LAST`].
    Last,
    /// Both one by one: few of both, or groups that cut blocks.
    Gather([usize; 2]),
    Depthwise,
}

const LAST: [usize; 2] = [8, 128];
/// The taps of a row that a thread of the depthwise kernels has.
const DEPTHWISE_TAPS: usize = 4;
/// The multiprocessors of a large device, which parts are cut for: the same parts on every device.
const MULTIPROCESSORS: usize = 132;
/// Blocks of threads that keep a device busy: eight for each of them.
const ENOUGH_BLOCKS: usize = 8 * MULTIPROCESSORS;
const MOST_SPLITS: usize = 2 * MULTIPROCESSORS;
/// What partial sums may take.
const MOST_SCRATCH_BYTES: usize = 40 << 20;
/// The share of waves that is enough to be full: that of 1152 blocks, which fill 97 % or more of the waves of 58, 108, 128 and 132 multiprocessors.
const FULL: f64 = 0.96;

impl<'k> Gradient<'k> {
    /// The way for this convolution.
    pub(crate) fn new(conv: &'k Conv, dtype: DType, precision: Precision) -> Self {
        let (inputs, outputs) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        let taps: usize = conv.kernel().iter().product();
        let is_blocked = |channels: usize, each: usize| {
            block(channels) == 8 && (conv.groups == 1 || each.is_multiple_of(8))
        };
        let is_single = dtype == DType::F32;
        let path = if inputs == 1 && outputs == 1 && conv.groups > 1 {
            Path::Depthwise
        } else if is_blocked(conv.in_channels, inputs) && is_blocked(conv.out_channels, outputs) {
            Path::Dense(match (precision, outputs) {
                _ if !is_single => [32, 32],
                (Precision::F32, ..=32) => [32, 64],
                (Precision::F32, 33..=64) => [64, 64],
                (Precision::F32, _) => [128, 64],
                (_, ..=32) => [32, 128],
                (Precision::F32x3, 65..) => [128, 128],
                _ => [64, 128],
            })
        } else {
            match outputs {
                ..=8 if is_single && is_blocked(conv.in_channels, inputs) && inputs.is_multiple_of(8) => {
                    Path::Last
                }
                ..=16 => Path::Gather([16, 64]),
                _ if !(is_single && is_blocked(conv.out_channels, outputs)) => Path::Gather([32, 32]),
                17..=32 => Path::First([32, 32]),
                _ => Path::First([64, 32]),
            }
        };
        let tiles_of = |[rows, terms]: [usize; 2]| {
            let padded = if matches!(path, Path::Dense(_)) { inputs.next_multiple_of(8) } else { inputs };
            conv.groups * outputs.div_ceil(rows) * (taps * padded).div_ceil(terms)
        };
        let tiles = match path {
            Path::Dense(tile) | Path::First(tile) | Path::Gather(tile) => tiles_of(tile),
            Path::Last => tiles_of(LAST),
            Path::Depthwise => conv.groups.div_ceil(block(conv.groups)) * taps,
        };
        // parts are counted for these tiles, whichever carries them out
        let counted = match path {
            Path::Dense(_) | Path::Depthwise => tiles,
            _ if outputs <= 16 => tiles_of([16, 64]),
            _ if outputs > 32 && is_single => tiles_of([64, 32]),
            _ => tiles_of([32, 32]),
        };
        let within = MOST_SCRATCH_BYTES / (conv.weight_len() * dtype.size_bytes()).max(1);
        let splits = splits(counted, within.clamp(1, MOST_SPLITS));
        Self { conv, dtype, precision, path, tiles, splits }
    }

    /// What carries it out: tensor cores where channels lie in blocks.
    pub(crate) fn products(&self) -> Precision {
        let is_dense = matches!(self.path, Path::Dense(_));
        if is_dense && self.dtype == DType::F32 { self.precision } else { Precision::F32 }
    }

    /// The bytes of the sums of all parts.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.splits * self.conv.weight_len() * self.dtype.size_bytes()
    }

    /// What a call over so many pixels, of all images, takes, without the sums of its parts.
    pub(crate) fn waves(&self, facts: &Facts, pixels: f64) -> Waves {
        let [conv, splits] = [self.conv.weight_len(), self.splits].map(as_f64);
        let taps: f64 = self.conv.kernel().iter().copied().map(as_f64).product();
        let wanted = pixels * conv;
        let work = match self.path {
            Path::Dense([rows, terms]) | Path::First([rows, terms]) | Path::Gather([rows, terms]) => {
                as_f64(rows * terms)
            }
            Path::Last => as_f64(LAST[0] * LAST[1]),
            Path::Depthwise => as_f64(block(self.conv.groups)),
        };
        // of what the largest dense tiles reach; measured on an H200 in f32
        let share = match (self.path, self.dtype, self.products()) {
            (Path::Dense(_), DType::F64, _) => 0.75,
            (Path::Dense([128, _]), _, _) => 1.0,
            (Path::Dense(_), _, Precision::Tf32) => 0.7,
            (Path::Dense([64, _]), _, _) => 0.85,
            (Path::Dense(_), _, _) => 0.7,
            (Path::First([64, _]), _, _) => 0.4,
            (Path::First(_), _, _) => 0.35,
            (Path::Last, _, _) => 0.25,
            (Path::Gather(_), _, _) => 0.4,
            (Path::Depthwise, _, _) => 0.25 / taps,
        };
        let count = as_f64(self.tiles) * splits;
        Blocks { count, work: work * (pixels / splits).ceil(), share, best_share: share, wanted }.waves(
            facts,
            self.dtype,
            self.products(),
        )
    }

    /// The bytes that a call writes and reads for the sums of its parts.
    pub(crate) fn passed_bytes(&self) -> f64 {
        as_f64(2 * self.scratch_bytes() + 2 * self.conv.weight_len() * self.dtype.size_bytes())
    }

    /// Adds the gradient over a share to sums in the order OIHW.
    pub(crate) fn reduce(
        &self,
        device: &impl Launches,
        [x, gy]: [&Window; 2],
        share: Region<2>,
        [scratch, sums]: [u64; 2],
    ) -> Result<(), DeviceError> {
        let conv = self.conv;
        gy.require(share);
        let axes = share.axes();
        let read = Region::new([0, 1].map(|axis| conv.windows[axis].receptive(axes[axis])));
        x.require(read.intersect(Region::whole(conv.input)));
        let args = args::Weight {
            x: x.view(),
            gy: gy.view(),
            share: Part::new(share, gy.layout.batch()),
            axes: [0, 1].map(|axis| {
                let window = conv.windows[axis];
                WeightAxis {
                    input: conv.input[axis],
                    kernel: narrow(window.kernel()),
                    stride: narrow(window.stride()),
                    dilation: narrow(window.dilation()),
                    padding: narrow(window.padding()),
                }
            }),
            groups: int(conv.groups),
            inputs: int(conv.in_channels / conv.groups),
            outputs: int(conv.out_channels / conv.groups),
            splits: int(self.splits),
            scratch,
        };
        let taps: usize = conv.kernel().iter().product();
        let (kernel, threads, tiles) = match (self.path, self.dtype) {
            (Path::Dense([rows, _]), DType::F32) if self.products() == Precision::Tf32 => match rows {
                64 => ("weights_tf32_64", 128, [self.tiles, 1]),
                _ => ("weights_tf32_32", 64, [self.tiles, 1]),
            },
            (Path::Dense([rows, _]), DType::F32) if self.products() == Precision::F32x3 => match rows {
                128 => ("weights_f32x3_128", 128, [self.tiles, 1]),
                64 => ("weights_f32x3_64", 64, [self.tiles, 1]),
                _ => ("weights_f32x3_32", 64, [self.tiles, 1]),
            },
            (Path::Dense(_), DType::F64) => ("weights_dense_f64_32", 64, [self.tiles, 1]),
            (Path::Dense([128, _]), _) => ("weights_dense_f32_128", 128, [self.tiles, 1]),
            (Path::Dense([64, _]), _) => ("weights_dense_f32_64", 64, [self.tiles, 1]),
            (Path::Dense(_), _) => ("weights_dense_f32_32", 32, [self.tiles, 1]),
            (Path::Gather([16, _]), dtype) => {
                (typed(dtype, ["weights_gather_f32_16", "weights_gather_f64_16"]), 64, [self.tiles, 1])
            }
            (Path::First([64, _]), _) => ("weights_first_f32_64", 64, [self.tiles, 1]),
            (Path::First(_), _) => ("weights_first_f32_32", 32, [self.tiles, 1]),
            (Path::Last, _) => ("weights_last_f32_8", 64, [self.tiles, 1]),
            (Path::Gather(_), DType::F32) => ("weights_gather_f32_32", 32, [self.tiles, 1]),
            (Path::Gather(_), DType::F64) => ("weights_gather_f64_32", 64, [self.tiles, 1]),
            (Path::Depthwise, dtype) => {
                let names = ["weights_depthwise_f32", "weights_depthwise_f64"];
                let [rows, cols] = conv.kernel();
                (typed(dtype, names), 256, [self.tiles / taps, rows * cols.div_ceil(DEPTHWISE_TAPS)])
            }
        };
        let grid = [count(tiles[0]), count(tiles[1]), count(self.splits)];
        device.launch(kernel, Shape { grid, block: [threads, 1, 1] }, &args)?;
        let values = conv.weight_len();
        let add = args::Add {
            to: sums,
            from: scratch,
            values: i64::try_from(values).expect("invariant: weights are in memory"),
            parts: int(self.splits),
            inputs: args.inputs,
            taps: int(taps),
            unused: 0,
        };
        device.launch(typed(self.dtype, ["add_parts_f32", "add_parts_f64"]), of_count(values), &add)
    }
}

/// The parts of the pixels, of at most so many, for so many tiles: enough to keep a device busy, and of those the fewest that leave no wave
/// short.
fn splits(tiles: usize, most: usize) -> usize {
    let full = |splits: usize| {
        let blocks = tiles * splits;
        as_f64(blocks) / as_f64(blocks.next_multiple_of(MULTIPROCESSORS))
    };
    let fewest = ENOUGH_BLOCKS.div_ceil(tiles).min(most);
    // where memory holds fewer than enough, the best of what it holds
    let candidates = if fewest == most { 1..=most } else { fewest..=most.min(2 * fewest) };
    let enough = candidates.clone().find(|splits| *splits >= fewest && full(*splits) >= FULL);
    let fullest = || candidates.max_by(|one, other| full(*one).total_cmp(&full(*other)));
    enough.or_else(fullest).unwrap_or(1)
}

/// Adds one lane's sums to another's.
pub(crate) fn add(
    device: &impl Launches,
    dtype: DType,
    [to, from]: [u64; 2],
    values: usize,
) -> Result<(), DeviceError> {
    let args = args::Add {
        to,
        from,
        values: i64::try_from(values).expect("invariant: weights are in memory"),
        parts: 1,
        inputs: 1,
        taps: 1,
        unused: 0,
    };
    device.launch(typed(dtype, ["add_parts_f32", "add_parts_f64"]), of_count(values), &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_so_that_waves_are_full() {
        for tiles in [1, 5, 9, 18, 36, 64, 72, 144, 288, 576, 1000] {
            let parts = splits(tiles, MOST_SPLITS);
            let waves = as_f64(tiles * parts) / as_f64(MULTIPROCESSORS);
            assert!(waves / waves.ceil() >= 0.94, "{tiles} tiles, {parts} parts: {waves} waves");
        }
        assert_eq!(splits(576, 4), 2, "1152 blocks");
        assert_eq!(splits(1, 1), 1);
        assert_eq!(splits(10_000, 3), 1, "there are enough");
    }
}
