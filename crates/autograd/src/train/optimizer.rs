//! The engine's optimisers over tensors.

use std::collections::BTreeSet;

use tiled_exec::{AdamOptions, AdamW, AdamWOptions, OptimError, OptimState, Optimizer as _, Sgd, SgdOptions};
use tiled_kernel::dense::IndexError;
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::tensor::Tensor;

/// How a group of parameters moves, with PyTorch's options and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// `torch.optim.SGD`.
    Sgd(SgdOptions),
    /// `torch.optim.Adam`, whose penalty is part of the gradient.
    Adam(AdamOptions),
    /// `torch.optim.AdamW`, whose weights decay by themselves.
    AdamW(AdamWOptions),
}

/// The rule and the state of one parameter: those that get no gradient stay as they are, as in PyTorch.
#[derive(Debug)]
enum Rule<T: Element> {
    Sgd(Sgd<T>),
    AdamW(AdamW<T>),
}

impl<T: Element> Rule<T> {
    fn new(method: Method) -> Result<Self, OptimError> {
        Ok(match method {
            Method::Sgd(options) => Self::Sgd(Sgd::new(options)?),
            Method::Adam(options) => Self::AdamW(AdamW::coupled(options)?),
            Method::AdamW(options) => Self::AdamW(AdamW::new(options)?),
        })
    }

    fn step(&mut self, values: &mut [T], gradient: &[T]) -> Result<(), OptimError> {
        match self {
            Self::Sgd(sgd) => sgd.step(&mut [values], &[gradient]),
            Self::AdamW(adam) => adam.step(&mut [values], &[gradient]),
        }
    }

    fn set_learning_rate(&mut self, rate: f64) -> Result<(), OptimError> {
        match self {
            Self::Sgd(sgd) => sgd.set_learning_rate(rate),
            Self::AdamW(adam) => adam.set_learning_rate(rate),
        }
    }

    fn learning_rate(&self) -> f64 {
        match self {
            Self::Sgd(sgd) => sgd.learning_rate(),
            Self::AdamW(adam) => adam.learning_rate(),
        }
    }

    fn state(&self) -> OptimState<'_, T> {
        match self {
            Self::Sgd(sgd) => sgd.state(),
            Self::AdamW(adam) => adam.state(),
        }
    }

    fn set_state(&mut self, steps: i32, tensors: Vec<Vec<Vec<T>>>) {
        match self {
            Self::Sgd(sgd) => sgd.set_state(tensors),
            Self::AdamW(adam) => adam.set_state(steps, tensors),
        }
    }
}

/// A parameter that moves.
#[derive(Debug)]
struct Moved<T: Element> {
    name: String,
    tensor: Tensor<T>,
    rule: Rule<T>,
}

/// Groups of parameters, each with a method of its own.
///
/// ```
/// use tiled_autograd::train::{Method, Optimizer};
/// use tiled_autograd::{Context, SgdOptions};
/// use tiled_kernel::Reference;
/// let context = Context::<f64>::new(&Reference, 1)?;
/// let x = context.full(&[1], 4.0)?.with_gradient()?;
/// let sgd = Method::Sgd(SgdOptions { lr: 0.25, ..SgdOptions::default() });
/// let mut optimizer = Optimizer::new(vec![("x".to_owned(), x.clone())], sgd)?;
/// (&x * &x)?.sum(&[], false)?.backward()?;
/// optimizer.step()?;
/// assert_eq!(x.item()?, 2.0);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
#[derive(Debug)]
pub struct Optimizer<T: Element> {
    groups: Vec<Vec<Moved<T>>>,
}

impl<T: Element> Optimizer<T> {
    /// One group of named parameters.
    ///
    /// # Errors
    /// Where an option has no meaning, and where a parameter is no leaf or there twice.
    pub fn new(parameters: Vec<(String, Tensor<T>)>, method: Method) -> Result<Self> {
        let mut optimizer = Self { groups: Vec::new() };
        optimizer.add_group(parameters, method)?;
        Ok(optimizer)
    }

    /// One more group; its number.
    ///
    /// # Errors
    /// As [`Optimizer::new`].
    pub fn add_group(&mut self, parameters: Vec<(String, Tensor<T>)>, method: Method) -> Result<usize> {
        Rule::<T>::new(method)?; // also where there are no parameters
        let mut group = Vec::with_capacity(parameters.len());
        let mut moved: BTreeSet<_> =
            self.groups.iter().flatten().map(|moved| moved.tensor.history().key()).collect();
        for (name, tensor) in parameters {
            if !tensor.is_leaf() || !tensor.is_contiguous() {
                let (operator, what) = ("optimizer", "what is no leaf without gaps");
                return Err(TapeError::InPlace { operator, what, shape: tensor.shape().into() });
            }
            if !moved.insert(tensor.history().key()) {
                return Err(TapeError::Repeated { operator: "optimizer", name });
            }
            group.push(Moved { name, tensor, rule: Rule::new(method)? });
        }
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    /// Moves every parameter that has a gradient.
    ///
    /// # Errors
    /// Where a gradient is not finite: then nothing is changed. Where a parameter would not be, those before it have moved.
    pub fn step(&mut self) -> Result<()> {
        let mut gradients = Vec::new();
        for (index, moved) in self.groups.iter().flatten().enumerate() {
            let gradient = moved.tensor.grad().map(|gradient| gradient.contiguous()).transpose()?;
            let is_finite = gradient.as_ref().is_none_or(|gradient| {
                gradient.values().view().iter().all(|value| value.abs() < -T::NEG_INFINITY)
            });
            if !is_finite {
                return Err(OptimError::NotFinite { index }.into());
            }
            gradients.push(gradient);
        }
        for (moved, gradient) in self.groups.iter_mut().flatten().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            let rule = &mut moved.rule;
            moved.tensor.change_slice(|values| {
                let gradient = gradient.values();
                Ok(rule.step(values, gradient.as_slice().unwrap_or(&[]))?)
            })?;
        }
        Ok(())
    }

    /// Gives the gradients of all parameters up.
    pub fn zero_grad(&self) {
        self.groups.iter().flatten().for_each(|moved| moved.tensor.zero_grad());
    }

    /// The parameters of all groups.
    #[must_use]
    pub fn parameters(&self) -> Vec<Tensor<T>> {
        self.groups.iter().flatten().map(|moved| moved.tensor.clone()).collect()
    }

    /// Sets the learning rate of a group.
    ///
    /// # Errors
    /// Where it is negative or not a number, and where there is no such group.
    pub fn set_learning_rate(&mut self, group: usize, rate: f64) -> Result<()> {
        let extent = self.groups.len();
        let found = self.groups.get_mut(group).ok_or_else(|| {
            let index = i64::try_from(group).unwrap_or(i64::MAX);
            TapeError::Index { operator: "group of the optimizer", source: IndexError { index, extent } }
        })?;
        Ok(found.iter_mut().try_for_each(|moved| moved.rule.set_learning_rate(rate))?)
    }

    /// The learning rate of a group that has parameters.
    #[must_use]
    pub fn learning_rate(&self, group: usize) -> Option<f64> {
        self.groups.get(group)?.first().map(|moved| moved.rule.learning_rate())
    }

    /// The state of each parameter by name: a list for each kind, steps, learning rate.
    pub(super) fn states(&self) -> impl Iterator<Item = (String, OptimState<'_, T>, f64)> {
        let name = |group: usize, moved: &Moved<T>| format!("{group}.{}", moved.name);
        self.groups.iter().enumerate().flat_map(move |(group, all)| {
            all.iter().map(move |moved| (name(group, moved), moved.rule.state(), moved.rule.learning_rate()))
        })
    }

    /// Goes on from a state, in the order of [`Optimizer::states`].
    pub(super) fn set_states(&mut self, states: Vec<(i32, Vec<Vec<T>>, f64)>) -> Result<()> {
        for (moved, (steps, tensors, rate)) in self.groups.iter_mut().flatten().zip(states) {
            moved.rule.set_state(steps, tensors.into_iter().map(|tensor| vec![tensor]).collect());
            moved.rule.set_learning_rate(rate)?;
        }
        Ok(())
    }
}
