//! One run on the reference backend over random tensors.

use tiled_exec::{Executor, Io, MemorySink, MemorySource, NoProgress, Sink, Source};
use tiled_graph::{Graph, Hold, Objective, PlanOptions, Planner, Rng, infer, initialise, params};
use tiled_kernel::Reference;
use tiled_tensor::Tensor;

/// A network, its sizes and what to compute.
pub(crate) struct Case<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) batch: usize,
    pub(crate) extents: [usize; 2],
    pub(crate) objective: &'a Objective,
}

pub(crate) struct Outcome {
    outputs: Vec<Tensor<f64>>,
    grad_inputs: Vec<Tensor<f64>>,
    gradients: Vec<Option<Vec<f64>>>,
    pub(crate) loss: Option<f64>,
    pub(crate) tiles: u64,
    /// Of all sweeps.
    pub(crate) calls: u64,
}

impl Case<'_> {
    pub(crate) fn whole(&self) -> Outcome {
        self.run(&PlanOptions { hold: Hold::Materialise, ..PlanOptions::default() })
    }

    pub(crate) fn run(&self, options: &PlanOptions) -> Outcome {
        let Self { graph, batch, extents, objective } = *self;
        let shapes = infer(graph, batch, &vec![extents; graph.inputs().len()]).expect("the network fits");
        let plan = Planner::<f64>::new(graph, &shapes, objective, &Reference).plan(options).expect("plans");
        let (tiles, calls) = (plan.tiles(), plan.sweeps.iter().map(|sweep| sweep.calls).sum());
        let specs = params(graph);
        let mut parameters = initialise::<f64>(&specs, 7);
        let random = |shapes: &[[usize; 4]], seed: u64| -> Vec<MemorySource<'static, f64>> {
            shapes.iter().zip(seed..).map(|(shape, seed)| source(*shape, seed)).collect()
        };
        let input_shapes = &shapes.all()[..graph.inputs().len()];
        let output_shapes: Vec<[usize; 4]> =
            graph.outputs().iter().map(|value| shapes.shape(*value)).collect();
        let (inputs, grads) = (random(input_shapes, 11), random(&output_shapes, 31));
        let target = source(output_shapes[0], 77);
        let outputs = sinks(objective.outputs, &output_shapes);
        let grad_inputs = sinks(objective.grad_inputs, input_shapes);
        let io = Io {
            inputs: inputs.iter().map(|source| source as &dyn Source<f64>).collect(),
            target: Some(&target),
            grad_outputs: grads.iter().map(|source| source as &dyn Source<f64>).collect(),
            outputs: outputs.iter().map(|sink| sink as &dyn Sink<f64>).collect(),
            grad_inputs: grad_inputs.iter().map(|sink| sink as &dyn Sink<f64>).collect(),
        };
        let mut executor = Executor::new(plan, &Reference, 2).expect("starts");
        let report = executor.run(&mut parameters, &io, &NoProgress).expect("runs");
        let gradients = (0..specs.len()).map(|i| executor.gradient(i).map(<[f64]>::to_vec)).collect();
        drop(io);
        Outcome {
            outputs: outputs.into_iter().map(MemorySink::into_tensor).collect(),
            grad_inputs: grad_inputs.into_iter().map(MemorySink::into_tensor).collect(),
            gradients,
            loss: report.loss,
            tiles,
            calls,
        }
    }
}

pub(crate) fn source(shape: [usize; 4], seed: u64) -> MemorySource<'static, f64> {
    let mut rng = Rng::new(seed);
    let tensor = Tensor::from_fn(shape, |_| rng.uniform() * 2.0 - 1.0).expect("small");
    MemorySource::<f64>::from_tensor(tensor).expect("small")
}

fn sinks(wanted: bool, shapes: &[[usize; 4]]) -> Vec<MemorySink<f64>> {
    shapes.iter().filter(|_| wanted).map(|shape| MemorySink::new(*shape).expect("small")).collect()
}

/// Panics where two runs differ: in a bit, or in a parameter's gradient by more than the order of its sum allows.
pub(crate) fn assert_same(name: &str, whole: &Outcome, tiled: &Outcome) {
    for (what, a, b) in
        [("output", &whole.outputs, &tiled.outputs), ("grad_input", &whole.grad_inputs, &tiled.grad_inputs)]
    {
        assert_eq!(a.len(), b.len(), "{name}: {what}s");
        for (a, b) in a.iter().zip(b) {
            let wrong = a.data().iter().zip(b.data()).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(wrong, 0, "{name}: {what} differs in {wrong} of {}", a.data().len());
        }
    }
    assert_eq!(whole.loss.map(f64::to_bits), tiled.loss.map(f64::to_bits), "{name}: loss");
    for (i, (a, b)) in whole.gradients.iter().zip(&tiled.gradients).enumerate() {
        assert_eq!(a.is_some(), b.is_some(), "{name}: gradient {i}");
        for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
            // a few thousand terms of order one, n·ε·Σ|terms| ≈ 1e-9 at most; far above what is seen
            assert!((a - b).abs() <= 1e-10 * a.abs().max(1.0), "{name}: gradient {i}: {a} {b}");
        }
    }
}
