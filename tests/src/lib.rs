//! What the tests of the whole system share: a network with its tensors, run under a plan.
#![forbid(unsafe_code)]

use tiled::exec::{ExecError, Executor, Io, IoError, MemorySink, MemorySource, Progress, Sink, Source};
use tiled::graph::{
    Graph, Hold, Loss, Objective, Parameters, Plan, PlanError, PlanOptions, Planner, Rng, Shapes, Tiling,
    infer, initialise, params,
};
use tiled::kernel::Backend;
use tiled::tensor::{Element, Tensor};

/// A network, what to compute of it, and the tensors that it reads.
#[derive(Clone, Debug)]
pub struct Job<T: Element> {
    /// The network.
    pub graph: Graph,
    /// Its shapes.
    pub shapes: Shapes,
    /// What to compute.
    pub objective: Objective,
    /// The inputs.
    pub inputs: Vec<Tensor<T>>,
    /// The target of the loss.
    pub target: Tensor<T>,
    /// The gradients of the outputs.
    pub grad_outputs: Vec<Tensor<T>>,
    /// The parameters.
    pub parameters: Parameters<T>,
}

/// What a run wrote.
#[derive(Clone, Debug)]
pub struct Done<T: Element> {
    /// The outputs.
    pub outputs: Vec<Tensor<T>>,
    /// The gradients of the inputs.
    pub grad_inputs: Vec<Tensor<T>>,
    /// The gradients of the parameters.
    pub gradients: Vec<Option<Vec<T>>>,
    /// The parameters after the run.
    pub parameters: Parameters<T>,
    /// The loss.
    pub loss: Option<f64>,
    /// The tiles or steps.
    pub tiles: u64,
}

impl<T: Element> Job<T> {
    /// A job over random tensors of these sizes.
    ///
    /// # Panics
    /// Where the network does not take them.
    #[must_use]
    pub fn random(graph: Graph, batch: usize, extents: [usize; 2], objective: Objective, seed: u64) -> Self {
        let shapes = infer(&graph, batch, &vec![extents; graph.inputs().len()]).expect("the network fits");
        let mut rng = Rng::new(seed);
        let mut tensor = |shape: [usize; 4]| {
            Tensor::from_fn(shape, |_| T::from_f64(2.0 * rng.uniform() - 1.0)).expect("small")
        };
        let inputs = shapes.all()[..graph.inputs().len()].iter().map(|shape| tensor(*shape)).collect();
        let outputs: Vec<[usize; 4]> = graph.outputs().iter().map(|value| shapes.shape(*value)).collect();
        let grad_outputs = outputs.iter().map(|shape| tensor(*shape)).collect();
        let target = match objective.loss {
            Some(Loss::CrossEntropy { target_channels: 1 }) => {
                let [batch, channels, height, width] = outputs[0];
                let class = |place: [usize; 4]| place.iter().sum::<usize>() % channels;
                let number = |class: usize| f64::from(u32::try_from(class).expect("few classes"));
                Tensor::from_fn([batch, 1, height, width], |place| T::from_f64(number(class(place))))
                    .expect("small")
            }
            _ => tensor(outputs[0]),
        };
        let parameters = initialise(&params(&graph), seed);
        Self { graph, shapes, objective, inputs, target, grad_outputs, parameters }
    }

    /// The plan under these options.
    ///
    /// # Panics
    /// Where there is none.
    #[must_use]
    pub fn plan(&self, backend: &dyn Backend<T>, options: &PlanOptions) -> Plan {
        self.try_plan(backend, options).expect("plans")
    }

    /// The plan under these options.
    ///
    /// # Errors
    /// Where there is none.
    pub fn try_plan(&self, backend: &dyn Backend<T>, options: &PlanOptions) -> Result<Plan, PlanError> {
        Planner::new(&self.graph, &self.shapes, &self.objective, backend).plan(options)
    }

    /// Runs a plan.
    ///
    /// # Panics
    /// Where it fails.
    #[must_use]
    pub fn run(
        &self,
        backend: &dyn Backend<T>,
        plan: Plan,
        threads: usize,
        progress: &dyn Progress,
    ) -> Done<T> {
        let mut executor = Executor::new(plan, backend, threads).expect("starts");
        self.attempt(&mut executor, progress).expect("runs")
    }

    /// Runs an executor's plan.
    ///
    /// # Errors
    /// Where the run fails.
    ///
    /// # Panics
    /// Where it failed and a sink was not aborted, or the parameters have changed.
    pub fn attempt(
        &self,
        executor: &mut Executor<'_, T>,
        progress: &dyn Progress,
    ) -> Result<Done<T>, ExecError> {
        let plan = executor.plan();
        let tiles = plan.tiles();
        let source = |tensor| MemorySource::try_from(tensor).expect("contiguous");
        let inputs: Vec<_> = self.inputs.iter().map(source).collect();
        let grad_outputs: Vec<_> = self.grad_outputs.iter().map(source).collect();
        let target = source(&self.target);
        let sinks = |wanted: bool, shapes: Vec<[usize; 4]>| -> Vec<MemorySink<T>> {
            let shapes = shapes.into_iter().filter(|_| wanted);
            shapes.map(|shape| MemorySink::new(shape).expect("small")).collect()
        };
        let shape = |value: &tiled::graph::ValueId| self.shapes.shape(*value);
        let outputs = sinks(self.objective.outputs, self.graph.outputs().iter().map(shape).collect());
        let wanted = plan.program.input_grads.iter().map(|place| self.inputs[*place].shape());
        let grad_inputs = sinks(true, wanted.collect());
        let io = Io {
            inputs: inputs.iter().map(|source| source as &dyn Source<T>).collect(),
            target: Some(&target),
            grad_outputs: grad_outputs.iter().map(|source| source as &dyn Source<T>).collect(),
            outputs: outputs.iter().map(|sink| sink as &dyn Sink<T>).collect(),
            grad_inputs: grad_inputs.iter().map(|sink| sink as &dyn Sink<T>).collect(),
        };
        let mut parameters = self.parameters.clone();
        let report = executor.run(&mut parameters, &io, progress);
        if report.is_err() {
            for sink in io.outputs.iter().chain(&io.grad_inputs) {
                let closed = sink.finish().expect_err("a sink of a run that failed");
                assert!(matches!(closed, IoError::Closed { .. }), "{closed}");
            }
            for (now, before) in parameters.tensors().iter().zip(self.parameters.tensors()) {
                assert_eq!(differing(&now.data, &before.data), 0, "{} has changed", now.name);
            }
        }
        let report = report?;
        let gradients = (0..parameters.tensors().len())
            .map(|place| executor.gradient(place).map(<[T]>::to_vec))
            .collect();
        drop(io);
        Ok(Done {
            outputs: outputs.into_iter().map(MemorySink::into_tensor).collect(),
            grad_inputs: grad_inputs.into_iter().map(MemorySink::into_tensor).collect(),
            gradients,
            parameters,
            loss: report.loss,
            tiles,
        })
    }
}

/// The untiled run.
#[must_use]
pub fn whole() -> PlanOptions {
    PlanOptions { hold: Hold::Materialise, ..PlanOptions::default() }
}

/// One call per node and tile.
#[must_use]
pub fn recompute(grid: [i64; 2]) -> PlanOptions {
    PlanOptions { hold: Hold::Recompute, tiling: Tiling::Grid(grid), ..PlanOptions::default() }
}

/// Bands of so many rows over the whole width.
#[must_use]
pub fn slide(rows: i64) -> PlanOptions {
    let tiling = Tiling::Tile([rows, i64::from(u32::MAX)]);
    PlanOptions { hold: Hold::Slide, tiling, ..PlanOptions::default() }
}

/// The elements whose bits differ.
///
/// # Panics
/// Where the lengths differ.
#[must_use]
pub fn differing<T: Element>(a: &[T], b: &[T]) -> usize {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).filter(|(a, b)| a.to_bits_u64() != b.to_bits_u64()).count()
}
