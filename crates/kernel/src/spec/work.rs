//! What a call does, as data.

use super::{Kernel, Reduction};

/// What one call of a backend does: a region of an output from regions of inputs, or a share of inputs into a few numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Work {
    /// Computes a region.
    Map(Kernel),
    /// Takes in a share.
    Reduce(Reduction),
}

impl Work {
    /// The name, as it stands in plans and messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Map(kernel) => kernel.name(),
            Self::Reduce(reduction) => reduction.name(),
        }
    }

    /// Floating-point operations for one element of the output or the domain (a multiply-add counts two), borders ignored.
    #[must_use]
    pub fn flops_per_element(&self) -> f64 {
        match self {
            Self::Map(kernel) => kernel.flops_per_element(),
            Self::Reduce(reduction) => reduction.flops_per_element(),
        }
    }

    /// Whether it is a convolution or one of its gradients, which arithmetic bounds.
    #[must_use]
    pub const fn is_convolution(&self) -> bool {
        matches!(
            self,
            Self::Map(Kernel::Conv2d { .. } | Kernel::Conv2dBackwardInput { .. })
                | Self::Reduce(Reduction::ConvWeight(_))
        )
    }

    /// The elements of weights that each call reads anew.
    #[must_use]
    pub fn weights(&self) -> usize {
        match self {
            Self::Map(Kernel::Conv2d { conv, algorithm, .. }) => conv.weight_len() * algorithm.expansion(),
            Self::Map(Kernel::Conv2dBackwardInput { conv, .. }) => conv.weight_len(),
            _ => 0,
        }
    }
}

/// The values that a [`Work`] takes and gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operands<'o> {
    /// Images.
    pub batch: usize,
    /// The channels of each input.
    pub inputs: &'o [usize],
    /// The lengths of the parameters.
    pub params: &'o [usize],
    /// The channels of the output, or of the domain of a reduction.
    pub channels: usize,
}
