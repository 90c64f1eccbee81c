//! Resampling along one axis: nearest and linear interpolation.

use crate::{GeometryError, Interval, MAX_COORDINATE};

/// How a resampled coordinate reads the input.
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
    pub const fn new(mode: ResizeMode, input: i64, output: i64) -> Result<Self, GeometryError> {
        const MAX: i64 = 1 << 30;
        if input < 1 {
            return Err(GeometryError::NotPositive { what: "input extent", got: input });
        }
        if output < 1 {
            return Err(GeometryError::NotPositive { what: "output extent", got: output });
        }
        if input > MAX {
            return Err(GeometryError::TooLarge { what: "input extent", got: input, max: MAX });
        }
        if output > MAX {
            return Err(GeometryError::TooLarge { what: "output extent", got: output, max: MAX });
        }
        Ok(Self { mode, input, output })
    }

    /// How it reads the input.
    #[must_use]
    pub const fn mode(self) -> ResizeMode {
        self.mode
    }

    /// The extent before.
    #[must_use]
    pub const fn input(self) -> i64 {
        self.input
    }

    /// The extent after.
    #[must_use]
    pub const fn output(self) -> i64 {
        self.output
    }

    /// The position that output `o` reads, as a fraction `(numerator, denominator)` with both non-negative.
    #[must_use]
    pub fn source(self, o: i64) -> (i64, i64) {
        match self.mode {
            ResizeMode::Nearest => (o * self.input / self.output, 1),
            ResizeMode::Linear => (((2 * o + 1) * self.input - self.output).max(0), 2 * self.output),
            ResizeMode::LinearAlignCorners => {
                if self.output == 1 {
                    (0, 1)
                } else {
                    (o * (self.input - 1), self.output - 1)
                }
            }
        }
    }

    /// The first and the last input that output `o` reads.
    #[must_use]
    pub fn taps(self, o: i64) -> (i64, i64) {
        let (numerator, denominator) = self.source(o);
        let low = (numerator / denominator).min(self.input - 1);
        match self.mode {
            ResizeMode::Nearest => (low, low),
            _ => (low, (low + 1).min(self.input - 1)),
        }
    }

    /// Inputs that the outputs `[a,b)` read; outputs outside the axis are ignored.
    #[must_use]
    pub fn needed(self, outputs: Interval) -> Interval {
        let outputs = outputs.intersect(Interval::whole(self.output));
        if outputs.is_empty() {
            return Interval::EMPTY;
        }
        Interval::new(self.taps(outputs.begin()).0, self.taps(outputs.end() - 1).1 + 1)
    }

    /// Outputs that read any of the inputs `[a,b)`; inputs outside the axis are ignored.
    #[must_use]
    pub fn touched(self, inputs: Interval) -> Interval {
        let inputs = inputs.intersect(Interval::whole(self.input));
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        // taps are monotone in the output, so both ends are partition points
        let first = self.partition_point(|o| self.taps(o).1 < inputs.begin());
        let last = self.partition_point(|o| self.taps(o).0 < inputs.end());
        Interval::new(first, last)
    }

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
        debug_assert!(low <= MAX_COORDINATE, "invariant: extents are bounded");
        low
    }
}
