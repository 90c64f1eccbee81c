//! Sums over what broadcasting repeated.

use ndarray::{ArrayViewD, ArrayViewMutD, Axis};
use tiled_kernel::dense::{Fold, Update};
use tiled_tensor::Element;

use crate::context::Context;

/// The fold of all gradients.
pub(super) const SUM: Fold = Fold::Sum;

/// Sums what broadcasting repeated: `dx` may have fewer axes, and extents of one.
pub(super) fn fold_into<T: Element>(
    context: &Context<T>,
    dy: ArrayViewD<'_, T>,
    mut dx: ArrayViewMutD<'_, T>,
    update: Update,
) {
    while dx.ndim() < dy.ndim() {
        dx.insert_axis_inplace(Axis(0));
    }
    context.share(dy.len(), || context.dense().reduce(SUM, dy, T::ONE, dx, update));
}
