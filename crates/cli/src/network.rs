//! Networks by name.

use std::io::Read;
use std::path::Path;

use tiled::exec::open_regular;
use tiled::graph::{Graph, builtin_names};
use tiled::onnx::{self, Weights};

use crate::error::CliError;
use crate::text::escape;

/// A network, and the weights that its file holds with it.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) graph: Graph,
    pub(crate) weights: Option<Weights>,
    /// What a user of the file should know of it, in lines.
    pub(crate) remarks: Vec<String>,
}

/// The built-in network of this name, or the one in this file, of JSON or ONNX.
pub(crate) fn load(name: &str) -> Result<Network, CliError> {
    let alone = |graph| Network { graph, weights: None, remarks: Vec::new() };
    if let Some(graph) = Graph::try_builtin(name)? {
        return Ok(alone(graph));
    }
    let path = Path::new(name);
    let is_of = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
    if is_of("onnx") {
        return model(path);
    }
    if !is_of("json") && !path.exists() {
        let known = builtin_names().collect::<Vec<_>>().join(", ");
        return Err(CliError::UnknownNetwork { name: name.to_owned(), known });
    }
    let mut text = String::new();
    let read = open_regular(path)?.read_to_string(&mut text);
    read.map_err(|source| CliError::ReadNetwork { path: path.to_path_buf(), source })?;
    let read = Graph::from_json(&text);
    read.map(alone).map_err(|source| CliError::Network { path: path.to_path_buf(), source: source.into() })
}

/// The network and the weights of an ONNX file.
pub(crate) fn model(path: &Path) -> Result<Network, CliError> {
    let read = onnx::read(path);
    let onnx::Model { graph, weights, inputs, outputs, .. } =
        read.map_err(|source| of_model(path, source))?;
    let inputs = inputs.iter().filter(|input| input.channels_last).map(|input| input.given.as_str());
    let outputs = outputs.iter().filter(|output| output.channels_last).map(|output| output.given.as_str());
    let turned: Vec<String> = inputs.chain(outputs).map(|name| format!("`{}`", escape(name))).collect();
    let is_turned = !turned.is_empty();
    let remark = || format!("channels last in the model, N×C×H×W here: {}", turned.join(", "));
    Ok(Network { graph, weights: Some(weights), remarks: is_turned.then(remark).into_iter().collect() })
}

/// An error of this model.
pub(crate) fn of_model(path: &Path, source: onnx::OnnxError) -> CliError {
    CliError::Model { path: path.to_path_buf(), source: source.into() }
}

/// The file that holds a network, where it is none of the built-in ones.
pub(crate) fn file(name: &str) -> Option<&Path> {
    Graph::builtin(name).is_none().then(|| Path::new(name))
}
