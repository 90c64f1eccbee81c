//! How a resampled coordinate finds the inputs that it reads.

use crate::GeometryError;
use crate::error::{Least, check_size};

/// Which inputs around its position an output reads, and how a position is found.
///
/// ```
/// use tiled_geometry::{Resize, ResizeMode};
/// // 3 inputs to 6 outputs: output 2 reads
/// let taps = |mode| Resize::new(mode, 3, 6).unwrap().taps(2);
/// assert_eq!(taps(ResizeMode::NEAREST), (1, 1)); // input 1
/// assert_eq!(taps(ResizeMode::LINEAR), (0, 1)); // position 0.75
/// assert_eq!(taps(ResizeMode::LINEAR_ALIGNED), (0, 1)); // position 0.8
/// assert_eq!(taps(ResizeMode::CUBIC), (0, 2)); // inputs −1 to 2, of which there are 0 to 2
/// assert_eq!(taps(ResizeMode::AREA), (1, 1)); // its part of the axis is [1, 1.5)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ResizeMode {
    /// The inputs that are read.
    pub filter: Filter,
    /// Where an output lies among the inputs.
    pub coordinates: Coordinates,
}

impl ResizeMode {
    /// PyTorch's `nearest`: the input at `floor(o/s)`.
    pub const NEAREST: Self =
        Self { filter: Filter::Nearest(Rounding::Floor), coordinates: Coordinates::Asymmetric };
    /// PyTorch's `nearest-exact`: the input whose centre is nearest.
    pub const NEAREST_EXACT: Self =
        Self { filter: Filter::Nearest(Rounding::HalfUp), coordinates: Coordinates::HalfPixel };
    /// PyTorch's `bilinear`.
    pub const LINEAR: Self = Self { filter: Filter::Linear, coordinates: Coordinates::HalfPixel };
    /// PyTorch's `bilinear` with `align_corners`.
    pub const LINEAR_ALIGNED: Self = Self { filter: Filter::Linear, coordinates: Coordinates::AlignCorners };
    /// PyTorch's `bicubic`.
    pub const CUBIC: Self =
        Self { filter: Filter::Cubic(Cubic::PYTORCH), coordinates: Coordinates::HalfPixel };
    /// PyTorch's `bicubic` with `align_corners`.
    pub const CUBIC_ALIGNED: Self =
        Self { filter: Filter::Cubic(Cubic::PYTORCH), coordinates: Coordinates::AlignCorners };
    /// PyTorch's `area`, which is adaptive average pooling; the coordinates do not matter.
    pub const AREA: Self = Self { filter: Filter::Area, coordinates: Coordinates::HalfPixel };
}

/// The inputs that an output at some position reads.
///
/// ```
/// use tiled_geometry::{Filter, Rounding};
/// assert_ne!(Filter::Linear, Filter::Nearest(Rounding::Floor));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Filter {
    /// One.
    Nearest(Rounding),
    /// The one before and the one behind it.
    Linear,
    /// Two before and two behind it.
    Cubic(Cubic),
    /// All that its part of the axis meets: `[floor(o·in/out), ceil((o + 1)·in/out))`.
    Area,
}

/// How a position becomes the number of an input.
///
/// ```
/// use tiled_geometry::{Coordinates, Filter, Resize, ResizeMode, Rounding};
/// let reads = |rounding| {
///     let mode = ResizeMode { filter: Filter::Nearest(rounding), coordinates: Coordinates::HalfPixel };
///     Resize::new(mode, 4, 2).unwrap().taps(0).0 // position 0.5
/// };
/// assert_eq!((reads(Rounding::HalfDown), reads(Rounding::HalfUp)), (0, 1));
/// assert_eq!((reads(Rounding::Floor), reads(Rounding::Ceil)), (0, 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Rounding {
    /// Down.
    Floor,
    /// Up.
    Ceil,
    /// To the nearest, down in the middle.
    HalfDown,
    /// To the nearest, up in the middle.
    HalfUp,
}

/// Cubic convolution.
///
/// Source: Keys, "Cubic convolution interpolation for digital image processing", 1981.
///
/// ```
/// assert_eq!(tiled_geometry::Cubic::PYTORCH.slope_thousandths, -750);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cubic {
    /// The slope of the kernel at distance one, in thousandths.
    pub slope_thousandths: i32,
    /// Whether inputs outside the image weigh nothing; else the border stands for them.
    pub drops_outside: bool,
}

impl Cubic {
    /// That of PyTorch: slope −3/4.
    pub const PYTORCH: Self = Self { slope_thousandths: -750, drops_outside: false };
}

/// Where output `o` lies among the inputs, `s` outputs for each of them.
///
/// ```
/// use tiled_geometry::{Coordinates, Filter, Resize, ResizeMode};
/// let position = |coordinates| {
///     let mode = ResizeMode { filter: Filter::Linear, coordinates };
///     let (numerator, denominator) = Resize::new(mode, 3, 6).unwrap().source(2);
///     numerator as f64 / denominator as f64
/// };
/// assert_eq!(position(Coordinates::HalfPixel), 0.75);
/// assert_eq!(position(Coordinates::AlignCorners), 0.8);
/// assert_eq!(position(Coordinates::Asymmetric), 1.0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Coordinates {
    /// `(o + 1/2)/s − 1/2`.
    HalfPixel,
    /// The same, and zero for a single output.
    HalfPixelOfSeveral,
    /// The same from the middle of the image, where the outputs are not as many as the scale says:
    /// `(o + 1/2)/s − 1/2 + in/2 − out/(2s)`.
    HalfPixelSymmetric,
    /// `o·(in − 1)/(out − 1)`, and zero for a single output.
    AlignCorners,
    /// `o/s`.
    Asymmetric,
}

/// Outputs for each input, as a fraction.
///
/// ```
/// use tiled_geometry::Ratio;
/// let half_as_many_again = Ratio::new(6, 4)?;
/// assert_eq!((half_as_many_again.numerator(), half_as_many_again.denominator()), (3, 2));
/// assert_eq!(half_as_many_again.of(5), Some(7)); // 7.5
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ratio {
    numerator: i64,
    denominator: i64,
}

impl Ratio {
    /// As many outputs as inputs.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// The reduced fraction.
    ///
    /// # Errors
    /// Where either is not positive or larger than `2^30`.
    ///
    /// ```
    /// use tiled_geometry::Ratio;
    /// assert_eq!(Ratio::new(4, 2), Ratio::new(2, 1));
    /// assert!(Ratio::new(1, 0).is_err());
    /// ```
    pub const fn new(numerator: i64, denominator: i64) -> Result<Self, GeometryError> {
        if let Err(error) = check_size("numerator of a scale", numerator, Least::One, MAX_EXTENT) {
            return Err(error);
        }
        if let Err(error) = check_size("denominator of a scale", denominator, Least::One, MAX_EXTENT) {
            return Err(error);
        }
        let (mut a, mut b) = (numerator, denominator);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Ok(Self { numerator: numerator / a, denominator: denominator / a })
    }

    /// The outputs …
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Ratio::ONE.numerator(), 1);
    /// ```
    #[must_use]
    pub const fn numerator(self) -> i64 {
        self.numerator
    }

    /// … for so many inputs.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Ratio::ONE.denominator(), 1);
    /// ```
    #[must_use]
    pub const fn denominator(self) -> i64 {
        self.denominator
    }

    /// The outputs of an axis of this extent, rounded down; `None` where that leaves 64 bits.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Ratio::new(1, 3).unwrap().of(8), Some(2));
    /// ```
    #[must_use]
    pub const fn of(self, extent: i64) -> Option<i64> {
        match extent.checked_mul(self.numerator) {
            Some(product) => Some(product.div_euclid(self.denominator)),
            None => None,
        }
    }
}

/// The largest extent of a resampled axis, and numerator of a scale: a position is a product of two of them, twice.
pub(crate) const MAX_EXTENT: i64 = 1 << 30;
