//! A box of coordinates: one interval per axis.

use crate::{AxisMap, Interval};

/// One [`Interval`] per axis, rows before columns in two dimensions.
///
/// Law: a region with one empty axis holds no point, and [`Region::EMPTY`] is its only representation.
/// There is at least one axis; `N = 0` does not compile.
///
/// ```
/// use tiled_geometry::{Interval, Region};
/// let a = Region::new([Interval::new(0, 4), Interval::new(2, 5)]);
/// assert_eq!(a.volume(), 12);
/// assert_eq!(Region::new([Interval::new(0, 4), Interval::EMPTY]), Region::EMPTY);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region<const N: usize> {
    axes: [Interval; N],
}

impl<const N: usize> Region<N> {
    /// The region without a point.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// let flat = Region::new([Interval::new(0, 4), Interval::new(3, 3)]);
    /// assert_eq!(flat, Region::EMPTY);
    /// ```
    pub const EMPTY: Self = {
        assert!(N > 0, "a region has at least one axis");
        Self { axes: [Interval::EMPTY; N] }
    };

    /// The region with these intervals, or [`Region::EMPTY`] where one of them is empty.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// let a = Region::new([Interval::new(0, 4), Interval::new(2, 5)]);
    /// assert_eq!(a.to_string(), "[0,4)×[2,5)");
    /// ```
    #[must_use]
    pub fn new(axes: [Interval; N]) -> Self {
        if axes.iter().any(|axis| axis.is_empty()) { Self::EMPTY } else { Self { axes } }
    }

    /// The region `[0, extent)` on every axis: a whole tensor.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// assert_eq!(Region::whole([4, 5]).axis(1), Interval::new(0, 5));
    /// ```
    #[must_use]
    pub fn whole(extents: [i64; N]) -> Self {
        Self::new(extents.map(Interval::whole))
    }

    /// The interval of one axis.
    ///
    /// # Panics
    /// Where `index` is not below `N`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// assert_eq!(Region::whole([4, 5]).axis(0), Interval::new(0, 4));
    /// ```
    #[must_use]
    pub const fn axis(self, index: usize) -> Interval {
        self.axes[index]
    }

    /// All intervals.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// assert_eq!(Region::whole([4, 5]).axes(), [Interval::new(0, 4), Interval::new(0, 5)]);
    /// ```
    #[must_use]
    pub const fn axes(self) -> [Interval; N] {
        self.axes
    }

    /// Whether it holds no point.
    ///
    /// ```
    /// use tiled_geometry::{Region};
    /// assert!(Region::whole([4, 0]).is_empty());
    /// assert!(!Region::whole([4, 1]).is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.axes.iter().any(|axis| axis.is_empty())
    }

    /// The number of points, the product of the lengths.
    ///
    /// # Panics
    /// Where the number leaves `i64`; cannot happen for regions inside a tensor whose size was checked.
    ///
    /// ```
    /// use tiled_geometry::{Region};
    /// assert_eq!(Region::whole([4, 5, 6]).volume(), 120);
    /// ```
    #[must_use]
    pub fn volume(self) -> i64 {
        self.axes
            .iter()
            .try_fold(1_i64, |product, axis| product.checked_mul(axis.len()))
            .expect("invariant: regions lie inside tensors whose element count fits 64 bits")
    }

    /// Whether the point with these coordinates lies in it.
    ///
    /// ```
    /// use tiled_geometry::Region;
    /// assert!(Region::whole([4, 5]).contains([3, 4]));
    /// assert!(!Region::whole([4, 5]).contains([4, 3]));
    /// ```
    #[must_use]
    pub fn contains(self, point: [i64; N]) -> bool {
        (0..N).all(|i| self.axes[i].contains(point[i]))
    }

    /// The points in both.
    ///
    /// Law: a point lies in the intersection exactly if it lies in both.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// let a = Region::new([Interval::new(-1, 3), Interval::new(2, 9)]);
    /// assert_eq!(a.intersect(Region::whole([4, 5])).to_string(), "[0,3)×[2,5)");
    /// ```
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(std::array::from_fn(|i| self.axes[i].intersect(other.axes[i])))
    }

    /// The smallest region that contains both.
    ///
    /// Law: a region contains the hull exactly if it contains both.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// let a = Region::whole([2, 2]);
    /// let b = Region::new([Interval::new(5, 6), Interval::new(1, 3)]);
    /// assert_eq!(a.hull(b).to_string(), "[0,6)×[0,3)");
    /// ```
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        if self.is_empty() {
            other
        } else if other.is_empty() {
            self
        } else {
            Self { axes: std::array::from_fn(|i| self.axes[i].hull(other.axes[i])) }
        }
    }

    /// Whether every point of `other` lies in it.
    ///
    /// ```
    /// use tiled_geometry::{Region};
    /// assert!(Region::whole([4, 5]).contains_region(Region::whole([4, 2])));
    /// assert!(Region::whole([4, 5]).contains_region(Region::EMPTY));
    /// assert!(!Region::whole([4, 5]).contains_region(Region::whole([5, 5])));
    /// ```
    #[must_use]
    pub fn contains_region(self, other: Self) -> bool {
        (0..N).all(|i| self.axes[i].contains_interval(other.axes[i]))
    }

    /// The same region with another interval on one axis.
    ///
    /// # Panics
    /// Where `index` is not below `N`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// assert_eq!(Region::whole([4, 5]).with_axis(0, Interval::new(1, 2)).to_string(), "[1,2)×[0,5)");
    /// ```
    #[must_use]
    pub fn with_axis(self, index: usize, interval: Interval) -> Self {
        let mut axes = self.axes;
        axes[index] = interval;
        Self::new(axes)
    }

    /// The region needed through one map per axis, before clipping.
    ///
    /// Law: empty exactly if it is empty or a map needs nothing; each axis of it is that of its own map.
    ///
    /// # Panics
    /// Where [`AxisMap::needed`] does.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Region, Window};
    /// let conv = AxisMap::Window(Window::new(3, 1, 1, 1)?);
    /// let pool = AxisMap::Window(Window::new(2, 2, 1, 0)?);
    /// assert_eq!(Region::whole([4, 5]).through([conv, pool]).to_string(), "[-1,5)×[0,10)");
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn through(self, maps: [AxisMap; N]) -> Self {
        Self::new(std::array::from_fn(|i| maps[i].needed(self.axes[i])))
    }

    /// Per axis, the amounts before and after that clipping to `other` removes: [`Interval::excess`].
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// let wanted = Region::new([Interval::new(-1, 3), Interval::new(2, 9)]);
    /// assert_eq!(wanted.excess(Region::whole([4, 5])), [(1, 0), (0, 4)]);
    /// ```
    #[must_use]
    pub fn excess(self, other: Self) -> [(i64, i64); N] {
        std::array::from_fn(|i| self.axes[i].excess(other.axes[i]))
    }
}

impl Region<2> {
    /// The region of these rows and columns.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// let a = Region::from_rows_cols(Interval::new(0, 4), Interval::new(2, 5));
    /// assert_eq!(a.to_string(), "[0,4)×[2,5)");
    /// ```
    #[must_use]
    pub fn from_rows_cols(rows: Interval, cols: Interval) -> Self {
        Self::new([rows, cols])
    }

    /// The interval of rows, axis 0.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// assert_eq!(Region::whole([4, 5]).rows(), Interval::new(0, 4));
    /// ```
    #[must_use]
    pub const fn rows(self) -> Interval {
        self.axes[0]
    }

    /// The interval of columns, axis 1.
    ///
    /// ```
    /// use tiled_geometry::{Interval, Region};
    /// assert_eq!(Region::whole([4, 5]).cols(), Interval::new(0, 5));
    /// ```
    #[must_use]
    pub const fn cols(self) -> Interval {
        self.axes[1]
    }
}

impl<const N: usize> Default for Region<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> std::fmt::Debug for Region<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> std::fmt::Display for Region<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, axis) in self.axes.iter().enumerate() {
            if i > 0 {
                write!(f, "×")?;
            }
            write!(f, "{axis}")?;
        }
        Ok(())
    }
}
