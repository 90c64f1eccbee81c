//! Resampling along one axis: nearest, linear and cubic interpolation, and means over parts of the axis.

use crate::error::{Least, check_size};
use crate::sampling::MAX_EXTENT;
use crate::{Coordinates, Filter, GeometryError, Interval, Ratio, ResizeMode, Rounding, div_ceil, div_floor};

/// Resampling of an axis of `input` coordinates to `output` coordinates, in exact rational arithmetic.
///
/// Law: [`Resize::needed`] and [`Resize::touched`] are the exact hulls of what the taps relate.
///
/// ```
/// use tiled_geometry::{Interval, Resize, ResizeMode};
/// let twice = Resize::new(ResizeMode::LINEAR, 8, 16)?;
/// assert_eq!(twice.needed(Interval::new(4, 8)), Interval::new(1, 5));
/// assert_eq!(twice.touched(Interval::new(4, 5)), Interval::new(7, 11));
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
///
/// Source: PyTorch, `torch.nn.functional.interpolate`; `aten/src/ATen/native/UpSample.h`; ONNX, operator `Resize`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Resize {
    mode: ResizeMode,
    input: i64,
    output: i64,
    scale: Ratio,
}

impl Resize {
    /// The resampling from extent `input` to extent `output`, which is also its scale.
    ///
    /// # Errors
    /// Where an extent is not positive or larger than `2^30`.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert!(Resize::new(ResizeMode::NEAREST, 8, 16).is_ok());
    /// assert!(Resize::new(ResizeMode::NEAREST, 8, 0).is_err());
    /// ```
    pub const fn new(mode: ResizeMode, input: i64, output: i64) -> Result<Self, GeometryError> {
        match Ratio::new(output, input) {
            Ok(scale) => Self::with_scale(mode, input, output, scale),
            Err(_) => Self::with_scale(mode, input, output, Ratio::ONE),
        }
    }

    /// The resampling by a scale that says where outputs lie, and not how many there are. Corners that are aligned and
    /// parts of the axis follow from the extents alone.
    ///
    /// # Errors
    /// Where an extent is not positive or larger than `2^30`.
    ///
    /// ```
    /// use tiled_geometry::{Ratio, Resize, ResizeMode};
    /// // 7.5 outputs of which there are 7: output 6 lies at 6·2/3 = 4
    /// let resize = Resize::with_scale(ResizeMode::NEAREST, 5, 7, Ratio::new(3, 2)?)?;
    /// assert_eq!(resize.taps(6), (4, 4));
    /// // output 5 of `floor(5·5/7)` is 3 by the extents, and by the scale too
    /// assert_eq!((resize.taps(5), Resize::new(ResizeMode::NEAREST, 5, 7)?.taps(5)), ((3, 3), (3, 3)));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub const fn with_scale(
        mode: ResizeMode,
        input: i64,
        output: i64,
        scale: Ratio,
    ) -> Result<Self, GeometryError> {
        if let Err(error) = check_size("input extent", input, Least::One, MAX_EXTENT) {
            return Err(error);
        }
        if let Err(error) = check_size("output extent", output, Least::One, MAX_EXTENT) {
            return Err(error);
        }
        Ok(Self { mode, input, output, scale })
    }

    /// The numbers `[step, start, unit]` by which the position of output `o` is `(step·o + start)/unit`.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16).unwrap().line(), [2, -1, 4]); // o/2 − 1/4
    /// ```
    #[must_use]
    pub const fn line(self) -> [i64; 3] {
        let Self { mode, input, output, scale } = self;
        let (p, q) = (scale.numerator(), scale.denominator());
        match (mode.filter, mode.coordinates) {
            (Filter::Area, _) => [input, 0, output],
            (_, Coordinates::AlignCorners | Coordinates::HalfPixelOfSeveral) if output == 1 => [0, 0, 1],
            (_, Coordinates::HalfPixel | Coordinates::HalfPixelOfSeveral) => [2 * q, q - p, 2 * p],
            (_, Coordinates::HalfPixelSymmetric) => [2 * q, (input - 1) * p + q * (1 - output), 2 * p],
            (_, Coordinates::AlignCorners) => [input - 1, 0, output - 1],
            (_, Coordinates::Asymmetric) => [q, 0, p],
        }
    }

    /// How it reads the input.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16).unwrap().mode(), ResizeMode::LINEAR);
    /// ```
    #[must_use]
    pub const fn mode(self) -> ResizeMode {
        self.mode
    }

    /// The extent before.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16).unwrap().input(), 8);
    /// ```
    #[must_use]
    pub const fn input(self) -> i64 {
        self.input
    }

    /// The extent after.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16).unwrap().output(), 16);
    /// ```
    #[must_use]
    pub const fn output(self) -> i64 {
        self.output
    }

    /// By how much the position of the next output is larger, as a fraction `[numerator, denominator]` that is not
    /// reduced.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR_ALIGNED, 8, 16).unwrap().step(), [7, 15]);
    /// ```
    #[must_use]
    pub const fn step(self) -> [i64; 2] {
        let [step, _, unit] = self.line();
        [step, unit]
    }

    /// The scale that says where outputs lie.
    ///
    /// ```
    /// use tiled_geometry::{Ratio, Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16)?.scale(), Ratio::new(2, 1)?);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub const fn scale(self) -> Ratio {
        self.scale
    }

    /// The position of output `o`, as a fraction `(numerator, denominator)`; for linear modes not below zero.
    ///
    /// The denominator is positive.
    ///
    /// # Panics
    /// Where `o` is not an output.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16).unwrap().source(4), (7, 4)); // 1.75
    /// assert_eq!(Resize::new(ResizeMode::LINEAR, 8, 16).unwrap().source(0), (0, 4));
    /// ```
    #[must_use]
    pub fn source(self, o: i64) -> (i64, i64) {
        assert!((0..self.output).contains(&o), "output {o} of {}", self.output);
        let [step, start, unit] = self.line();
        let numerator = step * o + start;
        match self.mode.filter {
            Filter::Linear => (numerator.max(0), unit),
            _ => (numerator, unit),
        }
    }

    /// The first and the last input that output `o` reads, of those that there are.
    ///
    /// Linear: `floor(source)` and the one behind, also where its weight is zero: a kernel multiplies it all the same.
    /// Cubic: from one before these to one behind.
    ///
    /// Law: both are monotone in `o`, and lie in `[0, in)`.
    ///
    /// # Panics
    /// Where `o` is not an output.
    ///
    /// ```
    /// use tiled_geometry::{Resize, ResizeMode};
    /// let twice = Resize::new(ResizeMode::LINEAR, 8, 16)?;
    /// assert_eq!((twice.taps(0), twice.taps(1), twice.taps(2)), ((0, 1), (0, 1), (0, 1)));
    /// assert_eq!((twice.taps(3), twice.taps(14), twice.taps(15)), ((1, 2), (6, 7), (7, 7)));
    /// let bins = Resize::new(ResizeMode::AREA, 7, 3)?;
    /// assert_eq!([0, 1, 2].map(|bin| bins.taps(bin)), [(0, 2), (2, 4), (4, 6)]);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn taps(self, o: i64) -> (i64, i64) {
        let (numerator, unit) = self.source(o);
        let floor = div_floor(numerator, unit);
        let (first, last) = match self.mode.filter {
            Filter::Nearest(rounding) => {
                let twice = 2 * (numerator - floor * unit);
                let is_up = match rounding {
                    Rounding::Floor => false,
                    Rounding::Ceil => twice > 0,
                    Rounding::HalfDown => twice > unit,
                    Rounding::HalfUp => twice >= unit,
                };
                let nearest = floor + i64::from(is_up);
                (nearest, nearest)
            }
            Filter::Linear => (floor, floor + 1),
            Filter::Cubic(_) => (floor - 1, floor + 2),
            Filter::Area => (floor, div_ceil(numerator + self.input, unit) - 1),
        };
        (first.clamp(0, self.input - 1), last.clamp(0, self.input - 1))
    }

    /// Inputs that the outputs `[a,b)` read; outputs outside the axis are ignored.
    ///
    /// `needed([a,b)) = [first(a), last(b−1) + 1)`.
    ///
    /// Law: the smallest interval that holds every tap of every output in `[a,b)`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Resize, ResizeMode};
    /// let twice = Resize::new(ResizeMode::NEAREST, 8, 16)?;
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
    /// `touched([a,b)) = [min {o : last(o) ≥ a}, max {o : first(o) < b} + 1)`.
    ///
    /// Law: the smallest interval that holds every output of which a tap lies in `[a,b)`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Resize, ResizeMode};
    /// let twice = Resize::new(ResizeMode::NEAREST, 8, 16)?;
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
