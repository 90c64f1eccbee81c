//! What the backward pass must know of each forward node.

use tiled_geometry::AxisMap;
use tiled_kernel::{Activation, Conv, Kernel};

use crate::program::{NodeId, Norm};

/// A forward node and how its gradient flows.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    /// The name of the network's node.
    pub(super) name: String,
    /// The node that holds the result.
    pub(super) output: NodeId,
    /// The activation fused into it, if any.
    pub(super) activation: Option<Activation>,
    /// The rule.
    pub(super) rule: Rule,
}

#[derive(Clone, Debug)]
pub(super) enum Rule {
    /// A convolution, or where `is_transposed` the gradient of one taken as an operator.
    Conv {
        conv: Conv,
        x: NodeId,
        weight: usize,
        bias: Option<usize>,
        is_transposed: bool,
    },
    /// One operand, a kernel for its gradient that takes `gy` and perhaps a saved value, and the forward map.
    Unary {
        x: NodeId,
        kernel: Kernel,
        saved: Option<Saved>,
        maps: [AxisMap; 2],
    },
    BatchNorm {
        x: NodeId,
        norm: Norm,
        /// Whether its statistics are those of the batch, so that a gradient flows through them too.
        of_batch: bool,
    },
    Add {
        operands: Vec<NodeId>,
    },
    Mul {
        a: NodeId,
        b: NodeId,
    },
    Concat {
        operands: Vec<NodeId>,
    },
    GlobalMean {
        x: NodeId,
    },
    GlobalMax {
        x: NodeId,
        positions: usize,
    },
    /// A value kept whole: gradients wait for the end of their sweep too.
    Store {
        x: NodeId,
    },
}

/// A value of the forward pass that a gradient reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Saved {
    /// The result of the node, at the same place.
    Output,
    /// The operand, through the forward map of what the gradient reads.
    Operand,
}
