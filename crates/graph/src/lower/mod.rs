//! From a network to a [`Program`]: operators become kernels, training becomes more nodes.

mod backward;
mod forward;
mod tape;

use std::collections::HashMap;

use tiled_geometry::{AxisMap, Chain};
use tiled_kernel::Reduction;
use tiled_tensor::{OutOfMemory, collected, filled, push, refusable, with_room};

use crate::index::IndexVec;
use crate::params::{Reading, readings};
use crate::program::{
    Edge, Finaliser, NodeId, NodeKind, Param, Program, ProgramNode, ProgramReduction, SinkRole, SourceRole,
    Store,
};
use crate::rate::rates;
use crate::wanted::Wanted;
use crate::{Graph, Objective, PlanError, Shapes, ValueId};
use backward::{Gradients, Share};
use tape::Tape;
pub(crate) use tape::{Flowing, Saved, Unary};

/// Lowers a network for an objective.
///
/// `checkpoints` are values of nodes that are kept whole: what follows them runs in a later sweep, and in
/// training the part before them is computed again for its own backward sweep.
///
/// # Errors
/// Where the objective does not fit the network (a target of the wrong shape, a name that it has not), or memory is refused.
///
/// ```
/// use tiled_graph::{Graph, Objective, infer, lower};
/// let graph = Graph::from_json(r#"{"inputs": [{"name": "x", "channels": 3}], "outputs": ["c"], "nodes": [
///     {"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": 3}]}"#)?;
/// let program = lower(&graph, &infer(&graph, 1, &[[10, 12]])?, &Objective::inference(), &[])?;
/// let names: Vec<&str> = program.nodes.iter().map(|node| node.name.as_str()).collect();
/// assert_eq!(names, ["x", "c", "c.output"]);
/// assert_eq!(program.anchor, [8, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lower(
    graph: &Graph,
    shapes: &Shapes,
    objective: &Objective,
    checkpoints: &[ValueId],
) -> Result<Program, PlanError> {
    let mut lowering = Lowering::new(graph, shapes, objective, checkpoints)?;
    lowering.forward()?;
    lowering.outputs()?;
    lowering.program.forward = lowering.program.nodes.len();
    if let Some(loss) = objective.loss {
        lowering.backward(loss)?;
    }
    lowering.finish()
}

/// A program that grows node by node.
pub(crate) struct Lowering<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) shapes: &'a Shapes,
    pub(crate) objective: &'a Objective,
    pub(crate) wanted: Wanted,
    pub(crate) program: Program,
    /// The node that holds each value of the graph; `None` where nothing that is lowered reads it.
    values: Vec<Option<NodeId>>,
    /// Whether a gradient flows to a node.
    pub(crate) wants_grad: IndexVec<NodeId, bool>,
    pub(crate) tape: Vec<Tape>,
    /// The place of each parameter by the names that nodes have for it.
    param_places: HashMap<String, usize>,
    /// How many nodes read each parameter.
    pub(crate) readers: Vec<usize>,
    /// What sums up to gradients of parameters that several nodes read, the last node first.
    shares: Vec<Share>,
    /// What flows into each node so far, in a fixed order.
    gradients: Gradients,
    /// How often each value of the graph is read, and whether it is an output.
    pub(crate) reads: Vec<usize>,
    pub(crate) is_output: Vec<bool>,
    is_checkpoint: Vec<bool>,
    /// The level that each derived vector is known at.
    derived_levels: Vec<usize>,
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
}

impl Site<'_> {
    /// The first operand.
    pub(crate) const fn x(&self) -> NodeId {
        self.operands[0]
    }
}

impl<'a> Lowering<'a> {
    fn new(
        graph: &'a Graph,
        shapes: &'a Shapes,
        objective: &'a Objective,
        checkpoints: &'a [ValueId],
    ) -> Result<Self, PlanError> {
        let specs = crate::try_params(graph)?;
        let program = Program {
            params: collected(specs.iter().map(|spec| spec.shape.iter().product()))?,
            ignore_index: objective.ignore_index,
            ..Program::default()
        };
        let mut reads = filled(graph.values(), 0)?;
        for input in graph.nodes().iter().flat_map(|node| &node.inputs) {
            reads[input.0] += 1;
        }
        let marked = |values: &[ValueId]| {
            let mut marks = filled(graph.values(), false)?;
            for value in values {
                if let Some(mark) = marks.get_mut(value.0) {
                    *mark = true;
                }
            }
            Ok::<_, OutOfMemory>(marks)
        };
        let (is_output, is_checkpoint) = (marked(graph.outputs())?, marked(checkpoints)?);
        let wanted = Wanted::new(graph, &specs, objective)?;
        let mut param_places = HashMap::new();
        let readings = readings(graph, &specs)?;
        refusable(|| param_places.try_reserve(readings.len()))
            .map_err(|_| OutOfMemory::of::<(String, usize)>(readings.len()))?;
        let mut readers = filled(specs.len(), 0)?;
        for Reading { node, kind, param } in readings {
            param_places.insert(format!("{}.{}", graph.nodes()[node].name, kind.suffix()), param);
            readers[param] += 1;
        }
        Ok(Self {
            wanted,
            graph,
            shapes,
            objective,
            program,
            values: with_room(graph.values())?,
            wants_grad: IndexVec::new(),
            tape: Vec::new(),
            param_places,
            readers,
            shares: Vec::new(),
            gradients: Gradients::new(),
            reads,
            is_output,
            is_checkpoint,
            derived_levels: Vec::new(),
        })
    }

    /// Whether the gradient of one of these parameters is wanted.
    pub(crate) fn wants_any(&self, params: impl IntoIterator<Item = Option<usize>>) -> bool {
        params.into_iter().flatten().any(|param| self.wanted.params[param])
    }

    pub(crate) fn param(&self, node: &str, what: &str) -> usize {
        let name = format!("{node}.{what}");
        *self.param_places.get(&name).expect("invariant: every operator lists its parameters")
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
            batch: self.shapes.batch(),
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

    fn sink(&mut self, name: String, role: SinkRole, operand: NodeId) -> Result<NodeId, OutOfMemory> {
        let (channels, extents) = (self.program.nodes[operand].channels, self.program.nodes[operand].extents);
        let edge = identity(operand, extents);
        self.push(name, NodeKind::Sink(role), channels, extents, vec![edge], Vec::new())
    }

    /// Adds a reduction over the domain of `channels × extents` and returns its place.
    pub(crate) fn reduce(
        &mut self,
        name: String,
        reduction: Reduction,
        channels: usize,
        extents: [i64; 2],
        operands: Vec<Edge>,
        params: Vec<Param>,
    ) -> Result<usize, OutOfMemory> {
        let place = self.program.reductions.len();
        let node = self.push(name, NodeKind::Reduce(place), channels, extents, operands, params)?;
        push(&mut self.program.reductions, ProgramReduction { reduction, node })?;
        Ok(place)
    }

    /// Registers what becomes of a reduction after its sweep.
    pub(crate) fn finalise(&mut self, reduction: usize, finaliser: Finaliser) -> Result<(), OutOfMemory> {
        let sweep = self.known_after(reduction);
        for derived in derived_by(&finaliser) {
            self.derived_levels[derived] = sweep + 1;
        }
        push(&mut self.program.finalisers, (Some(sweep), finaliser))
    }

    /// The sweep after which a reduction is known.
    fn known_after(&self, reduction: usize) -> usize {
        self.program.nodes[self.program.reductions[reduction].node].level
    }

    /// A vector of zeros: a derived one that no finaliser writes.
    pub(crate) fn zeros(&mut self, len: usize) -> Result<usize, OutOfMemory> {
        self.derive(len)
    }

    /// A vector that a finaliser is to write.
    pub(crate) fn derive(&mut self, len: usize) -> Result<usize, OutOfMemory> {
        push(&mut self.program.derived, len)?;
        push(&mut self.derived_levels, 0)?;
        Ok(self.program.derived.len() - 1)
    }

    /// Keeps a value whole; what reads the returned node runs in a later sweep.
    fn store(&mut self, value: NodeId) -> Result<NodeId, OutOfMemory> {
        let node = &self.program.nodes[value];
        let (name, channels, extents, level) = (node.name.clone(), node.channels, node.extents, node.level);
        let place = self.program.stores.len();
        let shape = [self.shapes.batch(), channels, extent(extents[0]), extent(extents[1])];
        push(&mut self.program.stores, Store { name: name.clone(), shape })?;
        self.sink(format!("{name}.store"), SinkRole::Store(place), value)?;
        let source =
            self.source(format!("{name}.stored"), SourceRole::Store(place), channels, extents, level + 1)?;
        self.wants_grad[source] = self.wants_grad[value];
        Ok(source)
    }

    /// The node that holds a value that something reads.
    fn node_of(&self, value: ValueId) -> NodeId {
        self.values[value.0].expect("invariant: what is read is lowered")
    }

    /// The sinks of the outputs.
    fn outputs(&mut self) -> Result<(), OutOfMemory> {
        self.program.anchor_node = self.anchor();
        self.program.anchor =
            self.program.anchor_node.map_or([1, 1], |node| self.program.nodes[node].extents);
        if self.objective.outputs {
            let graph = self.graph;
            for (place, value) in graph.outputs().iter().enumerate() {
                let name = format!("{}.output", graph.name(*value));
                self.sink(name, SinkRole::Output(place), self.node_of(*value))?;
            }
        }
        Ok(())
    }

    /// The node whose height and width tiles are given in.
    fn anchor(&self) -> Option<NodeId> {
        let outputs = self.graph.outputs().iter().map(|value| self.node_of(*value));
        let pooled = self.program.reductions.iter().rev().map(|reduction| reduction.node);
        // a gradient spreads over the input even where the output is one pixel
        let inputs = self.values.iter().take(self.graph.inputs().len()).copied().flatten();
        let inputs = inputs.filter(|_| self.objective.loss.is_some());
        outputs.chain(pooled).chain(inputs).find(|node| self.program.nodes[*node].extents != [1, 1])
    }

    fn finish(mut self) -> Result<Program, PlanError> {
        let nodes = &self.program.nodes;
        self.program.rates = [rates(nodes, 0)?, rates(nodes, 1)?];
        self.program.finalisers = in_order_of_sweeps(self.program.finalisers)?;
        Ok(self.program)
    }
}

/// The finalisers by sweep, those of one sweep in their order. A stable sort of the list itself would take memory unasked.
fn in_order_of_sweeps(
    finalisers: Vec<(Option<usize>, Finaliser)>,
) -> Result<Vec<(Option<usize>, Finaliser)>, OutOfMemory> {
    let mut order = collected(finalisers.iter().enumerate().map(|(place, (sweep, _))| (*sweep, place)))?;
    order.sort_unstable();
    let mut unordered = collected(finalisers.into_iter().map(Some))?;
    let mut ordered = with_room(order.len())?;
    ordered.extend(order.into_iter().filter_map(|(_, place)| unordered[place].take()));
    Ok(ordered)
}

/// The derived vectors that a finaliser computes.
fn derived_by(finaliser: &Finaliser) -> Vec<usize> {
    match finaliser {
        Finaliser::BatchNormEval { norm, .. } | Finaliser::BatchNormTrain { norm, .. } => {
            vec![norm.mean, norm.inverse_std, norm.scale, norm.shift]
        }
        Finaliser::BatchNormBackward { coefficients, .. } => coefficients.iter().flatten().copied().collect(),
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
