//! What can be wrong with a geometric description.

/// A description of a window, a grid or a resize that has no meaning or leaves the range of coordinates.
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
    /// Composing windows leaves the range of 64-bit integers.
    Overflow,
}

impl std::fmt::Display for GeometryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPositive { what, got } => write!(f, "{what} is {got}, must be at least 1"),
            Self::TooLarge { what, got, max } => write!(f, "{what} is {got}, must be at most {max}"),
            Self::ReflectTooWide { padding, extent } => {
                write!(f, "reflect padding of {padding} must be smaller than the extent {extent}")
            }
            Self::Overflow => write!(f, "composed window overflows 64-bit integers"),
        }
    }
}

impl std::error::Error for GeometryError {}
