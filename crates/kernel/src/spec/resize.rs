//! What the inputs of a resampled coordinate weigh.

use tiled_geometry::{Cubic, Filter, Resize, div_floor};
use tiled_tensor::Element;

/// The inputs that an output reads along an axis, with their weights, which sum to one.
///
/// ```
/// use tiled_geometry::{Resize, ResizeMode};
/// use tiled_kernel::Taps;
/// let twice = Resize::new(ResizeMode::LINEAR, 8, 16).unwrap();
/// let taps = Taps::<f64>::of(twice, 4); // position 1.75
/// assert_eq!((taps.first, taps.weights()), (1, &[0.25, 0.75][..]));
/// let cubic = Resize::new(ResizeMode::CUBIC, 8, 16).unwrap();
/// assert_eq!((Taps::<f64>::of(cubic, 4).first, Taps::<f64>::of(cubic, 4).weights().len()), (0, 4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taps<T> {
    /// The first input.
    pub first: i64,
    count: usize,
    weights: [T; MOST],
}

/// The most inputs of an output.
const MOST: usize = 4;

impl<T: Element> Taps<T> {
    /// The most inputs of an output.
    pub const MOST: usize = MOST;

    /// One input, which weighs one.
    pub const ONE: Self = Self { first: 0, count: 1, weights: [T::ONE, T::ZERO, T::ZERO, T::ZERO] };

    /// Those of output `o`.
    ///
    /// Nearest: one. Linear: `1 − λ` and `λ`, where λ is the fraction of [`Resize::source`] rounded once to the type; where both
    /// inputs are one its weight is one. Cubic: Keys' weights of that fraction, in `f64`, those of inputs outside the image added
    /// to that of the border or left out, rounded once to the type.
    ///
    /// # Panics
    /// Where `o` is not an output, or where the filter is [`Filter::Area`], whose inputs all weigh the same.
    #[must_use]
    pub fn of(resize: Resize, o: i64) -> Self {
        let (first, last) = resize.taps(o);
        let one = Self { first, ..Self::ONE };
        match resize.mode().filter {
            Filter::Nearest(_) => one,
            Filter::Linear if first == last => one,
            Filter::Linear => {
                let after = T::from_f64(fraction(resize, o));
                Self { first, count: 2, weights: [T::ONE - after, after, T::ZERO, T::ZERO] }
            }
            Filter::Cubic(cubic) => {
                let count = usize::try_from(last - first + 1).expect("invariant: at most four inputs");
                Self { first, count, weights: cubic_weights(cubic, resize, o).map(T::from_f64) }
            }
            Filter::Area => unreachable!("invariant: means over parts of an axis have no table of weights"),
        }
    }

    /// The weights of `first`, `first + 1`, ….
    #[must_use]
    #[inline(always)]
    pub fn weights(&self) -> &[T] {
        &self.weights[..self.count]
    }

    /// The weight of input `i`.
    #[must_use]
    pub fn weight(&self, i: i64) -> T {
        let place = usize::try_from(i - self.first).ok();
        place.and_then(|place| self.weights().get(place)).copied().unwrap_or(T::ZERO)
    }
}

/// The fraction of the position of output `o`.
#[expect(clippy::cast_precision_loss, reason = "extents are at most 2^30, so that both are exact")]
fn fraction(resize: Resize, o: i64) -> f64 {
    let (numerator, unit) = resize.source(o);
    (numerator - div_floor(numerator, unit) * unit) as f64 / unit as f64
}

/// The weights of the inputs that there are, from the first one on.
fn cubic_weights(cubic: Cubic, resize: Resize, o: i64) -> [f64; 4] {
    let (t, a) = (fraction(resize, o), f64::from(cubic.slope_thousandths) / 1000.0);
    let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    let all = [far(1.0 + t), near(t), near(1.0 - t), far(2.0 - t)];
    let (numerator, unit) = resize.source(o);
    let (before, last) = (div_floor(numerator, unit) - 1, resize.input() - 1);
    let first = resize.taps(o).0;
    let mut weights = [0.0; 4];
    for (input, weight) in (before..).zip(all) {
        let is_inside = (0..=last).contains(&input);
        if is_inside || !cubic.drops_outside {
            let place = usize::try_from(input.clamp(0, last) - first);
            weights[place.expect("invariant: the first input is the least")] += weight;
        }
    }
    if cubic.drops_outside {
        let sum: f64 = weights.iter().sum();
        weights = weights.map(|weight| weight / sum);
    }
    weights
}

#[cfg(test)]
mod tests {
    use tiled_geometry::{Coordinates, ResizeMode};

    use super::*;

    #[test]
    fn weights_sum_to_one_inside_and_at_the_borders() {
        for drops_outside in [false, true] {
            let filter = Filter::Cubic(Cubic { slope_thousandths: -500, drops_outside });
            for (input, output) in [(1, 7), (2, 9), (3, 2), (16, 5), (9, 9)] {
                let mode = ResizeMode { filter, coordinates: Coordinates::HalfPixel };
                let resize = Resize::new(mode, input, output).unwrap();
                for o in 0..output {
                    let sum: f64 = Taps::<f64>::of(resize, o).weights().iter().sum();
                    assert!((sum - 1.0).abs() < 1e-14, "{input} to {output}, {o}: {sum}");
                }
            }
        }
    }

    #[test]
    fn a_line_stays_a_line_inside() {
        // of Keys' kernels the one of slope −1/2 alone
        let filter = Filter::Cubic(Cubic { slope_thousandths: -500, drops_outside: false });
        let mode = ResizeMode { filter, coordinates: Coordinates::HalfPixel };
        let resize = Resize::new(mode, 20, 33).unwrap();
        for o in 4..29 {
            let taps = Taps::<f64>::of(resize, o);
            let value: f64 = taps.weights().iter().zip(taps.first..).map(|(w, i)| w * i as f64).sum();
            let (numerator, unit) = resize.source(o);
            assert!((value - numerator as f64 / unit as f64).abs() < 1e-12, "{o}: {value}");
        }
    }
}
