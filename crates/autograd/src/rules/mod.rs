//! The table of rules: for every operator what it saves, and how the gradient of its result becomes those of its operands.

mod arrange;
mod elementwise;
mod fused;
mod index;
mod product;

pub(crate) use arrange::reshaped;
pub(crate) use fused::{vector, with_targets};
pub(crate) use product::{repeated, rows};

use std::sync::Arc;

use ndarray::{Array1, ArrayD};
use tiled_kernel::Activation;
use tiled_kernel::dense::{Binary, Extreme, Saves as Of, Side, Softmax, Unary};
use tiled_tensor::Element;

use crate::error::Result;
use crate::function::{Function, FunctionState};
use crate::layout::{Layout, MAX_AXES};
use crate::tape::Flow;
use crate::tensor::Tensor;

/// An operation with its attributes.
pub(crate) enum Op<T: Element> {
    Map(Unary),
    Zip(Binary),
    Where(Arc<ArrayD<bool>>),
    Reduce { name: &'static str, scale: f64 },
    Extreme { extreme: Extreme, axis: usize },
    Cumulate { axis: usize },
    Softmax { kind: Softmax, axis: usize },
    Product,
    Linear { has_bias: bool },
    LayerNorm { epsilon: f64, has: [bool; 2] },
    Attention(Attention),
    CrossEntropy(CrossEntropy),
    Take { axis: usize, index: Arc<Array1<i64>>, padding: Option<i64> },
    Gather { axis: usize, index: Arc<ArrayD<i64>> },
    ScatterAdd { axis: usize, index: Arc<ArrayD<i64>> },
    Concat { axis: usize },
    Reshape,
    Permute([usize; MAX_AXES]),
    Expand,
    Slice { axis: usize, begin: usize, end: usize, step: usize },
    Flip { axis: usize },
    Pad { before: Vec<usize> },
    Function(Arc<dyn Function<T>>),
}

/// What attention does with products of queries and keys; the mask is its last operand.
#[derive(Clone, Copy)]
pub(crate) struct Attention {
    pub(crate) scale: f64,
    pub(crate) causal: bool,
    pub(crate) has_mask: bool,
    /// How queries, keys and values lie in one operand, where they do.
    pub(crate) packed: Option<Packed>,
}

/// Queries, keys and values of several heads as one projection gives them: A×B×3E, where A are images and B places, or the other way round.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) heads: usize,
    pub(crate) batch_first: bool,
}

impl Packed {
    /// Where the queries, the keys or the values lie: N×H×L×E/H.
    pub(crate) fn part(self, all: &Layout, part: usize) -> Layout {
        let &[_, _, width] = all.shape() else { unreachable!("invariant: it has three axes") };
        let width = width / 3;
        self.by_heads(all.sliced(2, part * width, (part + 1) * width, 1))
    }

    /// A×B×E as N×H×L×E/H: an axis that is split is a view whatever its stride.
    pub(crate) fn by_heads(self, joined: Layout) -> Layout {
        let &[first, second, width] = joined.shape() else { unreachable!("invariant: it has three axes") };
        let split = joined.reshaped(&[first, second, self.heads, width / self.heads]);
        let split = split.expect("invariant: an axis splits");
        split.permuted(&self.order())
    }

    /// Which axes of images, places, heads and depth stand where: N, H, L, then the depth.
    pub(crate) const fn order(self) -> [usize; 4] {
        if self.batch_first { [0, 2, 1, 3] } else { [1, 2, 0, 3] }
    }
}

/// Targets and weights of cross-entropy. Weights are the operand behind x, and probabilities, where no classes are named, the last one.
pub(crate) struct CrossEntropy {
    pub(crate) ignore: Option<i64>,
    pub(crate) smoothing: f64,
    pub(crate) has_weights: bool,
    pub(crate) classes: Option<Arc<Array1<i64>>>,
}

/// What backward needs besides operands and result.
pub(crate) enum Kept<T: Element> {
    Nothing,
    Tensors(Vec<Tensor<T>>),
    Indices(ArrayD<i64>),
    Function(FunctionState<T>),
}

/// Which operands, and whether the result, a rule reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saves {
    operands: [bool; 4],
    result: bool,
}

impl Saves {
    const NOTHING: Self = Self { operands: [false; 4], result: false };
    const RESULT: Self = Self { result: true, ..Self::NOTHING };

    const fn operands([a, b, c]: [bool; 3]) -> Self {
        Self { operands: [a, b, c, false], result: false }
    }

    pub(crate) fn operand(self, at: usize) -> bool {
        self.operands.get(at).copied().unwrap_or(false)
    }

    pub(crate) fn any_operand(self) -> bool {
        self.operands.contains(&true)
    }

    pub(crate) const fn result(self) -> bool {
        self.result
    }
}

/// A line of the table in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// The operator.
    pub operator: &'static str,
    /// What it computes.
    pub result: &'static str,
    /// What stays alive until backward, and is not to be changed in place.
    pub saves: &'static str,
    /// The gradients of its operands.
    pub gradient: &'static str,
}

macro_rules! table {
    ($($pattern:pat => $operator:literal, $result:literal, $saves:literal, $gradient:literal, $backward:path;)*) => {
        /// The table of rules in words.
        pub const RULES: &[RuleText] = &[
            $(RuleText { operator: $operator, result: $result, saves: $saves, gradient: $gradient }),*
        ];

        impl<T: Element> Op<T> {
            /// The rule of this operation.
            pub(crate) fn rule(&self) -> fn(&mut Flow<'_, T>) -> Result<()> {
                match self { $($pattern => $backward),* }
            }
        }
    };
}

table! {
    Op::Map(_) => "a function of one element", "y = f(x)", "x, y or nothing, by function", "dx = dy·f'(x)", elementwise::map;
    Op::Zip(_) => "a function of two elements", "y = f(a, b)", "a, b or nothing, by function and by which gradient is wanted", "da = Σ dy·∂f/∂a, db = Σ dy·∂f/∂b over repeated axes", elementwise::zip;
    Op::Where(_) => "where", "y = a where the mask holds, else b", "the mask", "da = dy where the mask holds, db = dy elsewhere", elementwise::choose;
    Op::Reduce { .. } => "sum, mean", "y = s·Σ x", "nothing", "dx = s·dy, repeated", elementwise::reduce;
    Op::Extreme { .. } => "max, min", "y = the first largest or smallest x", "its place", "dx = dy at that place", elementwise::extreme;
    Op::Cumulate { .. } => "cumsum", "yᵢ = Σ xⱼ, j ≤ i", "nothing", "dxᵢ = Σ dyⱼ, j ≥ i", elementwise::cumulate;
    Op::Softmax { .. } => "softmax, log_softmax", "y = e^x/Σe^x, or its logarithm", "y", "dx = y·(dy − Σ y·dy), or dy − e^y·Σ dy", fused::softmax;
    Op::Product => "matmul", "y = a·b", "b for da, a for db", "da = Σ dy·bᵀ, db = Σ aᵀ·dy over repeated matrices", product::matmul;
    Op::Linear { .. } => "linear", "y = x·Wᵀ + b", "W for dx, x for dW", "dx = dy·W, dW = dyᵀ·x, db = Σ dy", product::linear;
    Op::LayerNorm { .. } => "layer_norm", "y = (x − mean)·rstd·γ + β", "x, γ, mean and rstd of each row", "dx = rstd·(g − mean g − x̂·mean g·x̂) with g = γ·dy, dγ = Σ dy·x̂, dβ = Σ dy", fused::layer_norm;
    Op::Attention(_) => "scaled_dot_product_attention", "y = softmax(s·q·kᵀ + mask)·v", "q, k, v, the mask, y, the logarithm of each row's sum", "of the product of softmax and v, with probabilities computed again", fused::attention;
    Op::CrossEntropy(_) => "cross_entropy", "y = −Σ w·t·log softmax(x) of each row", "x, weights, probabilities, the logarithm of each row's sum", "dx = dy·(softmax(x)·Σ w·t − w·t)", fused::cross_entropy;
    Op::Take { .. } => "index_select, embedding", "yᵢ = x at index i", "the index", "dx at index i += dyᵢ", index::take;
    Op::Gather { .. } => "gather", "y = x at an index for each element", "the index", "dx at the index += dy", index::gather;
    Op::ScatterAdd { .. } => "scatter_add", "y = x, then at the index += source", "the index", "dx = dy, dsource = dy at the index", index::scatter_add;
    Op::Concat { .. } => "concat, stack", "y = the operands, one after the other", "nothing", "dx = its part of dy", arrange::concat;
    Op::Reshape => "reshape, squeeze, unsqueeze, flatten", "y = x in another shape", "nothing", "dx = dy in the shape of x", arrange::reshape;
    Op::Permute(_) => "permute, transpose", "y = x with axes in another order", "nothing", "dx = dy with axes in the order of x", arrange::permute;
    Op::Expand => "expand", "y = x, repeated", "nothing", "dx = Σ dy over repeated axes", arrange::expand;
    Op::Slice { .. } => "slice, select, split", "y = a part of x", "nothing", "dx at that part += dy", arrange::slice;
    Op::Flip { .. } => "flip", "y = x from its end", "nothing", "dx = dy from its end", arrange::flip;
    Op::Pad { .. } => "pad", "y = x with constants around it", "nothing", "dx = its part of dy", arrange::pad;
    Op::Function(_) => "a network, or a function of the user", "y = f(x, …): convolution, pooling, norms over images, dropout, upsampling", "what it says", "what it computes", crate::function::backward;
}

impl<T: Element> Op<T> {
    /// The name in messages and drawings.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Map(f) => unary_name(*f),
            Self::Zip(f) => binary_name(*f),
            Self::Where(_) => "where",
            Self::Reduce { name, .. } => name,
            Self::Extreme { extreme: Extreme::Max, .. } => "max",
            Self::Extreme { extreme: Extreme::Min, .. } => "min",
            Self::Cumulate { .. } => "cumsum",
            Self::Softmax { kind, .. } => softmax_name(*kind),
            Self::Product => "matmul",
            Self::Linear { .. } => "linear",
            Self::LayerNorm { .. } => "layer_norm",
            Self::Attention(_) => "scaled_dot_product_attention",
            Self::CrossEntropy(_) => "cross_entropy",
            Self::Take { padding: None, .. } => "index_select",
            Self::Take { .. } => "embedding",
            Self::Gather { .. } => "gather",
            Self::ScatterAdd { .. } => "scatter_add",
            Self::Concat { .. } => "concat",
            Self::Reshape => "reshape",
            Self::Permute(_) => "permute",
            Self::Expand => "expand",
            Self::Slice { .. } => "slice",
            Self::Flip { .. } => "flip",
            Self::Pad { .. } => "pad",
            Self::Function(function) => function.name(),
        }
    }

    /// What stays alive until backward, given which gradients are wanted.
    pub(crate) fn saves(&self, wants: impl Fn(usize) -> bool) -> Saves {
        match self {
            Self::Map(f) => match f.saves() {
                Of::Nothing => Saves::NOTHING,
                Of::Input => Saves::operands([true, false, false]),
                Of::Output => Saves::RESULT,
            },
            Self::Zip(f) => {
                let of = |operand, side| if wants(operand) { f.saves(side) } else { [false; 2] };
                let (first, second) = (of(0, Side::First), of(1, Side::Second));
                Saves::operands([first[0] || second[0], first[1] || second[1], false])
            }
            Self::Softmax { .. } => Saves::RESULT,
            Self::Product => Saves::operands([wants(1), wants(0), false]),
            Self::Linear { .. } => Saves::operands([wants(1), wants(0), false]),
            Self::LayerNorm { has, .. } => Saves::operands([true, has[0], false]),
            Self::Attention(_) => Saves { operands: [true; 4], result: true },
            Self::CrossEntropy(_) => Saves::operands([true; 3]),
            _ => Saves::NOTHING,
        }
    }
}

pub(crate) const fn softmax_name(kind: Softmax) -> &'static str {
    match kind {
        Softmax::Probabilities => "softmax",
        Softmax::Logarithms => "log_softmax",
    }
}

pub(crate) const fn binary_name(f: Binary) -> &'static str {
    match f {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::Pow => "pow",
        Binary::Maximum => "maximum",
        Binary::Minimum => "minimum",
    }
}

pub(crate) const fn unary_name(f: Unary) -> &'static str {
    match f {
        Unary::Identity => "contiguous",
        Unary::Rsqrt => "rsqrt",
        Unary::Affine { .. } => "affine",
        // one operator in torch, which takes the approximation as an option
        Unary::Activation(Activation::GeluTanh) => "gelu",
        Unary::Activation(activation) => activation.name(),
    }
}
