//! Functions of one element and of two.

use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::Arc;

use ndarray::ArrayD;
use tiled_kernel::Activation;
use tiled_kernel::dense::{Binary, Unary, Update};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::layout::broadcast;
use crate::op::{Op, binary_name, unary_name};
use crate::tape::record::Step;
use crate::tensor::Tensor;
use crate::views::ReadAll;

impl<T: Element> Tensor<T> {
    /// A function of each element.
    ///
    /// # Errors
    /// Where an attribute has no meaning, and where memory is refused.
    pub fn map(&self, f: Unary) -> Result<Self> {
        let operator = unary_name(f);
        check(operator, f)?;
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let y = context.filled_by(operator, self.shape(), |y| {
            let x = self.values();
            context.share(self.elements(), || context.dense().map(f, x.view(), y, Update::Replace));
        })?;
        Ok(step.finish(|| Op::Map(f), y))
    }

    /// The activation of each element.
    ///
    /// # Errors
    /// As [`Tensor::map`].
    pub fn activation(&self, activation: Activation) -> Result<Self> {
        self.map(Unary::Activation(activation))
    }

    /// A function of two elements, of which operands are repeated to one shape as in NumPy.
    ///
    /// # Errors
    /// Where the shapes do not broadcast, the contexts differ, or memory is refused.
    pub fn zip(&self, f: Binary, other: &Self) -> Result<Self> {
        let operator = binary_name(f);
        let operands = [self, other];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let broadcast = if self.shape() == other.shape() {
            None // the most frequent, without a list of its own
        } else {
            Some(broadcast(operator, self.shape(), other.shape())?)
        };
        let shape = broadcast.as_deref().unwrap_or_else(|| self.shape());
        let y = context.filled_by(operator, shape, |y| {
            let read = ReadAll::of(operands);
            let (a, b) = (read.expanded(0, shape), read.expanded(1, shape));
            context.share(y.len(), || context.dense().zip(f, a, b, y, Update::Replace));
        })?;
        Ok(step.finish(|| Op::Zip(f), y))
    }

    /// This where the mask holds, `other` elsewhere; all three are repeated to one shape.
    ///
    /// # Errors
    /// As [`Tensor::zip`].
    #[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
    pub fn where_mask(&self, mask: &ArrayD<bool>, other: &Self) -> Result<Self> {
        let operator = "where";
        let operands = [self, other];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let shape = broadcast(operator, self.shape(), other.shape())?;
        let shape = broadcast(operator, &shape, mask.shape())?;
        let y = context.filled_by(operator, &shape, |y| {
            let read = ReadAll::of(operands);
            let (a, b) = (read.expanded(0, &shape), read.expanded(1, &shape));
            let mask = mask.broadcast(shape.as_slice()).expect("invariant: the shapes were broadcast");
            context.share(y.len(), || context.dense().select(mask, a, b, y, Update::Replace));
        })?;
        Ok(step.finish(|| Op::Where(Arc::new(mask.clone())), y))
    }

    /// `value` where the mask holds, this elsewhere.
    ///
    /// # Errors
    /// As [`Tensor::zip`], and where the mask has a larger shape than this.
    pub fn masked_fill(&self, mask: &ArrayD<bool>, value: f64) -> Result<Self> {
        let shape = broadcast("masked_fill", self.shape(), mask.shape())?;
        if shape != self.shape() {
            let (a, b) = (self.shape().into(), mask.shape().into());
            return Err(TapeError::Broadcast { operator: "masked_fill", a, b });
        }
        self.context().full(&[], value)?.where_mask(mask, self)
    }

    /// `factor·x + summand`, rounded once.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn affine(&self, factor: f64, summand: f64) -> Result<Self> {
        self.map(Unary::Affine { factor, summand })
    }

    /// `1/√x`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn rsqrt(&self) -> Result<Self> {
        self.map(Unary::Rsqrt)
    }

    /// `x` to a power; to that of 1/2 it is [`Tensor::sqrt`], which is NaN of −∞ too.
    ///
    /// # Errors
    /// Where the exponent is not finite, and where memory is refused.
    pub fn powf(&self, exponent: f64) -> Result<Self> {
        #[expect(clippy::float_cmp, reason = "a root is a power of exactly a half")]
        if exponent == 0.5 {
            return self.sqrt();
        }
        self.activation(Activation::Pow { exponent })
    }

    /// `min(max(x, min), max)`; an infinite bound is none.
    ///
    /// # Errors
    /// Where a bound is not a number, and where memory is refused.
    pub fn clamp(&self, min: f64, max: f64) -> Result<Self> {
        self.activation(Activation::Clamp { min, max })
    }

    /// `min(max(x, 0), 6)`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn relu6(&self) -> Result<Self> {
        self.clamp(0.0, 6.0)
    }

    /// `x` where it is above zero, else `slope·x`.
    ///
    /// # Errors
    /// Where the slope is not finite, and where memory is refused.
    pub fn leaky_relu(&self, slope: f64) -> Result<Self> {
        self.activation(Activation::LeakyRelu { slope })
    }

    /// `x` where it is above zero, else `α·(e^x − 1)`.
    ///
    /// # Errors
    /// Where α is not finite, and where memory is refused.
    pub fn elu(&self, alpha: f64) -> Result<Self> {
        self.activation(Activation::Elu { alpha })
    }

    /// `ln(1 + e^(β·x))/β`; `x` where `β·x` is above the threshold.
    ///
    /// # Errors
    /// Where β is zero or not finite, and where memory is refused.
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Self> {
        self.activation(Activation::Softplus { beta, threshold })
    }
}

/// Attributes with a meaning.
fn check(operator: &'static str, f: Unary) -> Result<()> {
    let finite = "a finite number";
    let (attribute, expected, got, holds) = match f {
        Unary::Activation(Activation::LeakyRelu { slope }) => ("slope", finite, slope, slope.is_finite()),
        Unary::Activation(Activation::Elu { alpha }) => ("alpha", finite, alpha, alpha.is_finite()),
        Unary::Activation(Activation::Celu { alpha }) => {
            ("alpha", "a finite number other than 0", alpha, alpha.is_finite() && alpha != 0.0)
        }
        Unary::Activation(Activation::Pow { exponent }) => {
            ("exponent", finite, exponent, exponent.is_finite())
        }
        Unary::Activation(Activation::Softplus { beta, .. }) => {
            ("beta", "a finite number other than 0", beta, beta.is_finite() && beta != 0.0)
        }
        Unary::Activation(Activation::Clamp { min, max }) => {
            ("a bound", "a number", if min.is_nan() { min } else { max }, !(min.is_nan() || max.is_nan()))
        }
        _ => return Ok(()),
    };
    if holds { Ok(()) } else { Err(TapeError::Attribute { operator, attribute, expected, got }) }
}

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $name:ident: $activation:ident;)*) => {
        impl<T: Element> Tensor<T> {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// Where memory is refused.
                pub fn $name(&self) -> Result<Self> {
                    self.activation(Activation::$activation)
                }
            )*
        }
    };
}

functions! {
    /// `e^x`.
    exp: Exp;
    /// The natural logarithm.
    log: Log;
    /// `√x`.
    sqrt: Sqrt;
    /// `|x|`.
    abs: Abs;
    /// `1/x`.
    reciprocal: Reciprocal;
    /// `max(x, 0)`.
    relu: Relu;
    /// `1/(1 + e^(−x))`.
    sigmoid: Sigmoid;
    /// `min(max(x + 3, 0), 6)/6`.
    hardsigmoid: HardSigmoid;
    /// The hyperbolic tangent.
    tanh: Tanh;
    /// `x·sigmoid(x)`.
    silu: Silu;
    /// `x·min(max(x + 3, 0), 6)/6`.
    hardswish: HardSwish;
    /// `x·Φ(x)` with the normal distribution Φ.
    gelu: Gelu;
    /// The approximation of `gelu` by the hyperbolic tangent.
    gelu_tanh: GeluTanh;
    /// `−ln(1 + e^(−x))`.
    logsigmoid: LogSigmoid;
    /// `s·x` above zero, else `s·α·(e^x − 1)`, with constants that keep mean and variance.
    selu: Selu;
    /// `x/(1 + |x|)`.
    softsign: Softsign;
    /// `x·tanh(ln(1 + e^x))`.
    mish: Mish;
}

macro_rules! binary {
    ($($trait:ident $method:ident $binary:ident, |$x:ident, $number:ident| $right:expr, $left:expr;)*) => {
        $(
            impl<T: Element> $trait for &Tensor<T> {
                type Output = Result<Tensor<T>>;
                fn $method(self, other: Self) -> Self::Output {
                    self.zip(Binary::$binary, other)
                }
            }
            impl<T: Element> $trait<f64> for &Tensor<T> {
                type Output = Result<Tensor<T>>;
                fn $method(self, $number: f64) -> Self::Output {
                    let $x = self;
                    $right
                }
            }
            impl<T: Element> $trait<&Tensor<T>> for f64 {
                type Output = Result<Tensor<T>>;
                fn $method(self, $x: &Tensor<T>) -> Self::Output {
                    let $number = self;
                    $left
                }
            }
        )*
    };
}

binary! {
    Add add Add, |x, number| x.affine(1.0, number), x.affine(1.0, number);
    Sub sub Sub, |x, number| x.affine(1.0, -number), x.affine(-1.0, number);
    Mul mul Mul, |x, number| x.affine(number, 0.0), x.affine(number, 0.0);
    Div div Div, |x, number| x.zip(Binary::Div, &x.context().full(&[], number)?),
        x.context().full(&[], number)?.zip(Binary::Div, x);
}

impl<T: Element> Neg for &Tensor<T> {
    type Output = Result<Tensor<T>>;
    fn neg(self) -> Self::Output {
        self.activation(Activation::Neg)
    }
}

impl<T: Element> Tensor<T> {
    /// `a^b`.
    ///
    /// # Errors
    /// As [`Tensor::zip`].
    pub fn pow(&self, exponent: &Self) -> Result<Self> {
        self.zip(Binary::Pow, exponent)
    }

    /// The larger of each two elements; of equal ones each takes half of the gradient.
    ///
    /// # Errors
    /// As [`Tensor::zip`].
    pub fn maximum(&self, other: &Self) -> Result<Self> {
        self.zip(Binary::Maximum, other)
    }

    /// The smaller of each two elements; of equal ones each takes half of the gradient.
    ///
    /// # Errors
    /// As [`Tensor::zip`].
    pub fn minimum(&self, other: &Self) -> Result<Self> {
        self.zip(Binary::Minimum, other)
    }
}
