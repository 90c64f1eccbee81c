//! Optimisers, with PyTorch's meaning.

mod adamw;
mod sgd;

use tiled_tensor::{Element, OutOfMemory, with_room, zeros};

pub use adamw::{AdamOptions, AdamW, AdamWOptions};
pub use sgd::{Sgd, SgdOptions};

/// Changes parameters by their gradients and keeps, per parameter, what it needs between steps.
///
/// Elements are independent and each is computed in one order, so that steps are deterministic.
pub trait Optimizer<T: Element>: Send + std::fmt::Debug {
    /// One step. Every step gets the same parameters in the same order; the first one allocates the state.
    ///
    /// # Errors
    /// Where the gradients, or the state of earlier steps, are not those of the parameters, and where a parameter or
    /// its state would not be finite ([`OptimError::NotFinite`]). Then neither parameters nor state are changed.
    fn step(&mut self, params: &mut [&mut [T]], grads: &[&[T]]) -> Result<(), OptimError>;

    /// Sets the learning rate of the steps to come.
    ///
    /// # Errors
    /// Where it is negative or not a number.
    fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), OptimError>;

    /// The learning rate.
    fn learning_rate(&self) -> f64;

    /// The bytes of state that steps over so many elements keep, known before the first.
    fn state_bytes(&self, elements: usize) -> u64;
}

/// What an optimiser keeps between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimState<'a, T> {
    /// The steps that it has made, where it counts them; else one where it has made any.
    pub steps: i32,
    /// What it keeps, by name: a list of the parameters' each, empty before the first step.
    pub tensors: Vec<(&'static str, &'a [Vec<T>])>,
}

/// An optimiser that cannot do what is asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    /// Memory for the state of the steps is refused.
    #[error("the state of the optimiser: {bytes} bytes could not be had")]
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// An option out of its range.
    #[error("{optimizer}: {option} is {got}, {expected} is wanted")]
    Option {
        /// The optimiser.
        optimizer: &'static str,
        /// The option.
        option: &'static str,
        /// The range.
        expected: &'static str,
        /// The value.
        got: f64,
    },
    /// Nesterov's momentum without momentum or with dampening.
    #[error("sgd: nesterov wants momentum above 0 and dampening 0, got {momentum} and {dampening}")]
    Nesterov {
        /// The momentum.
        momentum: f64,
        /// The dampening.
        dampening: f64,
    },
    /// Gradients, or the state of earlier steps, of another number of parameters.
    #[error("{what} of {got} parameters, {expected} are trained")]
    Count {
        /// Gradients or state.
        what: &'static str,
        /// The parameters.
        expected: usize,
        /// The gradients or states.
        got: usize,
    },
    /// A gradient, or the state of earlier steps, of another length than its parameter.
    #[error("{what} of parameter {index} has {got} elements, the parameter has {expected}")]
    Length {
        /// Gradient or state.
        what: &'static str,
        /// Which parameter.
        index: usize,
        /// The elements of the parameter.
        expected: usize,
        /// The elements of the gradient or state.
        got: usize,
    },
    /// A parameter, or its state, that the step would make NaN or infinite.
    #[error("parameter {index} would not be finite")]
    NotFinite {
        /// Which parameter.
        index: usize,
    },
}

/// Whether no element is NaN or infinite.
pub(crate) fn is_finite<T: Element>(values: &[T]) -> bool {
    // whole pieces without a branch on each element
    values.chunks(PIECE).all(|piece| piece.iter().fold(true, |all, value| all & is_number(*value)))
}

/// Whether an element is neither NaN, which is not below anything, nor infinite.
#[inline(always)]
fn is_number<T: Element>(value: T) -> bool {
    value.abs() < -T::NEG_INFINITY
}

/// Checks what the elements of a parameter, and their state, would become.
#[inline(always)]
fn check_finite<T: Element, const N: usize>(
    index: usize,
    after: impl Iterator<Item = [T; N]>,
) -> Result<(), OptimError> {
    let of = |values: [T; N]| values.into_iter().fold(true, |all, value| all & is_number(value));
    if after.fold(true, |all, values| all & of(values)) {
        Ok(())
    } else {
        Err(OptimError::NotFinite { index })
    }
}

/// Elements that are looked at before a check may end.
const PIECE: usize = 1024;

/// Checks gradients before anything is changed.
fn check_grads<T>(params: &[&mut [T]], grads: &[&[T]]) -> Result<(), OptimError> {
    check_lens("gradients", "gradient", params, grads.iter().map(|grad| grad.len()))
}

/// Checks the state of earlier steps, and allocates it before the first.
fn prepare<T: Element>(state: &mut Vec<Vec<T>>, params: &[&mut [T]]) -> Result<(), OptimError> {
    if state.is_empty() {
        *state = fresh(params)?;
    }
    check_lens("state", "state", params, state.iter().map(Vec::len))
}

/// Zeros for each parameter.
fn fresh<T: Element>(params: &[&mut [T]]) -> Result<Vec<Vec<T>>, OptimError> {
    let fail = |OutOfMemory { bytes }| OptimError::OutOfMemory { bytes };
    let mut state = with_room(params.len()).map_err(fail)?;
    for param in params {
        state.push(zeros(param.len()).map_err(fail)?);
    }
    Ok(state)
}

fn check_lens<T>(
    all: &'static str,
    one: &'static str,
    params: &[&mut [T]],
    lens: impl ExactSizeIterator<Item = usize>,
) -> Result<(), OptimError> {
    if lens.len() != params.len() {
        return Err(OptimError::Count { what: all, expected: params.len(), got: lens.len() });
    }
    for (index, (param, got)) in params.iter().zip(lens).enumerate() {
        if param.len() != got {
            return Err(OptimError::Length { what: one, index, expected: param.len(), got });
        }
    }
    Ok(())
}

/// Checks that an option is a number not below zero.
fn check_option(optimizer: &'static str, option: &'static str, got: f64) -> Result<(), OptimError> {
    if got.is_finite() && got >= 0.0 {
        return Ok(());
    }
    Err(OptimError::Option { optimizer, option, expected: "a finite number of at least 0", got })
}
