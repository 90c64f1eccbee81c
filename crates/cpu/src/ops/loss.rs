//! Cross-entropy of the softmax over channels, per pixel: computed in `f64`.

use tiled_geometry::{Interval, Region};
use tiled_kernel::ExactSum;
use tiled_tensor::{Element, PartMut, View};

use super::band::signed;
use super::group::{Order, Spare, spread, sums_of_pixels};
use super::math;
use super::pixel::{GROUP, PIXELS, Pixels, Plane, Planes, for_tasks, groups};
use super::softmax::Softmax;
use super::stamp::per_isa;
use crate::Isa;

/// A target that counts for nothing.
const IGNORED: f64 = -1.0;
/// A class that is no channel: the loss and its gradient are NaN rather than a plausible number.
const INVALID: f64 = f64::INFINITY;

/// The classes of a run of pixels: numbers of channels, or one of the two above.
fn classes<T: Element>(
    target: &View<'_, T>,
    pixels: Pixels,
    channels: usize,
    planes: &mut Planes<T>,
) -> Plane<f64> {
    pixels.read(target, 0, planes)[0].map(|value| {
        let value = value.to_f64();
        if value < 0.0 {
            IGNORED
        } else if value.fract() == 0.0 && value < number(channels) {
            value
        } else {
            INVALID
        }
    })
}

/// Whether a target is a class for each pixel, and not a share for each channel.
///
/// # Panics
/// Where it is neither.
fn has_classes<T: Element>(scores: &View<'_, T>, target: &View<'_, T>) -> bool {
    let [channels, of_target] = [scores, target].map(|view| view.layout().channels());
    assert!(of_target == 1 || of_target == channels, "a target of {of_target} channels for {channels}");
    of_target == 1
}

#[expect(clippy::cast_precision_loss, reason = "channels are far below 2^53")]
const fn number(channel: usize) -> f64 {
    channel as f64
}

per_isa! {
    /// `(share − 1)·scale` of the class of a pixel and `share·scale` of the other channels, of the inverse sums, the classes and the numbers of
    /// channels in a group that begins with channel `first`.
    fn slopes_of_classes<T: Element>(powers: &[f64], of: [&[f64]; 3], first: f64, scale: f64, out: &mut [T]) {
        let [inverse, classes, numbers] = of;
        let of = inverse.iter().zip(classes).zip(numbers);
        for ((out, power), ((inverse, class), number)) in out.iter_mut().zip(powers).zip(of) {
            let expected = if *class == first + *number { 1.0 } else { 0.0 };
            let slope = math::fma::<f64, FUSED>(*power, *inverse, -expected) * scale;
            *out = if *class == IGNORED { T::ZERO } else { T::from_f64(slope) };
        }
    }
}

per_isa! {
    /// `(share − t)·scale`.
    fn slopes<T: Element>(powers: &[f64], inverse: &[f64], targets: &[T], scale: f64, out: &mut [T]) {
        for (((out, power), inverse), target) in out.iter_mut().zip(powers).zip(inverse).zip(targets) {
            *out = T::from_f64(math::fma::<f64, FUSED>(*power, *inverse, -target.to_f64()) * scale);
        }
    }
}

/// `(softmax(p)[c] − t)·scale` of `[p, t]`.
pub(crate) fn cross_entropy_backward<T: Element>(
    isa: Isa,
    scale: f64,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (scores, target) = (&inputs[0], &inputs[1]);
    let has_classes = has_classes(scores, target);
    for_tasks(&inputs[..1], output, region, 12, |runs| {
        let mut softmax = Softmax::<T>::new();
        let [mut targets, mut other] = [const { Spare::<T>::new() }; 2];
        let mut planes: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
        let [mut inverses, mut of_classes, mut numbers] = [const { Spare::<f64>::new() }; 3];
        for mut run in runs {
            let (targets, inverses) = (targets.get(), inverses.get());
            let (of_classes, numbers) = (of_classes.get(), numbers.get());
            let pixels = run.pixels();
            let layouts = [run.layout(), scores.layout(), target.layout()];
            let order = Order::of(pixels, if has_classes { &layouts[..2] } else { &layouts }.iter().copied());
            softmax.take(isa, order, pixels, scores, true, |first| Some(order.ahead_in(&mut run, first)));
            let mut inverse = softmax.factors();
            if has_classes {
                let classes = classes(target, pixels, run.channels(), &mut planes);
                for (inverse, class) in inverse.iter_mut().zip(&classes) {
                    if *class == INVALID {
                        *inverse = f64::NAN;
                    }
                }
                spread(isa, order, &classes, of_classes);
                order.by_channel(number, numbers);
            }
            spread(isa, order, &inverse, inverses);
            for first in run.groups() {
                let powers = softmax.powers(isa, order, pixels, scores, first);
                if !has_classes {
                    order.read(pixels, target, first, T::ZERO, targets);
                }
                order.write(&mut run, first, &mut other, |at, out| {
                    let (powers, inverses) = (&powers[at..], &inverses[at..]);
                    if has_classes {
                        let of = [inverses, &of_classes[at..], &numbers[at..]];
                        slopes_of_classes(isa, powers, of, number(first), scale, out);
                    } else {
                        slopes(isa, powers, inverses, &targets[at..], scale, out);
                    }
                });
            }
        }
    });
}

per_isa! {
    /// `losses += t·((largest − x) + log)`.
    fn add_losses<T: Element>(x: &[T], targets: &[T], largest: &[f64], logs: &[f64], losses: &mut [f64]) {
        for ((((loss, x), target), largest), log) in losses.iter_mut().zip(x).zip(targets).zip(largest).zip(logs) {
            *loss += target.to_f64() * ((largest - x.to_f64()) + log);
        }
    }
}

/// Adds the loss of each pixel of some rows to the first sum and one for each that counts to the second.
pub(crate) fn cross_entropy<T: Element>(
    isa: Isa,
    [scores, target]: [&View<'_, T>; 2],
    n: usize,
    rows: Interval,
    cols: Interval,
    sums: &mut [ExactSum],
) {
    let (channels, has_classes) = (scores.layout().channels(), has_classes(scores, target));
    let mut softmax = Softmax::<T>::new();
    let [mut values, mut targets] = [const { Spare::<T>::new() }; 2];
    let mut planes: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
    let [mut of_logs, mut of_losses, mut largests] = [const { Spare::<f64>::new() }; 3];
    let runs = (rows.begin()..rows.end()).flat_map(|y| Pixels::of_row(n, y, cols));
    for pixels in runs {
        let layouts = [scores.layout(), target.layout()];
        let order = Order::of(pixels, if has_classes { &layouts[..1] } else { &layouts }.iter().copied());
        softmax.take(isa, order, pixels, scores, false, |_| None);
        let logs = softmax.logs(isa);
        let (mut losses, mut counts) = ([0.0; PIXELS], [1.0; PIXELS]);
        if has_classes {
            let classes = classes(target, pixels, channels, &mut planes);
            for (i, class) in classes.into_iter().enumerate().take(pixels.len()) {
                if class == IGNORED {
                    counts[i] = 0.0;
                } else if class == INVALID {
                    losses[i] = f64::NAN;
                } else {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "the number of a channel"
                    )]
                    let score = scores.get(n, class as usize, pixels.y(), pixels.cols().begin() + signed(i));
                    losses[i] = (softmax.largest()[i] - score.to_f64()) + logs[i];
                }
            }
        } else {
            let (values, targets) = (values.get(), targets.get());
            let (of_logs, of_losses, largests) = (of_logs.get(), of_losses.get(), largests.get());
            spread(isa, order, &logs, of_logs);
            spread(isa, order, softmax.largest(), largests);
            of_losses[..order.len(0)].fill(0.0);
            for first in groups(channels) {
                // of padding lanes zero, where a softmax has −∞: times a share of zero it adds nothing
                order.read(pixels, scores, first, T::ZERO, values);
                order.read(pixels, target, first, T::ZERO, targets);
                let len = order.len(first);
                add_losses(isa, &values[..len], targets, largests, of_logs, of_losses);
            }
            losses = sums_of_pixels(isa, order, of_losses);
        }
        sums[0].add_slice(&losses[..pixels.len()]);
        sums[1].add_slice(&counts[..pixels.len()]);
    }
}
