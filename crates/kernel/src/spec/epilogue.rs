//! What follows the sum of a convolution in the same call.

use super::Activation;

/// What follows the sums of a convolution or of the gradient for its input, in the order of the fields. Each step rounds as a
/// kernel of its own would, and the values between are neither written nor read.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Epilogue {
    /// Whether a bias for each channel is added.
    pub bias: bool,
    /// Whether the value is multiplied by `a[c]` and `b[c]` is added, as by [`crate::Kernel::ChannelAffine`].
    pub affine: bool,
    /// Whether a tensor of the shape of the output is added, as by [`crate::Kernel::Add`].
    pub sum: bool,
    /// What is applied to the result.
    pub activation: Option<Activation>,
    /// Whose derivative the result is multiplied by, as by [`crate::Kernel::ActivationBackward`]. What that saved is the last input.
    pub mask: Option<Activation>,
}

impl Epilogue {
    /// Nothing follows.
    pub const NONE: Self = Self { bias: false, affine: false, sum: false, activation: None, mask: None };

    /// A bias alone, where there is one.
    #[must_use]
    pub const fn of_bias(bias: bool) -> Self {
        Self { bias, ..Self::NONE }
    }

    /// The same with a function of the result.
    #[must_use]
    pub const fn with_activation(self, activation: Option<Activation>) -> Self {
        Self { activation, ..self }
    }

    /// Whether there is more than a bias and a function of one element.
    #[must_use]
    pub const fn has_operands(&self) -> bool {
        self.affine || self.sum || self.mask.is_some()
    }

    /// The bias alone: what the sums themselves begin with.
    #[must_use]
    pub const fn bias_alone(&self) -> Self {
        Self::of_bias(self.bias)
    }

    /// Floating-point operations for one element beside those of the sums.
    pub(super) const fn flops_per_element(&self) -> f64 {
        let affine = if self.affine { 2.0 } else { 0.0 };
        affine + if self.sum { 1.0 } else { 0.0 } + if self.mask.is_some() { 1.0 } else { 0.0 }
    }
}
