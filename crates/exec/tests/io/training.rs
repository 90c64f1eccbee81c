//! Training steps that fail leave every parameter as it was, running statistics too.

use std::sync::atomic::{AtomicU64, Ordering};

use tiled_exec::{
    AdamW, AdamWOptions, ExecError, Executor, Io, MemorySource, NoProgress, NotFinite, OptimError, Optimizer,
    Progress, Sgd, SgdOptions, Trainer,
};
use tiled_graph::{Graph, Loss, Objective, Parameters, PlanOptions, Planner, infer, initialise, params};
use tiled_kernel::Reference;

const NETWORK: &str = r#"{"inputs": [{"name": "x", "channels": 1}],
  "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 2, "kernel_size": 3},
            {"name": "n1", "op": "batch_norm", "inputs": ["c1"], "momentum": null},
            {"name": "c2", "op": "conv2d", "inputs": ["n1"], "out_channels": 1, "kernel_size": 3}],
  "outputs": ["c2"]}"#;

fn sgd(lr: f64) -> Sgd<f32> {
    Sgd::new(SgdOptions { lr, ..SgdOptions::default() }).unwrap()
}

fn trainer<O: Optimizer<f32>>(optimizer: O) -> (Trainer<'static, f32, O>, Parameters<f32>) {
    let graph = Graph::from_json(NETWORK).unwrap();
    let shapes = infer(&graph, 1, &[[8, 8]]).unwrap();
    let objective = Objective::training(Loss::MeanSquaredError);
    let planner = Planner::<f32>::new(&graph, &shapes, &objective, &Reference);
    let plan = planner.plan(&PlanOptions::default()).unwrap();
    let executor = Executor::new(plan, &Reference, 1).unwrap();
    (Trainer::new(executor, optimizer), initialise(&params(&graph), 1))
}

fn image(last: f32) -> Vec<f32> {
    let mut image: Vec<f32> = (0..64_u16).map(|i| f32::from(i * 7 % 13) - 6.0).collect();
    image[63] = last;
    image
}

/// Runs one step on an image whose last element this is.
fn step<O: Optimizer<f32>>(
    trainer: &mut Trainer<'static, f32, O>,
    params: &mut Parameters<f32>,
    kept: Option<&mut Parameters<f32>>,
    last: f32,
    progress: &dyn Progress,
) -> Result<f64, ExecError> {
    let (image, target) = (image(last), [0.5; 16]);
    let (input, target) =
        (MemorySource::new(&image, [1, 1, 8, 8]).unwrap(), MemorySource::new(&target, [1, 1, 4, 4]).unwrap());
    let io = Io { inputs: vec![&input], target: Some(&target), ..Io::default() };
    let report = match kept {
        Some(kept) => trainer.step_keeping(params, kept, &io, progress),
        None => trainer.step(params, &io, progress),
    };
    report.map(|report| report.loss.unwrap())
}

fn bits(params: &Parameters<f32>) -> Vec<u32> {
    params.tensors().iter().flat_map(|tensor| &tensor.data).map(|value| value.to_bits()).collect()
}

/// Cancels after so many steps.
struct After(u64, AtomicU64);

impl Progress for After {
    fn step(&self, _done: u64, _total: u64, _what: &str) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
    fn is_cancelled(&self) -> bool {
        self.1.load(Ordering::Relaxed) >= self.0
    }
}

#[test]
fn r07_a_step_that_is_cancelled_leaves_running_statistics_too() {
    let (mut trainer, mut params) = trainer(sgd(0.1));
    let before = bits(&params);
    let whole = After(u64::MAX, AtomicU64::new(0));
    step(&mut trainer, &mut params, None, 1.0, &whole).unwrap();
    let (after, steps) = (bits(&params), whole.1.into_inner());
    assert!(steps > 2 && after != before);
    for cancelled in 1..=steps {
        let error = step(&mut trainer, &mut params, None, 1.0, &After(cancelled, AtomicU64::new(0)));
        assert!(matches!(error, Err(ExecError::Cancelled)), "{cancelled} of {steps}: {error:?}");
        assert!(bits(&params) == after, "cancelled after {cancelled} of {steps} steps");
    }
    assert_eq!(trainer.steps(), 1);
    assert_eq!(params.get("n1.num_batches_tracked").unwrap().data, [1.0]);
}

/// Cancels when it is asked for the so manieth time.
struct AskedOften(u64, AtomicU64);

impl Progress for AskedOften {
    fn step(&self, _done: u64, _total: u64, _what: &str) {}
    fn is_cancelled(&self) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed) + 1 >= self.0
    }
}

#[test]
fn a_run_that_is_cancelled_after_its_last_step_is_not_finished() {
    let (mut trainer, mut params) = trainer(sgd(0.1));
    let steps = After(u64::MAX, AtomicU64::new(0));
    step(&mut trainer, &mut params, None, 1.0, &steps).unwrap();
    let before = bits(&params);
    // each step asks once
    let late = AskedOften(steps.1.into_inner() + 1, AtomicU64::new(0));
    let error = step(&mut trainer, &mut params, None, 1.0, &late);
    assert!(matches!(error, Err(ExecError::Cancelled)), "{error:?}");
    assert!(bits(&params) == before);
}

#[test]
fn r02_a_loss_that_is_not_finite_changes_nothing() {
    for last in [f32::NAN, f32::INFINITY, 3e38] {
        let (mut trainer, mut params) = trainer(sgd(0.1));
        step(&mut trainer, &mut params, None, 1.0, &NoProgress).unwrap();
        let before = bits(&params);
        let error = step(&mut trainer, &mut params, None, last, &NoProgress).unwrap_err();
        let ExecError::NotFinite { step: 2, loss: Some(loss), what } = error else {
            panic!("{last}: {error}")
        };
        assert!(what != NotFinite::Loss || !loss.is_finite());
        assert!(bits(&params) == before, "{last}: {what:?}");
        step(&mut trainer, &mut params, None, 1.0, &NoProgress).expect("the trainer goes on");
    }
}

#[test]
fn r02_an_update_that_is_not_finite_changes_nothing_and_is_told_by_name() {
    // the largest rates whose step leaves the range of f32
    let (mut trainer, mut params) = trainer(sgd(1e45));
    let before = bits(&params);
    let error = step(&mut trainer, &mut params, None, 1.0, &NoProgress).unwrap_err();
    assert!(bits(&params) == before);
    let text = error.to_string();
    assert!(
        text.starts_with("training step 1: `c1.weight` would not be finite after it, loss is "),
        "{text}"
    );
}

#[test]
fn r02_the_parameters_of_the_last_finite_loss_are_kept() {
    let (mut trainer, mut params) = trainer(sgd(1e25));
    let mut kept = params.clone();
    let first = bits(&params);
    let loss = step(&mut trainer, &mut params, Some(&mut kept), 1.0, &NoProgress).unwrap();
    assert!(loss.is_finite() && bits(&kept) == first && bits(&params) != first);
    let second = bits(&params);
    let error = step(&mut trainer, &mut params, Some(&mut kept), 1.0, &NoProgress).unwrap_err();
    assert!(matches!(error, ExecError::NotFinite { step: 2, .. }), "{error}");
    assert!(bits(&params) == second, "as before the step");
    assert!(bits(&kept) == first, "as before the step that was too long");
    let mut others = Parameters::zeros(&[]).expect("no memory is needed");
    let error = step(&mut trainer, &mut params, Some(&mut others), f32::NAN, &NoProgress).unwrap_err();
    assert!(matches!(error, ExecError::NotFinite { .. }), "{error}");
}

type Make = fn(SgdOptions) -> Box<dyn Optimizer<f32>>;

#[test]
fn r02_optimisers_refuse_what_is_not_finite_and_keep_their_state() {
    let momentum = SgdOptions { lr: 0.5, momentum: 0.9, ..SgdOptions::default() };
    let makes: [Make; 3] = [
        |_| Box::new(sgd(0.5)),
        |momentum| Box::new(Sgd::new(momentum).unwrap()),
        |_| Box::new(AdamW::new(AdamWOptions { lr: 0.5, ..AdamWOptions::default() }).unwrap()),
    ];
    for make in makes {
        for failing in 0..3 {
            let (mut clean, mut tried) = (make(momentum), make(momentum));
            let [mut a, mut b] = [[1.0_f32, -2.0, 3.0]; 2];
            for count in 0..3 {
                let gradient = [0.25, -1.0, 2.0];
                if count == failing {
                    for bad in [f32::NAN, f32::INFINITY] {
                        let before = b;
                        let error = tried.step(&mut [&mut b], &[&[0.1, bad, 0.1]]).unwrap_err();
                        assert_eq!((error, b), (OptimError::NotFinite { index: 0 }, before));
                    }
                }
                clean.step(&mut [&mut a], &[&gradient]).unwrap();
                tried.step(&mut [&mut b], &[&gradient]).unwrap();
            }
            assert_eq!(a.map(f32::to_bits), b.map(f32::to_bits), "{tried:?} after a refusal at {failing}");
        }
    }
}
