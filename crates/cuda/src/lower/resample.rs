//! Resampling by any scale, and pooling over parts of the axes.

use tiled_geometry::{Filter, Resize, Rounding};
use tiled_kernel::{DeviceError, Kernel};

use super::grid::of_lanes;
use super::{Given, Launches, typed};
use crate::args::{self, Part, Resampling};

/// The numbers of `ResampleOp` in `kernels/resample.cu`, and the axes.
fn of(kernel: &Kernel) -> (i32, [Resize; 2]) {
    match *kernel {
        Kernel::Resize(axes) => (0, axes),
        Kernel::ResizeBackward(axes) => (1, axes),
        Kernel::AdaptiveAvgPool2d(parts) => (2, parts),
        Kernel::AdaptiveAvgPool2dBackward(parts) => (3, parts),
        Kernel::AdaptiveMaxPool2d(parts) => (4, parts),
        Kernel::AdaptiveMaxPool2dBackward(parts) => (5, parts),
        _ => unreachable!("invariant: {} resamples nothing", kernel.name()),
    }
}

pub(super) fn compute(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    let (op, axes) = of(kernel);
    let mut args = args::Resample {
        out: given.output.view(),
        part: Part::new(given.region, given.images()),
        axes: axes.map(axis),
        op,
        ..args::Resample::default()
    };
    for (view, input) in args.inputs.iter_mut().zip(given.inputs) {
        *view = input.view();
    }
    let name = typed(given.dtype, ["resample_f32", "resample_f64"]);
    device.launch(name, of_lanes(&given.output.layout, given.region, 1), &args)
}

fn axis(axis: Resize) -> Resampling {
    let [step, start, unit] = axis.line();
    let rounding = |rounding| match rounding {
        Rounding::Floor => 0,
        Rounding::Ceil => 1,
        Rounding::HalfDown => 2,
        Rounding::HalfUp => 3,
    };
    let to =
        Resampling { input: axis.input(), output: axis.output(), step, start, unit, ..Resampling::default() };
    match axis.mode().filter {
        Filter::Nearest(to_input) => Resampling { filter: 0, rounding: rounding(to_input), ..to },
        Filter::Linear => Resampling { filter: 1, ..to },
        Filter::Cubic(cubic) => Resampling {
            filter: 2,
            slope: f64::from(cubic.slope_thousandths) / 1000.0,
            drops_outside: i32::from(cubic.drops_outside),
            ..to
        },
        Filter::Area => Resampling { filter: 3, ..to },
    }
}
