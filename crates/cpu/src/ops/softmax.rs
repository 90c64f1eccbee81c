//! Softmax over the channels of each pixel and its logarithm: computed in `f64`.

use tiled_geometry::Region;
use tiled_tensor::{Element, PartMut, View};

use super::group::{
    Ahead, CHUNK, Group, Groups, KEPT, Order, Parts, Spare, kept_groups, largest_of_pixels, spread,
    sums_of_pixels,
};
use super::pixel::{GROUP, PIXELS, Pixels, Plane, for_tasks, groups};
use super::power_below::{powers_below, scale_of_powers};
use super::stamp::per_isa;
use super::unmasked::Unmasked;
use super::{math, powers};
use crate::Isa;

per_isa! {
    /// The larger of each value of a group and of what is held of the groups before, where it goes on; not a number loses, and shows in the sum.
    fn larger<T: Element>(x: &Parts<'_, T>, goes_on: bool, largest: &mut Group<T>) {
        let unmasked = Unmasked::new();
        let mut at = 0;
        for part in x.iter() {
            for (largest, x) in largest[at..at + part.len()].iter_mut().zip(part) {
                let held = if goes_on { *largest } else { T::NEG_INFINITY };
                *largest = unmasked.value(if *x > held { *x } else { held });
            }
            at += part.len();
        }
    }
}

per_isa! {
    /// `powers = scale·e^(x − largest)`, of the scale of [`powers_below`], and `sums = powers`, or `sums += powers` where it goes on. Meanwhile it
    /// fetches what is read and written after it.
    fn exponentials<T: Element>(
        x: &Parts<'_, T>,
        largest: &Group<f64>,
        ahead: [Option<Ahead<T>>; 2],
        goes_on: bool,
        powers: &mut Group<f64>,
        sums: &mut Group<f64>,
    ) {
        #[inline(always)]
        fn of_chunk<T: Element, const FUSED: bool, const GOES_ON: bool>(
            x: &[T; CHUNK],
            largest: &[f64; CHUNK],
            powers: &mut [f64; CHUNK],
            sums: &mut [f64; CHUNK],
        ) {
            *powers = powers_below::<T, CHUNK, FUSED>(x, largest);
            for (sum, power) in sums.iter_mut().zip(powers) {
                *sum = if GOES_ON { *sum + *power } else { *power };
            }
        }
        #[inline(always)]
        fn of_part<T: Element, const FUSED: bool, const GOES_ON: bool>(
            x: &[T],
            largest: &[f64],
            ahead: &mut [Option<Ahead<T>>; 2],
            powers: &mut [f64],
            sums: &mut [f64],
        ) {
            let (chunks, rest) = x.as_chunks();
            let (of_powers, rest_of_powers) = powers.as_chunks_mut();
            let (of_sums, rest_of_sums) = sums.as_chunks_mut();
            let (largest, rest_of_largest) = largest.as_chunks();
            for (((x, largest), powers), sums) in chunks.iter().zip(largest).zip(of_powers).zip(of_sums) {
                ahead.iter_mut().flatten().for_each(|ahead| ahead.fetch(CHUNK));
                of_chunk::<T, FUSED, GOES_ON>(x, largest, powers, sums);
            }
            if !rest.is_empty() {
                let (mut x, mut largest) = ([T::NEG_INFINITY; CHUNK], [0.0; CHUNK]);
                let [mut powers, mut sums] = [[0.0; CHUNK]; 2];
                x[..rest.len()].copy_from_slice(rest);
                largest[..rest.len()].copy_from_slice(rest_of_largest);
                sums[..rest.len()].copy_from_slice(rest_of_sums);
                of_chunk::<T, FUSED, GOES_ON>(&x, &largest, &mut powers, &mut sums);
                rest_of_powers.copy_from_slice(&powers[..rest.len()]);
                rest_of_sums.copy_from_slice(&sums[..rest.len()]);
            }
        }
        let (mut ahead, mut at) = (ahead, 0);
        for part in x.iter() {
            let end = at + part.len();
            let (largest, powers, sums) = (&largest[at..end], &mut powers[at..end], &mut sums[at..end]);
            if goes_on {
                of_part::<T, FUSED, true>(part, largest, &mut ahead, powers, sums);
            } else {
                of_part::<T, FUSED, false>(part, largest, &mut ahead, powers, sums);
            }
            at = end;
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
    /// The largest of each sixteenth channel.
    most: Spare<T>,
    /// The largest value of each pixel.
    largest: Plane<f64>,
    /// The same for each of its values.
    largests: Spare<f64>,
    sums: Spare<f64>,
    /// `Σ scale·e^(x − largest)`, of the scale of [`powers_below`].
    sum: Plane<f64>,
}

impl<T: Element> Softmax<T> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self {
            values: Groups::new(),
            powers: Groups::new(),
            most: Spare::new(),
            largest: [0.0; PIXELS],
            largests: Spare::new(),
            sums: Spare::new(),
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
        let Self { values, powers, most, largest, largests, sums, sum } = self;
        let (most, largests, sums) = (most.get(), largests.get(), sums.get());
        let channels = x.layout().channels();
        let kept = kept_groups(channels);
        let (copies, other) = values.of(order.copies(x, kept));
        let (kept_powers, other_powers) = powers.of(if wants { kept } else { 0 });
        let mut copies = copies.iter_mut();
        let mut parts = [Parts::NONE; KEPT];
        let parts = &mut parts[..kept];
        for (first, parts) in groups(channels).zip(&mut *parts) {
            *parts = order.in_place(pixels, x, first).unwrap_or_else(|| {
                let copy = copies.next().expect("invariant: as many as are not in place");
                order.copied(pixels, x, first, T::NEG_INFINITY, copy)
            });
        }
        for (place, first) in groups(channels).enumerate() {
            let values = values_of(parts, place, order, pixels, x, first, other);
            larger(isa, &values, place > 0, most);
        }
        *largest = largest_of_pixels(isa, order, most).map(T::to_f64);
        spread(isa, order, largest, largests);
        for (place, first) in groups(channels).enumerate() {
            let values = values_of(parts, place, order, pixels, x, first, other);
            let powers = match kept_powers.get_mut(place) {
                Some(kept) => kept,
                None => other_powers.get(),
            };
            let ahead = [Some(order.ahead_of(pixels, x, first)), next(first)];
            exponentials(isa, &values, largests, ahead, place > 0, powers, sums);
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
        let (kept, powers) = self.powers.of(kept_groups(x.layout().channels()));
        if let Some(kept) = kept.get(first / GROUP) {
            return kept;
        }
        let (_, values) = self.values.of(0);
        let values = values_of(&[], 0, order, pixels, x, first, values);
        let powers = powers.get();
        exponentials(isa, &values, self.largests.get(), [None; 2], false, powers, self.sums.get());
        powers
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

/// The values of a group: those of `parts`, else where they lie or a copy in `other`, whose padding lanes are −∞.
fn values_of<'v, T: Element>(
    parts: &[Parts<'v, T>],
    place: usize,
    order: Order,
    pixels: Pixels,
    x: &View<'v, T>,
    first: usize,
    other: &'v mut Spare<T>,
) -> Parts<'v, T> {
    let known = parts.get(place).copied();
    known
        .or_else(|| order.in_place(pixels, x, first))
        .unwrap_or_else(|| order.copied(pixels, x, first, T::NEG_INFINITY, other.get()))
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
        let [mut values, mut other] = [const { Spare::<T>::new() }; 2];
        let [mut factors, mut logs, mut largests] = [const { Spare::<f64>::new() }; 3];
        for mut run in runs {
            let pixels = run.pixels();
            let order = Order::of(pixels, [run.layout(), x.layout()]);
            softmax.take(isa, order, pixels, x, !log, |first| Some(order.ahead_in(&mut run, first)));
            if log {
                let (values, logs, largests) = (values.get(), logs.get(), largests.get());
                spread(isa, order, &softmax.logs(isa), logs);
                spread(isa, order, softmax.largest(), largests);
                for first in run.groups() {
                    order.read(pixels, x, first, T::NEG_INFINITY, values);
                    order.write(&mut run, first, &mut other, |at, out| {
                        logarithms(isa, &values[at..], &largests[at..], &logs[at..], out);
                    });
                }
                continue;
            }
            let factors = factors.get();
            spread(isa, order, &softmax.factors(), factors);
            for first in run.groups() {
                let powers = softmax.powers(isa, order, pixels, x, first);
                order.write(&mut run, first, &mut other, |at, out| {
                    shares(isa, &powers[at..], &factors[at..], out);
                });
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
        let mut other = Spare::<T>::new();
        let [mut sums, mut shared] = [const { Spare::<f64>::new() }; 2];
        for mut run in runs {
            let (sums, shared) = (sums.get(), shared.get());
            let pixels = run.pixels();
            let order = Order::of(pixels, [run.layout(), g.layout(), y.layout()]);
            let (kept_gradients, other_gradients) = gradients.of(kept_groups(run.channels()));
            let (kept_values, other_values) = values.of(kept_groups(run.channels()));
            sums[..order.whole(0)].fill(0.0);
            for (place, first) in groups(run.channels()).enumerate() {
                let (gradients, values) = match (kept_gradients.get_mut(place), kept_values.get_mut(place)) {
                    (Some(gradients), Some(values)) => (gradients, values),
                    _ => (other_gradients.get(), other_values.get()),
                };
                let read = [g, y].map(|view| order.ahead_of(pixels, view, first));
                let written = order.ahead_in(&mut run, first);
                order.read(pixels, g, first, T::ZERO, gradients);
                order.read(pixels, y, first, T::ZERO, values);
                let len = order.whole(first);
                if log {
                    add(isa, &gradients[..len], sums, read, written);
                } else {
                    add_products(isa, &gradients[..len], values, sums, read, written);
                }
            }
            spread(isa, order, &sums_of_pixels(isa, order, sums), shared);
            for (place, first) in groups(run.channels()).enumerate() {
                let (gradients, values) = match (kept_gradients.get(place), kept_values.get(place)) {
                    (Some(gradients), Some(values)) => (gradients, values),
                    _ => {
                        let (gradients, values) = (other_gradients.get(), other_values.get());
                        order.read(pixels, g, first, T::ZERO, gradients);
                        order.read(pixels, y, first, T::ZERO, values);
                        (&*gradients, &*values)
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
