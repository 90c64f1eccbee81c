//! A run in two halves, outputs first and gradients later, has the bits of the run in one piece.

use tiled::exec::{ExecError, Executor, Io, MemorySink, MemorySource, NoProgress, Sink, Source};
use tiled::graph::{Graph, Loss, Objective, Parameters, PlanOptions};
use tiled::prelude::CpuBackend;
use tiled::tensor::Tensor;
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

/// Outputs, then the gradients of inputs and parameters, in a network that trains.
fn later() -> Objective {
    Objective { outputs: true, loss: Some(Loss::GradOutputLater), seed: 9, ..Objective::gradients() }
}

/// A network with batch norm, dropout, a skip and a pooling.
fn graph() -> Graph {
    let text = r#"{"inputs":[{"name":"x","channels":3}],"outputs":["y"],"nodes":[
        {"name":"c1","op":"conv2d","inputs":["x"],"out_channels":12,"kernel_size":3,"padding":1},
        {"name":"b1","op":"batch_norm","inputs":["c1"]},
        {"name":"r1","op":"relu","inputs":["b1"]},
        {"name":"d1","op":"dropout","inputs":["r1"],"p":0.3},
        {"name":"p1","op":"max_pool2d","inputs":["d1"],"kernel_size":2},
        {"name":"c2","op":"conv2d","inputs":["p1"],"out_channels":12,"kernel_size":3,"padding":2,"dilation":2},
        {"name":"b2","op":"batch_norm","inputs":["c2"]},
        {"name":"s","op":"add","inputs":["b2","p1"]},
        {"name":"y","op":"conv2d","inputs":["s"],"out_channels":4,"kernel_size":1}]}"#;
    Graph::from_json(text).expect("a network")
}

/// A job whose tensors come from this seed, with the parameters of seed 1.
fn job(seed: u64) -> Job<f32> {
    let parameters = Job::<f32>::random(graph(), 2, [37, 42], later(), 1).parameters;
    Job { parameters, ..Job::random(graph(), 2, [37, 42], later(), seed) }
}

struct Sinks {
    outputs: Vec<MemorySink<f32>>,
    grad_inputs: Vec<MemorySink<f32>>,
}

impl Sinks {
    fn of(job: &Job<f32>) -> Self {
        let sinks = |tensors: &[Tensor<f32>]| {
            tensors.iter().map(|tensor| MemorySink::new(tensor.shape()).expect("small")).collect()
        };
        Self { outputs: sinks(&job.grad_outputs), grad_inputs: sinks(&job.inputs) }
    }
}

/// Calls `run` with the tensors of a job, in the halves that it is for.
fn with_io<R>(job: &Job<f32>, sinks: &Sinks, halves: [bool; 2], run: impl FnOnce(&Io<'_, f32>) -> R) -> R {
    let source = |tensor| MemorySource::try_from(tensor).expect("contiguous");
    let inputs: Vec<_> = job.inputs.iter().map(source).collect();
    let grad_outputs: Vec<_> = job.grad_outputs.iter().map(source).collect();
    let mut io =
        Io { inputs: inputs.iter().map(|source| source as &dyn Source<f32>).collect(), ..Io::default() };
    if halves[0] {
        io.outputs = sinks.outputs.iter().map(|sink| sink as &dyn Sink<f32>).collect();
    }
    if halves[1] {
        io.grad_outputs = grad_outputs.iter().map(|source| source as &dyn Source<f32>).collect();
        io.grad_inputs = sinks.grad_inputs.iter().map(|sink| sink as &dyn Sink<f32>).collect();
    }
    run(&io)
}

fn gradients(executor: &Executor<'_, f32>, count: usize) -> Vec<Option<Vec<f32>>> {
    (0..count).map(|place| executor.gradient(place).map(<[f32]>::to_vec)).collect()
}

fn assert_same(sinks: Sinks, gradients: &[Option<Vec<f32>>], expected: &Done<f32>, what: &str) {
    for (sink, expected) in sinks.outputs.into_iter().zip(&expected.outputs) {
        assert_eq!(differing(sink.into_tensor().data(), expected.data()), 0, "{what}: output");
    }
    for (sink, expected) in sinks.grad_inputs.into_iter().zip(&expected.grad_inputs) {
        assert_eq!(differing(sink.into_tensor().data(), expected.data()), 0, "{what}: gradient of the input");
    }
    for (got, expected) in gradients.iter().zip(&expected.gradients) {
        let [got, expected] = [got, expected].map(|gradient| gradient.as_deref().unwrap_or_default());
        assert_eq!((got.len(), differing(got, expected)), (expected.len(), 0), "{what}: gradient");
    }
}

fn assert_parameters(got: &Parameters<f32>, expected: &Parameters<f32>, what: &str) {
    for (got, expected) in got.tensors().iter().zip(expected.tensors()) {
        assert_eq!(differing(&got.data, &expected.data), 0, "{what}: {}", got.name);
    }
}

fn ways() -> Vec<PlanOptions> {
    let in_files =
        PlanOptions { temporary_files: true, memory_bytes: Some(3 << 20), ..PlanOptions::default() };
    let lanes = PlanOptions { lanes: Some(3), parallelism: 2, ..recompute([3, 2]) };
    vec![whole(), slide(3), lanes, in_files]
}

#[test]
fn two_halves_have_the_bits_of_one_run() {
    let backend = CpuBackend::new().expect("an instruction set");
    let job = job(5);
    for options in ways() {
        let plan = job.plan(&backend, &options);
        assert!(options == whole() || plan.tiles() > 1, "{} tiles", plan.tiles());
        assert!(plan.second_half().is_some_and(|half| 0 < half && half < plan.sweeps.len()));
        let expected = job.run(&backend, plan.clone(), 2, &NoProgress);
        // and that of gradients that are there from the beginning
        let at_once = Job { objective: Objective { loss: Some(Loss::GradOutput), ..later() }, ..job.clone() };
        let at_once = at_once.run(&backend, at_once.plan(&backend, &whole()), 2, &NoProgress);
        assert_eq!(differing(at_once.grad_inputs[0].data(), expected.grad_inputs[0].data()), 0);
        let mut executor = Executor::new(plan, &backend, 2).expect("starts");
        for round in 0..2 {
            let (sinks, mut params) = (Sinks::of(&job), job.parameters.clone());
            let (pending, _) = with_io(&job, &sinks, [true, false], |io| {
                executor.forward(&mut params, io, &NoProgress).expect("runs")
            });
            assert_parameters(&params, &expected.parameters, "running statistics after the first half");
            with_io(&job, &sinks, [false, true], |io| {
                executor.backward(pending, &params, io, &NoProgress).expect("runs")
            });
            assert_parameters(&params, &expected.parameters, "running statistics after the second");
            let gradients = gradients(&executor, params.tensors().len());
            assert_same(sinks, &gradients, &expected, &format!("{options:?}, round {round}"));
        }
    }
}

#[test]
fn several_runs_wait_and_one_is_dropped() {
    let backend = CpuBackend::new().expect("an instruction set");
    let jobs = [job(5), job(6), job(7)];
    for options in ways() {
        let plan = jobs[0].plan(&backend, &options);
        let mut executor = Executor::new(plan.clone(), &backend, 2).expect("starts");
        let mut params = jobs[0].parameters.clone();
        let mut expected = Vec::new();
        for (step, job) in jobs.iter().enumerate() {
            // each follows the statistics that the one before has left, with a mask of its own
            let job = Job { parameters: params.clone(), ..job.clone() };
            let mut alone = Executor::new(plan.clone(), &backend, 2).expect("starts");
            alone.set_dropout_step(step as u64);
            let done = job.attempt(&mut alone, &NoProgress).expect("runs");
            params = done.parameters.clone();
            expected.push(done);
        }
        let mut params = jobs[0].parameters.clone();
        let mut pending = Vec::new();
        for (step, job) in jobs.iter().enumerate() {
            let sinks = Sinks::of(job);
            executor.set_dropout_step(step as u64);
            let (run, _) = with_io(job, &sinks, [true, false], |io| {
                executor.forward(&mut params, io, &NoProgress).expect("runs")
            });
            assert!(run.held_bytes() > 0 && run.held_bytes() <= plan.peak_bytes());
            assert_parameters(&params, &expected[step].parameters, "running statistics");
            pending.push((run, sinks));
        }
        // statistics have moved since the first one began: no gradient depends on that
        drop(pending.remove(1));
        for (place, (run, sinks)) in [2, 0].into_iter().zip(pending.into_iter().rev()) {
            with_io(&jobs[place], &sinks, [false, true], |io| {
                executor.backward(run, &params, io, &NoProgress).expect("runs")
            });
            let gradients = gradients(&executor, params.tensors().len());
            assert_same(sinks, &gradients, &expected[place], &format!("run {place}, {options:?}"));
        }
    }
}

#[test]
fn what_does_not_fit_a_waiting_run_is_an_error() {
    let backend = CpuBackend::new().expect("an instruction set");
    let job = job(5);
    let plan = job.plan(&backend, &slide(3));
    let mut executor = Executor::new(plan.clone(), &backend, 1).expect("starts");
    let mut other = Executor::new(plan, &backend, 1).expect("starts");
    let mut params = job.parameters.clone();
    let forward = |executor: &mut Executor<'_, f32>, params: &mut Parameters<f32>| {
        let sinks = Sinks::of(&job);
        with_io(&job, &sinks, [true, false], |io| executor.forward(params, io, &NoProgress).map(|_| ()))
    };
    forward(&mut executor, &mut params).expect("runs");
    // gradients that are missing
    let sinks = Sinks::of(&job);
    let (run, _) = with_io(&job, &sinks, [true, false], |io| {
        executor.forward(&mut params, io, &NoProgress).expect("runs")
    });
    let error = with_io(&job, &sinks, [false, false], |io| executor.backward(run, &params, io, &NoProgress));
    assert!(matches!(error, Err(ExecError::Missing { .. })), "{error:?}");
    // another plan's
    let (run, _) = with_io(&job, &Sinks::of(&job), [true, false], |io| {
        executor.forward(&mut params, io, &NoProgress).expect("runs")
    });
    let sinks = Sinks::of(&job);
    let error = with_io(&job, &sinks, [false, true], |io| other.backward(run, &params, io, &NoProgress));
    assert!(matches!(error, Err(ExecError::OtherPlan)), "{error:?}");
    assert!(sinks.grad_inputs[0].finish().is_err(), "it is aborted");
    // a parameter that has changed
    let (run, _) = with_io(&job, &Sinks::of(&job), [true, false], |io| {
        executor.forward(&mut params, io, &NoProgress).expect("runs")
    });
    let place = params.tensors().iter().position(|tensor| tensor.name == "c2.weight").expect("it has one");
    params.data_mut(place).expect("it is there")[0] += 1.0;
    let error =
        with_io(&job, &Sinks::of(&job), [false, true], |io| executor.backward(run, &params, io, &NoProgress));
    let message = "`c2.weight` has changed since the run that waits for its gradients";
    assert_eq!(error.expect_err("it has changed").to_string(), message);
    // a plan in one piece
    let whole = Objective { loss: Some(Loss::GradOutput), ..later() };
    let whole = Job { objective: whole, ..job.clone() };
    let mut executor = Executor::new(whole.plan(&backend, &slide(3)), &backend, 1).expect("starts");
    let error = forward(&mut executor, &mut params);
    assert!(matches!(error, Err(ExecError::NoSecondHalf)), "{error:?}");
}
