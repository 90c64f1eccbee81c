//! Weights by file or by seed.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use tiled::exec::load_parameters;
use tiled::graph::{Graph, ParamSpec, Parameters, try_params};
use tiled::onnx::Weights;
use tiled::tensor::Element;

use crate::error::CliError;
use crate::network::of_model;

/// Where weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WeightsArg {
    /// `random:SEED`, distributed as PyTorch does.
    Random(u64),
    /// A `.safetensors` file.
    File(PathBuf),
}

impl FromStr for WeightsArg {
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

impl WeightsArg {
    /// The parameters of a network.
    pub(crate) fn load<T: Element>(&self, graph: &Graph) -> Result<Parameters<T>, CliError> {
        let specs: Vec<ParamSpec> = try_params(graph)?;
        match self {
            Self::Random(seed) => Ok(Parameters::initialised(&specs, *seed)?),
            Self::File(path) => Ok(load_parameters(path, &specs)?),
        }
    }
}

/// The parameters that a network file holds, converted.
pub(crate) fn of_file<T: Element>(weights: Weights, net: &Path) -> Result<Parameters<T>, CliError> {
    weights.into_parameters().map_err(|source| of_model(net, source))
}

#[cfg(test)]
mod tests {
    use super::WeightsArg;

    #[test]
    fn weights_are_a_seed_or_a_file() {
        assert_eq!("random:7".parse(), Ok(WeightsArg::Random(7)));
        assert_eq!("w.safetensors".parse(), Ok(WeightsArg::File("w.safetensors".into())));
        assert!("random:x".parse::<WeightsArg>().is_err());
    }
}
