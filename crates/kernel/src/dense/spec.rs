//! What dense work computes, as data.

use ndarray::{ArrayView1, ArrayView2, ArrayViewD};
use tiled_tensor::Element;

use crate::Activation;

/// Whether a result takes the place of what its destination holds, or is added to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// `y = result`; what y held is not read.
    Replace,
    /// `y = y + result`.
    Add,
}

/// The operands of a product, and what follows each element of it.
#[derive(Clone, Debug)]
pub struct Product<'a, T: Element> {
    /// …×m×k.
    pub a: ArrayViewD<'a, T>,
    /// …×k×n.
    pub b: ArrayViewD<'a, T>,
    /// n values, one for each column.
    pub bias: Option<ArrayView1<'a, T>>,
    /// What is applied last.
    pub activation: Option<Activation>,
}

/// A function of one element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unary {
    /// x itself: a copy.
    Identity,
    /// One that networks have too.
    Activation(Activation),
    /// `1/√x`.
    Rsqrt,
    /// `factor·x + summand` with both numbers rounded to the type of x; a fused multiply-add where the instruction set has one.
    Affine {
        /// The factor.
        factor: f64,
        /// The summand.
        summand: f64,
    },
}

/// What a derivative is computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saves {
    /// Nothing but the gradient after it.
    Nothing,
    /// The operand.
    Input,
    /// The result.
    Output,
}

impl Unary {
    /// What the derivative is computed from.
    #[must_use]
    pub fn saves(self) -> Saves {
        match self {
            Self::Identity | Self::Affine { .. } | Self::Activation(Activation::Neg) => Saves::Nothing,
            Self::Activation(activation) if activation.differentiates_from_output() => Saves::Output,
            Self::Activation(_) => Saves::Input,
            Self::Rsqrt => Saves::Output,
        }
    }
}

/// A function of two elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a − b`.
    Sub,
    /// `a·b`.
    Mul,
    /// `a/b`.
    Div,
    /// `a^b`.
    Pow,
    /// The larger; NaN wins. Of equal ones each takes half of the gradient, as in torch.
    Maximum,
    /// The smaller; NaN wins. Of equal ones each takes half of the gradient, as in torch.
    Minimum,
}

/// One of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The first, a.
    First,
    /// The second, b.
    Second,
}

impl Binary {
    /// Which operands the derivative for one of them is computed from.
    #[must_use]
    pub const fn saves(self, side: Side) -> [bool; 2] {
        match (self, side) {
            (Self::Add | Self::Sub, _) => [false, false],
            (Self::Mul | Self::Div, Side::First) => [false, true],
            (Self::Mul, Side::Second) => [true, false],
            (Self::Div, Side::Second) | (Self::Pow | Self::Maximum | Self::Minimum, _) => [true, true],
        }
    }
}

/// How elements along axes become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Fold {
    /// Their sum; zero of none.
    Sum,
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
}

/// Which element is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Extreme {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Where running sums begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Direction {
    /// At the start of the axis.
    FromStart,
    /// At its end: the gradient of the other.
    FromEnd,
}

/// Softmax, or its logarithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Softmax {
    /// `e^x/Σ e^x`.
    Probabilities,
    /// `x − ln Σ e^x`.
    Logarithms,
}

/// The parameters of layer norm.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a, T: Element> {
    /// ε, added to the variance.
    pub epsilon: f64,
    /// γ, a factor for each column.
    pub gamma: Option<ArrayView1<'a, T>>,
    /// β, a summand for each column.
    pub beta: Option<ArrayView1<'a, T>>,
}

/// What attention does with products of queries and keys.
#[derive(Clone, Debug)]
pub struct Attention<'a, T: Element> {
    /// The factor of the products, most often `1/√E`.
    pub scale: f64,
    /// Whether query i sees keys 0 to i alone.
    pub causal: bool,
    /// N×H×L×S summands (a stride of zero repeats one); −∞ hides a key. A query all of whose keys are hidden has the result NaN.
    pub mask: Option<ArrayViewD<'a, T>>,
}

/// What cross-entropy does with classes.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'a, T: Element> {
    /// The class whose rows have no loss and no gradient.
    pub ignore: Option<i64>,
    /// The share of each target that is spread over all classes, 0 to 1.
    pub smoothing: f64,
    /// A weight for each class.
    pub weights: Option<ArrayView1<'a, T>>,
}

/// The targets of cross-entropy.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a, T: Element> {
    /// A class for each row.
    Classes(ArrayView1<'a, i64>),
    /// A probability for each element.
    Probabilities(ArrayView2<'a, T>),
}

/// An index that is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("index {index} is out of range for {extent} elements")]
pub struct IndexError {
    /// The index.
    pub index: i64,
    /// The elements of the axis.
    pub extent: usize,
}
