//! Training steps: a run, then an optimiser.

use tiled_graph::{Id, Parameters};
use tiled_tensor::{Element, with_room};

use crate::error::refused;
use crate::executor::move_statistics;
use crate::finalise::Moved;
use crate::optim::is_finite;
use crate::{ExecError, Executor, Io, NotFinite, OptimError, Optimizer, Progress, RunReport};

/// Trains the parameters of a network, one step at a time.
#[derive(Debug)]
pub struct Trainer<'b, T: Element, O> {
    executor: Executor<'b, T>,
    optimizer: O,
    step: u64,
}

impl<'b, T: Element, O: Optimizer<T>> Trainer<'b, T, O> {
    /// A trainer over an executor whose plan computes gradients of parameters.
    #[must_use]
    pub const fn new(executor: Executor<'b, T>, optimizer: O) -> Self {
        Self { executor, optimizer, step: 0 }
    }

    /// Runs one step: the loss and the gradients, then the optimiser on every parameter that has a gradient.
    ///
    /// # Errors
    /// As [`Executor::run`], where the optimiser refuses, and where the loss, a gradient, a running statistic or what a
    /// parameter would become is not finite ([`ExecError::NotFinite`]). Then all parameters are as before.
    pub fn step(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        self.step_then(params, io, progress, |_| Ok(()))
    }

    /// Runs one step as [`Trainer::step`] does, and copies to `kept` the parameters that it begins with as soon as
    /// their loss and gradients are known to be finite.
    ///
    /// A step that is too long leaves weights that are finite and of no use: it shows in the next loss. Then `kept`
    /// holds the last parameters whose loss was finite, and `params` those after the step that was too long.
    ///
    /// # Errors
    /// As [`Trainer::step`], and where `kept` are not the parameters of the network.
    pub fn step_keeping(
        &mut self,
        params: &mut Parameters<T>,
        kept: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        self.step_then(params, io, progress, |params| {
            if !lens(kept).eq(lens(params)) {
                let (expected, got) = (params.tensors().len(), kept.tensors().len());
                return Err(ExecError::Parameters { expected, got });
            }
            for ((_, to), from) in kept.iter_mut().zip(params.tensors()) {
                to.copy_from_slice(&from.data);
            }
            Ok(())
        })
    }

    fn step_then(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
        proven: impl FnOnce(&Parameters<T>) -> Result<(), ExecError>,
    ) -> Result<RunReport, ExecError> {
        self.executor.set_dropout_step(self.step);
        let report = self.executor.run_apart(params, io, progress)?;
        let moved = self.executor.moved_statistics(params)?;
        let broken = |what| ExecError::NotFinite { step: self.step + 1, loss: report.loss, what };
        self.check(params, report.loss, &moved).map_err(broken)?;
        let count = params.tensors().len();
        let mut with_gradients = with_room(count).map_err(refused("the parameters of a step"))?;
        let mut values = with_room(count).map_err(refused("the parameters of a step"))?;
        let mut gradients = with_room(count).map_err(refused("the gradients of a step"))?;
        proven(params)?;
        for (param, (_, data)) in params.iter_mut().enumerate() {
            if let Some(gradient) = self.executor.gradient(param) {
                with_gradients.push(param);
                values.push(data);
                gradients.push(gradient);
            }
        }
        if let Err(error) = self.optimizer.step(&mut values, &gradients) {
            let OptimError::NotFinite { index } = error else { return Err(error.into()) };
            let name = with_gradients.get(index).map(|param| params.tensors()[*param].name.clone());
            return Err(broken(NotFinite::Parameter(name.unwrap_or_default())));
        }
        drop((values, gradients));
        move_statistics(params, moved);
        self.step += 1;
        Ok(report)
    }

    /// Whether everything is finite that a step computes before it changes anything.
    fn check(&self, params: &Parameters<T>, loss: Option<f64>, moved: &Moved<T>) -> Result<(), NotFinite> {
        if loss.is_some_and(|loss| !loss.is_finite()) {
            return Err(NotFinite::Loss);
        }
        for (param, tensor) in params.tensors().iter().enumerate() {
            if self.executor.gradient(param).is_some_and(|gradient| !is_finite(gradient)) {
                return Err(NotFinite::Gradient(tensor.name.clone()));
            }
        }
        match moved.iter().find(|(_, values)| !is_finite(values)) {
            Some((param, _)) => Err(NotFinite::Statistic(params.tensors()[param.index()].name.clone())),
            None => Ok(()),
        }
    }

    /// The executor, to read the gradients of the last step.
    #[must_use]
    pub const fn executor(&self) -> &Executor<'b, T> {
        &self.executor
    }

    /// The optimiser, to change its learning rate.
    pub const fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// The steps done.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.step
    }
}

fn lens<T: Element>(of: &Parameters<T>) -> impl Iterator<Item = usize> + '_ {
    of.tensors().iter().map(|tensor| tensor.data.len())
}
