//! The table of rules: for every operator what it saves, and how the gradient of its result becomes those of its operands.

mod arrange;
mod elementwise;
mod fold;
mod fused;
mod index;
mod product;

pub(crate) use fused::with_targets;

use tiled_tensor::Element;

use crate::error::Result;
use crate::op::Op;
use crate::tape::flow::Flow;

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

        /// The rule of an operation.
        pub(crate) fn rule<T: Element>(op: &Op) -> fn(&mut Flow<'_, T>) -> Result<()> {
            match op { $($pattern => $backward),* }
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
