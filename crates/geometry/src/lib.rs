//! Which region of a tensor an operator needs to compute which region of its result.
//!
//! Integers only: half-open intervals, one per axis, separable by axis. No dependencies, no unsafe code,
//! no memory, no element types. Everything above asks this crate and adds no offsets by hand.
#![forbid(unsafe_code)]

mod chain;
mod error;
mod grid;
mod interval;
mod map;
mod padding;
mod region;
mod resize;
mod window;

pub use chain::Chain;
pub use error::GeometryError;
pub use grid::Grid;
pub use interval::{Interval, MAX_COORDINATE};
pub use map::AxisMap;
pub use padding::{PadMode, Padding};
pub use region::Region;
pub use resize::{Resize, ResizeMode};
pub use window::{MAX_WINDOW, Window};

/// Quotient rounded towards negative infinity, for a positive divisor.
///
/// ```
/// assert_eq!(tiled_geometry::div_floor(-1, 2), -1);
/// ```
#[must_use]
pub const fn div_floor(a: i64, b: i64) -> i64 {
    a.div_euclid(b)
}

/// Quotient rounded towards positive infinity, for a positive divisor.
///
/// ```
/// assert_eq!(tiled_geometry::div_ceil(-1, 2), 0);
/// assert_eq!(tiled_geometry::div_ceil(3, 2), 2);
/// ```
#[must_use]
pub const fn div_ceil(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}
