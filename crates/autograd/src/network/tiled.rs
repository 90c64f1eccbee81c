//! Whole networks in a budget of bytes.

use std::sync::Arc;

use tiled_graph::{Graph, Mode, Parameters, try_params};
use tiled_tensor::Element;

use super::calls::{What, is_statistic};
use super::run::Network;
use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::tensor::Tensor;

/// A network that runs tile by tile within a budget, as one function on the tape: with gradients for its inputs and parameters,
/// statistics of batch norm that are taken and moved once for each forward, and one mask of dropout.
///
/// Its peak is that of the plan; plans are kept by shape, and forwards whose backward is to come have memory of their own.
#[derive(Debug)]
pub struct Tiled<T: Element> {
    graph: Arc<Graph>,
    memory_bytes: Option<u64>,
    names: Vec<String>,
    tensors: Vec<Tensor<T>>,
    /// Which of them are trained.
    are_trained: Vec<bool>,
    context: Context<T>,
}

impl<T: Element> Tiled<T> {
    /// The network with parameters as PyTorch distributes them, from a seed, and the most bytes that a run may hold: what makes it
    /// fastest where not given.
    ///
    /// # Errors
    /// Where memory for the parameters is refused.
    pub fn new(context: &Context<T>, graph: Graph, memory_bytes: Option<u64>, seed: u64) -> Result<Self> {
        let failed = TapeError::network(NAME);
        let specs = try_params(&graph).map_err(failed)?;
        let parameters = Parameters::<T>::initialised(&specs, seed).map_err(failed)?;
        let mut tiled = Self {
            graph: Arc::new(graph),
            memory_bytes,
            names: Vec::new(),
            tensors: Vec::new(),
            are_trained: Vec::new(),
            context: context.clone(),
        };
        for (spec, parameter) in specs.iter().zip(parameters.tensors()) {
            let tensor = context.from_slice(&parameter.shape, &parameter.data)?;
            let is_trained = !is_statistic(spec);
            tiled.tensors.push(if is_trained { tensor.with_gradient()? } else { tensor });
            tiled.are_trained.push(is_trained);
            tiled.names.push(spec.name.clone());
        }
        Ok(tiled)
    }

    /// The network.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Names and tensors of the parameters, in the order of the network, and whether each is trained.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor<T>, bool)> {
        let names = self.names.iter().map(String::as_str);
        names
            .zip(&self.tensors)
            .zip(&self.are_trained)
            .map(|((name, tensor), trained)| (name, tensor, *trained))
    }

    /// The outputs for images N×C×H×W.
    ///
    /// # Errors
    /// Where inputs do not fit the network, no plan fits the budget, or memory is refused.
    pub fn forward(&self, inputs: &[&Tensor<T>], mode: Mode) -> Result<Vec<Tensor<T>>> {
        let expected = self.graph.inputs().len();
        if inputs.len() != expected {
            let (operator, expected, got) = (NAME, [expected].as_slice().into(), inputs.len());
            return Err(TapeError::Elements { operator, expected, got });
        }
        let of = |trained: bool| {
            self.tensors
                .iter()
                .zip(&self.are_trained)
                .filter(move |(_, own)| **own == trained)
                .map(|(t, _)| t)
        };
        let network = Network {
            name: NAME,
            what: What::Network(Arc::clone(&self.graph)),
            mode,
            inputs: inputs.len(),
            statistics: of(false).cloned().collect(),
            memory_bytes: self.memory_bytes,
            seed: self.context.masks_seed(),
            mask: if mode == Mode::Train { self.context.next_mask() } else { 0 },
        };
        let operands: Vec<&Tensor<T>> = inputs.iter().copied().chain(of(true)).collect();
        network.apply(&operands)
    }
}

const NAME: &str = "tiled";
