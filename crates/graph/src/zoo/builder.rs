//! Networks of one line of operators, mostly.

use tiled_kernel::Activation;

use crate::{Conv2d, Graph, GraphError, MaxPool2d, Op, ValueId};

/// A network that grows at its last value.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) graph: Graph,
    pub(super) last: ValueId,
}

impl Builder {
    pub(super) fn new(channels: usize) -> Result<Self, GraphError> {
        let mut graph = Graph::new();
        let last = graph.add_input("x", channels)?;
        Ok(Self { graph, last })
    }

    pub(super) fn push(&mut self, name: &str, op: Op) -> Result<ValueId, GraphError> {
        self.last = self.graph.add_node(name, op, &[self.last])?;
        Ok(self.last)
    }

    pub(super) fn join(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        self.last = self.graph.add_node(name, op, inputs)?;
        Ok(self.last)
    }

    pub(super) fn conv(&mut self, name: &str, conv: Conv2d) -> Result<ValueId, GraphError> {
        self.push(name, Op::Conv2d(conv))
    }

    pub(super) fn max_pool(&mut self, name: &str, pool: MaxPool2d) -> Result<ValueId, GraphError> {
        self.push(name, Op::MaxPool2d(pool))
    }

    pub(super) fn relu(&mut self, name: &str) -> Result<ValueId, GraphError> {
        self.push(name, Op::Activation(Activation::Relu))
    }

    pub(super) fn finish(mut self) -> Result<Graph, GraphError> {
        self.graph.set_outputs(&[self.last])?;
        Ok(self.graph)
    }
}
