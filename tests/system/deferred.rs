//! Calls that run later, on another thread, from copies: the same bits, and errors that reach the caller.

use tiled::exec::{ExecError, Executor, NoProgress};
use tiled::graph::{Graph, Loss, Objective, Plan, PlanError, PlanOptions};
use tiled::kernel::{Backend, Reference};
use tiled::prelude::CpuBackend;
use tiled::tensor::Element;
use tiled_testkit::deferred::Deferred;
use tiled_tests::{Done, Job, differing, recompute, slide, whole};

/// Outputs, gradients of inputs and parameters, running statistics, and a loss.
fn training() -> Objective {
    Objective { grad_inputs: true, outputs: true, ..Objective::training(Loss::MeanSquaredError) }
}

fn job<T: Element>(name: &str, objective: Objective) -> Job<T> {
    Job::random(Graph::builtin(name).expect("built in"), 2, [37, 41], objective, 3)
}

fn assert_same<T: Element>(got: &Done<T>, expected: &Done<T>, what: &str) {
    let pairs =
        got.outputs.iter().zip(&expected.outputs).chain(got.grad_inputs.iter().zip(&expected.grad_inputs));
    for (got, expected) in pairs {
        assert_eq!(differing(got.data(), expected.data()), 0, "{what}: an output or a gradient of an input");
    }
    for (place, (got, expected)) in got.gradients.iter().zip(&expected.gradients).enumerate() {
        let [got, expected] = [got, expected].map(|gradient| gradient.as_deref().unwrap_or_default());
        assert_eq!((got.len(), differing(got, expected)), (expected.len(), 0), "{what}: gradient {place}");
    }
    for (got, expected) in got.parameters.tensors().iter().zip(expected.parameters.tensors()) {
        assert_eq!(differing(&got.data, &expected.data), 0, "{what}: {}", got.name);
    }
    assert_eq!(got.loss.map(f64::to_bits), expected.loss.map(f64::to_bits), "{what}: loss");
}

fn ways() -> Vec<PlanOptions> {
    let in_lanes = PlanOptions { lanes: Some(3), ..recompute([4, 3]) };
    vec![whole(), recompute([3, 2]), slide(1), in_lanes]
}

fn check<T: Element>(backend: &dyn Backend<T>, name: &str) {
    for objective in [training(), Objective::inference()] {
        let job = job::<T>(name, objective);
        for options in ways() {
            let plan = job.plan(backend, &options);
            let deferred = Deferred::new(backend);
            // but for what could be had at the time
            let same = Plan { budget: plan.budget, ..job.plan(&deferred, &options) };
            assert!(format!("{same:?}") == format!("{plan:?}"), "{name} has another plan under {options:?}");
            let tiles = plan.tiles();
            assert!(options == whole() || tiles > 1, "{tiles} tiles");
            let expected = job.run(backend, plan.clone(), 2, &NoProgress);
            for threads in [1, 2] {
                let got = job.run(&deferred, plan.clone(), threads, &NoProgress);
                assert_same(&got, &expected, &format!("{name}, {threads} threads, {options:?}"));
            }
            assert!(deferred.calls() > tiles, "{} calls", deferred.calls());
        }
    }
}

#[test]
fn calls_that_run_later_give_the_same_bits() {
    let backend = CpuBackend::new().expect("an instruction set");
    for name in ["unet", "resnet18", "light", "seed-002"] {
        check::<f32>(&backend, name);
    }
    check::<f64>(&backend, "unet");
    check::<f32>(&Reference, "light");
}

#[test]
fn values_in_files_between_calls_that_run_later_have_the_same_bits() {
    let text = r#"{"inputs": [{"name": "x", "channels": 3}], "outputs": ["y"], "nodes": [
        {"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 20, "kernel_size": 3},
        {"name": "n", "op": "batch_norm", "inputs": ["c"]},
        {"name": "r", "op": "relu", "inputs": ["n"]},
        {"name": "y", "op": "conv2d", "inputs": ["r"], "out_channels": 5, "kernel_size": 3, "stride": 2}]}"#;
    let backend = CpuBackend::new().expect("an instruction set");
    let job = Job::<f32>::random(Graph::from_json(text).expect("a network"), 2, [67, 59], training(), 3);
    let checkpoints = Some(vec![job.graph.value("c").expect("it is there")]);
    let with = |temporary_files, bytes| {
        let checkpoints = checkpoints.clone();
        PlanOptions { temporary_files, checkpoints, memory_bytes: Some(bytes), ..PlanOptions::default() }
    };
    let smallest = |temporary_files| {
        let options = with(temporary_files, 0);
        match job.try_plan(&backend, &options) {
            Err(PlanError::BudgetTooSmall { smallest, .. }) => smallest,
            other => panic!("no memory is enough: {other:?}"),
        }
    };
    let [in_memory, in_files] = [smallest(false), smallest(true)];
    assert!(in_files < in_memory, "{in_files} bytes with files, {in_memory} without");
    let plan = job.plan(&backend, &with(true, in_files.midpoint(in_memory)));
    assert!(plan.stores_in_files && plan.tiles() > 1, "{} tiles", plan.tiles());
    let expected = job.run(&backend, plan.clone(), 2, &NoProgress);
    let got = job.run(&Deferred::new(&backend), plan, 2, &NoProgress);
    assert_same(&got, &expected, "values in files");
}

#[test]
fn whichever_call_fails_the_run_fails_and_the_next_one_is_whole() {
    let backend = CpuBackend::new().expect("an instruction set");
    let job = job::<f32>("seed-002", training());
    for options in [slide(4), PlanOptions { lanes: Some(2), ..recompute([2, 3]) }] {
        let plan = job.plan(&backend, &options);
        assert!(plan.tiles() > 1);
        let counted = Deferred::new(&backend);
        let expected = job.run(&counted, plan.clone(), 2, &NoProgress);
        let calls = counted.calls();
        assert!(calls > 40, "{calls} calls are more than are put off at a time");
        for call in 0..calls {
            let failing = Deferred::failing(&backend, call);
            let mut executor = Executor::new(plan.clone(), &failing, 2).expect("starts");
            let error = job.attempt(&mut executor, &NoProgress).expect_err("a call fails");
            assert!(matches!(error, ExecError::Device { .. }), "{call}: {error}");
            assert!(error.to_string().contains(&format!("call {call}: it was to fail")), "{error}");
            // whatever was left behind, the executor goes on
            let done = job.attempt(&mut executor, &NoProgress).expect("no other call fails");
            assert_same(&done, &expected, &format!("after call {call} of {calls} failed"));
        }
    }
}
