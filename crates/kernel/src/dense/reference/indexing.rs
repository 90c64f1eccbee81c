//! Elements by index, and where extreme ones are.

use ndarray::{ArrayView1, ArrayViewD, ArrayViewMutD, Axis, Dimension};
use tiled_tensor::Element;

use super::require;
use crate::dense::{Extreme, IndexError};

pub(super) fn arg<T: Element>(
    extreme: Extreme,
    x: &ArrayViewD<'_, T>,
    axis: usize,
    mut y: ArrayViewMutD<'_, i64>,
) {
    let expected: Vec<usize> = with_extent(x.shape(), axis, 1);
    require("y", y.shape(), &expected);
    assert!(x.shape()[axis] > 0, "no element along axis {axis}");
    for (row, y) in x.lanes(Axis(axis)).into_iter().zip(y.iter_mut()) {
        let mut best = 0;
        for (i, value) in row.iter().enumerate() {
            let held = row[best];
            let wins = match extreme {
                Extreme::Max => *value > held,
                Extreme::Min => *value < held,
            };
            if wins || (value.is_nan() && !held.is_nan()) {
                best = i;
            }
        }
        *y = i64::try_from(best).expect("invariant: an index is below 2^63");
    }
}

pub(super) fn take<T: Element>(
    x: &ArrayViewD<'_, T>,
    axis: usize,
    index: &ArrayView1<'_, i64>,
    mut y: ArrayViewMutD<'_, T>,
) -> Result<(), IndexError> {
    require("y", y.shape(), &with_extent(x.shape(), axis, index.len()));
    let places = places(index.iter(), x.shape()[axis])?;
    for (mut y, place) in y.axis_iter_mut(Axis(axis)).zip(places) {
        y.assign(&x.index_axis(Axis(axis), place));
    }
    Ok(())
}

pub(super) fn put_add<T: Element>(
    y: &ArrayViewD<'_, T>,
    axis: usize,
    index: &ArrayView1<'_, i64>,
    mut x: ArrayViewMutD<'_, T>,
) -> Result<(), IndexError> {
    require("y", y.shape(), &with_extent(x.shape(), axis, index.len()));
    let places = places(index.iter(), x.shape()[axis])?;
    for (y, place) in y.axis_iter(Axis(axis)).zip(places) {
        x.index_axis_mut(Axis(axis), place).zip_mut_with(&y, |x, y| *x += *y);
    }
    Ok(())
}

pub(super) fn gather<T: Element>(
    x: &ArrayViewD<'_, T>,
    axis: usize,
    index: &ArrayViewD<'_, i64>,
    mut y: ArrayViewMutD<'_, T>,
) -> Result<(), IndexError> {
    require("y", y.shape(), index.shape());
    covers(x.shape(), index.shape(), axis);
    let places = places(index.iter(), x.shape()[axis])?;
    for ((mut at, y), place) in y.indexed_iter_mut().zip(places) {
        at.slice_mut()[axis] = place;
        *y = x[at];
    }
    Ok(())
}

pub(super) fn scatter_add<T: Element>(
    y: &ArrayViewD<'_, T>,
    axis: usize,
    index: &ArrayViewD<'_, i64>,
    mut x: ArrayViewMutD<'_, T>,
) -> Result<(), IndexError> {
    require("y", y.shape(), index.shape());
    covers(x.shape(), index.shape(), axis);
    let places = places(index.iter(), x.shape()[axis])?;
    for ((mut at, y), place) in y.indexed_iter().zip(places) {
        at.slice_mut()[axis] = place;
        x[at] += *y;
    }
    Ok(())
}

fn with_extent(shape: &[usize], axis: usize, extent: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape[axis] = extent;
    shape
}

fn covers(x: &[usize], index: &[usize], axis: usize) {
    let fits = x.len() == index.len() && (0..x.len()).all(|i| i == axis || x[i] >= index[i]);
    assert!(fits, "indices {index:?} along axis {axis} of {x:?}");
}

/// The elements that indices name; those below zero count from the end.
fn places<'a>(index: impl Iterator<Item = &'a i64>, extent: usize) -> Result<Vec<usize>, IndexError> {
    let place = |index: &i64| {
        let from_end = usize::try_from(index.unsigned_abs()).ok().and_then(|back| extent.checked_sub(back));
        let place = if *index < 0 { from_end } else { usize::try_from(*index).ok() };
        place.filter(|place| *place < extent).ok_or(IndexError { index: *index, extent })
    };
    index.map(place).collect()
}
