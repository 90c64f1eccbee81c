//! Operations as data, and what their rules will read.

use std::sync::Arc;

use ndarray::{Array1, ArrayD};
use tiled_kernel::Activation;
use tiled_kernel::dense::{Binary, Extreme, Saves as Of, Side, Softmax, Unary};

use crate::layout::{Layout, MAX_AXES};

/// An operation with its attributes.
pub(crate) enum Op {
    Map(Unary),
    Zip(Binary),
    Where(Arc<ArrayD<bool>>),
    Reduce {
        name: &'static str,
        scale: f64,
    },
    Extreme {
        extreme: Extreme,
        axis: usize,
    },
    Cumulate {
        axis: usize,
    },
    Softmax {
        kind: Softmax,
        axis: usize,
    },
    Product,
    Linear {
        has_bias: bool,
    },
    LayerNorm {
        epsilon: f64,
        has: [bool; 2],
    },
    Attention(Attention),
    CrossEntropy(CrossEntropy),
    Take {
        axis: usize,
        index: Arc<Array1<i64>>,
        padding: Option<i64>,
    },
    Gather {
        axis: usize,
        index: Arc<ArrayD<i64>>,
    },
    ScatterAdd {
        axis: usize,
        index: Arc<ArrayD<i64>>,
    },
    Concat {
        axis: usize,
    },
    Reshape,
    Permute([usize; MAX_AXES]),
    Expand,
    Slice {
        axis: usize,
        begin: usize,
        end: usize,
        step: usize,
    },
    Flip {
        axis: usize,
    },
    Pad {
        before: Vec<usize>,
    },
    /// A network, or a function of the user, of this name.
    Function(&'static str),
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

impl Op {
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
            Self::Function(name) => name,
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
