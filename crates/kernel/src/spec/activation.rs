//! Functions of one element.

/// A function applied to every element, named as in `torch.nn.functional`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Activation {
    /// `max(x, 0)`; NaN stays NaN.
    Relu,
    /// `x` where `x > 0`, else `slope·x`.
    LeakyRelu {
        /// The slope for negative values.
        slope: f64,
    },
    /// `1 / (1 + e^(−x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x · sigmoid(x)`.
    Silu,
    /// `x · Φ(x)` with the normal distribution Φ; `x·(1 + erf(x/√2))/2`.
    Gelu,
    /// `0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
    GeluTanh,
}

impl Activation {
    /// Whether the derivative is computed from the output rather than from the input.
    ///
    /// Then the input need not be kept for the gradient.
    #[must_use]
    pub fn differentiates_from_output(self) -> bool {
        match self {
            Self::Relu | Self::Sigmoid | Self::Tanh => true,
            Self::LeakyRelu { slope } => slope > 0.0,
            Self::Silu | Self::Gelu | Self::GeluTanh => false,
        }
    }
}
