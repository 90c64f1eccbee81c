//! Computations of each pixel over its channels.

use tiled_kernel::{DeviceError, Kernel, LocalResponse, PixelNorm};

use super::grid::of_rows;
use super::{Given, Launches, typed};
use crate::args::{self, Part, int};

pub(super) fn compute(device: &impl Launches, kernel: &Kernel, given: &Given<'_>) -> Result<(), DeviceError> {
    let mut args = args::Pixel {
        out: given.output.view(),
        inputs: [given.input(0), given.input(1)],
        part: Part::new(given.region, given.images()),
        ..args::Pixel::default()
    };
    let of_norm = |args: &mut args::Pixel, norm: &PixelNorm| {
        (args.eps, args.centred) = (norm.eps, i32::from(norm.centred));
    };
    let of_response = |args: &mut args::Pixel, local: &LocalResponse| {
        // a window of more channels than there are holds all of them
        args.size = int(local.size.min(1 << 30));
        (args.share, args.beta, args.k) = (local.share(), local.beta, local.k);
    };
    // the numbers of `PixelOp` in `kernels/pixel.cu`
    args.op = match kernel {
        Kernel::Softmax { log } => i32::from(*log),
        Kernel::SoftmaxBackward { log } => 2 + i32::from(*log),
        Kernel::PixelNorm(norm) => {
            of_norm(&mut args, norm);
            4
        }
        Kernel::PixelNormBackward(norm) => {
            of_norm(&mut args, norm);
            5
        }
        Kernel::LocalResponse(local) => {
            of_response(&mut args, local);
            6
        }
        Kernel::LocalResponseBackward(local) => {
            of_response(&mut args, local);
            7
        }
        Kernel::ArgMax => 8,
        Kernel::SumChannels => 9,
        Kernel::CrossEntropyBackward { scale } => {
            args.eps = *scale;
            10
        }
        Kernel::MaxChannels => 11,
        Kernel::MaxChannelsBackward => 12,
        _ => unreachable!("invariant: {} is of no pixel", kernel.name()),
    };
    if given.inputs.len() < 2 {
        // its address is worked out, and nothing read there
        args.inputs[1] = args.inputs[0];
    }
    let kernel = typed(given.dtype, ["pixel_f32", "pixel_f64"]);
    device.launch(kernel, of_rows(given.region, 1, given.images()), &args)
}
