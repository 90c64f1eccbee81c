//! Windows as an executor makes them: a part of a tensor, blocked, in a ring of rows, with foreign values around.

use tiled_geometry::{AxisMap, Interval, Region, Resize, Window};
use tiled_kernel::{Kernel, Spread};
use tiled_tensor::{Element, Layout, Tensor, View, ViewMut};

use super::rng::Rng;

/// The most rows that a window stores beside those that it holds.
pub(super) const MOST_SPARE_ROWS: usize = 3;

/// Storage of a window with its layout.
#[derive(Clone, Debug)]
pub(super) struct Held<T> {
    pub(super) data: Vec<T>,
    pub(super) layout: Layout,
}

impl<T: Element> Held<T> {
    /// A window over `region` where every element, padding lanes too, is `value`.
    pub(super) fn filled(
        [batch, channels, ..]: [usize; 4],
        block: usize,
        region: Region<2>,
        spare_rows: usize,
        value: T,
    ) -> Self {
        let rows = usize::try_from(region.rows().len()).expect("rows are not negative");
        let layout = Layout::new(batch, channels, block, region, rows + spare_rows).expect("a small window");
        Self { data: vec![value; layout.len()], layout }
    }

    /// A window over a whole tensor, with NaN in padding lanes.
    pub(super) fn whole(tensor: &Tensor<T>, block: usize) -> Self {
        let region = Region::whole(extents(tensor.shape()));
        let mut held = Self::filled(tensor.shape(), block, region, 0, T::from_f64(f64::NAN));
        held.copy_from(tensor, region);
        held
    }

    /// A window over a random region around `needed`; what is not needed is NaN.
    pub(super) fn around(tensor: &Tensor<T>, block: usize, needed: Region<2>, rng: &mut Rng) -> Self {
        let shape = tensor.shape();
        let nan = T::from_f64(f64::NAN);
        let region = grow(needed, extents(shape), rng);
        let mut held = Self::filled(shape, block, region, rng.index(0, MOST_SPARE_ROWS), nan);
        held.copy_from(tensor, needed);
        held
    }

    pub(super) fn copy_from(&mut self, tensor: &Tensor<T>, region: Region<2>) {
        let [batch, channels, ..] = tensor.shape();
        let (source, mut to) = (tensor.view(), ViewMut::new(&mut self.data, self.layout));
        visit(batch, channels, region, |n, c, y, x| to.set(n, c, y, x, source.get(n, c, y, x)));
    }

    /// Sets every element that it holds, by image, channel and position.
    pub(super) fn fill(&mut self, mut value: impl FnMut(usize, usize, [i64; 2]) -> f64) {
        let layout = self.layout;
        let mut to = ViewMut::new(&mut self.data, layout);
        visit(layout.batch(), layout.channels(), layout.region(), |n, c, y, x| {
            to.set(n, c, y, x, T::from_f64(value(n, c, [y, x])));
        });
    }

    pub(super) fn view(&self) -> View<'_, T> {
        View::new(&self.data, self.layout)
    }
}

/// A random region that contains `region` and lies in the tensor.
pub(super) fn grow(region: Region<2>, extents: [i64; 2], rng: &mut Rng) -> Region<2> {
    if region.is_empty() || rng.chance(30) {
        return region;
    }
    let axes =
        region.axes().map(|axis| Interval::new(axis.begin() - rng.range(0, 3), axis.end() + rng.range(0, 3)));
    Region::new(axes).intersect(Region::whole(extents))
}

/// Calls `f(n, c, y, x)` for every element of the region, in row-major order.
pub(super) fn visit(
    batch: usize,
    channels: usize,
    region: Region<2>,
    mut f: impl FnMut(usize, usize, i64, i64),
) {
    for n in 0..batch {
        for c in 0..channels {
            for y in region.rows().begin()..region.rows().end() {
                for x in region.cols().begin()..region.cols().end() {
                    f(n, c, y, x);
                }
            }
        }
    }
}

/// Height and width of a shape.
pub(super) fn extents([.., height, width]: [usize; 4]) -> [i64; 2] {
    [height, width].map(|size| i64::try_from(size).expect("a small tensor"))
}

/// The region of input `index`, of these extents, that a region of the output needs.
pub(super) fn needed(kernel: &Kernel, index: usize, extents: [i64; 2], region: Region<2>) -> Region<2> {
    if index > 0 && kernel.epilogue().is_some() {
        return region; // what follows the sums reads it
    }
    let grain = kernel.grain();
    let region = if grain > 1 { Region::new(region.axes().map(|axis| axis.aligned(grain))) } else { region };
    let through = |maps: [AxisMap; 2], extents: [i64; 2], region: Region<2>| {
        if region.is_empty() {
            return Region::EMPTY;
        }
        let [rows, cols] = region.axes();
        Region::new([maps[0].needed(rows), maps[1].needed(cols)]).intersect(Region::whole(extents))
    };
    match kernel {
        Kernel::Conv2d { conv, .. } => through(conv.windows.map(AxisMap::Window), extents, region),
        Kernel::Conv2dBackwardInput { conv, .. } => {
            through(conv.windows.map(AxisMap::Touched), extents, region)
        }
        Kernel::MaxPool2d(pool) | Kernel::AvgPool2d(pool) => {
            through(pool.windows.map(AxisMap::Window), extents, region)
        }
        Kernel::MaxPool2dBackward(pool) => {
            let outputs = through(pool.windows.map(AxisMap::Touched), pool.output, region);
            if index == 0 { outputs } else { through(pool.windows.map(AxisMap::Window), extents, outputs) }
        }
        Kernel::AvgPool2dBackward(pool) => through(pool.windows.map(AxisMap::Touched), extents, region),
        Kernel::Resize(resize) | Kernel::AdaptiveAvgPool2d(resize) | Kernel::AdaptiveMaxPool2d(resize) => {
            through(resize.map(AxisMap::Resize), extents, region)
        }
        Kernel::AdaptiveMaxPool2dBackward(parts) => {
            let outputs = through(parts.map(AxisMap::ResizeTouched), parts.map(Resize::output), region);
            if index == 0 { outputs } else { through(parts.map(AxisMap::Resize), extents, outputs) }
        }
        Kernel::ResizeBackward(resize) | Kernel::AdaptiveAvgPool2dBackward(resize) => {
            through(resize.map(AxisMap::ResizeTouched), extents, region)
        }
        Kernel::Pad(padding) => through(padding.map(AxisMap::Padding), extents, region),
        Kernel::PadBackward(padding) => through(padding.map(AxisMap::PaddingTouched), extents, region),
        Kernel::PixelShuffle { factor } => through(factor.map(block).map(AxisMap::Touched), extents, region),
        Kernel::PixelUnshuffle { factor } => through(factor.map(block).map(AxisMap::Window), extents, region),
        Kernel::PadConstant { before, .. } => {
            let moved =
                |axis: Interval, before: i64| Interval::new(axis.begin() - before, axis.end() - before);
            let [rows, cols] = region.axes();
            Region::new([moved(rows, before[0]), moved(cols, before[1])]).intersect(Region::whole(extents))
        }
        Kernel::Broadcast { .. } | Kernel::Scatter => {
            through([AxisMap::Whole(1), AxisMap::Whole(1)], extents, region)
        }
        Kernel::Arithmetic { operands, .. } => {
            let mut inputs = operands.iter().filter(|operand| operand.is_input());
            match inputs.nth(index) {
                Some(Spread::Pixel) => through([AxisMap::Whole(1); 2], extents, region),
                _ => region,
            }
        }
        _ => region,
    }
}

/// Blocks of so many pixels, side by side.
fn block(factor: i64) -> Window {
    Window::new(factor, factor, 1, 0).expect("a positive factor")
}
