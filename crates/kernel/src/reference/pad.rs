//! Reflect and replicate padding.

use tiled_geometry::{Padding, Region};
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, map, require};

pub(super) fn forward<T: Element>(
    [rows, cols]: [Padding; 2],
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let needed = map([rows.input(), cols.input()], region, |axis, wanted| [rows, cols][axis].needed(wanted));
    require(input.region(), needed);
    fill(output, region, |n, c, y, x| input.get(n, c, rows.source(y), cols.source(x)));
}

pub(super) fn backward<T: Element>(
    [rows, cols]: [Padding; 2],
    gradient: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let needed =
        map([rows.output(), cols.output()], region, |axis, wanted| [rows, cols][axis].touched(wanted));
    require(gradient.region(), needed);
    fill(output, region, |n, c, y, x| {
        let mut sum = T::ZERO;
        for i in showing(rows, y) {
            for j in showing(cols, x) {
                sum += gradient.get(n, c, i, j);
            }
        }
        sum
    });
}

/// Padded coordinates that show input `i`, in order.
fn showing(padding: Padding, i: i64) -> impl Iterator<Item = i64> {
    let hull = padding.touched(tiled_geometry::Interval::new(i, i + 1));
    (hull.begin()..hull.end()).filter(move |o| padding.source(*o) == i)
}
