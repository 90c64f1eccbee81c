//! Moves between positions and channels, padding, pooling.

use tiled_geometry::{PadMode, Padding};
use tiled_kernel::{DeviceError, Kernel};
use tiled_tensor::Layout;

use super::grid::{LANES, of_lanes};
use super::{Given, Launches, Window, maps, typed};
use crate::args::{self, Axis, Part, PoolAxis, View, int, narrow};

/// The numbers of `MoveOp` in `kernels/move.cu`.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Op {
    Concat,
    Slice,
    SliceBackward,
    ChannelShuffle,
    PixelShuffle,
    PixelUnshuffle,
    Pad,
    PadBackward,
    PadConstant,
    Broadcast,
    Scatter,
}

pub(super) fn compute(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    if let Some(copies) = copies(kernel, given) {
        let mut all = copies.into_iter();
        return all
            .try_for_each(|(views, layout)| maps::copy(device, given.dtype, views, &layout, given.region));
    }
    let mut args = args::Move {
        out: given.output.view(),
        part: Part::new(given.region, given.images()),
        extrema: given.extrema,
        input_count: int(given.inputs.len()),
        ..args::Move::default()
    };
    for (view, input) in args.inputs.iter_mut().zip(given.inputs) {
        *view = input.view();
    }
    let op = match *kernel {
        Kernel::Concat => Op::Concat,
        Kernel::Slice { begin } => {
            args.at = int(begin);
            Op::Slice
        }
        Kernel::SliceBackward { begin } => {
            args.at = int(begin);
            Op::SliceBackward
        }
        Kernel::ChannelShuffle { groups } => {
            args.at = int(groups);
            Op::ChannelShuffle
        }
        Kernel::PixelShuffle { factor } => {
            [args.at, args.by] = factor.map(narrow);
            Op::PixelShuffle
        }
        Kernel::PixelUnshuffle { factor } => {
            [args.at, args.by] = factor.map(narrow);
            Op::PixelUnshuffle
        }
        Kernel::Pad(axes) => {
            args.axes = axes.map(padding);
            Op::Pad
        }
        Kernel::PadBackward(axes) => {
            args.axes = axes.map(padding);
            Op::PadBackward
        }
        Kernel::PadConstant { before, input, value } => {
            args.axes =
                [0, 1].map(|axis| Axis { input: input[axis], before: before[axis], ..Axis::default() });
            args.number = value;
            Op::PadConstant
        }
        Kernel::Broadcast { scale } => {
            args.number = scale;
            Op::Broadcast
        }
        Kernel::Scatter => Op::Scatter,
        _ => unreachable!("invariant: {} moves nothing", kernel.name()),
    };
    args.op = op as i32;
    let names = match op {
        Op::PadBackward => ["pad_back_f32", "pad_back_f64"],
        _ => ["move_f32", "move_f64"],
    };
    device.launch(typed(given.dtype, names), of_lanes(&given.output.layout, given.region, 1), &args)
}

/// What copies of whole channel blocks carry out: from where to where, and how many channels.
fn copies(kernel: &Kernel, given: &Given<'_>) -> Option<Vec<([View; 2], Layout)>> {
    let (out, bytes) = (&given.output, given.dtype.size_bytes());
    let block = out.layout.block();
    let are_alike = given.inputs.iter().all(|input| input.layout.block() == block);
    match *kernel {
        Kernel::Slice { begin } if are_alike && begin % block == 0 => {
            let from = given.inputs[0].view().channels(begin, given.channels(), bytes);
            Some(vec![([from, out.view()], out.layout)])
        }
        Kernel::Concat if are_alike => {
            let mut begin = 0;
            let copy = |input: &Window| {
                let channels = input.layout.channels();
                let to = (begin % block == 0).then(|| out.view().channels(begin, channels, bytes))?;
                begin += channels;
                Some(([input.view(), to], input.layout))
            };
            given.inputs.iter().map(copy).collect()
        }
        _ => None,
    }
}

fn padding(axis: Padding) -> Axis {
    let mode = match axis.mode() {
        PadMode::Reflect => 0,
        PadMode::Replicate => 1,
        PadMode::Circular => 2,
    };
    Axis { input: axis.input(), output: axis.output(), before: axis.before(), mode, unused: 0 }
}

pub(super) fn pool(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    let (op, pool) = match kernel {
        Kernel::MaxPool2d(pool) => (0, pool),
        Kernel::MaxPool2dBackward(pool) => (1, pool),
        Kernel::AvgPool2d(pool) => (2, pool),
        Kernel::AvgPool2dBackward(pool) => (3, pool),
        _ => unreachable!("invariant: {} is no pooling", kernel.name()),
    };
    let axes = [0, 1].map(|axis| {
        let window = pool.windows[axis];
        let counts = |padding: i64| if pool.counts_padding { narrow(padding) } else { 0 };
        PoolAxis {
            input: pool.input[axis],
            output: pool.output[axis],
            kernel: narrow(window.kernel()),
            stride: narrow(window.stride()),
            dilation: narrow(window.dilation()),
            padding: narrow(window.padding()),
            counted_before: counts(window.padding()),
            counted_after: counts(pool.padding_after[axis]),
        }
    });
    let args = args::Pool {
        out: given.output.view(),
        inputs: [given.input(0), given.input(1)],
        part: Part::new(given.region, given.images()),
        axes,
        op,
        unused: 0,
    };
    for input in given.inputs {
        assert_eq!(input.layout.block(), given.output.layout.block(), "windows with blocks of one size");
    }
    let is_blocked = given.output.layout.block() >= LANES;
    let names = match (op % 2, is_blocked) {
        (0, true) => ["pool_f32_4", "pool_f64_4"],
        (0, false) => ["pool_f32_1", "pool_f64_1"],
        (_, true) => ["pool_back_f32_4", "pool_back_f64_4"],
        (_, false) => ["pool_back_f32_1", "pool_back_f64_1"],
    };
    let lanes = if is_blocked { LANES } else { 1 };
    device.launch(typed(given.dtype, names), of_lanes(&given.output.layout, given.region, lanes), &args)
}
