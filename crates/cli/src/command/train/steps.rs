//! The steps of a training run, and what is kept of it where it ends early.

use std::path::Path;

use tiled::exec::{ExecError, Executor, Io, Optimizer, Reservation, Source, Trainer, save_weights};
use tiled::graph::{Parameters, Plan};
use tiled::tensor::Element;

use super::log::Log;
use crate::args::TrainArgs;
use crate::error::CliError;
use crate::job::Job;
use crate::progress::{Bar, Session, print_line};
use crate::text;

/// The steps of a run: their number, where their losses go, and the weights.
pub(super) struct Steps<'a, T: Element> {
    pub(super) args: &'a TrainArgs,
    pub(super) session: &'a Session,
    pub(super) parameters: &'a mut Parameters<T>,
    /// Where weights are to be saved: room for those of the last step whose loss was finite.
    pub(super) kept: Option<Parameters<T>>,
    /// The losses of the steps that were done, each that before its change of the weights.
    pub(super) losses: Vec<f64>,
    pub(super) seconds: f64,
    /// The place of the weights' file.
    pub(super) place: Option<Reservation>,
}

impl<T: Element> Steps<'_, T> {
    /// Runs the steps, and saves the weights at the end. Where a signal, a number that is not finite or another error ends
    /// them early, the weights of the last whole step are saved all the same; then the error is returned.
    pub(super) fn run<O: Optimizer<T>>(
        &mut self,
        job: &Job<T>,
        target: &dyn Source<T>,
        plan: Plan,
        optimizer: O,
    ) -> Result<(), CliError> {
        let executor = self.args.plan.executor(plan, &job.backend)?;
        let ended = self.train(job, target, executor, optimizer);
        let Some(path) = &self.args.save else { return ended };
        self.place = None; // its room is for the weights
        match ended {
            Ok(()) => Ok(save_weights(path, self.parameters.tensors())?),
            Err(error) => {
                self.rescue(path, &error);
                Err(error)
            }
        }
    }

    fn train<O: Optimizer<T>>(
        &mut self,
        job: &Job<T>,
        target: &dyn Source<T>,
        executor: Executor<'_, T>,
        optimizer: O,
    ) -> Result<(), CliError> {
        let mut log = self.args.log.as_deref().map(Log::new);
        let mut trainer = Trainer::new(executor, optimizer);
        let io = Io { inputs: job.sources(), target: Some(target), ..Io::default() };
        let bar = self.session.bar("training");
        for step in 1..=self.args.steps {
            self.session.check()?;
            bar.say(self.count(step));
            let lr = trainer.optimizer_mut().learning_rate();
            let done = match &mut self.kept {
                Some(kept) => trainer.step_keeping(self.parameters, kept, &io, &bar),
                None => trainer.step(self.parameters, &io, &bar),
            }?;
            let loss = done.loss.ok_or_else(|| ExecError::Missing { name: "loss".to_owned() })?;
            self.seconds += done.seconds;
            self.losses.push(loss);
            self.report(&bar, step, loss, done.seconds);
            if let Some(log) = &mut log {
                log.write(step, loss, done.seconds, lr)?;
            }
        }
        Ok(self.session.check()?)
    }

    fn count(&self, step: u64) -> String {
        let width = self.args.steps.to_string().len();
        format!("step {step:width$}/{}", self.args.steps)
    }

    fn report(&self, bar: &Bar, step: u64, loss: f64, seconds: f64) {
        bar.print_line(&format!("{}  loss {}  {} s/step", self.count(step), number(loss), number(seconds)));
    }

    /// Saves the weights of a run that ended early, and says which they are. What it cannot save it says too: the error
    /// that ended the run is the one that ends the program.
    fn rescue(&self, path: &Path, error: &CliError) {
        let (steps, name) = (self.losses.len(), text::quoted(path));
        let (parameters, which) = match (error, &self.kept) {
            // those of the step before led to it
            (CliError::Exec(ExecError::NotFinite { what, .. }), Some(kept)) => match self.losses.last() {
                _ if matches!(what, tiled::exec::NotFinite::Parameter(_)) => {
                    (&*self.parameters, format!("weights before step {}", steps + 1))
                }
                Some(loss) => {
                    (kept, format!("weights before step {steps}, whose loss was {}", number(*loss)))
                }
                None => return print_line("the first step failed: no weights are saved"),
            },
            _ if steps == 0 => return print_line("no step was done: no weights are saved"),
            _ => (&*self.parameters, format!("weights after step {steps}")),
        };
        match save_weights(path, parameters.tensors()) {
            Ok(()) => print_line(&format!("saved the {which} to {name}")),
            Err(error) => print_line(&format!("cannot save the {which}: {}", text::one_line(&error))),
        }
    }
}

/// A number with about five digits that count.
fn number(value: f64) -> String {
    if value == 0.0 || (1e-3..1e5).contains(&value.abs()) {
        format!("{value:.5}")
    } else {
        format!("{value:.4e}")
    }
}
