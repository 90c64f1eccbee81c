//! Padding along one axis with values taken from the tensor itself.

use crate::{GeometryError, Interval};

/// Where the values of the padding come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PadMode {
    /// The tensor mirrored at its first and last coordinate, which are not repeated.
    Reflect,
    /// The first and the last coordinate, repeated.
    Replicate,
}

/// Padding of an axis of `extent` coordinates: padded coordinate `o` is input `o − before`, folded back inside.
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
    /// Where the extent is not positive, a side is negative or above [`crate::MAX_WINDOW`], or reflection reaches past the tensor.
    pub const fn new(mode: PadMode, extent: i64, before: i64, after: i64) -> Result<Self, GeometryError> {
        if extent < 1 {
            return Err(GeometryError::NotPositive { what: "input extent", got: extent });
        }
        let sides = [before, after];
        let mut i = 0;
        while i < 2 {
            if sides[i] < 0 {
                return Err(GeometryError::NotPositive { what: "padding", got: sides[i] });
            }
            if sides[i] > crate::MAX_WINDOW {
                return Err(GeometryError::TooLarge {
                    what: "padding",
                    got: sides[i],
                    max: crate::MAX_WINDOW,
                });
            }
            if matches!(mode, PadMode::Reflect) && sides[i] >= extent {
                return Err(GeometryError::ReflectTooWide { padding: sides[i], extent });
            }
            i += 1;
        }
        Ok(Self { mode, extent, before, after })
    }

    /// Where the values come from.
    #[must_use]
    pub const fn mode(self) -> PadMode {
        self.mode
    }

    /// The padding before the first coordinate.
    #[must_use]
    pub const fn before(self) -> i64 {
        self.before
    }

    /// The padding after the last coordinate.
    #[must_use]
    pub const fn after(self) -> i64 {
        self.after
    }

    /// The extent before padding.
    #[must_use]
    pub const fn input(self) -> i64 {
        self.extent
    }

    /// The extent after padding.
    #[must_use]
    pub const fn output(self) -> i64 {
        self.extent + self.before + self.after
    }

    /// The input that padded coordinate `o` shows.
    #[must_use]
    pub fn source(self, o: i64) -> i64 {
        let x = o - self.before;
        match self.mode {
            PadMode::Replicate => x.clamp(0, self.extent - 1),
            PadMode::Reflect if x < 0 => -x,
            PadMode::Reflect if x >= self.extent => 2 * (self.extent - 1) - x,
            PadMode::Reflect => x,
        }
    }

    /// Inputs that the padded coordinates `[a,b)` show (their hull); coordinates outside are ignored.
    #[must_use]
    pub fn needed(self, outputs: Interval) -> Interval {
        let outputs = outputs.intersect(Interval::whole(self.output()));
        // monotone on each of the three pieces, so the ends of a piece bound it
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
        };
        inside.hull(folded_before).hull(folded_after)
    }

    fn pieces(self) -> [Interval; 3] {
        let inside = self.before + self.extent;
        [
            Interval::new(0, self.before),
            Interval::new(self.before, inside),
            Interval::new(inside, self.output()),
        ]
    }
}
