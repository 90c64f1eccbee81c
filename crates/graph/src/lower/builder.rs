//! A program that grows node by node: what operators lower themselves with.

use std::collections::{BTreeMap, HashMap};

use tiled_geometry::{AxisMap, Chain};
use tiled_kernel::{Activation, Reduction};
use tiled_tensor::{OutOfMemory, push};

use crate::index::{Id, IndexVec, ValueId};
use crate::program::{
    DerivedId, Edge, Finaliser, GradShare, NodeId, NodeKind, Param, ParamId, Program, ProgramNode,
    ProgramReduction, ReductionId, SinkRole, SourceRole, Store,
};

/// A program that grows node by node.
#[derive(Default)]
pub(crate) struct Lowering {
    pub(crate) program: Program,
    /// The batch size of all values.
    pub(crate) batch: usize,
    /// The seed of dropout.
    pub(crate) seed: u64,
    /// The parameters whose gradients are wanted.
    pub(super) wanted: IndexVec<ParamId, bool>,
    /// Whether a gradient flows to a node.
    pub(crate) wants_grad: IndexVec<NodeId, bool>,
    pub(crate) tape: Vec<Tape>,
    /// The parameters by the names that nodes have for them.
    pub(super) param_names: HashMap<String, ParamId>,
    /// How many nodes read each parameter.
    pub(super) readers: IndexVec<ParamId, usize>,
    /// What sums up to gradients of parameters that several nodes read, the last node first.
    pub(super) shares: Vec<Share>,
    /// What flows into each node so far, in a fixed order.
    pub(super) gradients: BTreeMap<NodeId, Vec<NodeId>>,
    /// The level that each derived vector is known at.
    pub(super) derived_levels: IndexVec<DerivedId, usize>,
}

/// A node of the network that is being lowered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) name: &'a str,
    /// The value that it makes, and its shape.
    pub(crate) value: ValueId,
    pub(crate) channels: usize,
    pub(crate) extents: [i64; 2],
    /// The nodes that hold its operands.
    pub(crate) operands: &'a [NodeId],
    /// Whether nothing else reads the first operand.
    pub(crate) owns_x: bool,
    /// Whether it trains: batch norms use the statistics of the image, dropouts drop.
    pub(crate) trains: bool,
}

impl Site<'_> {
    /// The first operand.
    pub(crate) const fn x(&self) -> NodeId {
        self.operands[0]
    }
}

/// A forward node and how its gradient flows.
pub(crate) struct Tape {
    /// The name of the network's node.
    pub(super) name: String,
    /// The node that holds the result.
    pub(crate) output: NodeId,
    /// The activation fused into it, if any.
    pub(crate) activation: Option<Activation>,
    /// The rule.
    pub(super) rule: Box<Rule>,
}

/// Adds the gradients of operands ([`Lowering::flow`]) and parameters ([`Lowering::param_grad`]), given that of the result.
pub(super) type Rule = dyn FnOnce(&mut Lowering, &Flowing<'_>) -> Result<(), OutOfMemory>;

/// A gradient that has come to a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flowing<'a> {
    /// The name of the network's node.
    pub(super) name: &'a str,
    /// The gradient with respect to the node's result.
    pub(crate) gradient: NodeId,
}

impl Flowing<'_> {
    /// The name of a node of the gradient: `c1.grad_input`.
    pub(crate) fn named(&self, what: &str) -> String {
        format!("{}.{what}", self.name)
    }
}

/// What a node adds to the gradient of a parameter that others read too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) param: ParamId,
    pub(super) of: GradShare,
}

impl Lowering {
    /// The parameter that a node reads as its weight, its bias …
    pub(crate) fn param(&self, node: &str, what: &str) -> ParamId {
        let name = format!("{node}.{what}");
        *self.param_names.get(&name).expect("invariant: every operator lists its parameters")
    }

    /// Whether the gradient of a parameter is wanted.
    pub(crate) fn wants(&self, param: ParamId) -> bool {
        self.wanted[param]
    }

    /// Whether the gradient of one of these parameters is wanted.
    pub(crate) fn wants_any(&self, params: impl IntoIterator<Item = Option<ParamId>>) -> bool {
        params.into_iter().flatten().any(|param| self.wants(param))
    }

    /// Whether several nodes read a parameter.
    pub(crate) fn is_shared(&self, param: ParamId) -> bool {
        self.readers[param] > 1
    }

    /// The channels, extents and level of a node.
    pub(crate) fn described(&self, node: NodeId) -> (usize, [i64; 2], usize) {
        let node = &self.program.nodes[node];
        (node.channels, node.extents, node.level)
    }

    /// Adds a node with the level that its operands and parameters give it.
    pub(crate) fn push(
        &mut self,
        name: String,
        kind: NodeKind,
        channels: usize,
        extents: [i64; 2],
        operands: Vec<Edge>,
        params: Vec<Param>,
    ) -> Result<NodeId, OutOfMemory> {
        let operand_level =
            operands.iter().map(|edge| self.program.nodes[edge.node].level).max().unwrap_or(0);
        let param_level = params.iter().map(|param| self.param_level(*param)).max().unwrap_or(0);
        let wants_grad = operands.iter().any(|edge| self.wants_grad[edge.node]);
        let node = ProgramNode {
            name,
            kind,
            batch: self.batch,
            channels,
            extents,
            operands,
            params,
            level: operand_level.max(param_level),
        };
        self.wants_grad.push(wants_grad)?;
        self.program.nodes.push(node)
    }

    /// The sweep before which a parameter is known.
    fn param_level(&self, param: Param) -> usize {
        match param {
            Param::Network(_) => 0,
            Param::Derived(derived) => self.derived_levels[derived],
            Param::Extrema(reduction) => self.known_after(reduction) + 1,
        }
    }

    pub(crate) fn source(
        &mut self,
        name: String,
        role: SourceRole,
        channels: usize,
        extents: [i64; 2],
        level: usize,
    ) -> Result<NodeId, OutOfMemory> {
        let node = self.push(name, NodeKind::Source(role), channels, extents, Vec::new(), Vec::new())?;
        self.program.nodes[node].level = level;
        Ok(node)
    }

    pub(super) fn sink(
        &mut self,
        name: String,
        role: SinkRole,
        operand: NodeId,
    ) -> Result<NodeId, OutOfMemory> {
        let (channels, extents) = (self.program.nodes[operand].channels, self.program.nodes[operand].extents);
        let edge = identity(operand, extents);
        self.push(name, NodeKind::Sink(role), channels, extents, vec![edge], Vec::new())
    }

    /// Adds a reduction over the domain of `channels × extents` and returns it.
    pub(crate) fn reduce(
        &mut self,
        name: String,
        reduction: Reduction,
        channels: usize,
        extents: [i64; 2],
        operands: Vec<Edge>,
        params: Vec<Param>,
    ) -> Result<ReductionId, OutOfMemory> {
        let id = ReductionId::new(self.program.reductions.len());
        let node = self.push(name, NodeKind::Reduce(id), channels, extents, operands, params)?;
        self.program.reductions.push(ProgramReduction { reduction, node })
    }

    /// Registers what becomes of a reduction after its sweep.
    pub(crate) fn finalise(
        &mut self,
        reduction: ReductionId,
        finaliser: Finaliser,
    ) -> Result<(), OutOfMemory> {
        let sweep = self.known_after(reduction);
        for derived in derived_by(&finaliser) {
            self.derived_levels[derived] = sweep + 1;
        }
        push(&mut self.program.finalisers, (Some(sweep), finaliser))
    }

    /// The sweep after which a reduction is known.
    fn known_after(&self, reduction: ReductionId) -> usize {
        self.program.nodes[self.program.reductions[reduction].node].level
    }

    /// A vector of zeros: a derived one that no finaliser writes.
    pub(crate) fn zeros(&mut self, len: usize) -> Result<DerivedId, OutOfMemory> {
        self.derive(len)
    }

    /// A vector that a finaliser is to write.
    pub(crate) fn derive(&mut self, len: usize) -> Result<DerivedId, OutOfMemory> {
        self.derived_levels.push(0)?;
        self.program.derived.push(len)
    }

    /// Keeps a value whole; what reads the returned node runs in a later sweep.
    pub(super) fn store(&mut self, value: NodeId) -> Result<NodeId, OutOfMemory> {
        let node = &self.program.nodes[value];
        let (name, channels, extents, level) = (node.name.clone(), node.channels, node.extents, node.level);
        let shape = [self.batch, channels, extent(extents[0]), extent(extents[1])];
        let store = self.program.stores.push(Store { name: name.clone(), shape })?;
        self.sink(format!("{name}.store"), SinkRole::Store(store), value)?;
        let source =
            self.source(format!("{name}.stored"), SourceRole::Store(store), channels, extents, level + 1)?;
        self.wants_grad[source] = self.wants_grad[value];
        Ok(source)
    }

    /// Records how the gradient of a node flows.
    pub(crate) fn record(
        &mut self,
        name: &str,
        output: NodeId,
        rule: impl FnOnce(&mut Self, &Flowing<'_>) -> Result<(), OutOfMemory> + 'static,
    ) -> Result<(), OutOfMemory> {
        push(&mut self.tape, Tape { name: name.to_owned(), output, activation: None, rule: Box::new(rule) })
    }

    /// Adds what `make` builds to the gradient of `x`, where one is wanted.
    pub(crate) fn flow(
        &mut self,
        x: NodeId,
        make: impl FnOnce(&mut Self) -> Result<NodeId, OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        if self.wants_grad[x] {
            let node = make(self)?;
            push(self.gradients.entry(x).or_default(), node)?;
        }
        Ok(())
    }

    /// The gradient of a parameter is a reduction's result, or a share of the sum over the nodes that read it.
    pub(crate) fn param_grad(&mut self, param: ParamId, reduction: ReductionId) -> Result<(), OutOfMemory> {
        if self.is_shared(param) {
            return self.share(param, GradShare::Whole { reduction });
        }
        self.finalise(reduction, Finaliser::ParamGrad { reduction, param })?;
        push(&mut self.program.param_grads, param)
    }

    /// Registers what a node adds to the gradient of a parameter that others read too.
    pub(crate) fn share(&mut self, param: ParamId, of: GradShare) -> Result<(), OutOfMemory> {
        push(&mut self.shares, Share { param, of })
    }
}

/// The derived vectors that a finaliser computes.
fn derived_by(finaliser: &Finaliser) -> Vec<DerivedId> {
    match finaliser {
        Finaliser::NormEval { norm, .. } | Finaliser::NormTrain { norm, .. } => {
            vec![norm.mean, norm.inverse_std, norm.scale, norm.shift]
        }
        Finaliser::NormBackward { coefficients, .. } => coefficients.iter().flatten().copied().collect(),
        Finaliser::GlobalMean { .. }
        | Finaliser::GlobalMax { .. }
        | Finaliser::ParamGrad { .. }
        | Finaliser::SharedGrad { .. }
        | Finaliser::Loss { .. } => Vec::new(),
    }
}

pub(crate) fn identity(node: NodeId, extents: [i64; 2]) -> Edge {
    edge(node, [AxisMap::Identity; 2], extents)
}

/// The operand `node` of the given extents, read through one map per axis.
pub(crate) fn edge(node: NodeId, maps: [AxisMap; 2], extents: [i64; 2]) -> Edge {
    Edge { node, axes: std::array::from_fn(|axis| Chain::new([(maps[axis], extents[axis])])) }
}

pub(crate) fn extent(extent: i64) -> usize {
    usize::try_from(extent).expect("invariant: extents were checked when shapes were inferred")
}

pub(crate) fn pixels(extents: [i64; 2]) -> u64 {
    extents.iter().map(|extent| extent.unsigned_abs()).product()
}

#[expect(clippy::cast_precision_loss, reason = "sizes of a tensor in memory or on disk are far below 2^53")]
pub(crate) fn lossless(size: usize) -> f64 {
    size as f64
}
