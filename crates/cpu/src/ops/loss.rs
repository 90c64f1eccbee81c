//! Cross-entropy of the softmax over channels, per pixel, computed in `f64`.

use tiled_geometry::{Interval, Region};
use tiled_kernel::ExactSum;
use tiled_tensor::{Element, PartMut, View};

use super::band::{Band, extent, for_bands, index, signed, span};
use super::math;
use super::stamp::per_isa;
use crate::Isa;

/// Pixels that are treated at a time.
pub(super) const PIXELS: usize = 64;

/// A target that counts for nothing.
const IGNORED: i64 = -1;
/// A class that is no channel: the loss and its gradient are NaN rather than a plausible number.
const INVALID: i64 = -2;

/// What a run of pixels of one row has to do with its scores.
struct Softmax {
    largest: [f64; PIXELS],
    sum: [f64; PIXELS],
}

impl Softmax {
    /// The largest score of each pixel and `Σ e^(score − largest)`, in order of channels.
    fn new<T: Element>(isa: Isa, scores: &View<'_, T>, n: usize, y: i64, cols: Interval) -> Self {
        let mut softmax = Self { largest: [f64::NEG_INFINITY; PIXELS], sum: [0.0; PIXELS] };
        for c in 0..scores.layout().channels() {
            larger(isa, &channel(scores, n, c, y, cols), &mut softmax.largest);
        }
        for c in 0..scores.layout().channels() {
            let values = channel(scores, n, c, y, cols);
            add_exponential::<T>(isa, &values, &softmax.largest, &mut softmax.sum);
        }
        softmax
    }
}

/// One channel of a run of pixels; zero past the end of the run.
pub(super) fn channel<T: Element>(
    view: &View<'_, T>,
    n: usize,
    c: usize,
    y: i64,
    cols: Interval,
) -> [T; PIXELS] {
    let block = view.layout().block();
    let values = &span(view, [n, c / block], y, cols)[c % block..];
    let mut pixels = [T::ZERO; PIXELS];
    for (pixel, value) in pixels.iter_mut().zip(values.iter().step_by(block)) {
        *pixel = *value;
    }
    pixels
}

per_isa! {
    /// The larger of two; not a number loses, and shows in the sum.
    fn larger<T: Element>(values: &[T; PIXELS], largest: &mut [f64; PIXELS]) {
        for (largest, value) in largest.iter_mut().zip(values) {
            let value = value.to_f64();
            *largest = if value > *largest { value } else { *largest };
        }
    }
}

per_isa! {
    /// `sum += e^(value − largest)`.
    fn add_exponential<T: Element>(values: &[T; PIXELS], largest: &[f64; PIXELS], sum: &mut [f64; PIXELS]) {
        for ((sum, value), largest) in sum.iter_mut().zip(values).zip(largest) {
            *sum += math::exp::<f64, FUSED>(value.to_f64() - largest);
        }
    }
}

per_isa! {
    /// `(e^(value − largest)/sum − expected)·scale`.
    fn slope<T: Element>(values: &[T; PIXELS], softmax: &Softmax, expected: &[f64; PIXELS], scale: f64, out: &mut [T; PIXELS]) {
        let pixels = softmax.largest.iter().zip(&softmax.sum).zip(expected);
        for ((out, value), ((largest, sum), expected)) in out.iter_mut().zip(values).zip(pixels) {
            let share = math::exp::<f64, FUSED>(value.to_f64() - largest) / sum;
            *out = T::from_f64((share - expected) * scale);
        }
    }
}

/// The classes of a run of pixels.
fn classes<T: Element>(
    target: &View<'_, T>,
    n: usize,
    y: i64,
    cols: Interval,
    channels: usize,
) -> [i64; PIXELS] {
    channel(target, n, 0, y, cols).map(|value| {
        let value = value.to_f64();
        #[expect(clippy::cast_possible_truncation, reason = "what does not fit saturates and is no channel")]
        let class = value as i64;
        if value < 0.0 {
            IGNORED
        } else if value.fract() == 0.0 && class < signed(channels) {
            class
        } else {
            INVALID
        }
    })
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
    let weight = 16 + 16 * scores.layout().channels() / output.layout().block();
    for_bands(output, region, weight, |band| {
        for y in band.rows().begin()..band.rows().end() {
            let cols = band.cols();
            for begin in (cols.begin()..cols.end()).step_by(PIXELS) {
                let part = Interval::new(begin, (begin + signed(PIXELS)).min(cols.end()));
                slopes(isa, scale, [scores, target], band, y, part);
            }
        }
    });
}

fn slopes<T: Element>(
    isa: Isa,
    scale: f64,
    [scores, target]: [&View<'_, T>; 2],
    band: &mut Band<'_, T>,
    y: i64,
    cols: Interval,
) {
    let (n, lanes) = (band.n(), band.lanes());
    let softmax = Softmax::new(isa, scores, n, y, cols);
    let has_classes = target.layout().channels() == 1;
    let classes =
        if has_classes { classes(target, n, y, cols, scores.layout().channels()) } else { [IGNORED; PIXELS] };
    let from = index(cols.begin() - band.cols().begin()) * lanes;
    for lane in 0..band.real_lanes() {
        let c = band.first_channel() + lane;
        let expected = if has_classes {
            classes.map(|class| match class {
                INVALID => f64::NAN,
                class => f64::from(u8::from(class == signed(c))),
            })
        } else {
            channel(target, n, c, y, cols).map(T::to_f64)
        };
        let mut out = [T::ZERO; PIXELS];
        slope(isa, &channel(scores, n, c, y, cols), &softmax, &expected, scale, &mut out);
        let row = &mut band.row(y)[from..from + extent(cols) * lanes];
        for ((to, value), class) in row[lane..].iter_mut().step_by(lanes).zip(out).zip(classes) {
            *to = if has_classes && class == IGNORED { T::ZERO } else { value };
        }
    }
}

/// Adds the loss of each pixel of a row to the first sum and one for each that counts to the second.
pub(crate) fn cross_entropy<T: Element>(
    isa: Isa,
    [scores, target]: [&View<'_, T>; 2],
    n: usize,
    y: i64,
    cols: Interval,
    sums: &mut [ExactSum],
) {
    let channels = scores.layout().channels();
    for begin in (cols.begin()..cols.end()).step_by(PIXELS) {
        let part = Interval::new(begin, (begin + signed(PIXELS)).min(cols.end()));
        let softmax = Softmax::new(isa, scores, n, y, part);
        let mut losses = [0.0; PIXELS];
        let mut counts = [1.0; PIXELS];
        if target.layout().channels() == 1 {
            let pixels = classes(target, n, y, part, channels);
            for (i, class) in pixels.into_iter().enumerate().take(extent(part)) {
                losses[i] = match usize::try_from(class) {
                    Ok(class) => {
                        let score = scores.get(n, class, y, part.begin() + signed(i)).to_f64();
                        (softmax.largest[i] - score) + softmax.sum[i].ln()
                    }
                    Err(_) if class == IGNORED => {
                        counts[i] = 0.0;
                        0.0
                    }
                    Err(_) => f64::NAN,
                };
            }
        } else {
            let logs = softmax.sum.map(f64::ln);
            for c in 0..channels {
                let (score, share) = (channel(scores, n, c, y, part), channel(target, n, c, y, part));
                for i in 0..PIXELS {
                    losses[i] += share[i].to_f64() * ((softmax.largest[i] - score[i].to_f64()) + logs[i]);
                }
            }
        }
        sums[0].add_slice(&losses[..extent(part)]);
        sums[1].add_slice(&counts[..extent(part)]);
    }
}
