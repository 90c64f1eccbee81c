//! Adaptive pooling and its gradients: parts of the axes in place of windows.

use tiled_geometry::{Interval, Region, Resize};
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, map, require};
use crate::Extremum;

pub(super) fn average<T: Element>(
    parts: [Resize; 2],
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), read_by(parts, region));
    fill(output, region, |n, c, y, x| {
        let mut sum = 0.0;
        for i in inputs(parts[0], y) {
            for j in inputs(parts[1], x) {
                sum += input.get(n, c, i, j).to_f64();
            }
        }
        T::from_f64(sum / size(parts, [y, x]))
    });
}

pub(super) fn average_backward<T: Element>(
    parts: [Resize; 2],
    gradient: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(gradient.region(), readers_of(parts, region));
    fill(output, region, |n, c, y, x| {
        let mut sum = 0.0;
        for i in outputs(parts[0], y) {
            for j in outputs(parts[1], x) {
                sum += gradient.get(n, c, i, j).to_f64() / size(parts, [i, j]);
            }
        }
        T::from_f64(sum)
    });
}

pub(super) fn max<T: Element>(
    parts: [Resize; 2],
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), read_by(parts, region));
    fill(output, region, |n, c, y, x| maximum(parts, input, [n, c], [y, x]).value);
}

pub(super) fn max_backward<T: Element>(
    parts: [Resize; 2],
    gradient: View<'_, T>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    let readers = readers_of(parts, region);
    require(gradient.region(), readers);
    require(input.region(), read_by(parts, readers));
    fill(output, region, |n, c, y, x| {
        let mut sum = T::ZERO;
        for i in outputs(parts[0], y) {
            for j in outputs(parts[1], x) {
                if maximum(parts, input, [n, c], [i, j]).position == Some([y, x]) {
                    sum += gradient.get(n, c, i, j);
                }
            }
        }
        sum
    });
}

/// The first maximum of a part in row-major order; NaN wins.
fn maximum<T: Element>(
    parts: [Resize; 2],
    input: View<'_, T>,
    [n, c]: [usize; 2],
    [y, x]: [i64; 2],
) -> Extremum<T> {
    let mut extremum = Extremum::default();
    for i in inputs(parts[0], y) {
        for j in inputs(parts[1], x) {
            extremum.offer(input.get(n, c, i, j), [i, j]);
        }
    }
    extremum
}

/// The inputs of a part.
fn inputs(part: Resize, o: i64) -> std::ops::RangeInclusive<i64> {
    let (first, last) = part.taps(o);
    first..=last
}

/// The parts that an input is in.
fn outputs(part: Resize, i: i64) -> std::ops::Range<i64> {
    let touched = part.touched(Interval::new(i, i + 1));
    touched.begin()..touched.end()
}

/// How many inputs a part has.
#[expect(clippy::cast_precision_loss, reason = "a window has far fewer than 2^53 elements")]
fn size(parts: [Resize; 2], [y, x]: [i64; 2]) -> f64 {
    let along = |part: Resize, o: i64| part.needed(Interval::new(o, o + 1)).len();
    (along(parts[0], y) * along(parts[1], x)) as f64
}

fn read_by(parts: [Resize; 2], region: Region<2>) -> Region<2> {
    map(parts.map(Resize::input), region, |axis, wanted| parts[axis].needed(wanted))
}

fn readers_of(parts: [Resize; 2], region: Region<2>) -> Region<2> {
    map(parts.map(Resize::output), region, |axis, wanted| parts[axis].touched(wanted))
}
