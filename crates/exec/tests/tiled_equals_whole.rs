//! Every way to hold values gives the bits of the untiled run.

use tiled_exec::{Executor, Io, MemorySink, MemorySource, NoProgress, Sink, Source};
use tiled_graph::{
    Graph, Hold, Loss, Mode, Objective, PlanOptions, Planner, Rng, Tiling, infer, initialise, params,
};
use tiled_kernel::{Backend, Reference};
use tiled_tensor::Tensor;

struct Outcome {
    outputs: Vec<Tensor<f64>>,
    grad_inputs: Vec<Tensor<f64>>,
    gradients: Vec<Option<Vec<f64>>>,
    loss: Option<f64>,
    tiles: u64,
    redundant: f64,
    flops: f64,
}

fn random(shape: [usize; 4], seed: u64) -> Tensor<f64> {
    let mut rng = Rng::new(seed);
    Tensor::from_fn(shape, |_| rng.uniform() * 2.0 - 1.0).expect("small")
}

fn run(
    graph: &Graph,
    batch: usize,
    extents: [usize; 2],
    objective: &Objective,
    options: &PlanOptions,
) -> Outcome {
    let backend = Reference;
    let backend: &dyn Backend<f64> = &backend;
    let inputs = vec![extents; graph.inputs().len()];
    let shapes = infer(graph, batch, &inputs).expect("infers");
    let plan = Planner::new(graph, &shapes, objective, backend).plan(options).expect("plans");
    let (tiles, redundant, flops) = (plan.tiles(), plan.redundant_flops, plan.flops);
    let specs = params(graph);
    let mut parameters = initialise::<f64>(&specs, 7);
    let sources: Vec<Tensor<f64>> = (0..graph.inputs().len())
        .map(|i| random([batch, graph.inputs()[i].channels, extents[0], extents[1]], 11 + i as u64))
        .collect();
    let outs: Vec<[usize; 4]> = graph.outputs().iter().map(|value| shapes.shape(*value)).collect();
    let grads: Vec<Tensor<f64>> =
        outs.iter().enumerate().map(|(i, shape)| random(*shape, 31 + i as u64)).collect();
    let target = random(outs[0], 77);
    let source_refs: Vec<MemorySource<'_, f64>> =
        sources.iter().map(|t| MemorySource::new(t.data(), t.shape()).expect("fits")).collect();
    let grad_refs: Vec<MemorySource<'_, f64>> =
        grads.iter().map(|t| MemorySource::new(t.data(), t.shape()).expect("fits")).collect();
    let target_ref = MemorySource::new(target.data(), target.shape()).expect("fits");
    let out_sinks: Vec<MemorySink<f64>> =
        outs.iter().map(|shape| MemorySink::new(*shape).expect("small")).collect();
    let grad_sinks: Vec<MemorySink<f64>> =
        sources.iter().map(|tensor| MemorySink::new(tensor.shape()).expect("small")).collect();
    let io = Io {
        inputs: source_refs.iter().map(|s| s as &dyn Source<f64>).collect(),
        target: Some(&target_ref),
        grad_outputs: grad_refs.iter().map(|s| s as &dyn Source<f64>).collect(),
        outputs: if objective.outputs {
            out_sinks.iter().map(|s| s as &dyn Sink<f64>).collect()
        } else {
            vec![]
        },
        grad_inputs: if objective.grad_inputs {
            grad_sinks.iter().map(|s| s as &dyn Sink<f64>).collect()
        } else {
            vec![]
        },
    };
    let mut executor = Executor::new(plan, backend, 2).expect("starts");
    let report = executor.run(&mut parameters, &io, &NoProgress).expect("runs");
    let gradients = (0..specs.len()).map(|i| executor.gradient(i).map(<[f64]>::to_vec)).collect();
    drop(io);
    Outcome {
        outputs: if objective.outputs {
            out_sinks.into_iter().map(|s| s.into_tensor()).collect()
        } else {
            vec![]
        },
        grad_inputs: if objective.grad_inputs {
            grad_sinks.into_iter().map(|s| s.into_tensor()).collect()
        } else {
            vec![]
        },
        gradients,
        loss: report.loss,
        tiles,
        redundant,
        flops,
    }
}

fn assert_same(name: &str, whole: &Outcome, tiled: &Outcome) {
    for (what, a, b) in
        [("output", &whole.outputs, &tiled.outputs), ("grad_input", &whole.grad_inputs, &tiled.grad_inputs)]
    {
        for (a, b) in a.iter().zip(b) {
            let wrong = a.data().iter().zip(b.data()).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(wrong, 0, "{name}: {what} differs in {wrong} of {}", a.data().len());
        }
    }
    assert_eq!(whole.loss.map(f64::to_bits), tiled.loss.map(f64::to_bits), "{name}: loss");
    for (i, (a, b)) in whole.gradients.iter().zip(&tiled.gradients).enumerate() {
        if let (Some(a), Some(b)) = (a, b) {
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 1e-10 * a.abs().max(1.0), "{name}: gradient {i}: {a} {b}");
            }
        }
    }
}

fn objectives() -> Vec<Objective> {
    let mut sum = Objective::training(Loss::Sum);
    sum.outputs = true;
    sum.grad_inputs = true;
    let mut given = Objective::gradients();
    given.outputs = true;
    let mut mse = Objective::training(Loss::MeanSquaredError);
    mse.mode = Mode::Eval;
    mse.grad_inputs = true;
    vec![Objective::inference(), sum, given, mse]
}

#[test]
fn every_hold_gives_the_bits_of_the_untiled_run() {
    for (name, batch, extents) in [
        ("seed-001", 1, [16, 16]),
        ("seed-002", 2, [64, 48]),
        ("vgg2", 1, [44, 36]),
        ("light", 2, [37, 53]),
        ("unet", 1, [45, 38]),
        ("resnet18", 1, [33, 34]),
    ] {
        let graph = Graph::builtin(name).expect("built in");
        for objective in objectives() {
            let whole = run(
                &graph,
                batch,
                extents,
                &objective,
                &PlanOptions { hold: Hold::Materialise, ..PlanOptions::default() },
            );
            for options in [
                PlanOptions {
                    hold: Hold::Slide,
                    tiling: Tiling::Tile([2, 7]),
                    parallelism: 2,
                    ..PlanOptions::default()
                },
                PlanOptions { hold: Hold::Slide, tiling: Tiling::Grid([4, 1]), ..PlanOptions::default() },
                PlanOptions {
                    hold: Hold::Recompute,
                    tiling: Tiling::Grid([3, 2]),
                    parallelism: 2,
                    ..PlanOptions::default()
                },
            ] {
                let tiled = run(&graph, batch, extents, &objective, &options);
                let label = format!("{name} {objective:?} {options:?}");
                assert!(tiled.tiles > 1 || name == "resnet18", "{label}: one tile");
                assert_same(&label, &whole, &tiled);
                eprintln!(
                    "{name} tiles {} flops {:.3e} redundant {:.4}",
                    tiled.tiles,
                    tiled.flops,
                    tiled.redundant / tiled.flops
                );
            }
        }
    }
}
