//! The map of one edge of a graph along one axis: from the region wanted to the region needed.

use crate::{Interval, Padding, Resize, Window};

/// From the coordinates of a result that are wanted to the coordinates of an operand that they need.
///
/// [`AxisMap::adjoint`] is the map of the gradient: it goes from coordinates of the operand's gradient to the
/// coordinates of the result's gradient that reach them.
///
/// Law: where `reads(y, x)` says that `y` reads `x` (for a window: that its span holds `x`), `needed(Y)` is
/// the hull of all `x` that some `y` in `Y` reads, and the adjoint's `needed(X)` is the hull of all `y` that
/// read some `x` in `X`. Upsampling and transposed convolution swap `receptive` and `touched`.
///
/// ```
/// use tiled_geometry::{AxisMap, Interval, Window};
/// let conv = AxisMap::Window(Window::new(3, 2, 1, 1)?);
/// assert_eq!(conv.needed(Interval::new(2, 4)), Interval::new(3, 8));
/// // the gradient of the inputs [3,8) is reached by the outputs [1,5)
/// let gradient = conv.adjoint().expect("a window has an adjoint");
/// assert_eq!(gradient.needed(Interval::new(3, 8)), Interval::new(1, 5));
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum AxisMap {
    /// Every coordinate needs itself.
    Identity,
    /// A window reads its receptive field.
    Window(Window),
    /// A coordinate needs every output whose span holds it: gradients and transposed convolution.
    Touched(Window),
    /// Interpolation reads its taps.
    Resize(Resize),
    /// The gradient of interpolation.
    ResizeTouched(Resize),
    /// Padding shows an input.
    Padding(Padding),
    /// The gradient of padding.
    PaddingTouched(Padding),
    /// Every coordinate needs all of an axis of this extent (one: a value for the whole image).
    Whole(i64),
}

impl AxisMap {
    /// The coordinates needed for the coordinates `wanted`, before clipping.
    ///
    /// Law: monotone, `A ⊆ B ⇒ needed(A) ⊆ needed(B)`; empty needs empty.
    ///
    /// # Panics
    /// Where a window is given a coordinate larger in magnitude than [`crate::MAX_COORDINATE`].
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Interval};
    /// assert_eq!(AxisMap::Identity.needed(Interval::new(2, 4)), Interval::new(2, 4));
    /// assert_eq!(AxisMap::Whole(9).needed(Interval::new(2, 4)), Interval::new(0, 9));
    /// assert_eq!(AxisMap::Whole(9).needed(Interval::EMPTY), Interval::EMPTY);
    /// ```
    #[must_use]
    pub fn needed(self, wanted: Interval) -> Interval {
        if wanted.is_empty() {
            return Interval::EMPTY;
        }
        match self {
            Self::Identity => wanted,
            Self::Window(window) => window.receptive(wanted),
            Self::Touched(window) => window.touched(wanted),
            Self::Resize(resize) => resize.needed(wanted),
            Self::ResizeTouched(resize) => resize.touched(wanted),
            Self::Padding(padding) => padding.needed(wanted),
            Self::PaddingTouched(padding) => padding.touched(wanted),
            Self::Whole(extent) => Interval::whole(extent),
        }
    }

    /// The map of the gradient with respect to the operand; `None` for [`AxisMap::Whole`], whose gradient
    /// needs a reduction over the image.
    ///
    /// Law: the adjoint of the adjoint is the map itself.
    ///
    /// ```
    /// use tiled_geometry::{AxisMap, Window};
    /// let window = Window::new(3, 2, 1, 1)?;
    /// assert_eq!(AxisMap::Window(window).adjoint(), Some(AxisMap::Touched(window)));
    /// assert_eq!(AxisMap::Whole(9).adjoint(), None);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub const fn adjoint(self) -> Option<Self> {
        Some(match self {
            Self::Identity => Self::Identity,
            Self::Window(window) => Self::Touched(window),
            Self::Touched(window) => Self::Window(window),
            Self::Resize(resize) => Self::ResizeTouched(resize),
            Self::ResizeTouched(resize) => Self::Resize(resize),
            Self::Padding(padding) => Self::PaddingTouched(padding),
            Self::PaddingTouched(padding) => Self::Padding(padding),
            Self::Whole(_) => return None,
        })
    }
}
