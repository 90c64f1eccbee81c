//! What a kernel reads beside its inputs.

use tiled_tensor::Element;

use crate::Extremum;

/// The parameters of a kernel in [`crate::Host::compute`].
#[derive(Clone, Copy, Debug)]
pub enum Params<'p, T> {
    /// Vectors as [`crate::Host::pack`] has arranged them; empty for most.
    Packed(&'p [T]),
    /// What [`crate::Reduction::ImageMax`] has found in each image and channel ([`crate::Kernel::Scatter`]).
    Extrema(&'p [Extremum<T>]),
}

impl<'p, T: Element> Params<'p, T> {
    /// The packed vectors.
    ///
    /// # Panics
    /// Where there are extrema.
    #[must_use]
    pub fn packed(self) -> &'p [T] {
        match self {
            Self::Packed(packed) => packed,
            Self::Extrema(_) => panic!("invariant: this kernel reads vectors"),
        }
    }

    /// The extrema.
    ///
    /// # Panics
    /// Where there are packed vectors.
    #[must_use]
    pub fn extrema(self) -> &'p [Extremum<T>] {
        match self {
            Self::Extrema(extrema) => extrema,
            Self::Packed(_) => panic!("invariant: this kernel reads extrema"),
        }
    }
}
