//! What a region of an output needs of each input: the bounds that loads rely on.

use tiled_geometry::{AxisMap, Interval, Region, Window};
use tiled_kernel::{Kernel, Spread};

/// The region of input `index` that a region of the output reads, clipped to the tensor.
pub(super) fn needed(kernel: &Kernel, index: usize, region: Region<2>) -> Region<2> {
    let through = |maps: [AxisMap; 2], extents: [i64; 2], region: Region<2>| {
        if region.is_empty() {
            return Region::EMPTY;
        }
        let [rows, cols] = region.axes();
        Region::new([maps[0].needed(rows), maps[1].needed(cols)]).intersect(Region::whole(extents))
    };
    if index > 0 && kernel.epilogue().is_some() {
        return region;
    }
    match kernel {
        Kernel::Conv2d { conv, .. } if kernel.grain() > 1 => {
            let tiles = Region::new(region.axes().map(|axis| axis.aligned(kernel.grain())));
            through(conv.windows.map(AxisMap::Window), conv.input, tiles)
        }
        Kernel::Conv2d { conv, .. } => through(conv.windows.map(AxisMap::Window), conv.input, region),
        Kernel::Conv2dBackwardInput { conv, .. } => {
            through(conv.windows.map(AxisMap::Touched), conv.output, region)
        }
        Kernel::MaxPool2d(pool) | Kernel::AvgPool2d(pool) => {
            through(pool.windows.map(AxisMap::Window), pool.input, region)
        }
        Kernel::MaxPool2dBackward(pool) => {
            let outputs = through(pool.windows.map(AxisMap::Touched), pool.output, region);
            match index {
                0 => outputs,
                _ => through(pool.windows.map(AxisMap::Window), pool.input, outputs),
            }
        }
        Kernel::AvgPool2dBackward(pool) => through(pool.windows.map(AxisMap::Touched), pool.output, region),
        Kernel::Resize(axes) => through(axes.map(AxisMap::Resize), axes.map(|axis| axis.input()), region),
        Kernel::ResizeBackward(axes) => {
            through(axes.map(AxisMap::ResizeTouched), axes.map(|axis| axis.output()), region)
        }
        Kernel::AdaptiveAvgPool2d(parts) | Kernel::AdaptiveMaxPool2d(parts) => {
            through(parts.map(AxisMap::Resize), parts.map(|part| part.input()), region)
        }
        Kernel::AdaptiveAvgPool2dBackward(parts) | Kernel::AdaptiveMaxPool2dBackward(parts) => {
            let outputs = through(parts.map(AxisMap::ResizeTouched), parts.map(|part| part.output()), region);
            match index {
                0 => outputs,
                _ => through(parts.map(AxisMap::Resize), parts.map(|part| part.input()), outputs),
            }
        }
        Kernel::Pad(axes) => through(axes.map(AxisMap::Padding), axes.map(|axis| axis.input()), region),
        Kernel::PadBackward(axes) => {
            through(axes.map(AxisMap::PaddingTouched), axes.map(|axis| axis.output()), region)
        }
        Kernel::PixelShuffle { factor } => of_blocks(*factor, region, AxisMap::Touched),
        Kernel::PixelUnshuffle { factor } => of_blocks(*factor, region, AxisMap::Window),
        Kernel::PadConstant { before, input, .. } => {
            let moved =
                |axis: Interval, before: i64| Interval::new(axis.begin() - before, axis.end() - before);
            let [rows, cols] = region.axes();
            Region::new([moved(rows, before[0]), moved(cols, before[1])]).intersect(Region::whole(*input))
        }
        Kernel::Broadcast { .. } | Kernel::Scatter => Region::whole([1, 1]),
        Kernel::Arithmetic { operands, .. } => {
            let mut inputs = operands.iter().filter(|operand| operand.is_input());
            match inputs.nth(index) {
                Some(Spread::Pixel) => Region::whole([1, 1]),
                _ => region,
            }
        }
        _ => region,
    }
}

/// Through blocks of so many pixels, side by side.
fn of_blocks(factor: [i64; 2], region: Region<2>, map: impl Fn(Window) -> AxisMap) -> Region<2> {
    let axes = region.axes();
    Region::new([0, 1].map(|axis| {
        let window = Window::new(factor[axis], factor[axis], 1, 0).expect("invariant: factors are positive");
        map(window).needed(axes[axis])
    }))
}
