//! Whole networks in a budget of bytes.

use std::sync::Arc;

use tiled_exec::Source;
use tiled_graph::{Graph, Hold, Mode, Parameters, try_params};
use tiled_tensor::Element;

use super::calls::{What, is_statistic};
use super::run::Network;
use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::nn::{Entry, Module, Parts, Training, joined};
use crate::tensor::Tensor;

/// A network that runs tile by tile within a budget, as one function on the tape: with gradients for its inputs and parameters,
/// statistics of batch norm that are taken and moved once for each forward, and one mask of dropout.
///
/// It is a module too, whose parameters have their names in the network. Its peak is that of the plan; plans are kept by shape, and
/// forwards whose backward is to come have memory of their own.
#[derive(Debug)]
pub struct Tiled<T: Element> {
    graph: Arc<Graph>,
    memory_bytes: Option<u64>,
    hold: Hold,
    names: Vec<String>,
    tensors: Vec<Tensor<T>>,
    /// Which of them are trained.
    are_trained: Vec<bool>,
    training: Training,
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
            hold: Hold::Auto,
            names: Vec::new(),
            tensors: Vec::new(),
            are_trained: Vec::new(),
            training: Training::default(),
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

    /// The same, where values are held so: [`Hold::Materialise`] is the untiled run. By default what is fastest.
    #[must_use]
    pub fn with_hold(self, hold: Hold) -> Self {
        Self { hold, ..self }
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
        self.check_inputs(inputs.len())?;
        let network = Network { inputs: inputs.len(), ..self.network(mode) };
        let operands: Vec<&Tensor<T>> = inputs.iter().copied().chain(self.of(true)).collect();
        network.apply(&operands)
    }

    /// The outputs for images that are read where they are needed, from files or memory, and again on the way back: the tape holds
    /// nothing of them, and they get no gradients. What sources keep of themselves counts towards the budget.
    ///
    /// # Errors
    /// As [`Tiled::forward`], and where a source cannot be read.
    pub fn forward_from(&self, sources: Vec<Arc<dyn Source<T>>>, mode: Mode) -> Result<Vec<Tensor<T>>> {
        self.check_inputs(sources.len())?;
        let network = Network { inputs: 0, sources, ..self.network(mode) };
        let operands: Vec<&Tensor<T>> = self.of(true).collect();
        network.apply(&operands)
    }

    fn check_inputs(&self, got: usize) -> Result<()> {
        let expected = self.graph.inputs().len();
        if got == expected {
            return Ok(());
        }
        Err(TapeError::Count { operator: NAME, what: "inputs", expected, got })
    }

    /// The parameters that are trained, or those that are not.
    fn of(&self, trained: bool) -> impl Iterator<Item = &Tensor<T>> {
        self.tensors.iter().zip(&self.are_trained).filter(move |(_, own)| **own == trained).map(|(t, _)| t)
    }

    fn network(&self, mode: Mode) -> Network<T> {
        Network {
            name: NAME,
            what: What::Network(Arc::clone(&self.graph)),
            mode,
            inputs: 0,
            context: Some(self.context.clone()),
            sources: Vec::new(),
            statistics: self.of(false).cloned().collect(),
            memory_bytes: self.memory_bytes,
            hold: self.hold,
            seed: self.context.masks_seed(),
            mask: if mode == Mode::Train { self.context.next_mask() } else { 0 },
        }
    }
}

impl<T: Element> Parts<T> for Tiled<T> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(Entry<'_, T>)) {
        for (own, tensor) in self.names.iter().zip(&self.tensors) {
            visitor(Entry { name: joined(name, own), tensor });
        }
    }

    fn set_training(&self, training: bool) {
        Parts::<T>::set_training(&self.training, training);
    }
}

impl<T: Element> Module<T> for Tiled<T> {
    /// The output of a network of one input and one output, in the mode of the module.
    fn forward(&self, x: &Tensor<T>) -> Result<Tensor<T>> {
        let outputs = self.graph.outputs().len();
        if outputs != 1 {
            return Err(TapeError::Count { operator: NAME, what: "outputs", expected: 1, got: outputs });
        }
        let mode = if self.training.is_on() { Mode::Train } else { Mode::Eval };
        Ok(Self::forward(self, &[x], mode)?.remove(0))
    }
}

const NAME: &str = "tiled";
