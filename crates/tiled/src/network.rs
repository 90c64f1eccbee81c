//! Networks by name: built in, or in a file with or without weights.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tiled_exec::{IoError, load_parameters, open_regular};
use tiled_graph::{
    Graph, GraphError, Merged, Op, ParamSpec, Parameters, Upsample, UpsampleTo, builtin_names, merge,
    try_params,
};
use tiled_onnx::{DeclaredInput, OnnxError, Weights};
use tiled_tensor::Element;

/// A network, and the weights that its file holds with it.
///
/// ```
/// use tiled::network::Network;
///
/// let network = Network::load("light")?; // or model.onnx, or network.json
/// assert_eq!(network.outputs, ["pool2"]);
/// assert!(network.weights.is_none());
/// # Ok::<(), tiled::network::NetworkError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Network {
    /// The network.
    pub graph: Graph,
    /// Its weights; a file of JSON has none.
    pub weights: Option<Weights>,
    /// What its file calls the outputs, in their order.
    pub outputs: Vec<String>,
    /// What a model declares of its inputs; of other networks nothing.
    declared: Vec<DeclaredInput>,
    /// Inputs and outputs that have their channels last in the model.
    channels_last: Vec<String>,
}

/// Why there is no such network, or none for an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// No network is built in under this name, and no file has it.
    #[error("unknown network `{name}`: built in are {known}, a file ends in .json or .onnx")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The file is none, or cannot be opened.
    #[error(transparent)]
    Open(#[from] IoError),
    /// The file cannot be read.
    #[error("`{}`: cannot read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds no network.
    #[error("`{}`: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<GraphError>,
    },
    /// The file is no model that is a network.
    #[error("`{}`: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// All that is wrong with it.
        source: Box<OnnxError>,
    },
    /// Memory for a built-in network is refused, or its parameters cannot be listed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A model for one size of image makes a value of that size whatever it is given.
    #[error(
        "input `{name}` is {}×{}, the model declares {}×{}, and upsample `{node}` makes {}×{} of any image: export it with open sizes",
        got[0], got[1], declared[0], declared[1], size[0], size[1]
    )]
    OtherSize {
        /// The input, as the model calls it.
        name: String,
        /// The height and width that the model declares.
        declared: [usize; 2],
        /// Those of the image.
        got: [usize; 2],
        /// The node.
        node: String,
        /// The height and width that it makes.
        size: [i64; 2],
    },
}

impl Network {
    /// The built-in network of this name, or the one in this file, of JSON or ONNX.
    ///
    /// # Errors
    /// Where there is none, the file cannot be read, or what it holds is no network.
    pub fn load(name: &str) -> Result<Self, NetworkError> {
        if let Some(graph) = Graph::try_builtin(name)? {
            return Ok(Self::of_graph(graph));
        }
        let path = Path::new(name);
        let is_of = |kind| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(kind));
        if is_of("onnx") {
            return Self::read_model(path);
        }
        if !is_of("json") && !path.exists() {
            let known = builtin_names().collect::<Vec<_>>().join(", ");
            return Err(NetworkError::Unknown { name: name.to_owned(), known });
        }
        let mut text = String::new();
        let read = open_regular(path)?.read_to_string(&mut text);
        read.map_err(|source| NetworkError::Read { path: path.to_path_buf(), source })?;
        let read = Graph::from_json(&text).map_err(Box::new);
        read.map(Self::of_graph).map_err(|source| NetworkError::Format { path: path.to_path_buf(), source })
    }

    /// The network and the weights of an ONNX file.
    ///
    /// # Errors
    /// As [`tiled_onnx::read`].
    pub fn read_model(path: &Path) -> Result<Self, NetworkError> {
        let model = tiled_onnx::read(path).map_err(|source| NetworkError::of_model(path, source))?;
        let tiled_onnx::Model { graph, weights, inputs, outputs, .. } = model;
        let turned_inputs = inputs.iter().filter(|input| input.channels_last).map(|input| &input.given);
        let turned_outputs = outputs.iter().filter(|output| output.channels_last).map(|output| &output.given);
        let channels_last = turned_inputs.chain(turned_outputs).cloned().collect();
        let outputs = outputs.into_iter().map(|output| output.given).collect();
        Ok(Self { graph, weights: Some(weights), outputs, declared: inputs, channels_last })
    }

    /// A network that no file of a model holds.
    #[must_use]
    pub fn of_graph(graph: Graph) -> Self {
        let outputs = graph.outputs().iter().map(|value| graph.name(*value).to_owned()).collect();
        Self { graph, weights: None, outputs, declared: Vec::new(), channels_last: Vec::new() }
    }

    /// The network for inference with one convolution for those of one value that are added ([`tiled_graph::merge`]), and its parameters.
    ///
    /// # Errors
    /// Where the parameters are not those of the network, or memory is refused.
    pub fn merged<T: Element>(
        &self,
        parameters: Parameters<T>,
    ) -> Result<(Self, Parameters<T>), NetworkError> {
        let Merged { graph, parameters, .. } = merge(&self.graph, parameters)?;
        let (outputs, channels_last) = (self.outputs.clone(), self.channels_last.clone());
        Ok((
            Self { graph, weights: None, outputs, declared: self.declared.clone(), channels_last },
            parameters,
        ))
    }

    /// What a user should know of the network for inputs of these shapes, NCHW, in lines: which values have their channels last in
    /// the model, and which size it declares where the images have another one.
    ///
    /// # Errors
    /// Where a model declares another size and makes images of one size, whatever it is given.
    pub fn remarks(&self, given: &[[usize; 4]]) -> Result<Vec<String>, NetworkError> {
        let mut remarks = Vec::new();
        if !self.channels_last.is_empty() {
            let names: Vec<String> = self.channels_last.iter().map(|name| format!("`{name}`")).collect();
            remarks.push(format!("channels last in the model, N×C×H×W here: {}", names.join(", ")));
        }
        for (input, [.., height, width]) in self.declared.iter().zip(given) {
            let Some(declared) = input.other_extents([*height, *width]) else { continue };
            let (name, got) = (&input.given, [*height, *width]);
            let fixed = self.graph.nodes().iter().find_map(|node| match node.op {
                Op::Upsample(Upsample { to: UpsampleTo::Size(size), .. }) if is_of(size, declared) => {
                    Some((node, size))
                }
                _ => None,
            });
            if let Some((node, size)) = fixed {
                let (name, node) = (name.clone(), node.name.clone());
                return Err(NetworkError::OtherSize { name, declared, got, node, size });
            }
            remarks.push(format!(
                "warning: input `{name}` is {}×{}, the model declares {}×{}: what its exporter worked out of that size holds for it alone",
                got[0], got[1], declared[0], declared[1]
            ));
        }
        Ok(remarks)
    }
}

impl NetworkError {
    /// An error of the model in this file.
    #[must_use]
    pub fn of_model(path: &Path, source: OnnxError) -> Self {
        Self::Model { path: path.to_path_buf(), source: Box::new(source) }
    }

    /// Whether it is memory that could not be had.
    #[must_use]
    pub fn is_refused_memory(&self) -> bool {
        match self {
            Self::Open(error) => matches!(error, IoError::OutOfMemory { .. }),
            Self::Format { source, .. } => matches!(**source, GraphError::OutOfMemory { .. }),
            Self::Graph(error) => matches!(error, GraphError::OutOfMemory { .. }),
            Self::Model { source, .. } => source.is_refused_memory(),
            _ => false,
        }
    }
}

/// Where weights come from, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsFrom {
    /// `random:SEED`, distributed as PyTorch does.
    Random(u64),
    /// A `.safetensors` file.
    File(PathBuf),
}

impl FromStr for WeightsFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("random:") {
            Some(seed) => seed
                .parse()
                .map(Self::Random)
                .map_err(|_| "wants a file or random:SEED with a whole number".to_owned()),
            None => Ok(Self::File(PathBuf::from(text))),
        }
    }
}

impl WeightsFrom {
    /// The parameters of a network.
    ///
    /// # Errors
    /// Where the file cannot be read or has not all of them, in their shapes, and where memory is refused.
    pub fn load<T: Element>(&self, graph: &Graph) -> Result<Parameters<T>, tiled_exec::ExecError> {
        let specs: Vec<ParamSpec> = try_params(graph)?;
        match self {
            Self::Random(seed) => Ok(Parameters::initialised(&specs, *seed)?),
            Self::File(path) => Ok(load_parameters(path, &specs)?),
        }
    }
}

/// The weights that the file of a network holds, converted to `T`; what the model has listed or computed of them goes with this.
///
/// # Errors
/// Where the file cannot be read any more, or memory is refused.
pub fn own_parameters<T: Element>(weights: Weights, file: &Path) -> Result<Parameters<T>, NetworkError> {
    weights.into_parameters().map_err(|source| NetworkError::of_model(file, source))
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

#[cfg(test)]
mod tests {
    use super::{Network, NetworkError, WeightsFrom};

    #[test]
    fn weights_are_a_seed_or_a_file() {
        assert_eq!("random:7".parse(), Ok(WeightsFrom::Random(7)));
        assert_eq!("w.safetensors".parse(), Ok(WeightsFrom::File("w.safetensors".into())));
        assert!("random:x".parse::<WeightsFrom>().is_err());
    }

    #[test]
    fn what_is_no_network_is_told_with_the_names_that_there_are() {
        let error = Network::load("lihgt").expect_err("no network has that name");
        assert!(matches!(&error, NetworkError::Unknown { known, .. } if known.contains("light")), "{error}");
        assert!(!error.is_refused_memory());
    }
}
