//! Which region of a tensor an operator needs to compute which region of its result.
//!
//! Integers only: half-open intervals of 64-bit coordinates, one per axis, and the maps between them. Everything
//! is separable by axis, so that one, two and three dimensions cost the same code. Everything above asks this
//! crate, and adds no offsets by hand.
//!
//! It is not a tensor library: there are no elements, no memory and no operators here, no dependencies and no
//! unsafe code. A map says what a window reads, also outside the image; whoever holds
//! the tensor clips at the image border ([`Region::intersect`], [`Chain`]), and [`Region::excess`] is what
//! is padded there. A tile's edge is never padded.
//!
//! ```text
//!              image border           the tile's edge: real data, no padding
//!                   ║                          │
//!   input      -1   ║ 0  1  2  3  4  5  6  7  8│ 9 10 11 …
//!              └────╫─────────────────────┘    │              receptive([0,4)) = [-1,8)
//!   padded ────┘    ║                          │              clipped: [0,8), excess (1, 0)
//!                   ║   kernel 3, stride 2, padding 1
//!   output          ║ 0     1     2     3    │ 4     5 …
//!                   ║ └──────wanted─────┘
//! ```
//!
//! | wanted | needed | is |
//! |---|---|---|
//! | outputs | inputs that they read | [`Window::receptive`] |
//! | gradient of inputs | gradient of the outputs that read them | [`Window::touched`] |
//! | nothing more than the inputs at hand | outputs that they suffice for | [`Window::computable`] |
//!
//! [`Window::then`] folds windows into one, a [`Grid`] partitions a tensor into tiles, an [`AxisMap`] is what an
//! operator reads: window, interpolation, padding, or their adjoints; and a [`Chain`] of maps, clipped in between, is
//! the edge of a graph. The laws stand at each item; property tests and fuzz targets hold them in the same words.
//!
//! # Example
//!
//! A convolution (3×3, padding 1) and a pooling (2×2, stride 2) over 16×16, for the second of 4×4 tiles:
//!
//! ```
//! use tiled_geometry::{AxisMap, Grid, Region, Window};
//!
//! let (conv, pool) = (Window::new(3, 1, 1, 1)?, Window::new(2, 2, 1, 0)?);
//! let image = Region::whole([16, 16]);
//!
//! let tile = Grid::from_counts([8, 8], [4, 4])?.tile([0, 1]);
//! let features = tile.through([AxisMap::Window(pool); 2]);
//! let wanted = features.through([AxisMap::Window(conv); 2]);
//!
//! assert_eq!(tile.to_string(), "[0,2)×[2,4)");
//! assert_eq!(features.to_string(), "[0,4)×[4,8)");
//! assert_eq!(wanted.intersect(image).to_string(), "[0,5)×[3,9)");
//! assert_eq!(wanted.excess(image), [(1, 0), (0, 0)]); // one row of zeros above, nothing elsewhere
//! # Ok::<(), tiled_geometry::GeometryError>(())
//! ```
#![forbid(unsafe_code)]

mod chain;
mod error;
mod grid;
mod interval;
mod map;
mod padding;
mod region;
mod resize;
mod sampling;
mod window;

pub use chain::Chain;
pub use error::GeometryError;
pub use grid::{Grid, MAX_TILES};
pub use interval::{Interval, MAX_COORDINATE};
pub use map::AxisMap;
pub use padding::{PadMode, Padding};
pub use region::Region;
pub use resize::Resize;
pub use sampling::{Coordinates, Cubic, Filter, Ratio, ResizeMode, Rounding};
pub use window::{MAX_WINDOW, Window};

/// Quotient rounded towards negative infinity, for a positive divisor.
///
/// # Panics
/// Where the divisor is not positive.
///
/// ```
/// assert_eq!(tiled_geometry::div_floor(-1, 2), -1);
/// assert_eq!(tiled_geometry::div_floor(3, 2), 1);
/// ```
#[must_use]
pub const fn div_floor(a: i64, b: i64) -> i64 {
    assert!(b > 0, "the divisor must be positive");
    a.div_euclid(b)
}

/// Quotient rounded towards positive infinity, for a positive divisor.
///
/// # Panics
/// Where the divisor is not positive.
///
/// ```
/// assert_eq!(tiled_geometry::div_ceil(-1, 2), 0);
/// assert_eq!(tiled_geometry::div_ceil(3, 2), 2);
/// ```
#[must_use]
pub const fn div_ceil(a: i64, b: i64) -> i64 {
    assert!(b > 0, "the divisor must be positive");
    a.div_euclid(b) + if a.rem_euclid(b) == 0 { 0 } else { 1 }
}
