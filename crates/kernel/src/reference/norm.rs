//! Normalisation once its statistics are known.

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
    let (a, b) = params.split_at(params.len() / 2);
    let channels = output.layout().channels();
    fill(output, region, |n, c, y, x| {
        let place = (n * channels + c) % a.len();
        let value = input.get(n, c, y, x).mul_add(a[place], b[place]);
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
    let (a, rest) = params.split_at(params.len() / 3);
    let (b, d) = rest.split_at(rest.len() / 2);
    fill(output, region, |n, c, y, x| {
        let place = (n * channels + c) % a.len();
        let shift = input.get(n, c, y, x).mul_add(b[place], d[place]);
        gradient.get(n, c, y, x).mul_add(a[place], shift)
    });
}
