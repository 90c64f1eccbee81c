//! Networks by name.

use std::io::Read;
use std::path::Path;

use tiled::exec::open_regular;
use tiled::graph::{Graph, Op, Upsample, UpsampleTo, builtin_names};
use tiled::onnx::{self, DeclaredInput, Weights};

use crate::error::CliError;
use crate::text::escape;

/// A network, and the weights that its file holds with it.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) graph: Graph,
    pub(crate) weights: Option<Weights>,
    /// The names of the outputs, for who gives files for them.
    pub(crate) outputs: Vec<String>,
    /// What a model declares of its inputs.
    declared: Vec<DeclaredInput>,
    /// What a user of the file should know of it, in lines.
    remarks: Vec<String>,
}

impl Network {
    /// What a user should know of the network for inputs of these shapes, in lines.
    ///
    /// # Errors
    /// Where a model declares another size and makes images of one size, whatever it is given.
    pub(crate) fn remarks(&self, given: &[[usize; 4]]) -> Result<Vec<String>, CliError> {
        let mut remarks = self.remarks.clone();
        for (input, [.., height, width]) in self.declared.iter().zip(given) {
            let Some(declared) = input.other_extents([*height, *width]) else { continue };
            let (name, got) = (escape(&input.given).into_owned(), [*height, *width]);
            let fixed = self.graph.nodes().iter().find_map(|node| match node.op {
                Op::Upsample(Upsample { to: UpsampleTo::Size(size), .. }) if is_of(size, declared) => {
                    Some((node, size))
                }
                _ => None,
            });
            if let Some((node, size)) = fixed {
                let node = escape(&node.name).into_owned();
                return Err(CliError::OtherSize { name, declared, got, node, size });
            }
            remarks.push(format!(
                "warning: input `{name}` is {}×{}, the model declares {}×{}: what its exporter worked out of that size holds for it alone",
                got[0], got[1], declared[0], declared[1]
            ));
        }
        Ok(remarks)
    }
}

/// Whether a size is the declared one, halved or doubled a few times: worked out of it, and not wanted for itself.
fn is_of(size: [i64; 2], declared: [usize; 2]) -> bool {
    let declared = declared.map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
    let halved = |from: [i64; 2], to: [i64; 2]| {
        (0..8).any(|times| {
            (0..2).all(|axis| from[axis] >> times == to[axis] && to[axis] << times == from[axis])
        })
    };
    halved(size, declared) || halved(declared, size)
}

/// The built-in network of this name, or the one in this file, of JSON or ONNX.
pub(crate) fn load(name: &str) -> Result<Network, CliError> {
    let alone = |graph: Graph| {
        let names = graph.outputs().iter().map(|value| graph.name(*value).to_owned());
        let outputs = names.collect();
        Network { graph, weights: None, outputs, declared: Vec::new(), remarks: Vec::new() }
    };
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
    let turned_inputs = inputs.iter().filter(|input| input.channels_last).map(|input| &input.given);
    let turned_outputs = outputs.iter().filter(|output| output.channels_last).map(|output| &output.given);
    let turned: Vec<String> =
        turned_inputs.chain(turned_outputs).map(|name| format!("`{}`", escape(name))).collect();
    let is_turned = !turned.is_empty();
    let remark = || format!("channels last in the model, N×C×H×W here: {}", turned.join(", "));
    let remarks = is_turned.then(remark).into_iter().collect();
    let outputs = outputs.into_iter().map(|output| output.given).collect();
    Ok(Network { graph, weights: Some(weights), outputs, declared: inputs, remarks })
}

/// An error of this model.
pub(crate) fn of_model(path: &Path, source: onnx::OnnxError) -> CliError {
    CliError::Model { path: path.to_path_buf(), source: source.into() }
}

/// The file that holds a network, where it is none of the built-in ones.
pub(crate) fn file(name: &str) -> Option<&Path> {
    Graph::builtin(name).is_none().then(|| Path::new(name))
}
