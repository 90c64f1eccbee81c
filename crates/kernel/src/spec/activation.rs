//! Functions of one element.

/// A function applied to every element, named as in `torch.nn.functional`.
///
/// At NaN the gradient is that of the line for large values, as PyTorch has it for most of them: `relu`, `clamp`, `elu` and `hardswish`
/// pass it on. That of `abs` is zero there, and that of a smooth function NaN.
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
    /// `min(max(x, min), max)`; no gradient passes at the bounds. An infinite bound is none.
    Clamp {
        /// The least value.
        min: f64,
        /// The largest value, which wins where it is below the least.
        max: f64,
    },
    /// `x` where `x > threshold`, else `value`.
    Threshold {
        /// What x must exceed.
        threshold: f64,
        /// What takes its place elsewhere.
        value: f64,
    },
    /// `x` where `x > 0`, else `α·(e^x − 1)`.
    Elu {
        /// α.
        alpha: f64,
    },
    /// `s·x` where `x > 0`, else `s·α·(e^x − 1)`, with the constants of Klambauer et al., "Self-normalizing neural
    /// networks" (2017).
    Selu,
    /// `x` where `x > 0`, else `α·(e^(x/α) − 1)`.
    Celu {
        /// α, not zero.
        alpha: f64,
    },
    /// `ln(1 + e^(β·x))/β`; `x` where `β·x > threshold`.
    Softplus {
        /// β, not zero.
        beta: f64,
        /// What `β·x` must exceed for the line itself.
        threshold: f64,
    },
    /// `x/(1 + |x|)`.
    Softsign,
    /// `min(max(x + 3, 0), 6)/6`; no gradient passes at the bounds.
    HardSigmoid,
    /// `x·min(max(x + 3, 0), 6)/6`.
    HardSwish,
    /// `x·tanh(ln(1 + e^x))`.
    Mish,
    /// `−ln(1 + e^(−x))`.
    LogSigmoid,
    /// `e^x`.
    Exp,
    /// The natural logarithm; NaN below zero.
    Log,
    /// `√x`; NaN below zero.
    Sqrt,
    /// `|x|`; the gradient at zero and at NaN is zero.
    Abs,
    /// `−x`.
    Neg,
    /// `1/x`.
    Reciprocal,
    /// `x^y`, one where `y` is zero; of a negative x NaN where `y` is not whole.
    Pow {
        /// y, a finite number.
        exponent: f64,
    },
}

/// `y = high·x` where `x > 0`, else `low·(e^(rate·x) − 1)`: what [`Activation::Elu`], [`Activation::Selu`] and
/// [`Activation::Celu`] are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exponential {
    /// The slope of the line.
    pub high: f64,
    /// The factor of the exponential.
    pub low: f64,
    /// The factor of x in its exponent.
    pub rate: f64,
}

impl Activation {
    /// The name in `torch.nn.functional`, under which networks, plans and tapes know the function.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Clamp { .. } => "clamp",
            Self::Threshold { .. } => "threshold",
            Self::Elu { .. } => "elu",
            Self::Selu => "selu",
            Self::Celu { .. } => "celu",
            Self::Softplus { .. } => "softplus",
            Self::Softsign => "softsign",
            Self::HardSigmoid => "hardsigmoid",
            Self::HardSwish => "hardswish",
            Self::Mish => "mish",
            Self::LogSigmoid => "logsigmoid",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Abs => "abs",
            Self::Neg => "neg",
            Self::Reciprocal => "reciprocal",
            Self::Pow { .. } => "pow",
        }
    }

    /// Its own numbers, in the order of their fields; zero beyond them.
    ///
    /// ```
    /// use tiled_kernel::Activation;
    /// assert_eq!(Activation::Clamp { min: 0.0, max: 6.0 }.numbers(), [0.0, 6.0]);
    /// assert_eq!(Activation::Relu.numbers(), [0.0, 0.0]);
    /// ```
    #[must_use]
    pub const fn numbers(self) -> [f64; 2] {
        match self {
            Self::LeakyRelu { slope } => [slope, 0.0],
            Self::Clamp { min, max } => [min, max],
            Self::Threshold { threshold, value } => [threshold, value],
            Self::Elu { alpha } | Self::Celu { alpha } => [alpha, 0.0],
            Self::Softplus { beta, threshold } => [beta, threshold],
            Self::Pow { exponent } => [exponent, 0.0],
            Self::Relu | Self::Sigmoid | Self::Tanh | Self::Silu | Self::Gelu | Self::GeluTanh => [0.0; 2],
            Self::Selu | Self::Softsign | Self::HardSigmoid | Self::HardSwish | Self::Mish => [0.0; 2],
            Self::LogSigmoid | Self::Exp | Self::Log | Self::Sqrt | Self::Abs | Self::Neg => [0.0; 2],
            Self::Reciprocal => [0.0; 2],
        }
    }

    /// Whether the derivative is computed from the output rather than from the input.
    ///
    /// Then the input need not be kept for the gradient.
    #[must_use]
    pub fn differentiates_from_output(self) -> bool {
        match self {
            Self::Relu | Self::Sigmoid | Self::Tanh => true,
            Self::LeakyRelu { slope } => slope > 0.0,
            Self::Clamp { .. } | Self::Exp | Self::Sqrt | Self::Reciprocal => true,
            _ => false,
        }
    }

    /// The line and the exponential that it is made of, where it is.
    #[must_use]
    pub fn exponential(self) -> Option<Exponential> {
        const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
        const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
        match self {
            Self::Elu { alpha } => Some(Exponential { high: 1.0, low: alpha, rate: 1.0 }),
            Self::Selu => Some(Exponential { high: SELU_SCALE, low: SELU_SCALE * SELU_ALPHA, rate: 1.0 }),
            Self::Celu { alpha } => Some(Exponential { high: 1.0, low: alpha, rate: 1.0 / alpha }),
            _ => None,
        }
    }
}
