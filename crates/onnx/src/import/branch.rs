//! A branch of an `If` whose condition is known: its nodes take the place of the `If`, and the other branch is not looked at.
//!
//! The nodes of the graph around it that only branches read wait until a branch is taken that needs them. What a branch makes is
//! forgotten behind it, but for its outputs.

use prost::Message;

use super::scope::Scope;
use super::value::{Taken, Value};
use super::{Import, syntax};
use crate::proto::{GraphFile, NodeProto};
use crate::wire::{MOST_GRAPHS, names_of_graph};
use crate::{OnnxError, Reason};

impl Import {
    /// Imports the branch that is taken of the node at this position; gives its outputs.
    pub(super) fn branch(
        &mut self,
        scope: &Scope<'_>,
        position: usize,
        node: &NodeProto,
        taken: &Taken,
    ) -> Result<Result<Value, Reason>, OnnxError> {
        let name = taken.name;
        if scope.depth == MOST_GRAPHS {
            let got = format!("a graph within {}", scope.depth + 1);
            return Ok(Err(Reason::Attribute { name, expected: "a graph within 16 others at most", got }));
        }
        self.room.take_graph(&taken.graph)?;
        let graph = GraphFile::decode(taken.graph.clone()).map_err(syntax)?;
        if let Err(reason) = check_ends(&graph, node, name) {
            return Ok(Err(reason));
        }
        for waiting in self.starts_of_graph(scope, position, names_of_graph(&taken.graph))? {
            self.node(scope, waiting)?;
        }
        self.outputs_within(scope, node, graph).map(Ok)
    }

    /// Imports a graph within a node; what it makes is entered behind all else, and nobody has forgotten it yet.
    fn outputs_within(
        &mut self,
        scope: &Scope<'_>,
        node: &NodeProto,
        mut graph: GraphFile,
    ) -> Result<Value, OnnxError> {
        let initialisers = std::mem::take(&mut graph.initializer);
        let names = self.counted(&graph.node, &initialisers)?;
        let mut within = Scope::new(&graph.node, Some(scope));
        self.initialisers(&mut within, &names, initialisers)?;
        self.sparse_initialisers(&mut within, &graph.sparse_initializer)?;
        // an output that nobody reads need not be one
        let is_read = |name: &String| scope.number(name).is_some_and(|number| self.values[number].reads > 0);
        let outputs = graph.output.iter().zip(&node.output);
        let read: Vec<Option<&str>> =
            outputs.map(|(output, name)| is_read(name).then_some(output.name())).collect();
        self.needed(&mut within, read.iter().copied().flatten())?;
        self.nodes(&within)?;
        let mut values = Vec::with_capacity(read.len());
        for (place, name) in read.into_iter().enumerate() {
            let made = name.map_or(Ok(Value::Second(place)), |name| self.value(&within, name));
            values.push(made.unwrap_or_else(|reason| {
                self.refuse(self.place(node), reason);
                Value::Refused
            }));
        }
        Ok(Value::Several(values.into()))
    }
}

/// A branch reads no other values than those around it, and gives all that its node does.
fn check_ends(graph: &GraphFile, node: &NodeProto, name: &'static str) -> Result<(), Reason> {
    let outputs = graph.output.len();
    if !graph.input.is_empty() {
        let got = "a graph with inputs".to_owned();
        return Err(Reason::Attribute { name, expected: "a graph without inputs", got });
    }
    if outputs != node.output.len() {
        let got = format!("a graph of {outputs}");
        return Err(Reason::Attribute { name, expected: "a graph of as many outputs as the node has", got });
    }
    Ok(())
}
