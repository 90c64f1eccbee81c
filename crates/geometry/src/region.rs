//! A box of coordinates: one interval per axis.

use crate::Interval;

/// One [`Interval`] per axis, rows before columns in two dimensions.
///
/// A region with one empty axis holds no point; [`Region::EMPTY`] is its only representation.
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
    pub const EMPTY: Self = Self { axes: [Interval::EMPTY; N] };

    /// The region with these intervals, or [`Region::EMPTY`] where one of them is empty.
    #[must_use]
    pub fn new(axes: [Interval; N]) -> Self {
        if axes.iter().any(|axis| axis.is_empty()) { Self::EMPTY } else { Self { axes } }
    }

    /// The region `[0, extent)` on every axis: a whole tensor.
    #[must_use]
    pub fn whole(extents: [i64; N]) -> Self {
        Self::new(extents.map(Interval::whole))
    }

    /// The interval of one axis.
    ///
    /// # Panics
    /// Where `index` is not below `N`.
    #[must_use]
    pub const fn axis(self, index: usize) -> Interval {
        self.axes[index]
    }

    /// All intervals.
    #[must_use]
    pub const fn axes(self) -> [Interval; N] {
        self.axes
    }

    /// Whether it holds no point.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.axes.iter().any(|axis| axis.is_empty())
    }

    /// The number of points.
    ///
    /// # Panics
    /// Where the number leaves `i64`; cannot happen for regions inside a tensor whose size was checked.
    #[must_use]
    pub fn volume(self) -> i64 {
        self.axes
            .iter()
            .try_fold(1_i64, |product, axis| product.checked_mul(axis.len()))
            .expect("invariant: regions lie inside tensors whose element count fits 64 bits")
    }

    /// The points in both.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(std::array::from_fn(|i| self.axes[i].intersect(other.axes[i])))
    }

    /// The smallest region that contains both.
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
    #[must_use]
    pub fn contains_region(self, other: Self) -> bool {
        other.is_empty() || (0..N).all(|i| self.axes[i].contains_interval(other.axes[i]))
    }

    /// The same region with another interval on one axis.
    ///
    /// # Panics
    /// Where `index` is not below `N`.
    #[must_use]
    pub fn with_axis(self, index: usize, interval: Interval) -> Self {
        let mut axes = self.axes;
        axes[index] = interval;
        Self::new(axes)
    }
}

impl Region<2> {
    /// The region of these rows and columns.
    #[must_use]
    pub fn from_rows_cols(rows: Interval, cols: Interval) -> Self {
        Self::new([rows, cols])
    }

    /// The interval of rows, axis 0.
    #[must_use]
    pub const fn rows(self) -> Interval {
        self.axes[0]
    }

    /// The interval of columns, axis 1.
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
