//! The map of one edge of a graph along one axis: from the region wanted to the region needed.

use crate::{Interval, Padding, Resize, Window};

/// From the coordinates of a result that are wanted to the coordinates of an operand that they need.
///
/// [`AxisMap::adjoint`] is the map of the gradient: it goes from coordinates of the operand's gradient to the
/// coordinates of the result's gradient that reach them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum AxisMap {
    /// Every coordinate needs itself.
    Identity,
    /// A window reads its receptive field.
    Window(Window),
    /// A coordinate needs every output whose window touches it: gradients and transposed convolution.
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
    /// Monotone: more wanted never needs less. Empty needs empty.
    ///
    /// # Panics
    /// Where a coordinate is larger in magnitude than [`crate::MAX_COORDINATE`].
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
