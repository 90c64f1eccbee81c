//! One run of a plan over the tensors of a case.

use tiled::exec::{ExecError, Executor, Io, IoError, MemorySink, MemorySource, NoProgress, Sink, Source};
use tiled::graph::{Loss, Objective, Op, Parameters, Plan, initialise, params};
use tiled::kernel::Backend;
use tiled::tensor::{Element, Tensor};

use super::draw::Draw;
use super::network::Network;
use super::setting::norm_range;

/// What a case reads.
#[derive(Clone, Debug)]
pub(super) struct Tensors<T: Element> {
    inputs: Vec<Tensor<T>>,
    target: Option<Tensor<T>>,
    grad_outputs: Vec<Tensor<T>>,
    parameters: Parameters<T>,
    output_shapes: Vec<[usize; 4]>,
}

impl<T: Element> Tensors<T> {
    /// Draws tensors; half of the time from so few values that maxima have ties.
    pub(super) fn new(draw: &mut Draw, network: &Network, objective: &Objective) -> Self {
        let graph = &network.graph;
        let is_coarse = draw.chance(50);
        let mut image = |shape: [usize; 4]| {
            filled(shape, |_| {
                let value = 2.0 * draw.uniform() - 1.0;
                if is_coarse { (4.0 * value).round() / 4.0 } else { value }
            })
        };
        let input_shapes = &network.shapes.all()[..graph.inputs().len()];
        let inputs = input_shapes.iter().map(|shape| image(*shape)).collect();
        let output_shapes: Vec<[usize; 4]> =
            graph.outputs().iter().map(|value| network.shapes.shape(*value)).collect();
        let grad_outputs = match objective.loss {
            Some(Loss::GradOutput | Loss::GradOutputLater) => {
                output_shapes.iter().map(|shape| image(*shape)).collect()
            }
            _ => Vec::new(),
        };
        let first = output_shapes[0];
        let target = match objective.loss {
            Some(Loss::MeanSquaredError) => Some(image(first)),
            Some(Loss::CrossEntropy { target_channels }) => Some(classes(draw, first, target_channels)),
            _ => None,
        };
        Self { inputs, target, grad_outputs, parameters: parameters(draw, network), output_shapes }
    }
}

/// Class numbers, some of them ignored, or probabilities that sum to about one.
fn classes<T: Element>(draw: &mut Draw, output: [usize; 4], target_channels: usize) -> Tensor<T> {
    let [batch, channels, height, width] = output;
    let shape = [batch, target_channels, height, width];
    let whole = |class: usize| f64::from(u32::try_from(class).unwrap_or(u32::MAX));
    if target_channels == 1 {
        // the first pixel counts, or there might be no loss
        return filled(shape, |place| {
            if draw.chance(10) && place != [0; 4] { -1.0 } else { whole(draw.below(channels)) }
        });
    }
    filled(shape, |_| 2.0 * draw.uniform() / whole(channels))
}

fn parameters<T: Element>(draw: &mut Draw, network: &Network) -> Parameters<T> {
    let specs = params(&network.graph);
    let mut parameters = initialise(&specs, draw.seed());
    for (place, spec) in specs.iter().enumerate() {
        let is_norm = matches!(
            network.graph.nodes()[spec.node].op,
            Op::BatchNorm(_) | Op::InstanceNorm(_) | Op::GroupNorm(_) | Op::LayerNorm(_) | Op::RmsNorm(_)
        );
        if is_norm {
            let (least, most) = norm_range(spec.kind);
            for value in parameters.data_mut(place).into_iter().flatten() {
                *value = T::from_f64(least + (most - least) * draw.uniform());
            }
        }
    }
    parameters
}

fn filled<T: Element>(shape: [usize; 4], mut value: impl FnMut([usize; 4]) -> f64) -> Tensor<T> {
    Tensor::from_fn(shape, |place| T::from_f64(value(place)))
        .expect("invariant: networks are drawn with few elements")
}

/// What a run wrote.
#[derive(Clone, Debug)]
pub(super) struct Outcome<T: Element> {
    pub(super) outputs: Vec<Tensor<T>>,
    /// The inputs whose gradients are wanted, and these gradients.
    pub(super) input_grads: Vec<usize>,
    pub(super) grad_inputs: Vec<Tensor<T>>,
    /// The gradients of the parameters that have one.
    pub(super) gradients: Vec<Option<Vec<T>>>,
    /// The parameters after the run: running statistics move.
    pub(super) parameters: Parameters<T>,
    pub(super) loss: Option<f64>,
}

/// Runs a plan `times` times on one executor, and returns what the last run wrote.
pub(super) fn run<T: Element>(
    plan: &Plan,
    tensors: &Tensors<T>,
    objective: &Objective,
    backend: &dyn Backend<T>,
    threads: usize,
    times: usize,
) -> Result<Outcome<T>, ExecError> {
    let mut executor = Executor::new(plan.clone(), backend, threads)?;
    let mut outcome = run_once(&mut executor, tensors, objective)?;
    for _ in 1..times {
        outcome = run_once(&mut executor, tensors, objective)?;
    }
    Ok(outcome)
}

fn run_once<T: Element>(
    executor: &mut Executor<'_, T>,
    tensors: &Tensors<T>,
    objective: &Objective,
) -> Result<Outcome<T>, ExecError> {
    let inputs = sources(&tensors.inputs)?;
    let target = tensors.target.as_ref().map(MemorySource::try_from).transpose()?;
    let grad_outputs = sources(&tensors.grad_outputs)?;
    let wanted = executor.plan().program.input_grads.iter().map(|place| tensors.inputs[*place].shape());
    let wanted: Vec<[usize; 4]> = wanted.collect();
    let outputs = sinks(objective.outputs, &tensors.output_shapes)?;
    let grad_inputs = sinks(objective.grad_inputs, &wanted)?;
    let io = Io {
        inputs: inputs.iter().map(|source| source as &dyn Source<T>).collect(),
        target: target.as_ref().map(|source| source as &dyn Source<T>),
        grad_outputs: grad_outputs.iter().map(|source| source as &dyn Source<T>).collect(),
        outputs: outputs.iter().map(|sink| sink as &dyn Sink<T>).collect(),
        grad_inputs: grad_inputs.iter().map(|sink| sink as &dyn Sink<T>).collect(),
    };
    let mut parameters = tensors.parameters.clone();
    // the untiled run is in one piece
    let in_halves = executor.plan().second_half().is_some() && executor.plan().tiles() > 1;
    let report = if in_halves {
        let (pending, _) = executor.forward(&mut parameters, &io, &NoProgress)?;
        executor.backward(pending, &parameters, &io, &NoProgress)?
    } else {
        executor.run(&mut parameters, &io, &NoProgress)?
    };
    let gradients =
        (0..parameters.tensors().len()).map(|place| executor.gradient(place).map(<[T]>::to_vec)).collect();
    drop(io);
    Ok(Outcome {
        outputs: outputs.into_iter().map(MemorySink::into_tensor).collect(),
        input_grads: executor.plan().program.input_grads.clone(),
        grad_inputs: grad_inputs.into_iter().map(MemorySink::into_tensor).collect(),
        gradients,
        parameters,
        loss: report.loss,
    })
}

fn sources<T: Element>(tensors: &[Tensor<T>]) -> Result<Vec<MemorySource<'_, T>>, IoError> {
    tensors.iter().map(MemorySource::try_from).collect()
}

fn sinks<T: Element>(wanted: bool, shapes: &[[usize; 4]]) -> Result<Vec<MemorySink<T>>, IoError> {
    shapes.iter().filter(|_| wanted).map(|shape| MemorySink::new(*shape)).collect()
}
