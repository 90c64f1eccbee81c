//! A lowered network: one graph for inference and training.
//!
//! Every operator of the network becomes one or more nodes; training adds gradient nodes and reductions to the
//! same list. A node's operands carry the map from a region wanted to the region needed, so from here on
//! nothing knows whether a node belongs to the forward or to the backward pass.

use tiled_geometry::{Chain, Interval};
use tiled_kernel::{Backend, Kernel, Operands, Reduction, Support, Work};
use tiled_tensor::{Element, OutOfMemory, collected, copied};

use crate::index::{Id, IndexVec, id};

mod finaliser;

pub use finaliser::{Finaliser, GradShare, Momentum, Norm, Running, Statistics};

id! {
    /// A node of a [`Program`].
    NodeId
}

id! {
    /// A reduction of a [`Program`].
    ReductionId
}

id! {
    /// A vector computed by a [`Finaliser`], or of zeros.
    DerivedId
}

id! {
    /// A value of one pixel computed by a [`Finaliser`].
    PixelId
}

id! {
    /// A value kept whole between sweeps.
    StoreId
}

id! {
    /// A parameter of the network; its number is that in [`crate::params`].
    ParamId
}

/// The map of one operand, for each axis.
///
/// ```
/// use tiled_geometry::Interval;
/// use tiled_graph::{Graph, Objective, infer, lower};
/// let graph = Graph::builtin("vgg2").expect("it is built in"); // its convolutions are padded by one
/// let program = lower(&graph, &infer(&graph, 1, &[[64, 48]])?, &Objective::inference(), &[])?;
/// let conv = program.nodes.iter().find(|node| node.name == "conv1").expect("its first one");
/// let rows = Interval::new(0, 8);
/// assert_eq!(conv.operands[0].needed(0, rows), Interval::new(0, 9));
/// assert_eq!(conv.operands[0].needed_unclipped(0, rows), Interval::new(-1, 9));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The operand.
    pub node: NodeId,
    /// The chains of rows and of columns.
    pub axes: [Chain; 2],
}

impl Edge {
    /// The coordinates of the operand that `wanted` needs along an axis, clipped to the image.
    ///
    /// # Panics
    /// Where `axis` is neither 0 (rows) nor 1 (columns).
    #[must_use]
    pub fn needed(&self, axis: usize, wanted: Interval) -> Interval {
        self.axes[axis].needed(wanted)
    }

    /// The coordinates needed before the last clipping: what an operator that pads by itself reads.
    ///
    /// # Panics
    /// Where `axis` is neither 0 (rows) nor 1 (columns).
    #[must_use]
    pub fn needed_unclipped(&self, axis: usize, wanted: Interval) -> Interval {
        self.axes[axis].needed_unclipped(wanted)
    }
}

/// What a kernel takes beside its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A parameter of the network.
    Network(ParamId),
    /// A vector computed by a [`Finaliser`], or of zeros.
    Derived(DerivedId),
    /// What a [`Reduction::ImageMax`] has found: read where it lies, never packed.
    Extrema(ReductionId),
}

/// Where a source node reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRole {
    /// An input of the network.
    Input(usize),
    /// The target of the loss.
    Target,
    /// The gradient with respect to an output, given by the caller.
    GradOutput(usize),
    /// A value kept whole between sweeps.
    Store(StoreId),
    /// A value of one pixel computed by a finaliser.
    Pixel(PixelId),
}

/// Where a sink node writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkRole {
    /// An output of the network.
    Output(usize),
    /// The gradient with respect to an input, by its index in [`Program::input_grads`].
    GradInput(usize),
    /// A value kept whole between sweeps.
    Store(StoreId),
}

/// What a node does.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// Reads regions of a tensor, in any order.
    Source(SourceRole),
    /// Computes regions.
    Compute(Kernel),
    /// Takes disjoint shares of its domain into a few numbers.
    Reduce(ReductionId),
    /// Writes disjoint shares of its operand.
    Sink(SinkRole),
}

/// A node: its value has `batch × channels × extents`; of a reduction or a sink these describe the domain.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramNode {
    /// The name of the network's node, with a suffix for gradients: `c1`, `c1.grad_input`.
    pub name: String,
    /// What it does.
    pub kind: NodeKind,
    /// The batch size.
    pub batch: usize,
    /// The channels.
    pub channels: usize,
    /// Height and width.
    pub extents: [i64; 2],
    /// The operands in the order of the kernel or reduction.
    pub operands: Vec<Edge>,
    /// Parameters of the kernel or reduction.
    pub params: Vec<Param>,
    /// The first sweep that can compute it: one more than the reductions over the whole image, and the cuts, that it depends on.
    pub level: usize,
}

impl ProgramNode {
    /// What it computes, where it does.
    #[must_use]
    pub const fn kernel(&self) -> Option<&Kernel> {
        match &self.kind {
            NodeKind::Compute(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// The coordinates that are computed where `wanted` are: whole cells of [`Kernel::grain`], clipped to the extents.
    ///
    /// # Panics
    /// Where `axis` is neither 0 (rows) nor 1 (columns).
    #[must_use]
    pub fn computed(&self, axis: usize, wanted: Interval) -> Interval {
        match self.kernel().map_or(1, Kernel::grain) {
            1 => wanted,
            grain => wanted.aligned(grain).intersect(Interval::whole(self.extents[axis])),
        }
    }

    /// The reduction whose extrema its kernel reads, if it does.
    #[must_use]
    pub fn extrema(&self) -> Option<ReductionId> {
        self.params.iter().find_map(|param| match param {
            Param::Extrema(reduction) => Some(*reduction),
            Param::Network(_) | Param::Derived(_) => None,
        })
    }

    /// Whether it ends a flow of data: a reduction or a sink.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self.kind, NodeKind::Reduce(_) | NodeKind::Sink(_))
    }
}

/// A reduction of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramReduction {
    /// What it gathers.
    pub reduction: Reduction,
    /// Its node.
    pub node: NodeId,
}

/// A value kept whole between sweeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The node whose value it is.
    pub name: String,
    /// The shape, NCHW.
    pub shape: [usize; 4],
}

/// The rate of a node along one axis: `per / of` coordinates for one of its group's measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// The nodes of one group keep their ratios: the one that stands for it; `None` where paths disagree.
    pub group: Option<NodeId>,
    /// The numerator, at least 1.
    pub per: i64,
    /// The denominator, at least 1.
    pub of: i64,
}

/// A network lowered for an [`crate::Objective`].
///
/// ```
/// use tiled_graph::{Graph, Loss, Objective, infer, lower};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let shapes = infer(&graph, 1, &[[64, 64]])?;
/// let program = lower(&graph, &shapes, &Objective::training(Loss::Sum), &[])?;
/// assert_eq!((program.sweeps(), program.anchor), (1, [16, 16]));
/// assert_eq!((program.params.len(), program.param_grads.len()), (8, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Program {
    /// The nodes in topological order. One that nothing leads from to a reduction or a sink is not run.
    pub nodes: IndexVec<NodeId, ProgramNode>,
    /// How many of them, the first ones, belong to the network itself; those of its gradients follow.
    pub forward: usize,
    /// The reductions.
    pub reductions: IndexVec<ReductionId, ProgramReduction>,
    /// What becomes of reductions, with the sweep after which it happens (`None`: before the first).
    pub finalisers: Vec<(Option<usize>, Finaliser)>,
    /// The lengths of derived vectors. They begin as zeros, which those that no finaliser writes stay.
    pub derived: IndexVec<DerivedId, usize>,
    /// The shapes (batch, channels) of values of one pixel.
    pub pixels: IndexVec<PixelId, [usize; 2]>,
    /// Values kept whole between sweeps.
    pub stores: IndexVec<StoreId, Store>,
    /// The nodes that end a sweep though nothing is gathered there: kept whole, so that what comes before and what follows may run in tilings of
    /// their own.
    pub cuts: Vec<NodeId>,
    /// The lengths of the network's parameters, in the order of [`crate::params`].
    pub params: IndexVec<ParamId, usize>,
    /// The inputs whose gradients are computed, in the order of the network.
    pub input_grads: Vec<usize>,
    /// The parameters whose gradients are computed.
    pub param_grads: Vec<ParamId>,
    /// The level where the gradients of the outputs begin, where these come later than the outputs go.
    pub second_half: Option<usize>,
    /// The class number that a cross-entropy leaves out.
    pub ignore_index: Option<i64>,
    /// The height and width that tiles are given in: the first output with more than one pixel, or what the
    /// last global pooling reads.
    pub anchor: [i64; 2],
    /// The node that has these.
    pub anchor_node: Option<NodeId>,
    /// How fast the rows and columns of each node move.
    pub rates: [IndexVec<NodeId, Rate>; 2],
}

impl Program {
    /// A copy.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self {
            nodes: collected(self.nodes.iter().cloned())?.into(),
            forward: self.forward,
            reductions: collected(self.reductions.iter().cloned())?.into(),
            finalisers: collected(self.finalisers.iter().cloned())?,
            derived: self.derived.copied()?,
            pixels: self.pixels.copied()?,
            stores: collected(self.stores.iter().cloned())?.into(),
            cuts: copied(&self.cuts)?,
            params: self.params.copied()?,
            input_grads: copied(&self.input_grads)?,
            param_grads: copied(&self.param_grads)?,
            second_half: self.second_half,
            ignore_index: self.ignore_index,
            anchor: self.anchor,
            anchor_node: self.anchor_node,
            rates: [self.rates[0].copied()?, self.rates[1].copied()?],
        })
    }

    /// How fast a node's rows (axis 0) or columns (axis 1) move against those of others.
    ///
    /// # Panics
    /// Where `axis` is neither 0 nor 1.
    #[must_use]
    pub fn rate(&self, node: NodeId, axis: usize) -> Rate {
        self.rates[axis].get(node.index()).copied().unwrap_or(Rate { group: None, per: 1, of: 1 })
    }

    /// The number of sweeps: one more than the highest level.
    #[must_use]
    pub fn sweeps(&self) -> usize {
        self.nodes.iter().map(|node| node.level + 1).max().unwrap_or(0)
    }

    /// Which parameters of the network nodes read, and norms as their weight and bias.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn read_params(&self) -> Result<IndexVec<ParamId, bool>, OutOfMemory> {
        let mut are_read = IndexVec::filled(self.params.len(), false)?;
        for param in self.nodes.iter().flat_map(|node| &node.params) {
            if let Param::Network(param) = param {
                are_read[*param] = true;
            }
        }
        for (_, finaliser) in &self.finalisers {
            if let Finaliser::NormEval { norm, .. } | Finaliser::NormTrain { norm, .. } = finaliser {
                for param in [norm.weight, norm.bias].into_iter().flatten() {
                    are_read[param] = true;
                }
            }
        }
        Ok(are_read)
    }

    /// How many classes there are, where the target of the loss is class numbers.
    #[must_use]
    pub fn target_classes(&self) -> Option<usize> {
        let loss = self.reductions.iter().find(|part| part.reduction == Reduction::CrossEntropy)?;
        match self.nodes[loss.node].operands.as_slice() {
            [output, target] if self.nodes[target.node].channels == 1 => {
                Some(self.nodes[output.node].channels)
            }
            _ => None,
        }
    }

    /// What a node does in a call of a backend; `None` of sources and sinks.
    #[must_use]
    pub fn work(&self, node: NodeId) -> Option<Work> {
        match &self.nodes[node].kind {
            NodeKind::Compute(kernel) => Some(Work::Map(*kernel)),
            NodeKind::Reduce(reduction) => Some(Work::Reduce(self.reductions[*reduction].reduction)),
            NodeKind::Source(_) | NodeKind::Sink(_) => None,
        }
    }

    /// How a backend carries a node out; `None` where it does not, and of sources and sinks.
    #[must_use]
    pub fn support<T: Element>(&self, node: NodeId, backend: &dyn Backend<T>) -> Option<Support> {
        self.support_of(node, &self.work(node)?, backend)
    }

    /// The same where the node did other work on the same values.
    pub(crate) fn support_of<T: Element>(
        &self,
        node: NodeId,
        work: &Work,
        backend: &dyn Backend<T>,
    ) -> Option<Support> {
        let node = &self.nodes[node];
        let inputs: Vec<usize> = node.operands.iter().map(|edge| self.nodes[edge.node].channels).collect();
        let params = self.param_lens(&node.params);
        let operands =
            Operands { batch: node.batch, inputs: &inputs, params: &params, channels: node.channels };
        backend.support(work, &operands)
    }

    /// The numbers that tell whether packed parameters are still current: a version of each of the network's, and
    /// the elements of derived ones.
    #[must_use]
    pub fn stamp_len(&self, params: &[Param]) -> usize {
        let len = |param: &Param| match param {
            Param::Network(_) => 1,
            Param::Derived(vector) => self.derived[*vector],
            Param::Extrema(_) => 0,
        };
        params.iter().map(len).sum()
    }

    /// The lengths of a node's parameters that are packed.
    ///
    /// # Panics
    /// Where a parameter is not of this program.
    #[must_use]
    pub fn param_lens(&self, params: &[Param]) -> Vec<usize> {
        params
            .iter()
            .filter_map(|param| match param {
                Param::Network(param) => Some(self.params[*param]),
                Param::Derived(vector) => Some(self.derived[*vector]),
                Param::Extrema(_) => None,
            })
            .collect()
    }
}
