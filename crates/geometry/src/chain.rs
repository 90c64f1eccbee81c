//! A chain of windows along one axis, folded into one.

use crate::{GeometryError, Interval, Window};

/// A sequence of windows along one axis, in the order of the data flow.
///
/// ```text
/// inputs   ├──────────┤   receptive: walk back from the outputs
///   conv     ├──────┤
///   pool      ├────┤
/// outputs      ├──┤       touched, computable: walk on from the inputs
/// ```
///
/// Law: composition of windows equals folding them, and is associative.
///
/// Law: clip at the image border only, and pad each operator there by itself. A tile's edge is never padded: a
/// tap of a tile is padding exactly if it is padding in the whole, at every layer. So a chain says which inputs
/// a tile reads and how many zeros the whole run sees; code that computes clips between the windows too.
///
/// ```
/// use tiled_geometry::{Chain, Interval, Window};
/// let (conv, pool) = (Window::new(3, 1, 1, 1)?, Window::new(2, 2, 1, 0)?);
/// let chain = Chain::new([conv, pool, conv, pool])?;
/// assert_eq!(chain.receptive(Interval::new(0, 2)), Interval::new(-3, 11));
/// assert_eq!(chain.touched(Interval::new(0, 4)), Interval::new(-1, 2));
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    windows: Vec<Window>,
    composed: Window,
}

impl Chain {
    /// The chain of these windows, first operator first.
    ///
    /// # Errors
    /// Where the composed window leaves the range of [`Window::then`].
    ///
    /// ```
    /// use tiled_geometry::{Chain, GeometryError, Window};
    /// let wide = Window::new(1, 1 << 20, 1, 0)?;
    /// assert_eq!(Chain::new([wide, wide]), Err(GeometryError::Overflow));
    /// # Ok::<(), GeometryError>(())
    /// ```
    pub fn new(windows: impl IntoIterator<Item = Window>) -> Result<Self, GeometryError> {
        let windows: Vec<Window> = windows.into_iter().collect();
        let composed = windows.iter().try_fold(Window::IDENTITY, |chain, window| chain.then(*window))?;
        Ok(Self { windows, composed })
    }

    /// The windows, first operator first.
    ///
    /// ```
    /// use tiled_geometry::{Chain, Window};
    /// let conv = Window::new(3, 1, 1, 1)?;
    /// assert_eq!(Chain::new([conv, conv])?.windows(), [conv, conv]);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The whole chain as one window.
    ///
    /// ```
    /// use tiled_geometry::{Chain, Window};
    /// let conv = Window::new(3, 1, 1, 1)?;
    /// assert_eq!(Chain::new([conv, conv, conv])?.composed(), Window::new(7, 1, 1, 3)?);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub const fn composed(&self) -> Window {
        self.composed
    }

    /// Inputs of the chain that its outputs `[a,b)` read, before clipping.
    ///
    /// Law: equals `composed().receptive`, and is the smallest interval that holds every input from which a
    /// path of taps leads to `[a,b)`.
    ///
    /// # Panics
    /// Where a coordinate, also between two windows, is larger in magnitude than [`crate::MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Chain, Interval, Window};
    /// let conv = Window::new(3, 1, 1, 1)?;
    /// assert_eq!(Chain::new([conv; 3])?.receptive(Interval::new(0, 24)), Interval::new(-3, 27));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn receptive(&self, outputs: Interval) -> Interval {
        self.windows.iter().rev().fold(outputs, |wanted, window| window.receptive(wanted))
    }

    /// Outputs of the chain that read any of its inputs `[a,b)`, before clipping.
    ///
    /// Law: where it is not empty, equals `composed().touched`, and always lies in it (a stride larger than
    /// its kernel leaves inputs that nothing reads, which composing forgets). Without dilation it is exactly
    /// the outputs to which a path of taps leads from `[a,b)`.
    ///
    /// # Panics
    /// Where a coordinate, also between two windows, is larger in magnitude than [`crate::MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Chain, Interval, Window};
    /// let conv = Window::new(3, 1, 1, 1)?;
    /// assert_eq!(Chain::new([conv; 3])?.touched(Interval::new(16, 32)), Interval::new(13, 35));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn touched(&self, inputs: Interval) -> Interval {
        self.windows.iter().fold(inputs, |wanted, window| window.touched(wanted))
    }

    /// Outputs of the chain that its inputs `[a,b)` suffice for.
    ///
    /// Law: equals `composed().computable`.
    /// Law (Galois pair): `receptive(O) ⊆ I ⇔ O ⊆ computable(I)`.
    ///
    /// # Panics
    /// Where a coordinate, also between two windows, is larger in magnitude than [`crate::MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{Chain, Interval, Window};
    /// let conv = Window::new(3, 1, 1, 1)?;
    /// assert_eq!(Chain::new([conv; 3])?.computable(Interval::new(-3, 27)), Interval::new(0, 24));
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn computable(&self, inputs: Interval) -> Interval {
        self.windows.iter().fold(inputs, |given, window| window.computable(given))
    }
}
