//! Networks and their weights.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use tiled::onnx::{self, Weights};
use tiled::prelude::{Element, Graph, Parameters, initialise, load_weights, params};

use crate::Failure;

/// A network, with the weights of its file where it has them.
pub(crate) struct Network {
    pub(crate) graph: Graph,
    weights: Option<Weights>,
}

/// A built-in network by its name, the ONNX file of `{"onnx": path}`, or a network of the network format.
pub(crate) fn read(network: &Value) -> Result<Network, Failure> {
    if let Some(path) = network.get("onnx").and_then(Value::as_str) {
        let model = onnx::read(path)?;
        return Ok(Network { graph: model.graph, weights: Some(model.weights) });
    }
    let graph = match network {
        Value::String(name) => Graph::builtin(name).ok_or_else(|| format!("no network `{name}`"))?,
        description => Graph::from_json(&description.to_string())?,
    };
    Ok(Network { graph, weights: None })
}

impl Network {
    /// The parameters: of this file, else those that came with the network, else initial ones.
    pub(crate) fn parameters<T: Element>(&self, file: Option<&Path>) -> Result<Parameters<T>, Failure> {
        let specs = params(&self.graph);
        Ok(match (file, &self.weights) {
            (Some(path), _) => Parameters::new(&specs, load_weights(path)?)?,
            (None, Some(weights)) => weights.parameters()?,
            (None, None) => initialise(&specs, 1),
        })
    }

    /// What the others call each parameter, where that is another name.
    pub(crate) fn names(&self) -> HashMap<String, String> {
        let names = self.weights.iter().flat_map(Weights::names);
        names.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned())).collect()
    }
}
