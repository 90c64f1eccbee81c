//! Softmax over the channels of each pixel and its logarithm: computed in `f64`.

use std::ops::Range;
use std::slice;

use tiled_geometry::Region;
use tiled_tensor::{Element, PartMut, View};

use super::group::{Ahead, CHUNK, Group, Groups, Order, largest_of_pixels, spread, sums_of_pixels};
use super::pixel::{GROUP, PIXELS, Pixels, Plane, for_tasks, groups};
use super::power_below::{power_below, scale_of_powers};
use super::stamp::per_isa;
use super::{math, powers};
use crate::Isa;

per_isa! {
    /// The largest of the same elements of groups, and of what was found before where it goes on; not a number loses, and shows in the sum.
    fn largest_of<T: Element>(groups: &[Group<T>], elements: Range<usize>, goes_on: bool, largest: &mut Group<T>) {
        for at in elements.step_by(CHUNK) {
            let mut held = if goes_on { *some(largest, at) } else { [T::NEG_INFINITY; CHUNK] };
            for group in groups {
                for (held, x) in held.iter_mut().zip(some(group, at)) {
                    *held = if *x > *held { *x } else { *held };
                }
            }
            largest[at..at + CHUNK].copy_from_slice(&held);
        }
    }
}

/// Some elements of a group.
#[inline(always)]
fn some<T>(group: &Group<T>, at: usize) -> &[T; CHUNK] {
    group[at..].first_chunk().expect("invariant: chunks lie in a group")
}

per_isa! {
    /// `powers = scale·e^(x − largest)`, of the scale of [`power_below`], and `sums += powers`, of whole chunks. Meanwhile it fetches
    /// what is read and written after it.
    fn exponentials<T: Element>(x: &[T], largest: &[f64], ahead: [Option<Ahead<T>>; 2], powers: &mut [f64], sums: &mut [f64]) {
        let mut ahead = ahead;
        let [powers, sums] = [powers, sums].map(|values| values.as_chunks_mut::<CHUNK>().0);
        let (x, largest) = (x.as_chunks::<CHUNK>().0, largest.as_chunks::<CHUNK>().0);
        for (((powers, sums), x), largest) in powers.iter_mut().zip(sums).zip(x).zip(largest) {
            ahead.iter_mut().flatten().for_each(|ahead| ahead.fetch(CHUNK));
            for (((power, sum), x), largest) in powers.iter_mut().zip(sums).zip(x).zip(largest) {
                *power = power_below::<T, FUSED>(*x, *largest);
                *sum += *power;
            }
        }
    }
}

per_isa! {
    /// `power·factor`.
    fn shares<T: Element>(powers: &[f64], factor: &[f64], out: &mut [T]) {
        for ((out, power), factor) in out.iter_mut().zip(powers).zip(factor) {
            *out = T::from_f64(*power * *factor);
        }
    }
}

per_isa! {
    /// `ln x`.
    fn logarithms_of<T: Element>(x: &mut [T]) {
        for x in x {
            *x = T::from_f64(powers::log::<FUSED>(x.to_f64()));
        }
    }
}

per_isa! {
    /// `(x − largest) − log`.
    fn logarithms<T: Element>(x: &[T], largest: &[f64], log: &[f64], out: &mut [T]) {
        for (((out, x), largest), log) in out.iter_mut().zip(x).zip(largest).zip(log) {
            *out = T::from_f64((x.to_f64() - largest) - log);
        }
    }
}

per_isa! {
    /// `sum += g`.
    fn add<T: Element>(g: &[T], sum: &mut [f64], read: [Ahead<T>; 2], written: Ahead<T>) {
        let (mut read, mut written) = (read, written);
        for (sum, g) in sum.as_chunks_mut::<CHUNK>().0.iter_mut().zip(g.as_chunks::<CHUNK>().0) {
            read.iter_mut().for_each(|place| place.fetch(CHUNK));
            written.fetch(CHUNK);
            for (sum, g) in sum.iter_mut().zip(g) {
                *sum += g.to_f64();
            }
        }
    }
}

per_isa! {
    /// `sum += g·y`.
    fn add_products<T: Element>(g: &[T], y: &[T], sum: &mut [f64], read: [Ahead<T>; 2], written: Ahead<T>) {
        let (mut read, mut written) = (read, written);
        let (g, y) = (g.as_chunks::<CHUNK>().0, y.as_chunks::<CHUNK>().0);
        for ((sum, g), y) in sum.as_chunks_mut::<CHUNK>().0.iter_mut().zip(g).zip(y) {
            read.iter_mut().for_each(|place| place.fetch(CHUNK));
            written.fetch(CHUNK);
            for ((sum, g), y) in sum.iter_mut().zip(g).zip(y) {
                *sum = math::fma::<f64, FUSED>(g.to_f64(), y.to_f64(), *sum);
            }
        }
    }
}

per_isa! {
    /// `y·(g − sum)`.
    fn slopes<T: Element>(g: &[T], y: &[T], sum: &[f64], out: &mut [T]) {
        for (((out, g), y), sum) in out.iter_mut().zip(g).zip(y).zip(sum) {
            *out = T::from_f64(y.to_f64() * (g.to_f64() - sum));
        }
    }
}

per_isa! {
    /// `g − e^y·sum`.
    fn log_slopes<T: Element>(g: &[T], y: &[T], sum: &[f64], out: &mut [T]) {
        for (((out, g), y), sum) in out.iter_mut().zip(g).zip(y).zip(sum) {
            *out = T::from_f64(g.to_f64() - math::exp::<f64, FUSED>(y.to_f64()) * sum);
        }
    }
}

/// What the softmax of the pixels of a run is computed from.
pub(super) struct Softmax<T> {
    values: Groups<T>,
    powers: Groups<f64>,
    /// The largest value of each pixel.
    largest: Plane<f64>,
    /// The same for each of its values.
    largests: Group<f64>,
    sums: Group<f64>,
    /// `Σ scale·e^(x − largest)`, of the scale of [`power_below`].
    sum: Plane<f64>,
}

impl<T: Element> Softmax<T> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self {
            values: Groups::new(),
            powers: Groups::new(),
            largest: [0.0; PIXELS],
            largests: Group::of(0.0),
            sums: Group::of(0.0),
            sum: [0.0; PIXELS],
        }
    }

    /// Takes that of a run of `x`, and keeps its exponentials where somebody `wants` them. `next` is where the groups of the output lie that
    /// will be written.
    pub(super) fn take(
        &mut self,
        isa: Isa,
        order: Order,
        pixels: Pixels,
        x: &View<'_, T>,
        wants: bool,
        mut next: impl FnMut(usize) -> Option<Ahead<T>>,
    ) {
        let Self { values, powers, largest, largests, sums, sum } = self;
        let channels = x.layout().channels();
        let (kept, other) = values.of(channels);
        let (kept_powers, other_powers) = powers.of(if wants { channels } else { 0 });
        let read = |first: usize, group: &mut Group<T>| order.read(pixels, x, first, T::NEG_INFINITY, group);
        for (first, group) in groups(channels).zip(&mut *kept) {
            read(first, group);
        }
        let mut most = Group::of(T::NEG_INFINITY);
        for (elements, count) in order.spans(kept.len()) {
            largest_of(isa, &kept[..count], elements, false, &mut most);
        }
        for first in groups(channels).skip(kept.len()) {
            read(first, other);
            largest_of(isa, slice::from_ref(other), 0..order.whole(first), true, &mut most);
        }
        *largest = largest_of_pixels(isa, order, &mut most).map(T::to_f64);
        spread(isa, order, largest, largests);
        sums[..order.whole(0)].fill(0.0);
        for (place, first) in groups(channels).enumerate() {
            let values = match kept.get(place) {
                Some(values) => values,
                None => {
                    read(first, other);
                    &*other
                }
            };
            let powers = kept_powers.get_mut(place).unwrap_or(other_powers);
            let ahead = [Some(order.ahead_of(pixels, x, first)), next(first)];
            exponentials(isa, &values[..order.whole(first)], largests, ahead, powers, sums);
        }
        *sum = sums_of_pixels(isa, order, sums);
    }

    /// `1/Σ` of each pixel: what [`Softmax::powers`] are to be multiplied by.
    pub(super) fn factors(&self) -> Plane<f64> {
        self.sum.map(|sum| 1.0 / sum)
    }

    /// `scale·e^(x − largest)` of a group of the run that was taken, where they were wanted.
    pub(super) fn powers(
        &mut self,
        isa: Isa,
        order: Order,
        pixels: Pixels,
        x: &View<'_, T>,
        first: usize,
    ) -> &Group<f64> {
        let channels = x.layout().channels();
        let (kept, powers) = self.powers.of(channels);
        if let Some(kept) = kept.get(first / GROUP) {
            return kept;
        }
        let (_, values) = self.values.of(channels);
        order.read(pixels, x, first, T::NEG_INFINITY, values);
        let values = &values[..order.whole(first)];
        exponentials(isa, values, &self.largests, [None; 2], powers, &mut self.sums);
        powers
    }

    /// The values of a group of the run that was taken; padding lanes hold −∞.
    pub(super) fn values(
        &mut self,
        order: Order,
        pixels: Pixels,
        x: &View<'_, T>,
        first: usize,
    ) -> &Group<T> {
        let (kept, other) = self.values.of(x.layout().channels());
        if let Some(kept) = kept.get(first / GROUP) {
            return kept;
        }
        order.read(pixels, x, first, T::NEG_INFINITY, other);
        other
    }

    /// The largest value of each pixel.
    pub(super) const fn largest(&self) -> &Plane<f64> {
        &self.largest
    }

    /// `ln Σ e^(x − largest)` of each pixel.
    pub(super) fn logs(&self, isa: Isa) -> Plane<f64> {
        let mut logs = self.sum.map(|sum| sum / scale_of_powers::<T>());
        logarithms_of(isa, &mut logs[..]);
        logs
    }
}

/// `e^x[c]/Σe^x[i]` of `[x]`, or its logarithm.
pub(super) fn forward<T: Element>(
    isa: Isa,
    log: bool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_tasks(&inputs[..1], output, region, 8, |runs| {
        let mut softmax = Softmax::<T>::new();
        let mut other = Group::of(T::ZERO);
        let [mut factors, mut largests] = [Group::of(0.0); 2];
        for mut run in runs {
            let pixels = run.pixels();
            let order = Order::of(pixels, [run.layout(), x.layout()]);
            softmax.take(isa, order, pixels, x, !log, |first| Some(order.ahead_in(&mut run, first)));
            if log {
                spread(isa, order, &softmax.logs(isa), &mut factors);
                spread(isa, order, softmax.largest(), &mut largests);
            } else {
                spread(isa, order, &softmax.factors(), &mut factors);
            }
            for first in groups(run.channels()) {
                if log {
                    let values = softmax.values(order, pixels, x, first);
                    order.write(&mut run, first, &mut other, |at, out| {
                        logarithms(isa, &values[at..], &largests[at..], &factors[at..], out);
                    });
                } else {
                    let powers = softmax.powers(isa, order, pixels, x, first);
                    order.write(&mut run, first, &mut other, |at, out| {
                        shares(isa, &powers[at..], &factors[at..], out);
                    });
                }
            }
        }
    });
}

/// `y[c]·(gy[c] − Σ gy[i]·y[i])` of `[gy, y]`, of the logarithm `gy[c] − e^y[c]·Σ gy[i]`.
pub(super) fn backward<T: Element>(
    isa: Isa,
    log: bool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (g, y) = (&inputs[0], &inputs[1]);
    for_tasks(&inputs[..2], output, region, 8, |runs| {
        let [mut gradients, mut values] = [const { Groups::<T>::new() }; 2];
        let mut other = Group::of(T::ZERO);
        let [mut sums, mut shared] = [Group::of(0.0); 2];
        for mut run in runs {
            let pixels = run.pixels();
            let order = Order::of(pixels, [run.layout(), g.layout(), y.layout()]);
            let (kept_gradients, other_gradients) = gradients.of(run.channels());
            let (kept_values, other_values) = values.of(run.channels());
            sums[..order.whole(0)].fill(0.0);
            for first in groups(run.channels()) {
                let gradients = kept_gradients.get_mut(first / GROUP).unwrap_or(other_gradients);
                let values = kept_values.get_mut(first / GROUP).unwrap_or(other_values);
                let read = [g, y].map(|view| order.ahead_of(pixels, view, first));
                let written = order.ahead_in(&mut run, first);
                order.read(pixels, g, first, T::ZERO, gradients);
                order.read(pixels, y, first, T::ZERO, values);
                let len = order.whole(first);
                if log {
                    add(isa, &gradients[..len], &mut sums, read, written);
                } else {
                    add_products(isa, &gradients[..len], values, &mut sums, read, written);
                }
            }
            spread(isa, order, &sums_of_pixels(isa, order, &sums), &mut shared);
            for first in groups(run.channels()) {
                let gradients = match kept_gradients.get(first / GROUP) {
                    Some(kept) => kept,
                    None => {
                        order.read(pixels, g, first, T::ZERO, other_gradients);
                        &*other_gradients
                    }
                };
                let values = match kept_values.get(first / GROUP) {
                    Some(kept) => kept,
                    None => {
                        order.read(pixels, y, first, T::ZERO, other_values);
                        &*other_values
                    }
                };
                order.write(&mut run, first, &mut other, |at, out| {
                    if log {
                        log_slopes(isa, &gradients[at..], &values[at..], &shared[at..], out);
                    } else {
                        slopes(isa, &gradients[at..], &values[at..], &shared[at..], out);
                    }
                });
            }
        }
    });
}
