//! A sliding window along one axis: kernel, stride, dilation, padding before.

use crate::{GeometryError, Interval, MAX_COORDINATE, div_ceil, div_floor};

/// The largest kernel, stride, dilation or padding of a single operator, `2^20`.
pub const MAX_WINDOW: i64 = 1 << 20;

/// The window of a convolution or pooling along one axis.
///
/// With kernel k, stride s, dilation d, padding before p and `e = d·(k−1)`, output `o` reads the inputs
/// `o·s − p + d·t` for `0 <= t < k`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Window {
    kernel: i64,
    stride: i64,
    dilation: i64,
    padding: i64,
}

impl Window {
    /// The window that maps every coordinate to itself.
    pub const IDENTITY: Self = Self { kernel: 1, stride: 1, dilation: 1, padding: 0 };

    /// A window of `kernel` taps, `stride` between outputs, `dilation` between taps and `padding` before.
    ///
    /// # Errors
    /// Where a size is not positive (padding: negative) or larger than [`MAX_WINDOW`].
    pub const fn new(kernel: i64, stride: i64, dilation: i64, padding: i64) -> Result<Self, GeometryError> {
        macro_rules! check {
            ($value:expr, $what:literal, $least:literal) => {
                if $value < $least {
                    return Err(GeometryError::NotPositive { what: $what, got: $value });
                }
                if $value > MAX_WINDOW {
                    return Err(GeometryError::TooLarge { what: $what, got: $value, max: MAX_WINDOW });
                }
            };
        }
        check!(kernel, "kernel size", 1);
        check!(stride, "stride", 1);
        check!(dilation, "dilation", 1);
        check!(padding, "padding", 0);
        Ok(Self { kernel, stride, dilation, padding })
    }

    /// The number of taps, k.
    #[must_use]
    pub const fn kernel(self) -> i64 {
        self.kernel
    }

    /// The distance between the windows of neighbouring outputs, s.
    #[must_use]
    pub const fn stride(self) -> i64 {
        self.stride
    }

    /// The distance between neighbouring taps, d.
    #[must_use]
    pub const fn dilation(self) -> i64 {
        self.dilation
    }

    /// The padding before the first input, p.
    #[must_use]
    pub const fn padding(self) -> i64 {
        self.padding
    }

    /// The distance from the first tap to the last, `e = d·(k−1)`.
    #[must_use]
    pub const fn extent(self) -> i64 {
        self.dilation * (self.kernel - 1)
    }

    /// Inputs that the outputs `[a,b)` read, before clipping: `[a·s − p, (b−1)·s − p + e + 1)`.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`MAX_COORDINATE`].
    #[must_use]
    pub fn receptive(self, outputs: Interval) -> Interval {
        if outputs.is_empty() {
            return Interval::EMPTY;
        }
        check_range(outputs);
        Interval::new(
            outputs.begin() * self.stride - self.padding,
            (outputs.end() - 1) * self.stride - self.padding + self.extent() + 1,
        )
    }

    /// Outputs that read any of the inputs `[a,b)`: `[ceil((a+p−e)/s), floor((b−1+p)/s) + 1)`.
    ///
    /// For dilation above one this is the hull of those outputs.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`MAX_COORDINATE`].
    #[must_use]
    pub fn touched(self, inputs: Interval) -> Interval {
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        check_range(inputs);
        Interval::new(
            div_ceil(inputs.begin() + self.padding - self.extent(), self.stride),
            div_floor(inputs.end() - 1 + self.padding, self.stride) + 1,
        )
    }

    /// Outputs whose whole window lies in the inputs `[a,b)`: `[ceil((a+p)/s), floor((b−1+p−e)/s) + 1)`.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`MAX_COORDINATE`].
    #[must_use]
    pub fn computable(self, inputs: Interval) -> Interval {
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        check_range(inputs);
        Interval::new(
            div_ceil(inputs.begin() + self.padding, self.stride),
            div_floor(inputs.end() - 1 + self.padding - self.extent(), self.stride) + 1,
        )
    }

    /// The window of this operator followed by `next`, as one window.
    ///
    /// `receptive` of the result is `self.receptive(next.receptive(·))`. The taps of the result are taken
    /// as contiguous (dilation 1), which is their hull.
    ///
    /// # Errors
    /// Where the result overflows 64-bit integers.
    pub fn then(self, next: Self) -> Result<Self, GeometryError> {
        let compose = || {
            let stride = self.stride.checked_mul(next.stride)?;
            let padding = next.padding.checked_mul(self.stride)?.checked_add(self.padding)?;
            let extent = next.extent().checked_mul(self.stride)?.checked_add(self.extent())?;
            let fits = stride <= MAX_COORDINATE && padding <= MAX_COORDINATE && extent < MAX_COORDINATE;
            fits.then_some(Self { kernel: extent + 1, stride, dilation: 1, padding })
        };
        compose().ok_or(GeometryError::Overflow)
    }

    /// The number of outputs over an input of `extent` with `padding_after` behind it (`ceil`: rounded up).
    ///
    /// `floor((extent + p + p' − e − 1)/s) + 1`, and zero where the padded input is smaller than the kernel.
    /// With `ceil`, a last window that starts past the input and its padding before is dropped, as in PyTorch.
    #[must_use]
    pub fn outputs(self, extent: i64, padding_after: i64, ceil: bool) -> i64 {
        let room = extent + self.padding + padding_after - self.extent() - 1;
        if room < 0 {
            return 0;
        }
        if !ceil {
            return room / self.stride + 1;
        }
        let count = div_ceil(room, self.stride) + 1;
        if (count - 1) * self.stride >= extent + self.padding { count - 1 } else { count }
    }
}

fn check_range(interval: Interval) {
    assert!(
        interval.begin() >= -MAX_COORDINATE && interval.end() <= MAX_COORDINATE,
        "coordinates of {interval} leave the range of ±2^40"
    );
}
