//! The network format: a network as JSON, named and defaulted as in PyTorch.

pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod names;
mod read;
mod write;

use crate::error::GraphError;
use crate::graph::Graph;
use crate::index::ValueId;

impl Graph {
    /// The network of a JSON text in the network format.
    ///
    /// # Errors
    /// Where the text is not JSON, a key or an operator is unknown, missing, given twice or of the wrong type, the network that
    /// it describes cannot be built, or memory is refused.
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

    /// Adds an operator by its name in the network format, with its attributes as a JSON object.
    ///
    /// # Errors
    /// As [`Graph::from_json`] and [`Graph::add_node`].
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let mut graph = Graph::new();
    /// let x = graph.add_input("x", 3)?;
    /// let pool = graph.add_node_from_json("p", "max_pool2d", r#"{"kernel_size": 2}"#, &[x])?;
    /// assert_eq!(graph.channels(pool), 3);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn add_node_from_json(
        &mut self,
        name: &str,
        op: &str,
        attributes: &str,
        inputs: &[ValueId],
    ) -> Result<ValueId, GraphError> {
        read::attributed(self, name, op, attributes, inputs)
    }

    /// The same as [`Graph::try_to_json`], for networks whose text is sure to find room.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let unet = Graph::builtin("unet").expect("it is built in");
    /// assert_eq!(Graph::from_json(&unet.to_json())?, unet);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    ///
    /// # Panics
    /// Where memory is refused.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.try_to_json().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The network in the network format, one node a line, every attribute written out.
    ///
    /// [`Graph::from_json`] of it is the same network.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// ```
    /// use tiled_graph::Graph;
    /// let light = Graph::builtin("light").expect("it is built in");
    /// assert_eq!(Graph::from_json(&light.try_to_json()?)?, light);
    /// # Ok::<(), tiled_graph::GraphError>(())
    /// ```
    pub fn try_to_json(&self) -> Result<String, GraphError> {
        Ok(write::graph(self)?)
    }
}
