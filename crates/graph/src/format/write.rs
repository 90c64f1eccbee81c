//! From a network to JSON.

use serde_json::{Value, json};
use tiled_tensor::{OutOfMemory, refusable};

use super::json::quoted;
use crate::graph::Graph;
use crate::index::ValueId;

/// The text of a network, one input or node a line.
pub(super) fn graph(graph: &Graph) -> Result<String, OutOfMemory> {
    let mut text = Text(String::new());
    text.add("{\n  \"inputs\": [")?;
    for (position, input) in graph.inputs().iter().enumerate() {
        text.line(position)?;
        text.add(&json!({"name": input.name, "channels": input.channels}).to_string())?;
    }
    text.end(graph.inputs().len())?;
    text.add("],\n  \"nodes\": [")?;
    for (position, node) in graph.nodes().iter().enumerate() {
        text.line(position)?;
        text.add(&format!(
            "{{\"name\":{},\"op\":{},\"inputs\":",
            quoted(&node.name),
            quoted(node.op.name())
        ))?;
        text.names(graph, &node.inputs)?;
        if let Value::Object(mut attributes) = node.op.operator().write(graph) {
            for shared in &node.shared {
                let key = shared.kind.suffix();
                let name = format!("{}.{key}", graph.nodes()[shared.node].name);
                attributes.insert(key.to_owned(), name.into());
            }
            for (key, value) in attributes {
                text.add(&format!(",{}:{value}", quoted(&key)))?;
            }
        }
        text.add("}")?;
    }
    text.end(graph.nodes().len())?;
    text.add("],\n  \"outputs\": ")?;
    text.names(graph, graph.outputs())?;
    text.add("\n}\n")?;
    Ok(text.0)
}

/// A text that grows where memory is had.
struct Text(String);

impl Text {
    fn add(&mut self, more: &str) -> Result<(), OutOfMemory> {
        if self.0.capacity() - self.0.len() < more.len() {
            let wanted = (self.0.len() + more.len()).max(2 * self.0.capacity());
            refusable(|| self.0.try_reserve(more.len())).map_err(|_| OutOfMemory::of::<u8>(wanted))?;
        }
        self.0.push_str(more);
        Ok(())
    }

    /// Begins the line of an entry of a list.
    fn line(&mut self, position: usize) -> Result<(), OutOfMemory> {
        self.add(if position == 0 { "\n    " } else { ",\n    " })
    }

    /// Ends the last line of a list of so many.
    fn end(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.add(if count == 0 { "" } else { "\n  " })
    }

    /// The names of values as a list.
    fn names(&mut self, graph: &Graph, values: &[ValueId]) -> Result<(), OutOfMemory> {
        self.add("[")?;
        for (position, value) in values.iter().enumerate() {
            self.add(if position == 0 { "" } else { "," })?;
            self.add(&quoted(graph.name(*value)))?;
        }
        self.add("]")
    }
}
