//! Regions on their way between windows.

use tiled_geometry::Region;
use tiled_tensor::{Element, Layout, View, ViewMut};

/// Copies a region, in all images and channels, between windows that hold it and have one channel block; the lanes past the
/// last channel go along.
///
/// # Panics
/// Where their blocks differ, or one does not hold the region.
///
/// ```
/// use tiled_geometry::{Interval, Region};
/// use tiled_kernel::copy_region;
/// use tiled_tensor::Tensor;
///
/// let from = Tensor::<f32>::from_fn([1, 1, 2, 3], |[_, _, y, x]| (y * 3 + x) as f32)?;
/// let mut to = Tensor::<f32>::zeros([1, 1, 2, 3])?;
/// let region = Region::from_rows_cols(Interval::new(1, 2), Interval::new(0, 2));
/// copy_region(&from.view(), &mut to.view_mut(), region);
/// assert_eq!(to.data(), [0.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
/// # Ok::<(), tiled_tensor::TensorError>(())
/// ```
pub fn copy_region<T: Element>(from: &View<'_, T>, to: &mut ViewMut<'_, T>, region: Region<2>) {
    let (source, target) = (*from.layout(), *to.layout());
    assert_eq!(source.block(), target.block(), "windows with blocks of one size");
    let block = source.block();
    let index = |coordinate: i64| usize::try_from(coordinate).expect("the region lies in the window");
    let span = |layout: &Layout| {
        let begin = index(region.cols().begin() - layout.cols().begin()) * block;
        begin..begin + index(region.cols().len()) * block
    };
    let (source_span, target_span) = (span(&source), span(&target));
    for n in 0..source.batch() {
        for channel_block in 0..source.blocks() {
            for y in region.rows().begin()..region.rows().end() {
                let row = &from.row(n, channel_block, y)[source_span.clone()];
                to.row_mut(n, channel_block, y)[target_span.clone()].copy_from_slice(row);
            }
        }
    }
}
