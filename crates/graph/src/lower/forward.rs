//! Forward nodes: the inputs, then each operator that leads to an output, then the outputs.

use tiled_tensor::{OutOfMemory, collected, filled, push, refusable, with_room};

use super::builder::{Lowering, Site};
use crate::graph::Graph;
use crate::index::{IndexVec, ValueId};
use crate::objective::Objective;
use crate::params::{Reading, readings, try_params};
use crate::plan::error::PlanError;
use crate::program::{NodeId, ParamId, Program, SinkRole, SourceRole};
use crate::shapes::Shapes;
use crate::wanted::Wanted;

/// A network on its way into a program.
pub(super) struct Network<'a> {
    graph: &'a Graph,
    shapes: &'a Shapes,
    objective: &'a Objective,
    pub(super) lowering: Lowering,
    /// The inputs whose gradients are wanted.
    pub(super) wanted: Vec<bool>,
    /// The nodes that train.
    trains: Vec<bool>,
    /// The node that holds each value of the graph; `None` where nothing that is lowered reads it.
    values: Vec<Option<NodeId>>,
    /// How often each value of the graph is read; an output is read once more.
    reads: Vec<usize>,
    /// Whether the node that holds a value serves one reader alone: operators that leave a value as it is add no node.
    is_owned: Vec<bool>,
    is_checkpoint: Vec<bool>,
}

impl<'a> Network<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        shapes: &'a Shapes,
        objective: &'a Objective,
        checkpoints: &[ValueId],
    ) -> Result<Self, PlanError> {
        let specs = try_params(graph)?;
        let mut reads = filled(graph.values(), 0)?;
        for input in graph.nodes().iter().flat_map(|node| &node.inputs).chain(graph.outputs()) {
            reads[input.0] += 1;
        }
        let mut is_checkpoint = filled(graph.values(), false)?;
        for value in checkpoints {
            if let Some(mark) = is_checkpoint.get_mut(value.0) {
                *mark = true;
            }
        }
        let mut lowering = Lowering {
            program: Program {
                cuts: Vec::new(),
                params: collected(specs.iter().map(|spec| spec.shape.iter().product()))?.into(),
                ignore_index: objective.ignore_index,
                ..Program::default()
            },
            batch: shapes.batch(),
            seed: objective.seed,
            readers: IndexVec::filled(specs.len(), 0)?,
            ..Lowering::default()
        };
        let Wanted { inputs, params, trains } = Wanted::new(graph, &specs, objective)?;
        lowering.wanted = params;
        let readings = readings(graph, &specs)?;
        refusable(|| lowering.param_names.try_reserve(readings.len()))
            .map_err(|_| OutOfMemory::of::<(String, ParamId)>(readings.len()))?;
        for Reading { node, kind, param } in readings {
            let name = format!("{}.{}", graph.nodes()[node].name, kind.suffix());
            lowering.param_names.insert(name, param);
            lowering.readers[param] += 1;
        }
        Ok(Self {
            graph,
            shapes,
            objective,
            lowering,
            wanted: inputs,
            trains,
            values: with_room(graph.values())?,
            reads,
            is_owned: filled(graph.values(), false)?,
            is_checkpoint,
        })
    }

    /// Adds what the network itself computes.
    pub(super) fn forward(&mut self) -> Result<(), PlanError> {
        self.inputs()?;
        self.nodes()?;
        self.outputs()?;
        self.lowering.program.forward = self.lowering.program.nodes.len();
        Ok(())
    }

    fn inputs(&mut self) -> Result<(), OutOfMemory> {
        for (input, wants_grad) in self.wanted.iter().enumerate() {
            let value = ValueId(input);
            let (channels, extents) = self.shape(value);
            let name = self.graph.name(value).to_owned();
            let node = self.lowering.source(name, SourceRole::Input(input), channels, extents, 0)?;
            self.lowering.wants_grad[node] = *wants_grad;
            push(&mut self.values, Some(node))?;
        }
        Ok(())
    }

    fn nodes(&mut self) -> Result<(), PlanError> {
        let graph = self.graph;
        let live = self.live()?;
        for (position, node) in graph.nodes().iter().enumerate() {
            let value = graph.node_value(position);
            if !live[value.0] {
                push(&mut self.values, None)?;
                continue;
            }
            let operands = collected(node.inputs.iter().map(|input| self.node_of(*input)))?;
            let (channels, extents) = self.shape(value);
            let site = Site {
                name: &node.name,
                value,
                operands: &operands,
                owns_x: self.is_owned[node.inputs[0].0],
                trains: self.trains[position],
                channels,
                extents,
            };
            let mut result = node.op.operator().lower(&mut self.lowering, &site)?;
            // in the node of a value that others read too: stored apart, its gradient would be added to theirs in another order
            let is_left = result == site.x() && !site.owns_x;
            if self.is_checkpoint[value.0] && !is_left {
                let stored = self.lowering.store(result)?;
                self.lowering.record(&node.name, stored, move |lowering, at| {
                    // gradients wait for the end of their sweep too
                    lowering.flow(result, |lowering| lowering.store(at.gradient))
                })?;
                result = stored;
            }
            self.is_owned[value.0] = self.reads[value.0] == 1 && !is_left;
            push(&mut self.values, Some(result))?;
        }
        Ok(())
    }

    /// The sinks of the outputs.
    fn outputs(&mut self) -> Result<(), OutOfMemory> {
        let anchor = self.anchor();
        let program = &mut self.lowering.program;
        program.anchor_node = anchor;
        program.anchor = anchor.map_or([1, 1], |node| program.nodes[node].extents);
        if self.objective.outputs {
            for (output, value) in self.graph.outputs().iter().enumerate() {
                let (name, node) = (format!("{}.output", self.graph.name(*value)), self.node_of(*value));
                self.lowering.sink(name, SinkRole::Output(output), node)?;
            }
        }
        Ok(())
    }

    /// The node whose height and width tiles are given in.
    fn anchor(&self) -> Option<NodeId> {
        let program = &self.lowering.program;
        let outputs = self.graph.outputs().iter().map(|value| self.node_of(*value));
        let pooled = program.reductions.iter().rev().map(|reduction| reduction.node);
        // a gradient spreads over the input even where the output is one pixel
        let inputs = self.values.iter().take(self.graph.inputs().len()).copied().flatten();
        let inputs = inputs.filter(|_| self.objective.loss.is_some());
        outputs.chain(pooled).chain(inputs).find(|node| program.nodes[*node].extents != [1, 1])
    }

    /// Which values lead to an output; the others are not computed.
    fn live(&self) -> Result<Vec<bool>, OutOfMemory> {
        let mut live = filled(self.graph.values(), false)?;
        for output in self.graph.outputs() {
            live[output.0] = true;
        }
        for (position, node) in self.graph.nodes().iter().enumerate().rev() {
            if live[self.graph.node_value(position).0] {
                for operand in &node.inputs {
                    live[operand.0] = true;
                }
            }
        }
        Ok(live)
    }

    /// The node that holds a value that something reads.
    pub(super) fn node_of(&self, value: ValueId) -> NodeId {
        self.values[value.0].expect("invariant: what is read is lowered")
    }

    /// The nodes that hold the outputs.
    pub(super) fn output_nodes(&self) -> Result<Vec<NodeId>, OutOfMemory> {
        collected(self.graph.outputs().iter().map(|value| self.node_of(*value)))
    }

    fn shape(&self, value: ValueId) -> (usize, [i64; 2]) {
        let [_, channels, height, width] = self.shapes.shape(value);
        let extent = |size: usize| {
            i64::try_from(size).expect("invariant: sizes were checked when shapes were inferred")
        };
        (channels, [extent(height), extent(width)])
    }
}
