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

/// How the gradient of a convolution's weights is summed: by its geometry alone, so that its bits are those of the shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradient<'k> {
    conv: &'k Conv,
    dtype: DType,
    path: Path,
    /// Blocks of threads for one part of the pixels.
    tiles: usize,
    /// The parts.
    splits: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// Tiles of so many channels on both sides.
    Dense(usize),
    Gather,
    Depthwise,
}

/// Blocks of threads that keep a device busy: two for each multiprocessor of a large one.
const ENOUGH_BLOCKS: usize = 264;
const MOST_SPLITS: usize = 64;
/// What partial sums may take.
const MOST_SCRATCH_BYTES: usize = 32 << 20;

impl<'k> Gradient<'k> {
    /// The way for this convolution.
    pub(crate) fn new(conv: &'k Conv, dtype: DType) -> Self {
        let (inputs, outputs) = (conv.in_channels / conv.groups, conv.out_channels / conv.groups);
        let taps: usize = conv.kernel().iter().product();
        let is_blocked = |channels: usize, each: usize| {
            block(channels) == 8 && (conv.groups == 1 || each.is_multiple_of(8))
        };
        let path = if inputs == 1 && outputs == 1 && conv.groups > 1 {
            Path::Depthwise
        } else if is_blocked(conv.in_channels, inputs) && is_blocked(conv.out_channels, outputs) {
            let is_wide = dtype == DType::F32 && inputs > 32 && outputs > 32;
            Path::Dense(if is_wide { 64 } else { 32 })
        } else {
            Path::Gather
        };
        let tiles = match path {
            Path::Dense(side) => conv.groups * inputs.div_ceil(side) * outputs.div_ceil(side) * taps,
            Path::Gather => conv.groups * outputs.div_ceil(32) * (taps * inputs).div_ceil(64),
            Path::Depthwise => conv.groups.div_ceil(block(conv.groups)) * taps,
        };
        let within = MOST_SCRATCH_BYTES / (conv.weight_len() * dtype.size_bytes()).max(1);
        let splits = ENOUGH_BLOCKS.div_ceil(tiles).min(MOST_SPLITS).min(within).max(1);
        Self { conv, dtype, path, tiles, splits }
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
            Path::Dense(side) => as_f64(side * side),
            Path::Gather => 32.0 * 64.0,
            Path::Depthwise => as_f64(block(self.conv.groups)),
        };
        let share = match self.path {
            Path::Dense(64) => 0.9,
            Path::Dense(_) => 0.75,
            Path::Gather => 0.5,
            Path::Depthwise => 0.25 / taps,
        };
        let count = as_f64(self.tiles) * splits;
        Blocks { count, work: work * (pixels / splits).ceil(), share, wanted }.waves(facts, self.dtype)
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
        let (kernel, threads, grid) = match (self.path, self.dtype) {
            (Path::Dense(64), _) => ("weights_dense_f32_64", 128, [self.tiles / taps, taps]),
            (Path::Dense(_), dtype) => {
                let names = ["weights_dense_f32_32", "weights_dense_f64_32"];
                (typed(dtype, names), 64, [self.tiles / taps, taps])
            }
            (Path::Gather, dtype) => {
                (typed(dtype, ["weights_gather_f32", "weights_gather_f64"]), 128, [self.tiles, 1])
            }
            (Path::Depthwise, dtype) => {
                let names = ["weights_depthwise_f32", "weights_depthwise_f64"];
                (typed(dtype, names), 256, [self.tiles / taps, taps])
            }
        };
        let grid = [count(grid[0]), count(grid[1]), count(self.splits)];
        device.launch(kernel, Shape { grid, block: [threads, 1, 1] }, &args)?;
        let values = conv.weight_len();
        let add = args::Add {
            to: sums,
            from: scratch,
            values: i64::try_from(values).expect("invariant: weights are in memory"),
            parts: int(self.splits),
            unused: 0,
        };
        device.launch(typed(self.dtype, ["add_parts_f32", "add_parts_f64"]), of_count(values), &add)
    }
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
        unused: 0,
    };
    device.launch(typed(dtype, ["add_parts_f32", "add_parts_f64"]), of_count(values), &args)
}
