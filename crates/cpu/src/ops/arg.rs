//! Which channel is the largest, per pixel, and the gradient of its value.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, PartMut, View};

use super::band::{extent, for_bands, index, signed};
use super::loss::channel;
use super::pixel::{GROUP, PIXELS, Plane, Planes, for_runs};
use super::stamp::per_isa;
use crate::Isa;

/// The first channel with the maximum of `[x]` at each pixel; the first NaN wins.
pub(crate) fn max<T: Element>(isa: Isa, inputs: &[View<'_, T>], output: PartMut<'_, T>, region: Region<2>) {
    let x = &inputs[0];
    let channels = x.layout().channels();
    for_bands(output, region, 1 + channels, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            for begin in (cols.begin()..cols.end()).step_by(PIXELS) {
                let part = Interval::new(begin, (begin + signed(PIXELS)).min(cols.end()));
                let mut largest = channel(x, n, 0, y, part);
                let mut class = [T::ZERO; PIXELS];
                for c in 1..channels {
                    replace(isa, number(c), &channel(x, n, c, y, part), &mut largest, &mut class);
                }
                let from = index(begin - cols.begin()) * lanes;
                let row = &mut band.row(y)[from..from + extent(part) * lanes];
                for (to, class) in row.iter_mut().step_by(lanes).zip(class) {
                    *to = class;
                }
            }
        }
    });
}

/// From `[gy, x]`: each `gy` is the gradient of the first channel with the maximum; that of the others is zero.
pub(crate) fn max_backward<T: Element>(
    isa: Isa,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (g, x) = (&inputs[0], &inputs[1]);
    for_runs(&inputs[1..2], output, region, 8, |run| {
        let [mut values, mut gradients, mut out]: [Planes<T>; 3] = [[[T::ZERO; PIXELS]; GROUP]; 3];
        let (mut largest, mut class) = ([T::from_f64(f64::NEG_INFINITY); PIXELS], [T::ZERO; PIXELS]);
        for group in run.groups() {
            for (place, values) in run.read(x, group, &mut values).iter().enumerate() {
                replace(isa, number(group + place), values, &mut largest, &mut class);
            }
        }
        run.read(g, 0, &mut gradients);
        for group in run.groups() {
            for (place, out) in out.iter_mut().enumerate() {
                select(isa, number(group + place), &class, &gradients[0], out);
            }
            run.write(group, &out);
        }
    });
}

/// The number of a channel as an element.
#[expect(clippy::cast_precision_loss, reason = "channels are far below 2^53")]
fn number<T: Element>(channel: usize) -> T {
    T::from_f64(channel as f64)
}

per_isa! {
    /// The gradients of the pixels whose largest channel has this number.
    fn select<T: Element>(number: T, class: &Plane<T>, gradients: &Plane<T>, out: &mut Plane<T>) {
        for ((out, class), gradient) in out.iter_mut().zip(class).zip(gradients) {
            *out = if *class == number { *gradient } else { T::ZERO };
        }
    }
}

per_isa! {
    /// The channel of this number takes the place of a smaller one, or where it is the first that is not a number.
    fn replace<T: Element>(number: T, values: &Plane<T>, largest: &mut Plane<T>, class: &mut Plane<T>) {
        for ((value, largest), class) in values.iter().zip(largest).zip(class) {
            let wins = *value > *largest || (value.is_nan() && !largest.is_nan());
            *largest = if wins { *value } else { *largest };
            *class = if wins { number } else { *class };
        }
    }
}
