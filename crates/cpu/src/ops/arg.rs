//! Which channel is the largest, per pixel, and the gradient of its value.

use tiled_geometry::Region;
use tiled_tensor::{Element, PartMut, View};

use super::band::{for_bands, index};
use super::pixel::{GROUP, PIXELS, Pixels, Plane, Planes, for_runs, groups};
use super::stamp::per_isa;
use super::unmasked::Unmasked;
use crate::Isa;

/// The first channel with the maximum of `[x]` at each pixel; the first NaN wins.
pub(crate) fn max<T: Element>(isa: Isa, inputs: &[View<'_, T>], output: PartMut<'_, T>, region: Region<2>) {
    let x = &inputs[0];
    let channels = x.layout().channels();
    for_bands(output, region, 1 + channels, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        let mut values: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
        for y in band.rows().begin()..band.rows().end() {
            for pixels in Pixels::of_row(n, y, cols) {
                let class = largest(isa, pixels, x, &mut values);
                let from = index(pixels.cols().begin() - cols.begin()) * lanes;
                let row = &mut band.row(y)[from..from + pixels.len() * lanes];
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
        let class = largest(isa, run.pixels(), x, &mut values);
        run.read(g, 0, &mut gradients);
        for group in run.groups() {
            for (place, out) in out.iter_mut().enumerate() {
                select(isa, number(group + place), &class, &gradients[0], out);
            }
            run.write(group, &out);
        }
    });
}

/// The number of the largest channel of each pixel.
fn largest<T: Element>(isa: Isa, pixels: Pixels, x: &View<'_, T>, values: &mut Planes<T>) -> Plane<T> {
    let (mut largest, mut class) = ([T::from_f64(f64::NEG_INFINITY); PIXELS], [T::ZERO; PIXELS]);
    for group in groups(x.layout().channels()) {
        for (place, values) in pixels.read(x, group, values).iter().enumerate() {
            replace(isa, number(group + place), values, &mut largest, &mut class);
        }
    }
    class
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
        let unmasked = Unmasked::new();
        for ((value, largest), class) in values.iter().zip(largest).zip(class) {
            let wins = *value > *largest || (value.is_nan() && !largest.is_nan());
            *largest = unmasked.value(if wins { *value } else { *largest });
            *class = unmasked.value(if wins { number } else { *class });
        }
    }
}
