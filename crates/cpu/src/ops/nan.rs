//! One NaN for all, where the order of two operands is the compiler's to choose.
//!
//! Of two NaN that are added or multiplied the CPU keeps the first, and what it makes of ∞ − ∞ has a sign of its own. In
//! portable code the compiler decides which operand comes first, and may decide otherwise for the last columns of a row
//! than for the others. So the sign of a NaN would tell where a tile ends. Where the vectors are named by intrinsics it
//! does not.

use tiled_geometry::Region;
use tiled_kernel::Kernel;
use tiled_tensor::{Element, PartMut};

use super::band::for_bands;

/// Whether a kernel does arithmetic, whose NaN have any sign; others move elements, NaN as all.
pub(crate) const fn is_mixed(kernel: &Kernel) -> bool {
    !matches!(
        kernel,
        Kernel::Concat
            | Kernel::Slice { .. }
            | Kernel::SliceBackward { .. }
            | Kernel::ChannelShuffle { .. }
            | Kernel::PixelShuffle { .. }
            | Kernel::PixelUnshuffle { .. }
            | Kernel::ArgMax
            | Kernel::MaxChannels
            | Kernel::MaxChannelsBackward
            | Kernel::Pad(_)
            | Kernel::PadConstant { .. }
            | Kernel::Fill { .. }
            | Kernel::MaxPool2d(_)
            | Kernel::AdaptiveMaxPool2d(_)
    )
}

/// Turns every NaN of a region into the same one.
pub(crate) fn unite<T: Element>(output: PartMut<'_, T>, region: Region<2>) {
    let one = T::from_f64(f64::NAN);
    for_bands(output, region, 1, |band| {
        for y in band.rows().begin()..band.rows().end() {
            let row = band.row(y);
            // a row was just written, so that looking at it costs little, and hardly any has one
            if row.iter().fold(false, |any, value| any | value.is_nan()) {
                row.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = one);
            }
        }
    });
}
