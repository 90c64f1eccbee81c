//! Which channel is the largest, per pixel.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, PartMut, View};

use super::band::{extent, for_bands, index, signed};
use super::loss::{PIXELS, channel};
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
                    #[expect(clippy::cast_precision_loss, reason = "channels are far below 2^53")]
                    let number = T::from_f64(c as f64);
                    replace(isa, number, &channel(x, n, c, y, part), &mut largest, &mut class);
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

per_isa! {
    /// The channel of this number takes the place of a smaller one, or where it is the first that is not a number.
    fn replace<T: Element>(number: T, values: &[T; PIXELS], largest: &mut [T; PIXELS], class: &mut [T; PIXELS]) {
        for ((value, largest), class) in values.iter().zip(largest).zip(class) {
            let wins = *value > *largest || (value.is_nan() && !largest.is_nan());
            *largest = if wins { *value } else { *largest };
            *class = if wins { number } else { *class };
        }
    }
}
