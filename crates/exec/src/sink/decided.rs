//! Sinks that keep what is decided of a tensor, not its values.

use std::cmp::Ordering;
use std::ops::Range;
use std::path::Path;

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Element, Layout, View, ViewMut};

use super::Sink;
use crate::source::{Lanes, index};
use crate::{Changes, IoError};

/// What is decided of the scores of a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decision {
    /// The number of the channel with the largest score, from 0 on: one channel. The first of several; NaN wins, as in PyTorch.
    ArgMax,
    /// For each channel 1 where the score is above this threshold, else 0; NaN stays.
    Above(f64),
}

impl Decision {
    /// The shape of what is decided of a tensor of shape NCHW.
    ///
    /// ```
    /// use tiled_exec::Decision;
    /// assert_eq!(Decision::ArgMax.shape([2, 21, 512, 640]), [2, 1, 512, 640]);
    /// assert_eq!(Decision::Above(0.5).shape([2, 21, 512, 640]), [2, 21, 512, 640]);
    /// ```
    #[must_use]
    pub const fn shape(self, [batch, channels, height, width]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::ArgMax => [batch, 1, height, width],
            Self::Above(_) => [batch, channels, height, width],
        }
    }

    /// The bytes that a lane holds while it decides of a tensor of shape NCHW, beside what the sink of the decisions holds.
    #[must_use]
    pub fn buffer_bytes<T: Element>(self, shape: [usize; 4]) -> u64 {
        let [batch, channels, ..] = self.shape(shape);
        // a pixel of all images and channels at least, with the scores that were the largest so far
        let elements = DECIDED.max(batch.saturating_mul(channels)).saturating_mul(2);
        elements.saturating_mul(size_of::<T>()) as u64
    }

    /// Checks that it can be taken of a tensor of shape NCHW; `name` stands in errors.
    ///
    /// # Errors
    /// Where the largest of one channel is wanted, and where the threshold is NaN.
    pub fn check(self, name: &str, shape: [usize; 4]) -> Result<(), IoError> {
        match self {
            Self::ArgMax if shape[1] < 2 => {
                Err(IoError::DecisionChannels { path: name.into(), got: shape[1] })
            }
            Self::Above(got) if got.is_nan() => {
                Err(IoError::Factor { path: name.into(), what: "threshold", expected: "a number", got })
            }
            Self::ArgMax | Self::Above(_) => Ok(()),
        }
    }
}

/// A sink of scores that hands on to another sink what is decided of them.
///
/// ```
/// use tiled_exec::{DecidedSink, Decision, MemorySink, Sink};
/// use tiled_tensor::Tensor;
///
/// let scores = Tensor::<f32>::from_fn([1, 3, 2, 2], |[_, c, y, x]| if c == y + x { 1.0 } else { 0.0 }).unwrap();
/// let classes = MemorySink::<f32>::new(Decision::ArgMax.shape(scores.shape()))?;
/// let sink = DecidedSink::new(&classes, scores.shape(), Decision::ArgMax)?;
/// sink.write(scores.view().region(), &scores.view())?;
/// Sink::<f32>::finish(&sink)?;
/// assert_eq!(classes.into_tensor().data(), [0.0, 1.0, 1.0, 2.0]);
/// # Ok::<(), tiled_exec::IoError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DecidedSink<S> {
    inner: S,
    shape: [usize; 4],
    decision: Decision,
}

impl<S> DecidedSink<S> {
    /// The sink of scores of this shape, NCHW.
    ///
    /// # Errors
    /// Where `inner` has another shape than [`Decision::shape`], the largest of one channel is wanted, or the threshold is NaN.
    pub fn new<T: Element>(inner: S, shape: [usize; 4], decision: Decision) -> Result<Self, IoError>
    where
        S: Sink<T>,
    {
        decision.check(NAME, shape)?;
        let (expected, got) = (decision.shape(shape), inner.shape());
        if expected != got {
            return Err(IoError::DecisionShape { path: NAME.into(), expected, got });
        }
        Ok(Self { inner, shape, decision })
    }
}

impl<T: Element, S: Sink<T>> Sink<T> for DecidedSink<S> {
    fn shape(&self) -> [usize; 4] {
        self.shape
    }

    fn write(&self, region: Region<2>, input: &View<'_, T>) -> Result<(), IoError> {
        crate::source::check_access(Path::new(NAME), self.shape, region, input.layout())?;
        if region.is_empty() {
            return Ok(());
        }
        let [batch, channels, ..] = self.decision.shape(self.shape);
        let limit = i64::try_from((DECIDED / (batch * channels)).max(1)).unwrap_or(i64::MAX);
        let cols = region.cols().len().min(limit);
        let rows = limit / cols;
        let mut decided = Vec::new();
        for y in pieces(region.rows(), rows) {
            for x in pieces(region.cols(), cols) {
                let piece = Region::from_rows_cols(y, x);
                let shape = [batch, channels, index(y.len()), index(x.len())];
                let layout = Layout::new(batch, channels, 1, piece, shape[2])
                    .map_err(|_| IoError::Overflow { path: NAME.into(), got: shape.to_vec() })?;
                decided.resize(layout.len(), T::ZERO);
                let mut window = ViewMut::new(&mut decided, layout);
                match self.decision {
                    Decision::ArgMax => largest(input, &mut window),
                    Decision::Above(threshold) => above(input, &mut window, T::from_f64(threshold)),
                }
                self.inner.write(piece, &window.as_view())?;
            }
        }
        Ok(())
    }

    fn prepare(&self) -> Result<(), IoError> {
        self.inner.prepare()
    }

    fn finish(&self) -> Result<(), IoError> {
        self.inner.finish()
    }

    fn abort(&self) {
        self.inner.abort();
    }

    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes()
    }

    fn transfer_bytes(&self) -> u64 {
        self.inner.transfer_bytes().saturating_add(self.decision.buffer_bytes::<T>(self.shape))
    }

    fn changes(&self) -> Option<Changes> {
        self.inner.changes()
    }
}

const NAME: &str = "<decision>";

/// Elements that are decided at a time.
const DECIDED: usize = 8192;

/// An interval in pieces of at most so many.
fn pieces(interval: Interval, len: i64) -> impl Iterator<Item = Interval> {
    let count = (interval.len() + len - 1) / len;
    (0..count).map(move |piece| {
        let begin = interval.begin() + piece * len;
        Interval::new(begin, (begin + len).min(interval.end()))
    })
}

/// Writes the numbers of the largest channels of a region into its window.
fn largest<T: Element>(input: &View<'_, T>, output: &mut ViewMut<'_, T>) {
    let (layout, region) = (*output.layout(), output.region());
    let mut most = vec![T::ZERO; layout.len()];
    for c in 0..input.layout().channels() {
        #[expect(clippy::cast_precision_loss, reason = "channels are far below 2^53")]
        let class = T::from_f64(c as f64);
        for (n, _, y, scores) in rows(region, input, c..c + 1) {
            let start = layout.offset(n, 0, y, region.cols().begin());
            let places = output.data_mut()[start..].iter_mut().zip(&mut most[start..]);
            for ((of, most), score) in places.zip(scores) {
                // the first of equal ones stays, and so does the first NaN
                if c == 0 || score > *most || (score.to_f64().is_nan() && !most.to_f64().is_nan()) {
                    (*of, *most) = (class, score);
                }
            }
        }
    }
}

/// Writes whether the elements of a region are above a threshold into its window.
fn above<T: Element>(input: &View<'_, T>, output: &mut ViewMut<'_, T>, threshold: T) {
    let (layout, region) = (*output.layout(), output.region());
    for (n, c, y, scores) in rows(region, input, 0..layout.channels()) {
        let start = layout.offset(n, c, y, region.cols().begin());
        for (place, score) in output.data_mut()[start..].iter_mut().zip(scores) {
            *place = match score.partial_cmp(&threshold) {
                Some(Ordering::Greater) => T::ONE,
                Some(_) => T::ZERO,
                None => score,
            };
        }
    }
}

/// The rows of some channels of a region: image, channel, row and elements of each.
fn rows<'a, T: Element>(
    region: Region<2>,
    input: &'a View<'_, T>,
    channels: Range<usize>,
) -> impl Iterator<Item = (usize, usize, i64, impl Iterator<Item = T> + 'a)> {
    let cols = index(region.cols().len());
    (0..input.layout().batch()).flat_map(move |n| {
        channels.clone().flat_map(move |c| {
            (region.rows().begin()..region.rows().end()).map(move |y| {
                let lanes = Lanes::new(input.layout(), region, n, c, y);
                let scores = input.data()[lanes.start..].iter().step_by(lanes.step).take(cols).copied();
                (n, c, y, scores)
            })
        })
    })
}
