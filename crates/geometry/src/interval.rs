//! A half-open interval of coordinates along one axis.

/// The largest magnitude of a coordinate that maps accept, `2^40`; it leaves room for the products inside.
pub const MAX_COORDINATE: i64 = 1 << 40;

/// The coordinates `begin <= x < end` of one axis. There is one empty interval, `[0, 0)`.
///
/// Law: an empty interval is one value.
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
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::EMPTY, Interval::new(5, 5));
    /// assert_eq!(Interval::EMPTY, Interval::default());
    /// ```
    pub const EMPTY: Self = Self { begin: 0, end: 0 };

    /// The interval `[begin, end)`, or [`Interval::EMPTY`] where `end <= begin`.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::new(2, 5).to_string(), "[2,5)");
    /// assert_eq!(Interval::new(5, 2).to_string(), "[0,0)");
    /// ```
    #[must_use]
    pub const fn new(begin: i64, end: i64) -> Self {
        if end <= begin { Self::EMPTY } else { Self { begin, end } }
    }

    /// The interval `[0, extent)`: a whole axis.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::whole(16), Interval::new(0, 16));
    /// ```
    #[must_use]
    pub const fn whole(extent: i64) -> Self {
        Self::new(0, extent)
    }

    /// The first coordinate; zero where empty.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Interval::new(-1, 4).begin(), -1);
    /// ```
    #[must_use]
    pub const fn begin(self) -> i64 {
        self.begin
    }

    /// The coordinate after the last one; zero where empty.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Interval::new(-1, 4).end(), 4);
    /// ```
    #[must_use]
    pub const fn end(self) -> i64 {
        self.end
    }

    /// The number of coordinates, `end − begin`.
    ///
    /// # Panics
    /// Where the number leaves `i64`, which no map of coordinates within [`MAX_COORDINATE`] produces.
    ///
    /// ```
    /// assert_eq!(tiled_geometry::Interval::new(-1, 4).len(), 5);
    /// ```
    #[must_use]
    pub const fn len(self) -> i64 {
        distance(self.begin, self.end)
    }

    /// Whether there is no coordinate in it.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert!(Interval::new(4, 4).is_empty());
    /// assert!(!Interval::new(4, 5).is_empty());
    /// ```
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end == self.begin
    }

    /// Whether `x` lies in it.
    ///
    /// ```
    /// let a = tiled_geometry::Interval::new(2, 5);
    /// assert!(a.contains(2) && a.contains(4) && !a.contains(5));
    /// ```
    #[must_use]
    pub const fn contains(self, x: i64) -> bool {
        self.begin <= x && x < self.end
    }

    /// Whether every coordinate of `other` lies in it; the empty interval lies in every one.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert!(Interval::new(2, 5).contains_interval(Interval::new(3, 5)));
    /// assert!(Interval::new(2, 5).contains_interval(Interval::EMPTY));
    /// assert!(!Interval::new(2, 5).contains_interval(Interval::new(3, 6)));
    /// ```
    #[must_use]
    pub const fn contains_interval(self, other: Self) -> bool {
        other.is_empty() || (self.begin <= other.begin && other.end <= self.end)
    }

    /// The coordinates in both, `[max(a,c), min(b,d))`.
    ///
    /// Law: `x` lies in the intersection exactly if it lies in both.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::new(0, 4).intersect(Interval::new(2, 9)), Interval::new(2, 4));
    /// assert_eq!(Interval::new(0, 4).intersect(Interval::new(4, 9)), Interval::EMPTY);
    /// ```
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.begin.max(other.begin), self.end.min(other.end))
    }

    /// The smallest interval that contains both, `[min(a,c), max(b,d))` where neither is empty.
    ///
    /// Law: an interval contains the hull exactly if it contains both.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::new(5, 6).hull(Interval::new(8, 9)), Interval::new(5, 9));
    /// assert_eq!(Interval::new(5, 6).hull(Interval::EMPTY), Interval::new(5, 6));
    /// ```
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

    /// The smallest interval that contains it and begins and ends at multiples of `step`.
    ///
    /// Law: it contains the interval, is its own, and `aligned(hull(a, b)) = hull(aligned(a), aligned(b))`.
    ///
    /// # Panics
    /// Where `step` is not positive, or a multiple leaves `i64`.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::new(-1, 9).aligned(4), Interval::new(-4, 12));
    /// assert_eq!(Interval::EMPTY.aligned(4), Interval::EMPTY);
    /// ```
    #[must_use]
    pub const fn aligned(self, step: i64) -> Self {
        if self.is_empty() {
            return Self::EMPTY;
        }
        let begin = crate::div_floor(self.begin, step).checked_mul(step);
        let end = crate::div_ceil(self.end, step).checked_mul(step);
        match (begin, end) {
            (Some(begin), Some(end)) => Self::new(begin, end),
            _ => panic!("a multiple of the step leaves i64"),
        }
    }

    /// The number of its coordinates before `other` begins and the number after `other` ends.
    ///
    /// These are the amounts that clipping to `other` removes: the padding that the region wants there.
    ///
    /// Law: `len = intersect(other).len + before + after` for `other` not empty; both are zero where
    /// either is empty.
    ///
    /// # Panics
    /// Where an amount leaves `i64`, which no map of coordinates within [`MAX_COORDINATE`] produces.
    ///
    /// ```
    /// use tiled_geometry::Interval;
    /// assert_eq!(Interval::new(-1, 11).excess(Interval::whole(16)), (1, 0));
    /// assert_eq!(Interval::new(20, 30).excess(Interval::whole(16)), (0, 10));
    /// ```
    #[must_use]
    pub fn excess(self, other: Self) -> (i64, i64) {
        if self.is_empty() || other.is_empty() {
            return (0, 0);
        }
        let before = Self::new(self.begin, self.end.min(other.begin));
        let after = Self::new(self.begin.max(other.end), self.end);
        (before.len(), after.len())
    }
}

impl std::fmt::Debug for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{},{})", self.begin, self.end)
    }
}

const fn distance(begin: i64, end: i64) -> i64 {
    end.checked_sub(begin).expect("interval is longer than 2^63 - 1")
}
