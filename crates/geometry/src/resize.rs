//! Resampling along one axis: nearest and linear interpolation.

use crate::error::{Least, check_size};
use crate::{GeometryError, Interval};

/// How a resampled coordinate reads the input.
///
/// ```
/// use tiled_geometry::{Resize, ResizeMode};
/// // 3 inputs to 6 outputs: output 2 reads
/// let taps = |mode| Resize::new(mode, 3, 6).unwrap().taps(2);
/// assert_eq!(taps(ResizeMode::Nearest), (1, 1)); // input 1
/// assert_eq!(taps(ResizeMode::Linear), (0, 1)); // position 0.75
/// assert_eq!(taps(ResizeMode::LinearAlignCorners), (0, 1)); // position 0.8
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ResizeMode {
    /// The input at `floor(o·in/out)`.
    Nearest,
    /// Linear interpolation between pixel centres: source `(o + 1/2)·in/out − 1/2`, clamped at zero.
    Linear,
    /// Linear interpolation with the corner pixels aligned: source `o·(in−1)/(out−1)`.
    LinearAlignCorners,
}

/// Resampling of an axis of `input` coordinates to `output` coordinates, in exact rational arithmetic.
///
/// Law: [`Resize::needed`] and [`Resize::touched`] are the exact hulls of what the taps relate.
///
/// ```
/// use tiled_geometry::{Interval, Resize, ResizeMode};
/// let twice = Resize::new(ResizeMode::Linear, 8, 16)?;
/// assert_eq!(twice.needed(Interval::new(4, 8)), Interval::new(1, 5));
/// assert_eq!(twice.touched(Interval::new(4, 5)), Interval::new(7, 11));
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
///
/// Source: PyTorch, `torch.nn.functional.interpolate`; `aten/src/ATen/native/UpSample.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Resize {
    mode: ResizeMode,
    input: i64,
    output: i64,
}

impl Resize {
    /// The resampling from extent `input` to extent `output`.
    ///
    /// # Errors
    /// Where an extent is not positive or larger than `2^30`.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert!(Resize::new(ResizeMode::Nearest, 8, 16).is_ok());
    /// assert!(Resize::new(ResizeMode::Nearest, 8, 0).is_err());
    /// ```
    pub const fn new(mode: ResizeMode, input: i64, output: i64) -> Result<Self, GeometryError> {
        // `source` multiplies two extents and doubles the product
        const MAX_EXTENT: i64 = 1 << 30;
        if let Err(error) = check_size("input extent", input, Least::One, MAX_EXTENT) {
            return Err(error);
        }
        if let Err(error) = check_size("output extent", output, Least::One, MAX_EXTENT) {
            return Err(error);
        }
        Ok(Self { mode, input, output })
    }

    /// How it reads the input.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::Linear, 8, 16).unwrap().mode(), ResizeMode::Linear);
    /// ```
    #[must_use]
    pub const fn mode(self) -> ResizeMode {
        self.mode
    }

    /// The extent before.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::Linear, 8, 16).unwrap().input(), 8);
    /// ```
    #[must_use]
    pub const fn input(self) -> i64 {
        self.input
    }

    /// The extent after.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::Linear, 8, 16).unwrap().output(), 16);
    /// ```
    #[must_use]
    pub const fn output(self) -> i64 {
        self.output
    }

    /// The position that output `o` reads, as a fraction `(numerator, denominator)`.
    ///
    /// Nearest `floor(o·in/out)`; linear `max(0, ((2·o + 1)·in − out) / (2·out))`; with corners aligned
    /// `o·(in − 1) / (out − 1)`, and zero for a single output. The numerator is not negative, the
    /// denominator positive.
    ///
    /// # Panics
    /// Where `o` is not an output.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::Linear, 8, 16).unwrap().source(4), (56, 32)); // 1.75
    /// assert_eq!(Resize::new(ResizeMode::Linear, 8, 16).unwrap().source(0), (0, 32));
    /// ```
    #[must_use]
    pub fn source(self, o: i64) -> (i64, i64) {
        assert!((0..self.output).contains(&o), "output {o} of {}", self.output);
        match self.mode {
            ResizeMode::Nearest => (o * self.input / self.output, 1),
            ResizeMode::Linear => (((2 * o + 1) * self.input - self.output).max(0), 2 * self.output),
            ResizeMode::LinearAlignCorners if self.output == 1 => (0, 1),
            ResizeMode::LinearAlignCorners => (o * (self.input - 1), self.output - 1),
        }
    }

    /// The first and the last input that output `o` reads.
    ///
    /// `low = floor(source)` and, for linear modes, `high = min(low + 1, in − 1)`, also where its weight is
    /// zero: a kernel multiplies it all the same.
    ///
    /// Law: both are monotone in `o`, and lie in `[0, in)`.
    ///
    /// # Panics
    /// Where `o` is not an output.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// let twice = Resize::new(ResizeMode::Linear, 8, 16)?;
    /// assert_eq!((twice.taps(0), twice.taps(1), twice.taps(2)), ((0, 1), (0, 1), (0, 1)));
    /// assert_eq!((twice.taps(3), twice.taps(14), twice.taps(15)), ((1, 2), (6, 7), (7, 7)));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn taps(self, o: i64) -> (i64, i64) {
        let (numerator, denominator) = self.source(o);
        let low = (numerator / denominator).min(self.input - 1);
        match self.mode {
            ResizeMode::Nearest => (low, low),
            ResizeMode::Linear | ResizeMode::LinearAlignCorners => (low, (low + 1).min(self.input - 1)),
        }
    }

    /// Inputs that the outputs `[a,b)` read; outputs outside the axis are ignored.
    ///
    /// `needed([a,b)) = [low(a), high(b−1) + 1)`.
    ///
    /// Law: the smallest interval that holds every tap of every output in `[a,b)`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Resize, ResizeMode};
    /// let twice = Resize::new(ResizeMode::Nearest, 8, 16)?;
    /// assert_eq!(twice.needed(Interval::new(3, 7)), Interval::new(1, 4));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn needed(self, outputs: Interval) -> Interval {
        let outputs = outputs.intersect(Interval::whole(self.output));
        if outputs.is_empty() {
            return Interval::EMPTY;
        }
        Interval::new(self.taps(outputs.begin()).0, self.taps(outputs.end() - 1).1 + 1)
    }

    /// Outputs that read any of the inputs `[a,b)`; inputs outside the axis are ignored.
    ///
    /// `touched([a,b)) = [min {o : high(o) ≥ a}, max {o : low(o) < b} + 1)`.
    ///
    /// Law: exactly the outputs of which a tap lies in `[a,b)`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Resize, ResizeMode};
    /// let twice = Resize::new(ResizeMode::Nearest, 8, 16)?;
    /// assert_eq!(twice.touched(Interval::new(1, 3)), Interval::new(2, 6));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn touched(self, inputs: Interval) -> Interval {
        let inputs = inputs.intersect(Interval::whole(self.input));
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        // taps are monotone in the output, so both ends are partition points
        let first = self.partition_point(|o| self.taps(o).1 < inputs.begin());
        let end = self.partition_point(|o| self.taps(o).0 < inputs.end());
        Interval::new(first, end)
    }

    /// The first output for which `is_before` is false, if it is true for all before and false for all after.
    fn partition_point(self, is_before: impl Fn(i64) -> bool) -> i64 {
        let (mut low, mut high) = (0, self.output);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
