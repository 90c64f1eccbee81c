//! A network on a square image in memory, to be run by plans that a program chooses.

use std::error::Error;
use std::time::Instant;

use tiled::exec::SliceSink;
use tiled::graph::{Parameters, Shapes};
use tiled::prelude::{
    Executor, Graph, Io, Loss, MemorySource, NoProgress, Objective, Sink, infer_nchw, initialise, params,
};

/// A network with parameters, an input and room for what a run gives.
pub(crate) struct NetworkRun {
    pub(crate) network: Graph,
    pub(crate) shapes: Shapes,
    pub(crate) objective: Objective,
    parameters: Parameters<f32>,
    shape: [usize; 4],
    input: Vec<f32>,
    outputs: Vec<(Vec<f32>, [usize; 4])>,
    grad_input: Option<Vec<f32>>,
}

impl NetworkRun {
    /// The network of this name or file on an image of so many rows and columns: inference, or a training step with the gradient
    /// of the input.
    pub(crate) fn new(network: &str, extent: usize, is_training: bool) -> Result<Self, Box<dyn Error>> {
        let Network { graph: network, parameters } = read(network)?;
        let shape = [1, network.inputs()[0].channels, extent, extent];
        let shapes = infer_nchw(&network, &[shape])?;
        let objective = if is_training {
            Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::Sum) }
        } else {
            Objective::inference()
        };
        let input: Vec<f32> =
            (0..shape.iter().product()).map(|i: usize| (i % 251) as f32 / 125.0 - 1.0).collect();
        let outputs = network
            .outputs()
            .iter()
            .map(|output| shapes.shape(*output))
            .map(|shape| (vec![0.0; shape.iter().product()], shape))
            .collect();
        let grad_input = is_training.then(|| vec![0.0; input.len()]);
        let parameters = parameters.unwrap_or_else(|| initialise(&params(&network), 1));
        Ok(Self { network, shapes, objective, parameters, shape, input, outputs, grad_input })
    }

    /// Carries out a plan of this network once; returns its seconds.
    pub(crate) fn seconds(&mut self, executor: &mut Executor<'_, f32>) -> Result<f64, Box<dyn Error>> {
        let source = MemorySource::new(&self.input, self.shape)?;
        let sinks = self
            .outputs
            .iter_mut()
            .map(|(values, shape)| SliceSink::new(values, *shape))
            .collect::<Result<Vec<_>, _>>()?;
        let grad_sink =
            self.grad_input.as_mut().map(|values| SliceSink::new(values, self.shape)).transpose()?;
        let io = Io {
            inputs: vec![&source],
            target: None,
            grad_outputs: Vec::new(),
            outputs: sinks.iter().map(|sink| -> &dyn Sink<f32> { sink }).collect(),
            grad_inputs: grad_sink.iter().map(|sink| -> &dyn Sink<f32> { sink }).collect(),
        };
        let start = Instant::now();
        executor.run(&mut self.parameters, &io, &NoProgress)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// A network, and the weights that its file has: what numbers there are may decide how long work takes.
struct Network {
    graph: Graph,
    parameters: Option<Parameters<f32>>,
}

/// A built-in network, or the network of a file.
fn read(network: &str) -> Result<Network, Box<dyn Error>> {
    if let Some(graph) = Graph::builtin(network) {
        return Ok(Network { graph, parameters: None });
    }
    #[cfg(feature = "onnx")]
    if network.ends_with(".onnx") {
        let model = tiled::onnx::read(network)?;
        let parameters = Some(model.weights.parameters()?);
        return Ok(Network { graph: model.graph, parameters });
    }
    Ok(Network { graph: Graph::from_json(&std::fs::read_to_string(network)?)?, parameters: None })
}
