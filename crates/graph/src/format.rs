//! The network format: a network as JSON, named and defaulted as in PyTorch.

mod fields;
mod json;
mod names;
mod operators;
mod read;
mod write;

pub(crate) use names::nearest;

use crate::{Graph, GraphError};

impl Graph {
    /// The network of a JSON text in the network format.
    ///
    /// # Errors
    /// Where the text is not JSON, a key or an operator is unknown, missing, given twice or of the wrong type, or the
    /// network that it describes cannot be built.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let graph = Graph::from_json(r#"{
    ///     "inputs": [{"name": "x", "channels": 3}],
    ///     "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": "same"},
    ///               {"name": "p1", "op": "max_pool2d", "inputs": ["c1"], "kernel_size": 2}],
    ///     "outputs": ["p1"]}"#)?;
    /// assert_eq!(graph.channels(graph.outputs()[0]), 16);
    /// let error = Graph::from_json(r#"{"inputs": [{"name": "x", "chanels": 3}]}"#).expect_err("a slip");
    /// assert_eq!(error.to_string(), "input `x`: unknown key `chanels`, nearest known: `channels`");
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn from_json(text: &str) -> Result<Self, GraphError> {
        read::graph(&json::parse(text)?)
    }

    /// The network in the network format, one node a line, every attribute written out.
    ///
    /// [`Graph::from_json`] of it is the same network.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let unet = Graph::builtin("unet").expect("it is built in");
    /// assert_eq!(Graph::from_json(&unet.to_json())?, unet);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        write::graph(self)
    }
}
