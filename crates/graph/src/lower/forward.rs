//! Forward nodes: the inputs, then each operator that leads to an output.

use tiled_tensor::{OutOfMemory, collected, filled, push};

use super::{Lowering, Site};
use crate::program::SourceRole;
use crate::{PlanError, ValueId};

impl Lowering<'_> {
    pub(super) fn forward(&mut self) -> Result<(), PlanError> {
        for place in 0..self.graph.inputs().len() {
            let value = ValueId(place);
            let (channels, extents) = self.shape(value);
            let name = self.graph.name(value).to_owned();
            let node = self.source(name, SourceRole::Input(place), channels, extents, 0)?;
            self.wants_grad[node] = self.wanted.inputs[place];
            push(&mut self.values, Some(node))?;
        }
        let graph = self.graph;
        let live = self.live()?;
        for (place, node) in graph.nodes().iter().enumerate() {
            let value = ValueId(graph.inputs().len() + place);
            if !live[value.0] {
                push(&mut self.values, None)?;
                continue;
            }
            let operands = collected(node.inputs.iter().map(|input| self.node_of(*input)))?;
            let (channels, extents) = self.shape(value);
            let site = Site { name: &node.name, value, operands: &operands, channels, extents };
            let mut result = node.op.operator().lower(self, &site)?;
            if self.is_checkpoint[value.0] {
                let stored = self.store(result)?;
                self.record(&node.name, stored, move |lowering, at| {
                    // gradients wait for the end of their sweep too
                    lowering.flow(result, |lowering| lowering.store(at.gradient))
                })?;
                result = stored;
            }
            push(&mut self.values, Some(result))?;
        }
        Ok(())
    }

    /// Which values lead to an output; the others are not computed.
    fn live(&self) -> Result<Vec<bool>, OutOfMemory> {
        let inputs = self.graph.inputs().len();
        let mut live = filled(inputs + self.graph.nodes().len(), false)?;
        for output in self.graph.outputs() {
            live[output.0] = true;
        }
        for (place, node) in self.graph.nodes().iter().enumerate().rev() {
            if live[inputs + place] {
                for operand in &node.inputs {
                    live[operand.0] = true;
                }
            }
        }
        Ok(live)
    }

    fn shape(&self, value: ValueId) -> (usize, [i64; 2]) {
        let [_, channels, height, width] = self.shapes.shape(value);
        let extent = |size: usize| {
            i64::try_from(size).expect("invariant: sizes were checked when shapes were inferred")
        };
        (channels, [extent(height), extent(width)])
    }

    /// Whether the node that makes a value trains.
    pub(crate) fn trains(&self, value: ValueId) -> bool {
        self.wanted.trains[value.0 - self.graph.inputs().len()]
    }
}
