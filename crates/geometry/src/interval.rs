//! A half-open interval of coordinates along one axis.

/// The largest magnitude of a coordinate that maps accept, `2^40`; it leaves room for the products inside.
pub const MAX_COORDINATE: i64 = 1 << 40;

/// The coordinates `begin <= x < end` of one axis. There is one empty interval, `[0, 0)`.
///
/// ```
/// use tiled_geometry::Interval;
/// let a = Interval::new(-1, 4);
/// assert_eq!(a.len(), 5);
/// assert_eq!(a.intersect(Interval::new(0, 9)), Interval::new(0, 4));
/// assert_eq!(Interval::new(7, 3), Interval::EMPTY);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    begin: i64,
    end: i64,
}

impl Interval {
    /// The one empty interval.
    pub const EMPTY: Self = Self { begin: 0, end: 0 };

    /// The interval `[begin, end)`, or [`Interval::EMPTY`] where `end <= begin`.
    #[must_use]
    pub const fn new(begin: i64, end: i64) -> Self {
        if end <= begin { Self::EMPTY } else { Self { begin, end } }
    }

    /// The interval `[0, extent)`: a whole axis.
    #[must_use]
    pub const fn whole(extent: i64) -> Self {
        Self::new(0, extent)
    }

    /// The first coordinate.
    #[must_use]
    pub const fn begin(self) -> i64 {
        self.begin
    }

    /// The coordinate after the last one.
    #[must_use]
    pub const fn end(self) -> i64 {
        self.end
    }

    /// The number of coordinates.
    #[must_use]
    pub const fn len(self) -> i64 {
        self.end - self.begin
    }

    /// Whether there is no coordinate in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end == self.begin
    }

    /// Whether `x` lies in it.
    #[must_use]
    pub const fn contains(self, x: i64) -> bool {
        self.begin <= x && x < self.end
    }

    /// Whether every coordinate of `other` lies in it; the empty interval lies in every one.
    #[must_use]
    pub const fn contains_interval(self, other: Self) -> bool {
        other.is_empty() || (self.begin <= other.begin && other.end <= self.end)
    }

    /// The coordinates in both.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.begin.max(other.begin), self.end.min(other.end))
    }

    /// The smallest interval that contains both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        if self.is_empty() {
            other
        } else if other.is_empty() {
            self
        } else {
            Self::new(self.begin.min(other.begin), self.end.max(other.end))
        }
    }

    /// The part of it before `other` begins and the part after `other` ends, as lengths.
    ///
    /// These are the amounts that clipping to `other` removes. Both are zero where either is empty.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::new(-1, 11).excess(Interval::whole(16)), (1, 0));
    /// ```
    #[must_use]
    pub fn excess(self, other: Self) -> (i64, i64) {
        if self.is_empty() || other.is_empty() {
            return (0, 0);
        }
        ((other.begin - self.begin).max(0), (self.end - other.end).max(0))
    }
}

impl std::fmt::Debug for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{},{})", self.begin, self.end)
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{},{})", self.begin, self.end)
    }
}
