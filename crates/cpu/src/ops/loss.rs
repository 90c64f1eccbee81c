//! Cross-entropy of the softmax over channels, per pixel: exponentials in the element type, the rest in `f64`.

use tiled_geometry::{Interval, Region};
use tiled_kernel::ExactSum;
use tiled_tensor::{Element, PartMut, View};

use super::band::signed;
use super::math;
use super::pixel::{GROUP, Kept, PIXELS, Pixels, Plane, Planes, for_tasks, groups};
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
    /// `(share − 1)·scale` of the class of a pixel and `share·scale` of the other channels, of which the first is number `first`.
    fn slopes_of_classes<T: Element>(powers: &[Plane<T>], inverse: &Plane<f64>, classes: &Plane<f64>, first: f64, scale: f64, out: &mut Planes<T>) {
        let mut channel = first;
        for (out, powers) in out.iter_mut().zip(powers) {
            for (((out, power), inverse), class) in out.iter_mut().zip(powers).zip(inverse).zip(classes) {
                let expected = if *class == channel { 1.0 } else { 0.0 };
                let slope = math::fma::<f64, FUSED>(power.to_f64(), *inverse, -expected) * scale;
                *out = if *class == IGNORED { T::ZERO } else { T::from_f64(slope) };
            }
            channel += 1.0;
        }
    }
}

per_isa! {
    /// `(share − t)·scale`.
    fn slopes<T: Element>(powers: &[Plane<T>], inverse: &Plane<f64>, targets: &[Plane<T>], scale: f64, out: &mut Planes<T>) {
        for ((out, powers), targets) in out.iter_mut().zip(powers).zip(targets) {
            for (((out, power), inverse), target) in out.iter_mut().zip(powers).zip(inverse).zip(targets) {
                *out = T::from_f64(math::fma::<f64, FUSED>(power.to_f64(), *inverse, -target.to_f64()) * scale);
            }
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
        let (mut kept, mut softmax) = (Kept::new(), Softmax::<T, T>::new());
        let [mut targets, mut out]: [Planes<T>; 2] = [[[T::ZERO; PIXELS]; GROUP]; 2];
        for mut run in runs {
            softmax.take(isa, run.pixels(), scores, &mut kept, true);
            let mut inverse = softmax.sum.map(|sum| 1.0 / sum);
            let classes = if has_classes {
                classes(target, run.pixels(), run.channels(), &mut targets)
            } else {
                [IGNORED; PIXELS]
            };
            for (inverse, class) in inverse.iter_mut().zip(&classes) {
                if *class == INVALID {
                    *inverse = f64::NAN;
                }
            }
            for group in run.groups() {
                let powers = softmax.powers(isa, run.pixels(), scores, &mut kept, group);
                if has_classes {
                    slopes_of_classes(isa, powers, &inverse, &classes, number(group), scale, &mut out);
                } else {
                    let targets = run.read(target, group, &mut targets);
                    slopes(isa, powers, &inverse, targets, scale, &mut out);
                }
                run.write(group, &out);
            }
        }
    });
}

per_isa! {
    /// `losses += t·((largest − x) + log)`.
    fn add_losses<T: Element>(x: &[Plane<T>], targets: &[Plane<T>], largest: &Plane<T>, logs: &Plane<f64>, losses: &mut Plane<f64>) {
        for (x, targets) in x.iter().zip(targets) {
            for ((((loss, x), target), largest), log) in losses.iter_mut().zip(x).zip(targets).zip(largest).zip(logs) {
                *loss += target.to_f64() * ((largest.to_f64() - x.to_f64()) + log);
            }
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
    let (mut kept, mut softmax) = (Kept::new(), Softmax::<T, T>::new());
    let mut targets: Planes<T> = [[T::ZERO; PIXELS]; GROUP];
    let runs = (rows.begin()..rows.end()).flat_map(|y| Pixels::of_row(n, y, cols));
    for pixels in runs {
        softmax.take(isa, pixels, scores, &mut kept, false);
        let logs = softmax.logs(isa);
        let (mut losses, mut counts) = ([0.0; PIXELS], [1.0; PIXELS]);
        if has_classes {
            let classes = classes(target, pixels, channels, &mut targets);
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
                    losses[i] = (softmax.largest[i].to_f64() - score.to_f64()) + logs[i];
                }
            }
        } else {
            for group in groups(channels) {
                let values = kept.read(pixels, scores, group);
                let targets = pixels.read(target, group, &mut targets);
                add_losses(isa, values, targets, &softmax.largest, &logs, &mut losses);
            }
        }
        sums[0].add_slice(&losses[..pixels.len()]);
        sums[1].add_slice(&counts[..pixels.len()]);
    }
}
