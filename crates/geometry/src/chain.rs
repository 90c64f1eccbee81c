//! A chain of maps along one axis.

use crate::{AxisMap, Interval};

/// Maps along one axis that are walked back one after another, each clipped to the extent of what it reads.
///
/// ```text
/// operand  ║──────┤      needed: what the last map reads, clipped
///   conv   ║────┤        what the first map reads, clipped
/// result   ║ ├──┤        wanted
///          ║ image border
/// ```
///
/// Law: clip at the image border only, and pad each operator there by itself. A tile's edge is never padded: a
/// tap of a tile is padding exactly if it is padding in the whole, at every layer.
///
/// Windows alone, where nothing is clipped, compose to one: [`Window::then`](crate::Window::then).
///
/// ```
/// use tiled_geometry::{AxisMap, Chain, Interval, Window};
/// let (conv, pool) = (Window::new(3, 1, 1, 1)?, Window::new(2, 2, 1, 0)?);
/// let chain = Chain::new([(AxisMap::Window(pool), 16), (AxisMap::Window(conv), 16)]);
/// assert_eq!(chain.needed(Interval::new(2, 4)), Interval::new(3, 9));
/// assert_eq!(chain.needed(Interval::new(0, 4)), Interval::new(0, 9));
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    maps: Vec<(AxisMap, i64)>,
}

impl Chain {
    /// The chain of these maps, that of the result first, each with the extent of what it reads.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Chain, Interval};
    /// let nothing = Chain::new([]);
    /// assert_eq!(nothing.needed(Interval::new(2, 4)), Interval::new(2, 4));
    /// ```
    #[must_use]
    pub fn new(maps: impl IntoIterator<Item = (AxisMap, i64)>) -> Self {
        Self { maps: maps.into_iter().collect() }
    }

    /// The maps and the extents of what they read.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Chain};
    /// assert_eq!(Chain::new([(AxisMap::Identity, 9)]).maps(), [(AxisMap::Identity, 9)]);
    /// ```
    #[must_use]
    pub fn maps(&self) -> &[(AxisMap, i64)] {
        &self.maps
    }

    /// The coordinates of the operand that `wanted` needs.
    ///
    /// # Panics
    /// Where [`AxisMap::needed`] does.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Chain, Interval, Window};
    /// let conv = AxisMap::Window(Window::new(3, 1, 1, 1)?);
    /// assert_eq!(Chain::new([(conv, 8); 3]).needed(Interval::new(2, 4)), Interval::new(0, 7));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn needed(&self, wanted: Interval) -> Interval {
        self.walk(wanted, |_, _, _| ())
    }

    /// The same before the last clipping: what an operator that pads by itself reads.
    ///
    /// # Panics
    /// Where [`AxisMap::needed`] does.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Chain, Interval, Window};
    /// let conv = AxisMap::Window(Window::new(3, 1, 1, 1)?);
    /// let wanted = Interval::new(0, 4);
    /// assert_eq!(Chain::new([(conv, 8)]).needed_unclipped(wanted), Interval::new(-1, 5));
    /// // in the middle it is clipped all the same
    /// assert_eq!(Chain::new([(conv, 8), (conv, 8)]).needed_unclipped(wanted), Interval::new(-1, 6));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn needed_unclipped(&self, wanted: Interval) -> Interval {
        let mut unclipped = wanted;
        self.walk(wanted, |map, _, wanted| unclipped = map.needed(wanted));
        unclipped
    }

    /// Calls `visit` with each map, the extent of what it reads and the coordinates wanted of it; returns those needed in the end.
    ///
    /// # Panics
    /// Where [`AxisMap::needed`] or `visit` does.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Chain, Interval, Window};
    /// let conv = AxisMap::Window(Window::new(3, 1, 1, 1)?);
    /// let mut seen = Vec::new();
    /// Chain::new([(conv, 8); 2]).walk(Interval::new(2, 4), |_, _, wanted| seen.push(wanted));
    /// assert_eq!(seen, [Interval::new(2, 4), Interval::new(1, 5)]);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    pub fn walk(&self, wanted: Interval, mut visit: impl FnMut(AxisMap, i64, Interval)) -> Interval {
        self.maps.iter().fold(wanted, |wanted, (map, extent)| {
            visit(*map, *extent, wanted);
            map.needed(wanted).intersect(Interval::whole(*extent))
        })
    }
}
