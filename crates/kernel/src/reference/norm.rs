//! Batch normalisation once its statistics are known.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{activation, fill, require};
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
