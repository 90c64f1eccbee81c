//! Training steps: a run, then an optimiser.

use tiled_graph::Parameters;
use tiled_tensor::{Element, with_room};

use crate::executor::refused;
use crate::{ExecError, Executor, Io, Optimizer, Progress, RunReport};

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
    /// As [`Executor::run`], and where the optimiser refuses; then the parameters that are trained are as before.
    pub fn step(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        self.executor.set_dropout_step(self.step);
        let report = self.executor.run(params, io, progress)?;
        let count = params.tensors().len();
        let mut values = with_room(count).map_err(refused("the parameters of a step"))?;
        let mut gradients = with_room(count).map_err(refused("the gradients of a step"))?;
        for (place, (_, data)) in params.iter_mut().enumerate() {
            if let Some(gradient) = self.executor.gradient(place) {
                values.push(data);
                gradients.push(gradient);
            }
        }
        self.optimizer.step(&mut values, &gradients)?;
        self.step += 1;
        Ok(report)
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
