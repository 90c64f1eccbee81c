//! Computations that read one position: functions, sums, products, and moves between channels.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{activation, fill, require};
use crate::{Activation, Dropped, Extremum, Kernel};

pub(super) fn activation<T: Element>(
    function: Activation,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), region);
    fill(output, region, |n, c, y, x| activation::value(function, input.get(n, c, y, x)));
}

pub(super) fn activation_backward<T: Element>(
    function: Activation,
    gradient: View<'_, T>,
    saved: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    zip(gradient, saved, output, region, |gy, saved| activation::gradient(function, gy, saved));
}

pub(super) fn zip<T: Element>(
    a: View<'_, T>,
    b: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
    f: impl Fn(T, T) -> T,
) {
    require(a.region(), region);
    require(b.region(), region);
    fill(output, region, |n, c, y, x| f(a.get(n, c, y, x), b.get(n, c, y, x)));
}

pub(super) fn concat<T: Element>(inputs: &[View<'_, T>], output: &mut ViewMut<'_, T>, region: Region<2>) {
    let sources: Vec<(usize, usize)> = inputs
        .iter()
        .enumerate()
        .flat_map(|(index, input)| (0..input.layout().channels()).map(move |channel| (index, channel)))
        .collect();
    assert_eq!(sources.len(), output.layout().channels(), "channels of the inputs and of the output");
    inputs.iter().for_each(|input| require(input.region(), region));
    fill(output, region, |n, c, y, x| {
        let (index, channel) = sources[c];
        inputs[index].get(n, channel, y, x)
    });
}

pub(super) fn slice<T: Element>(
    begin: usize,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), region);
    let (wanted, held) = (begin + output.layout().channels(), input.layout().channels());
    assert!(wanted <= held, "{wanted} channels wanted of {held}");
    fill(output, region, |n, c, y, x| input.get(n, begin + c, y, x));
}

/// The first channel with the maximum; the first NaN wins.
pub(super) fn arg_max<T: Element>(input: View<'_, T>, output: &mut ViewMut<'_, T>, region: Region<2>) {
    require(input.region(), region);
    fill(output, region, |n, _, y, x| {
        #[expect(clippy::cast_precision_loss, reason = "channels are far below 2^53")]
        T::from_f64(largest_channel(input, n, [y, x]) as f64)
    });
}

/// Its value; a zero is positive, and NaN is one and the same.
pub(super) fn max_channels<T: Element>(input: View<'_, T>, output: &mut ViewMut<'_, T>, region: Region<2>) {
    require(input.region(), region);
    fill(output, region, |n, _, y, x| {
        let value = input.get(n, largest_channel(input, n, [y, x]), y, x);
        if value.is_nan() { T::from_f64(f64::NAN) } else { value + T::ZERO }
    });
}

/// What of the gradient of that value is each channel's: all or nothing.
pub(super) fn max_channels_backward<T: Element>(
    gradient: View<'_, T>,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(gradient.region(), region);
    require(input.region(), region);
    fill(output, region, |n, c, y, x| {
        if c == largest_channel(input, n, [y, x]) { gradient.get(n, 0, y, x) } else { T::ZERO }
    });
}

fn largest_channel<T: Element>(input: View<'_, T>, n: usize, [y, x]: [i64; 2]) -> usize {
    let mut largest = 0;
    for c in 1..input.layout().channels() {
        let (value, before) = (input.get(n, c, y, x), input.get(n, largest, y, x));
        if value > before || (value.is_nan() && !before.is_nan()) {
            largest = c;
        }
    }
    largest
}

pub(super) fn broadcast<T: Element>(
    scale: f64,
    value: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(value.region(), Region::whole([1, 1]));
    let scale = T::from_f64(scale);
    fill(output, region, |n, c, _, _| scale * value.get(n, c, 0, 0));
}

pub(super) fn scatter<T: Element>(
    extrema: &[Extremum<T>],
    value: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(value.region(), Region::whole([1, 1]));
    let channels = output.layout().channels();
    assert_eq!(extrema.len(), channels * output.layout().batch(), "one for each channel");
    fill(output, region, |n, c, y, x| {
        let is_there = extrema[n * channels + c].position == Some([y, x]);
        if is_there { value.get(n, c, 0, 0) } else { T::ZERO }
    });
}

pub(super) fn dropout<T: Element>(
    probability: f64,
    seed: u64,
    dropped: Dropped,
    input: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(input.region(), region);
    let scale = T::from_f64(1.0 / (1.0 - probability));
    fill(output, region, |n, c, y, x| {
        let (plane, pixel) = dropped.decider([n, c], [y, x]);
        if Kernel::keeps(seed, probability, plane, pixel) { input.get(n, c, y, x) * scale } else { T::ZERO }
    });
}
