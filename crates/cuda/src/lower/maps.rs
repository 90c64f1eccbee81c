//! Kernels of each position alone.

use tiled_geometry::Region;
use tiled_kernel::{DeviceError, Dropped, Kernel, Spread};
use tiled_tensor::{DType, Layout};

use super::grid::{LANES, of_lanes};
use super::{Given, Launches, typed};
use crate::args::{self, Function, Part, View, int};

/// The numbers of `MapOp` in `kernels/map.cu`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Op {
    Apply,
    ApplyGradient,
    Sum,
    Product,
    DifferenceScaled,
    Affine,
    Combine,
    Dropout,
    Fill,
}

pub(super) fn compute(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    let mut args = args::Map {
        out: given.output.view(),
        inputs: [given.input(0), given.input(1)],
        part: Part::new(given.region, given.images()),
        input_count: int(given.inputs.len()),
        params: given.params.0,
        ..args::Map::default()
    };
    let per_image = |factors: usize| i32::from(factors != given.channels());
    let mut after = None;
    let op = match *kernel {
        Kernel::Activation(activation) => {
            args.function = Function::of(activation);
            Op::Apply
        }
        Kernel::ActivationBackward(activation) => {
            args.function = Function::gradient_of(activation);
            Op::ApplyGradient
        }
        Kernel::Add => Op::Sum,
        Kernel::Mul => Op::Product,
        Kernel::DifferenceScaled { scale } => {
            args.number = scale;
            Op::DifferenceScaled
        }
        Kernel::ChannelAffine { activation } => {
            let factors = given.params.1 / 2;
            (args.factors, args.per_image) = (int(factors), per_image(factors));
            let function = activation.map(Function::of).unwrap_or_default();
            if function.is_light() {
                args.function = function
            } else {
                after = Some(function)
            }
            Op::Affine
        }
        Kernel::ChannelCombine => {
            let factors = given.params.1 / 3;
            (args.factors, args.per_image) = (int(factors), per_image(factors));
            Op::Combine
        }
        Kernel::Dropout { probability, seed, dropped } => {
            (args.number, args.seed) = (probability, seed);
            args.dropped = match dropped {
                Dropped::Elements => 0,
                Dropped::Channels => 1,
                Dropped::Images => 2,
                Dropped::Batch => 3,
            };
            Op::Dropout
        }
        Kernel::Fill { value } => {
            args.number = value;
            Op::Fill
        }
        _ => unreachable!("invariant: {} is no map", kernel.name()),
    };
    args.op = op as i32;
    let is_function = matches!(op, Op::Apply | Op::ApplyGradient) && !args.function.is_light();
    if is_function {
        return function(device, given, &args);
    }
    check_blocks(given);
    map(device, given.dtype, &given.output.layout, given.region, &args)?;
    match after {
        Some(function) => apply(device, given, Op::Apply, function),
        None => Ok(()),
    }
}

/// Copies channels between views whose blocks are as large; `layout` has as many channels.
pub(super) fn copy(
    device: &impl Launches,
    dtype: DType,
    [from, out]: [View; 2],
    layout: &Layout,
    region: Region<2>,
) -> Result<(), DeviceError> {
    let part = Part::new(region, layout.batch());
    let inputs = [from, View::default()];
    // no function
    let args = args::Map { out, inputs, part, op: Op::Apply as i32, input_count: 1, ..args::Map::default() };
    map(device, dtype, layout, region, &args)
}

fn map(
    device: &impl Launches,
    dtype: DType,
    layout: &Layout,
    region: Region<2>,
    args: &args::Map,
) -> Result<(), DeviceError> {
    let (lanes, names) = if layout.block() >= LANES {
        (LANES, ["map_f32_4", "map_f64_4"])
    } else {
        (1, ["map_f32_1", "map_f64_1"])
    };
    device.launch(typed(dtype, names), of_lanes(layout, region, lanes), args)
}

/// Applies a function, or its gradient of what the last input saved, to what the output holds.
pub(super) fn apply(
    device: &impl Launches,
    given: &Given<'_>,
    op: Op,
    function: Function,
) -> Result<(), DeviceError> {
    let out = given.output.view();
    let saved = given.inputs.last().map(super::Window::view).unwrap_or_default();
    let args = args::Map {
        out,
        inputs: [out, saved],
        part: Part::new(given.region, given.images()),
        op: op as i32,
        input_count: if op == Op::Apply { 1 } else { 2 },
        function,
        ..args::Map::default()
    };
    self::function(device, given, &args)
}

fn function(device: &impl Launches, given: &Given<'_>, args: &args::Map) -> Result<(), DeviceError> {
    let layout = &given.output.layout;
    let (lanes, names) = if layout.block() >= LANES {
        (LANES, ["function_f32_4", "function_f64_4"])
    } else {
        (1, ["function_f32_1", "function_f64_1"])
    };
    device.launch(typed(given.dtype, names), of_lanes(layout, given.region, lanes), args)
}

/// Elements of one position are read by their place in a block.
fn check_blocks(given: &Given<'_>) {
    for input in given.inputs {
        assert_eq!(input.layout.block(), given.output.layout.block(), "windows with blocks of one size");
    }
}

pub(super) fn arithmetic(
    device: &impl Launches,
    kernel: &Kernel,
    given: &Given<'_>,
) -> Result<(), DeviceError> {
    const NOWHERE: i32 = 5;
    let Kernel::Arithmetic { function, operands } = kernel else {
        unreachable!("invariant: {} is no arithmetic", kernel.name())
    };
    let layout = &given.output.layout;
    let mut args = args::Arithmetic {
        out: given.output.view(),
        part: Part::new(given.region, given.images()),
        operation: *function as i32,
        source: [NOWHERE; 3],
        params: given.params.0,
        param_len: int(given.params.1),
        ..args::Arithmetic::default()
    };
    let mut inputs = given.inputs.iter();
    for (place, operand) in operands[..function.arity()].iter().enumerate() {
        args.source[place] = match operand {
            Spread::Whole => 0,
            Spread::Pixel => 1,
            Spread::Plane => 2,
            Spread::Channel => 3,
            Spread::Number(number) => {
                args.number[place] = *number;
                4
            }
        };
        if operand.is_input() {
            let input = inputs.next().expect("invariant: there is an input for each operand that is one");
            let is_block = *operand != Spread::Whole || input.layout.block() == layout.block();
            assert!(is_block, "windows with blocks of one size");
            args.inputs[place] = input.view();
        }
    }
    let (lanes, names) = if layout.block() >= LANES {
        (LANES, ["arithmetic_f32_4", "arithmetic_f64_4"])
    } else {
        (1, ["arithmetic_f32_1", "arithmetic_f64_1"])
    };
    device.launch(typed(given.dtype, names), of_lanes(layout, given.region, lanes), &args)
}
