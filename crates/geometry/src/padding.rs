//! Padding along one axis with values taken from the tensor itself.

use crate::error::{Least, check_size};
use crate::{GeometryError, Interval, MAX_COORDINATE, MAX_WINDOW};

/// Where the values of the padding come from.
///
/// ```
/// use tiled_geometry::{PadMode, Padding};
/// let shown = |mode| {
///     let padding = Padding::new(mode, 4, 2, 1).unwrap();
///     (0..7).map(|o| padding.source(o)).collect::<Vec<_>>()
/// };
/// assert_eq!(shown(PadMode::Reflect), [2, 1, 0, 1, 2, 3, 2]);
/// assert_eq!(shown(PadMode::Replicate), [0, 0, 0, 1, 2, 3, 3]);
/// assert_eq!(shown(PadMode::Circular), [2, 3, 0, 1, 2, 3, 0]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PadMode {
    /// The tensor mirrored at its first and last coordinate, which are not repeated.
    Reflect,
    /// The first and the last coordinate, repeated.
    Replicate,
    /// The other end of the tensor, as if it were a ring. The hull of what a tile at one end needs is the whole axis.
    Circular,
}

/// Padding of an axis of `extent` coordinates: padded coordinate `o` is input `o − before`, folded back inside.
///
/// Law: [`Padding::needed`] and [`Padding::touched`] are the exact hulls of what [`Padding::source`] relates.
///
/// ```
/// use tiled_geometry::{Interval, PadMode, Padding};
/// let mirror = Padding::new(PadMode::Reflect, 8, 3, 3)?;
/// assert_eq!(mirror.needed(Interval::new(0, 2)), Interval::new(2, 4));
/// assert_eq!(mirror.touched(Interval::new(2, 3)), Interval::new(1, 6));
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
///
/// Source: PyTorch, `torch.nn.functional.pad`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Padding {
    mode: PadMode,
    extent: i64,
    before: i64,
    after: i64,
}

impl Padding {
    /// Padding of `before` and `after` coordinates around `extent`.
    ///
    /// # Errors
    /// Where the extent is not positive or above [`MAX_COORDINATE`], a side is negative or above
    /// [`MAX_WINDOW`], or reflection or a ring reaches past the tensor.
    ///
    /// ```
    /// use tiled_geometry::{GeometryError, PadMode, Padding};
    /// assert!(Padding::new(PadMode::Reflect, 4, 3, 0).is_ok());
    /// assert_eq!(
    ///     Padding::new(PadMode::Reflect, 4, 4, 0),
    ///     Err(GeometryError::ReflectTooWide { padding: 4, extent: 4 }),
    /// );
    /// assert!(Padding::new(PadMode::Replicate, 4, 9, 0).is_ok());
    /// assert!(Padding::new(PadMode::Circular, 4, 4, 0).is_ok());
    /// assert_eq!(
    ///     Padding::new(PadMode::Circular, 4, 5, 0),
    ///     Err(GeometryError::CircularTooWide { padding: 5, extent: 4 }),
    /// );
    /// ```
    pub const fn new(mode: PadMode, extent: i64, before: i64, after: i64) -> Result<Self, GeometryError> {
        if let Err(error) = check_size("input extent", extent, Least::One, MAX_COORDINATE) {
            return Err(error);
        }
        let sides = [before, after];
        let mut i = 0;
        while i < 2 {
            if let Err(error) = check_size("padding", sides[i], Least::Zero, MAX_WINDOW) {
                return Err(error);
            }
            if matches!(mode, PadMode::Reflect) && sides[i] >= extent {
                return Err(GeometryError::ReflectTooWide { padding: sides[i], extent });
            }
            if matches!(mode, PadMode::Circular) && sides[i] > extent {
                return Err(GeometryError::CircularTooWide { padding: sides[i], extent });
            }
            i += 1;
        }
        Ok(Self { mode, extent, before, after })
    }

    /// Where the values come from.
    ///
    /// ```
    /// use tiled_geometry::{PadMode, Padding};
    /// assert_eq!(Padding::new(PadMode::Reflect, 8, 3, 2).unwrap().mode(), PadMode::Reflect);
    /// ```
    #[must_use]
    pub const fn mode(self) -> PadMode {
        self.mode
    }

    /// The padding before the first coordinate.
    ///
    /// ```
    /// use tiled_geometry::{PadMode, Padding};
    /// assert_eq!(Padding::new(PadMode::Reflect, 8, 3, 2).unwrap().before(), 3);
    /// ```
    #[must_use]
    pub const fn before(self) -> i64 {
        self.before
    }

    /// The padding after the last coordinate.
    ///
    /// ```
    /// use tiled_geometry::{PadMode, Padding};
    /// assert_eq!(Padding::new(PadMode::Reflect, 8, 3, 2).unwrap().after(), 2);
    /// ```
    #[must_use]
    pub const fn after(self) -> i64 {
        self.after
    }

    /// The extent before padding.
    ///
    /// ```
    /// use tiled_geometry::{PadMode, Padding};
    /// assert_eq!(Padding::new(PadMode::Reflect, 8, 3, 2).unwrap().input(), 8);
    /// ```
    #[must_use]
    pub const fn input(self) -> i64 {
        self.extent
    }

    /// The extent after padding, `before + extent + after`.
    ///
    /// ```
    /// use tiled_geometry::{PadMode, Padding};
    /// assert_eq!(Padding::new(PadMode::Reflect, 8, 3, 2).unwrap().output(), 13);
    /// ```
    #[must_use]
    pub const fn output(self) -> i64 {
        self.extent + self.before + self.after
    }

    /// The input that padded coordinate `o` shows.
    ///
    /// With `x = o − before` and n the extent: replicate `min(max(x, 0), n − 1)`; reflect `−x` before the
    /// tensor, `2·(n − 1) − x` behind it, and `x` inside; circular `x mod n`.
    ///
    /// # Panics
    /// Where `o` is not a padded coordinate.
    ///
    /// ```
    /// use tiled_geometry::{PadMode, Padding};
    /// let mirror = Padding::new(PadMode::Reflect, 8, 3, 2).unwrap();
    /// assert_eq!((mirror.source(0), mirror.source(3), mirror.source(12)), (3, 0, 5));
    /// ```
    #[must_use]
    pub fn source(self, o: i64) -> i64 {
        assert!((0..self.output()).contains(&o), "padded coordinate {o} of {}", self.output());
        let x = o - self.before;
        match self.mode {
            PadMode::Replicate => x.clamp(0, self.extent - 1),
            PadMode::Reflect if x < 0 => -x,
            PadMode::Reflect if x >= self.extent => 2 * (self.extent - 1) - x,
            PadMode::Reflect => x,
            PadMode::Circular => x.rem_euclid(self.extent),
        }
    }

    /// Inputs that the padded coordinates `[a,b)` show (their hull); coordinates outside are ignored.
    ///
    /// The source is monotone before, inside and behind the tensor, so that the two ends of each part of
    /// `[a,b)` bound it.
    ///
    /// Law: the smallest interval that holds `source(o)` for every `o` in `[a,b)`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, PadMode, Padding};
    /// let mirror = Padding::new(PadMode::Reflect, 8, 3, 2)?;
    /// assert_eq!(mirror.needed(Interval::new(1, 5)), Interval::new(0, 3));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn needed(self, outputs: Interval) -> Interval {
        let outputs = outputs.intersect(Interval::whole(self.output()));
        self.pieces().iter().fold(Interval::EMPTY, |hull, piece| {
            let part = outputs.intersect(*piece);
            if part.is_empty() {
                return hull;
            }
            let (a, b) = (self.source(part.begin()), self.source(part.end() - 1));
            hull.hull(Interval::new(a.min(b), a.max(b) + 1))
        })
    }

    /// Padded coordinates that show any of the inputs `[a,b)` (their hull); inputs outside are ignored.
    ///
    /// `[a + before, b + before)`, with its mirror images (reflect), its copies (circular) or the whole padding of a side whose
    /// last coordinate is among the inputs (replicate).
    ///
    /// Law: the smallest interval that holds every `o` whose `source(o)` lies in `[a,b)`.
    ///
    /// ```
    /// use tiled_geometry::{Interval, PadMode, Padding};
    /// let edge = Padding::new(PadMode::Replicate, 8, 3, 2)?;
    /// assert_eq!(edge.touched(Interval::new(0, 1)), Interval::new(0, 4));
    /// assert_eq!(edge.touched(Interval::new(1, 8)), Interval::new(4, 13));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn touched(self, inputs: Interval) -> Interval {
        let inputs = inputs.intersect(Interval::whole(self.extent));
        if inputs.is_empty() {
            return Interval::EMPTY;
        }
        let (a, b) = (inputs.begin(), inputs.end());
        let inside = Interval::new(a + self.before, b + self.before);
        let [head, _, tail] = self.pieces();
        let (folded_before, folded_after) = match self.mode {
            PadMode::Replicate => (
                if a == 0 { head } else { Interval::EMPTY },
                if b == self.extent { tail } else { Interval::EMPTY },
            ),
            PadMode::Reflect => {
                let mirror = 2 * (self.extent - 1);
                (
                    Interval::new(self.before - b + 1, self.before - a + 1).intersect(head),
                    Interval::new(mirror - b + 1 + self.before, mirror - a + 1 + self.before).intersect(tail),
                )
            }
            PadMode::Circular => {
                let copy = |turn: i64| Interval::new(inside.begin() + turn, inside.end() + turn);
                (copy(-self.extent).intersect(head), copy(self.extent).intersect(tail))
            }
        };
        inside.hull(folded_before).hull(folded_after)
    }

    /// The padded coordinates before, inside and behind the tensor.
    fn pieces(self) -> [Interval; 3] {
        let inside = self.before + self.extent;
        [
            Interval::new(0, self.before),
            Interval::new(self.before, inside),
            Interval::new(inside, self.output()),
        ]
    }
}
