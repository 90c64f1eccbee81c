//! Cross-entropy of the softmax over channels, per pixel.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use super::{fill, require, visit};
use crate::ExactSum;

/// Adds each pixel's loss to the first sum, and one for each pixel that counts to the second.
pub(super) fn cross_entropy<T: Element>(
    scores: View<'_, T>,
    target: View<'_, T>,
    share: Region<2>,
    sums: &mut [ExactSum],
) {
    require(scores.region(), share);
    require(target.region(), share);
    visit(scores.layout().batch(), 1, share, |n, _, y, x| {
        let pixel = Pixel::new(scores, n, y, x);
        let loss = match class(scores, target, n, y, x) {
            Target::Ignored => return,
            Target::Class(class) => pixel.loss(scores.get(n, class, y, x)),
            Target::Invalid => f64::NAN,
            Target::Probabilities => (0..scores.layout().channels())
                .map(|c| target.get(n, c, y, x).to_f64() * pixel.loss(scores.get(n, c, y, x)))
                .sum(),
        };
        sums[0].add(loss);
        sums[1].add(1.0);
    });
}

pub(super) fn cross_entropy_backward<T: Element>(
    scale: f64,
    scores: View<'_, T>,
    target: View<'_, T>,
    output: &mut ViewMut<'_, T>,
    region: Region<2>,
) {
    require(scores.region(), region);
    require(target.region(), region);
    fill(output, region, |n, c, y, x| {
        let softmax = Pixel::new(scores, n, y, x).softmax(scores.get(n, c, y, x));
        let expected = match class(scores, target, n, y, x) {
            Target::Ignored => return T::ZERO,
            Target::Class(class) => f64::from(u8::from(class == c)),
            Target::Invalid => f64::NAN,
            Target::Probabilities => target.get(n, c, y, x).to_f64(),
        };
        T::from_f64((softmax - expected) * scale)
    });
}

/// What a target says about a pixel.
enum Target {
    Ignored,
    Class(usize),
    /// A class that is no channel: the loss and its gradient are NaN rather than a plausible number.
    Invalid,
    Probabilities,
}

fn class<T: Element>(scores: View<'_, T>, target: View<'_, T>, n: usize, y: i64, x: i64) -> Target {
    if target.layout().channels() != 1 {
        return Target::Probabilities;
    }
    let value = target.get(n, 0, y, x).to_f64();
    if value < 0.0 {
        return Target::Ignored;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; what does not fit saturates and is no channel"
    )]
    let class = value as usize;
    let is_channel = class < scores.layout().channels() && value.fract() == 0.0;
    if is_channel { Target::Class(class) } else { Target::Invalid }
}

/// The largest score of a pixel, and `Σ e^(score − largest)` in order of channels.
struct Pixel {
    largest: f64,
    sum: f64,
}

impl Pixel {
    fn new<T: Element>(scores: View<'_, T>, n: usize, y: i64, x: i64) -> Self {
        let values = (0..scores.layout().channels()).map(|c| scores.get(n, c, y, x).to_f64());
        let largest = values.clone().fold(f64::NEG_INFINITY, f64::max);
        Self { largest, sum: values.map(|value| (value - largest).exp()).sum() }
    }

    fn loss<T: Element>(&self, score: T) -> f64 {
        (self.largest - score.to_f64()) + self.sum.ln()
    }

    fn softmax<T: Element>(&self, score: T) -> f64 {
        (score.to_f64() - self.largest).exp() / self.sum
    }
}
