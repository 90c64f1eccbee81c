//! A case that is ready to run.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use tiled::autograd::{Context, Tensor, no_grad};
use tiled::exec::{WeightRef, load_weights, peak_rss_bytes, reset_peak_rss, save_weights};
use tiled::prelude::CpuBackend;

use crate::case::Case;
use crate::{Failure, number, text};

/// What is timed.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// The result, under `no_grad`.
    Forward,
    /// The sum of the result and its gradients, which are added to those of the runs before.
    Backward,
    /// Both, recorded.
    Both,
    /// Gradients of zero, the loss, its gradients, the optimiser.
    Step,
}

#[derive(Debug)]
pub(crate) struct Job {
    context: Context<f32>,
    case: Case,
    task: Task,
    /// The result of the last run.
    output: Option<Tensor<f32>>,
}

impl Job {
    pub(crate) fn load(backend: &'static CpuBackend, request: &Value) -> Result<Self, Failure> {
        let context = Context::new(backend, number(request, "threads")?)?;
        let task = match text(request, "task")? {
            "forward" => Task::Forward,
            "backward" => Task::Backward,
            "both" => Task::Both,
            "step" => Task::Step,
            other => return Err(format!("unknown task `{other}`").into()),
        };
        let tensors = load_weights::<f32>(text(request, "tensors")?)?;
        let case = Case::new(&context, request, tensors)?;
        Ok(Self { context, case, task, output: None })
    }

    /// Runs once; the memory is what that took beyond what was held before.
    pub(crate) fn first(&mut self) -> Result<Value, Failure> {
        let can_measure = reset_peak_rss();
        let before = peak_rss_bytes();
        let seconds = self.run(1)?;
        let mut answer = json!({"seconds": seconds[0]});
        if let (true, Some(before), Some(after)) = (can_measure, before, peak_rss_bytes()) {
            answer["memory_bytes"] = json!(after.saturating_sub(before));
        }
        Ok(answer)
    }

    /// The seconds of each of some runs, on the threads of the context.
    pub(crate) fn run(&mut self, repeats: usize) -> Result<Vec<f64>, Failure> {
        let Self { context, case, task, output } = self;
        context.install(|| (0..repeats).map(|_| once(case, *task, output)).collect())
    }

    /// Writes the result and the gradients of the last run.
    pub(crate) fn save(&self, path: &Path) -> Result<Value, Failure> {
        let output = self.output.as_ref().ok_or("`first` comes before `save`")?;
        let mut named = vec![("output".to_owned(), output.clone())];
        for (name, tensor) in self.case.named() {
            if let Some(gradient) = tensor.grad() {
                named.push((format!("grad.{name}"), gradient));
            }
        }
        let values: Vec<Vec<f32>> = named.iter().map(|(_, tensor)| tensor.to_vec()).collect();
        let entries = named.iter().zip(&values);
        let entries = entries.map(|((name, tensor), data)| WeightRef { name, shape: tensor.shape(), data });
        save_weights(path, entries.collect::<Vec<_>>())?;
        Ok(json!({}))
    }
}

/// The seconds of one run. What the last one gave is dropped before.
fn once(case: &mut Case, task: Task, output: &mut Option<Tensor<f32>>) -> Result<f64, Failure> {
    *output = None;
    match task {
        Task::Forward => {
            let _guard = no_grad();
            let start = Instant::now();
            *output = Some(case.forward()?);
            Ok(start.elapsed().as_secs_f64())
        }
        Task::Backward => {
            let result = case.forward()?;
            let start = Instant::now();
            result.sum(&[], false)?.backward()?;
            let seconds = start.elapsed().as_secs_f64();
            *output = Some(result.detach());
            Ok(seconds)
        }
        Task::Both => {
            let start = Instant::now();
            let result = case.forward()?;
            result.sum(&[], false)?.backward()?;
            let seconds = start.elapsed().as_secs_f64();
            *output = Some(result.detach());
            Ok(seconds)
        }
        Task::Step => {
            let start = Instant::now();
            let loss = case.step()?;
            let seconds = start.elapsed().as_secs_f64();
            *output = Some(loss.detach());
            Ok(seconds)
        }
    }
}
