//! Batch normalisation once its statistics are known.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{activation, fill, require, visit};
use crate::Activation;

pub(super) fn channel_affine<T: Element>(
    params: &[T],
    function: Option<Activation>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), region);
    let (a, b) = params.split_at(output.layout().channels());
    fill(output, region, |n, c, y, x| {
        let value = input.get(n, c, y, x).mul_add(a[c], b[c]);
        function.map_or(value, |function| activation::value(function, value))
    });
}

/// In place: `·a[c] + b[c]` where there are any, plus the other tensor where there is one, then the function.
pub(super) fn affine_sum<T: Element>(
    params: &[T],
    other: Option<View<'_, T>>,
    function: Option<Activation>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    if let Some(other) = &other {
        require(other.region(), region);
    }
    let (batch, channels) = (output.layout().batch(), output.layout().channels());
    visit(batch, channels, region, |n, c, y, x| {
        let mut value = output.as_view().get(n, c, y, x);
        if !params.is_empty() {
            value = value.mul_add(params[c], params[channels + c]);
        }
        if let Some(other) = other {
            value += other.get(n, c, y, x);
        }
        output.set(n, c, y, x, function.map_or(value, |function| activation::value(function, value)));
    });
}

pub(super) fn channel_combine<T: Element>(
    params: &[T],
    gradient: View<'_, T>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(gradient.region(), region);
    require(input.region(), region);
    let channels = output.layout().channels();
    let (a, rest) = params.split_at(channels);
    let (b, d) = rest.split_at(channels);
    fill(output, region, |n, c, y, x| {
        let shift = input.get(n, c, y, x).mul_add(b[c], d[c]);
        gradient.get(n, c, y, x).mul_add(a[c], shift)
    });
}
