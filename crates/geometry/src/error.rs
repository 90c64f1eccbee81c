//! What can be wrong with a geometric description.

/// A description of a window, a grid or a resize that has no meaning or leaves the range of coordinates.
///
/// ```
/// use tiled_geometry::{GeometryError, Window};
/// assert_eq!(
///     Window::new(3, 0, 1, 1),
///     Err(GeometryError::NotPositive { what: "stride", got: 0 }),
/// );
/// assert_eq!(Window::new(3, 0, 1, 1).unwrap_err().to_string(), "stride is 0, must be at least 1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// A size that must be at least one is not.
    NotPositive {
        /// Which size.
        what: &'static str,
        /// The value given.
        got: i64,
    },
    /// A size that must be at least zero is not.
    Negative {
        /// Which size.
        what: &'static str,
        /// The value given.
        got: i64,
    },
    /// A size or coordinate is larger than the crate computes with.
    TooLarge {
        /// Which size.
        what: &'static str,
        /// The value given.
        got: i64,
        /// The largest value that is accepted.
        max: i64,
    },
    /// Padding in `reflect` mode reaches past the tensor that it mirrors.
    ReflectTooWide {
        /// The padding of one side.
        padding: i64,
        /// The extent of the tensor; the padding must be smaller.
        extent: i64,
    },
    /// Padding in `circular` mode goes round the tensor more than once.
    CircularTooWide {
        /// The padding of one side.
        padding: i64,
        /// The extent of the tensor; the padding must not be larger.
        extent: i64,
    },
    /// A bound of the tiles of a grid before the one before it, or outside the box.
    Bound {
        /// The bound given.
        got: i64,
        /// The least value that it may have.
        least: i64,
        /// The largest.
        most: i64,
    },
    /// A composed window or the number of tiles leaves the range that the crate computes with.
    Overflow,
    /// The bounds of the tiles of a grid find no room.
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
}

impl std::fmt::Display for GeometryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPositive { what, got } => write!(f, "{what} is {got}, must be at least 1"),
            Self::Negative { what, got } => write!(f, "{what} is {got}, must be at least 0"),
            Self::TooLarge { what, got, max } => write!(f, "{what} is {got}, must be at most {max}"),
            Self::ReflectTooWide { padding, extent } => {
                write!(f, "reflect padding of {padding} must be smaller than the extent {extent}")
            }
            Self::CircularTooWide { padding, extent } => {
                write!(f, "circular padding of {padding} must be at most the extent {extent}")
            }
            Self::Bound { got, least, most } => {
                write!(f, "bound of a tile is {got}, must be from {least} to {most}")
            }
            Self::Overflow => write!(f, "composed window or tile count overflows the range of coordinates"),
            Self::OutOfMemory { bytes } => write!(f, "{bytes} bytes could not be had"),
        }
    }
}

impl std::error::Error for GeometryError {}

/// Checks `least <= got <= max`, where `least` is zero or one.
pub(crate) const fn check_size(
    what: &'static str,
    got: i64,
    least: Least,
    max: i64,
) -> Result<(), GeometryError> {
    match least {
        Least::Zero if got < 0 => Err(GeometryError::Negative { what, got }),
        Least::One if got < 1 => Err(GeometryError::NotPositive { what, got }),
        _ if got > max => Err(GeometryError::TooLarge { what, got, max }),
        _ => Ok(()),
    }
}

/// The least value of a size.
#[derive(Clone, Copy)]
pub(crate) enum Least {
    Zero,
    One,
}
