//! From a network to a [`Program`]: operators become kernels, training becomes more nodes.

mod backward;
mod forward;
mod tape;

use std::collections::HashMap;

use tiled_geometry::AxisMap;
use tiled_kernel::Reduction;

use crate::program::{
    Edge, Finaliser, NodeId, NodeKind, Param, Program, ProgramNode, ProgramReduction, SinkRole, SourceRole,
    Store,
};
use crate::rate::rates;
use crate::wanted::Wanted;
use crate::{Graph, Objective, PlanError, Shapes, ValueId};
use tape::Tape;

/// Lowers a network for an objective.
///
/// `checkpoints` are values of nodes that are kept whole: what follows them runs in a later sweep, and in
/// training the part before them is computed again for its own backward sweep.
///
/// # Errors
/// Where the objective does not fit the network (a target of the wrong shape, a name that it has not).
pub fn lower(
    graph: &Graph,
    shapes: &Shapes,
    objective: &Objective,
    checkpoints: &[ValueId],
) -> Result<Program, PlanError> {
    let mut lowering = Lowering::new(graph, shapes, objective, checkpoints)?;
    lowering.forward()?;
    lowering.outputs();
    lowering.program.forward = lowering.program.nodes.len();
    if let Some(loss) = objective.loss {
        lowering.backward(loss)?;
    }
    Ok(lowering.finish())
}

struct Lowering<'a> {
    graph: &'a Graph,
    shapes: &'a Shapes,
    objective: &'a Objective,
    wanted: Wanted,
    program: Program,
    /// The node that holds each value of the graph.
    values: Vec<NodeId>,
    /// Whether a gradient flows to a node.
    wants_grad: Vec<bool>,
    tape: Vec<Tape>,
    /// The place of each parameter by its name.
    param_places: HashMap<String, usize>,
    /// How often each value of the graph is read, and whether it is an output.
    reads: Vec<usize>,
    is_output: Vec<bool>,
    is_checkpoint: Vec<bool>,
    /// The level that each derived vector is known at.
    derived_levels: Vec<usize>,
}

impl<'a> Lowering<'a> {
    fn new(
        graph: &'a Graph,
        shapes: &'a Shapes,
        objective: &'a Objective,
        checkpoints: &'a [ValueId],
    ) -> Result<Self, PlanError> {
        let specs = crate::params(graph);
        let program = Program {
            params: specs.iter().map(|spec| spec.shape.iter().product()).collect(),
            ignore_index: objective.ignore_index,
            ..Program::default()
        };
        let mut reads = vec![0; graph.values()];
        for input in graph.nodes().iter().flat_map(|node| &node.inputs) {
            reads[input.0] += 1;
        }
        let marked = |values: &[ValueId]| {
            let mut marks = vec![false; graph.values()];
            for value in values {
                if let Some(mark) = marks.get_mut(value.0) {
                    *mark = true;
                }
            }
            marks
        };
        let (is_output, is_checkpoint) = (marked(graph.outputs()), marked(checkpoints));
        let wanted = Wanted::new(graph, &specs, objective)?;
        Ok(Self {
            wanted,
            graph,
            shapes,
            objective,
            program,
            values: Vec::new(),
            wants_grad: Vec::new(),
            tape: Vec::new(),
            param_places: specs.into_iter().enumerate().map(|(place, spec)| (spec.name, place)).collect(),
            reads,
            is_output,
            is_checkpoint,
            derived_levels: Vec::new(),
        })
    }

    /// Whether the gradient of one of these parameters is wanted.
    fn wants_any(&self, params: impl IntoIterator<Item = Option<usize>>) -> bool {
        params.into_iter().flatten().any(|param| self.wanted.params[param])
    }

    fn param(&self, node: &str, what: &str) -> usize {
        let name = format!("{node}.{what}");
        *self.param_places.get(&name).expect("invariant: every operator lists its parameters")
    }

    /// Adds a node with the level that its operands and parameters give it.
    fn push(
        &mut self,
        name: String,
        kind: NodeKind,
        channels: usize,
        extents: [i64; 2],
        operands: Vec<Edge>,
        params: Vec<Param>,
    ) -> NodeId {
        let operand_level =
            operands.iter().map(|edge| self.program.nodes[edge.node].level).max().unwrap_or(0);
        let param_level = params.iter().map(|param| self.param_level(*param)).max().unwrap_or(0);
        let wants_grad = operands.iter().any(|edge| self.wants_grad[edge.node]);
        self.program.nodes.push(ProgramNode {
            name,
            kind,
            batch: self.shapes.batch(),
            channels,
            extents,
            operands,
            params,
            level: operand_level.max(param_level),
        });
        self.wants_grad.push(wants_grad);
        self.program.nodes.len() - 1
    }

    /// The sweep before which a parameter is known.
    fn param_level(&self, param: Param) -> usize {
        match param {
            Param::Network(_) => 0,
            Param::Derived(derived) => self.derived_levels[derived],
        }
    }

    fn source(
        &mut self,
        name: String,
        role: SourceRole,
        channels: usize,
        extents: [i64; 2],
        level: usize,
    ) -> NodeId {
        let node = self.push(name, NodeKind::Source(role), channels, extents, Vec::new(), Vec::new());
        self.program.nodes[node].level = level;
        node
    }

    fn sink(&mut self, name: String, role: SinkRole, operand: NodeId) -> NodeId {
        let (channels, extents) = (self.program.nodes[operand].channels, self.program.nodes[operand].extents);
        let edge = identity(operand, extents);
        self.push(name, NodeKind::Sink(role), channels, extents, vec![edge], Vec::new())
    }

    /// Adds a reduction over the domain of `channels × extents` and returns its place.
    fn reduce(
        &mut self,
        name: String,
        reduction: Reduction,
        channels: usize,
        extents: [i64; 2],
        operands: Vec<Edge>,
        params: Vec<Param>,
    ) -> usize {
        let place = self.program.reductions.len();
        let node = self.push(name, NodeKind::Reduce(place), channels, extents, operands, params);
        self.program.reductions.push(ProgramReduction { reduction, node });
        place
    }

    /// Registers what becomes of a reduction after its sweep.
    fn finalise(&mut self, reduction: usize, finaliser: Finaliser) {
        let sweep = self.program.nodes[self.program.reductions[reduction].node].level;
        for derived in derived_by(&finaliser) {
            self.derived_levels[derived] = sweep + 1;
        }
        self.program.finalisers.push((Some(sweep), finaliser));
    }

    fn derive(&mut self, len: usize) -> usize {
        self.program.derived.push(len);
        self.derived_levels.push(0);
        self.program.derived.len() - 1
    }

    /// Keeps a value whole; what reads the returned node runs in a later sweep.
    fn store(&mut self, value: NodeId) -> NodeId {
        let node = &self.program.nodes[value];
        let (name, channels, extents, level) = (node.name.clone(), node.channels, node.extents, node.level);
        let place = self.program.stores.len();
        let shape = [self.shapes.batch(), channels, extent(extents[0]), extent(extents[1])];
        self.program.stores.push(Store { name: name.clone(), shape });
        self.sink(format!("{name}.store"), SinkRole::Store(place), value);
        let source =
            self.source(format!("{name}.stored"), SourceRole::Store(place), channels, extents, level + 1);
        self.wants_grad[source] = self.wants_grad[value];
        source
    }

    /// The sinks of the outputs.
    fn outputs(&mut self) {
        self.program.anchor_node = self.anchor();
        self.program.anchor =
            self.program.anchor_node.map_or([1, 1], |node| self.program.nodes[node].extents);
        if self.objective.outputs {
            for (place, value) in self.graph.outputs().to_vec().into_iter().enumerate() {
                let name = format!("{}.output", self.graph.name(value));
                self.sink(name, SinkRole::Output(place), self.values[value.0]);
            }
        }
    }

    /// The node whose height and width tiles are given in.
    fn anchor(&self) -> Option<NodeId> {
        let outputs = self.graph.outputs().iter().map(|value| self.values[value.0]);
        let pooled = self.program.reductions.iter().rev().map(|reduction| reduction.node);
        outputs.chain(pooled).find(|node| self.program.nodes[*node].extents != [1, 1])
    }

    fn finish(mut self) -> Program {
        self.program.rates = [0, 1].map(|axis| rates(&self.program.nodes, axis));
        self.program.finalisers.sort_by_key(|(sweep, _)| *sweep);
        self.program
    }
}

/// The derived vectors that a finaliser computes.
fn derived_by(finaliser: &Finaliser) -> Vec<usize> {
    match finaliser {
        Finaliser::BatchNormEval { norm } | Finaliser::BatchNormTrain { norm, .. } => {
            vec![norm.mean, norm.inverse_std, norm.scale, norm.shift]
        }
        Finaliser::BatchNormBackward { coefficients, .. } => coefficients.iter().flatten().copied().collect(),
        Finaliser::GlobalMax { positions, .. } => vec![*positions],
        Finaliser::GlobalMean { .. } | Finaliser::ParamGrad { .. } | Finaliser::Loss { .. } => Vec::new(),
    }
}

fn identity(node: NodeId, extents: [i64; 2]) -> Edge {
    edge(node, [AxisMap::Identity; 2], extents)
}

/// The operand `node` of the given extents, read through one map per axis.
fn edge(node: NodeId, maps: [AxisMap; 2], extents: [i64; 2]) -> Edge {
    Edge { node, axes: std::array::from_fn(|axis| vec![(maps[axis], extents[axis])]) }
}

fn extent(extent: i64) -> usize {
    usize::try_from(extent).expect("invariant: extents were checked when shapes were inferred")
}
