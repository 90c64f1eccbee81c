//! Batch norm whose running statistics are means over all batches, or that has none.

use tiled::exec::NoProgress;
use tiled::graph::{Graph, Loss, Mode, Objective, PlanOptions};
use tiled::prelude::CpuBackend;
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

fn network(attributes: &str) -> Graph {
    let text = format!(
        r#"{{"inputs": [{{"name": "x", "channels": 3}}],
          "nodes": [{{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 5, "kernel_size": 3, "padding": 1}},
                    {{"name": "n1", "op": "batch_norm", "inputs": ["c1"]{attributes}}},
                    {{"name": "r1", "op": "relu", "inputs": ["n1"]}},
                    {{"name": "c2", "op": "conv2d", "inputs": ["r1"], "out_channels": 2, "kernel_size": 3}},
                    {{"name": "n2", "op": "batch_norm", "inputs": ["c2"]{attributes}}}],
          "outputs": ["n2"]}}"#
    );
    Graph::from_json(&text).expect("a network")
}

fn training(mode: Mode) -> Objective {
    Objective {
        mode,
        outputs: true,
        grad_inputs: true,
        seed: 1,
        ..Objective::training(Loss::MeanSquaredError)
    }
}

fn run(graph: &Graph, objective: Objective, options: &PlanOptions) -> Done<f32> {
    let backend = CpuBackend::new().expect("an instruction set");
    let job = Job::<f32>::random(graph.clone(), 2, [37, 41], objective, 5);
    let plan = job.plan(&backend, options);
    let done = job.run(&backend, plan, 2, &NoProgress);
    assert!(*options == whole() || done.tiles > 1, "{} tiles", done.tiles);
    done
}

/// The parameter of this name after a run.
fn after<'d>(done: &'d Done<f32>, name: &str) -> &'d [f32] {
    &done.parameters.get(name).unwrap_or_else(|| panic!("`{name}` is there")).data
}

fn assert_same_gradients(a: &Done<f32>, b: &Done<f32>, params: &[&str]) {
    assert_eq!(a.loss.map(f64::to_bits), b.loss.map(f64::to_bits));
    assert_eq!(differing(a.outputs[0].data(), b.outputs[0].data()), 0, "output");
    assert_eq!(differing(a.grad_inputs[0].data(), b.grad_inputs[0].data()), 0, "gradient of the input");
    for name in params {
        let gradient = |done: &Done<f32>| {
            let mut tensors = done.parameters.tensors().iter();
            let place = tensors.position(|tensor| tensor.name == *name).expect("known");
            done.gradients[place].clone().expect("wanted")
        };
        assert_eq!(differing(&gradient(a), &gradient(b)), 0, "gradient of {name}");
    }
}

const TRAINED: [&str; 8] =
    ["c1.weight", "c1.bias", "n1.weight", "n1.bias", "c2.weight", "c2.bias", "n2.weight", "n2.bias"];

#[test]
fn without_running_statistics_evaluation_is_that_of_training() {
    for options in [whole(), recompute([2, 3]), slide(1)] {
        let trains = run(&network(""), training(Mode::Train), &options);
        let alone = network(r#", "track_running_stats": false"#);
        for mode in [Mode::Train, Mode::Eval] {
            let got = run(&alone, training(mode), &options);
            assert_same_gradients(&got, &trains, &TRAINED);
            assert_eq!(got.parameters.tensors().len(), TRAINED.len(), "nothing else is kept");
        }
        // named among those that evaluate it makes no difference either
        let evaluated = vec!["n1".to_owned(), "n2".to_owned()];
        let got = run(&alone, Objective { evaluated, ..training(Mode::Train) }, &options);
        assert_same_gradients(&got, &trains, &TRAINED);
    }
}

#[test]
fn means_over_batches_change_nothing_but_the_running_statistics() {
    let means = network(r#", "momentum": null"#);
    for options in [whole(), recompute([2, 3]), slide(1)] {
        let fixed = run(&network(r#", "momentum": 1.0"#), training(Mode::Train), &options);
        let got = run(&means, training(Mode::Train), &options);
        assert_same_gradients(&got, &fixed, &TRAINED);
        for norm in ["n1", "n2"] {
            // the mean over one batch is that batch
            for what in ["running_mean", "running_var"] {
                let name = format!("{norm}.{what}");
                assert_eq!(differing(after(&got, &name), after(&fixed, &name)), 0, "{name}");
            }
            assert_eq!(after(&got, &format!("{norm}.num_batches_tracked")), [1.0]);
        }
        let objective = Objective { evaluated: vec!["n1".to_owned()], ..training(Mode::Train) };
        let got = run(&means, objective, &options);
        assert_eq!(after(&got, "n1.num_batches_tracked"), [0.0], "it evaluates");
        assert_eq!(after(&got, "n1.running_mean"), [0.0; 5], "it evaluates");
        assert_eq!(after(&got, "n2.num_batches_tracked"), [1.0]);
    }
}

#[test]
fn the_nth_batch_weighs_one_nth() {
    let backend = CpuBackend::new().expect("an instruction set");
    let graph = network(r#", "momentum": null"#);
    let mut job = Job::<f64>::random(graph, 2, [19, 23], training(Mode::Train), 5);
    let mut sums = [0.0; 3];
    for batch in 1..=4_u32 {
        // the first norm sees other numbers each time
        let images = Job::<f64>::random(job.graph.clone(), 2, [19, 23], training(Mode::Train), batch.into());
        job.inputs = images.inputs;
        let alone = {
            let mut job = job.clone();
            job.parameters =
                Job::<f64>::random(job.graph.clone(), 2, [19, 23], training(Mode::Train), 5).parameters;
            job.run(&backend, job.plan(&backend, &recompute([3, 2])), 2, &NoProgress).parameters
        };
        job.parameters = job.run(&backend, job.plan(&backend, &recompute([2, 3])), 2, &NoProgress).parameters;
        let mean = |parameters: &tiled::graph::Parameters<f64>| {
            parameters.get("n1.running_mean").expect("it has one").data.clone()
        };
        let counted = &job.parameters.get("n1.num_batches_tracked").expect("it counts").data;
        assert_eq!(counted, &[f64::from(batch)]);
        for (channel, sum) in sums.iter_mut().enumerate() {
            *sum += mean(&alone)[channel];
            let want = *sum / f64::from(batch);
            let got = mean(&job.parameters)[channel];
            // four roundings of numbers below one
            assert!((got - want).abs() <= 8.0 * f64::EPSILON, "batch {batch}: {got}, want {want}");
        }
    }
}
