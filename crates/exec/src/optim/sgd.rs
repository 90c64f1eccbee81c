//! Stochastic gradient descent.

use tiled_tensor::Element;

use super::{OptimError, OptimState, Optimizer, check_finite, check_grads, check_option, prepare};

/// The options of [`Sgd`], with PyTorch's names; all but the learning rate default to off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdOptions {
    /// The learning rate, `lr`.
    pub lr: f64,
    /// The share of the last step that is kept, `μ`.
    pub momentum: f64,
    /// The share of the gradient that momentum leaves out, `τ`.
    pub dampening: f64,
    /// The L2 penalty, `λ`.
    pub weight_decay: f64,
    /// Whether the gradient is taken after the momentum's step.
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self { lr: 1e-3, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }
}

/// Stochastic gradient descent, as `torch.optim.SGD`.
///
/// ```text
///   g ← g + λ·p
///   b ← g                    at the first step
///   b ← μ·b + (1 − τ)·g      after it
///   g ← g + μ·b (Nesterov) or b, where μ > 0
///   p ← p − lr·g
/// ```
///
/// ```
/// # use tiled_exec::{Optimizer, Sgd, SgdOptions};
/// let mut sgd = Sgd::new(SgdOptions { lr: 0.5, ..SgdOptions::default() }).unwrap();
/// let mut weight = [1.0_f32, 2.0];
/// sgd.step(&mut [&mut weight], &[&[2.0, -2.0]]).unwrap();
/// assert_eq!(weight, [0.0, 3.0]);
/// ```
///
/// Source: PyTorch, `torch.optim.SGD`.
#[derive(Debug, Clone)]
pub struct Sgd<T> {
    options: SgdOptions,
    momentum: Vec<Vec<T>>,
}

impl<T: Element> Sgd<T> {
    /// The optimiser before its first step.
    ///
    /// # Errors
    /// Where an option is negative or not a number, and for Nesterov without momentum or with dampening.
    pub fn new(options: SgdOptions) -> Result<Self, OptimError> {
        let SgdOptions { lr, momentum, dampening, weight_decay, nesterov } = options;
        check_option(NAME, "lr", lr)?;
        check_option(NAME, "momentum", momentum)?;
        check_option(NAME, "weight_decay", weight_decay)?;
        if !dampening.is_finite() {
            let expected = "a finite number";
            return Err(OptimError::Option {
                optimizer: NAME,
                option: "dampening",
                expected,
                got: dampening,
            });
        }
        if nesterov && (momentum <= 0.0 || dampening != 0.0) {
            return Err(OptimError::Nesterov { momentum, dampening });
        }
        Ok(Self { options, momentum: Vec::new() })
    }

    /// What it keeps between steps: nothing without momentum.
    ///
    /// ```
    /// # use tiled_exec::{Optimizer, Sgd, SgdOptions};
    /// let mut sgd = Sgd::new(SgdOptions { momentum: 0.5, ..SgdOptions::default() }).unwrap();
    /// sgd.step(&mut [&mut [1.0_f32]], &[&[2.0]]).unwrap();
    /// assert_eq!(sgd.state().tensors[0], ("momentum", [vec![2.0]].as_slice()));
    /// ```
    #[must_use]
    pub fn state(&self) -> OptimState<'_, T> {
        let has_momentum = self.options.momentum != 0.0;
        let tensors = if has_momentum { vec![("momentum", self.momentum.as_slice())] } else { Vec::new() };
        OptimState { steps: i32::from(!self.momentum.is_empty()), tensors }
    }

    /// Goes on from what [`Sgd::state`] gave, in its order. State of other parameters is found by the next step.
    pub fn set_state(&mut self, tensors: Vec<Vec<Vec<T>>>) {
        self.momentum = tensors.into_iter().next().unwrap_or_default();
    }
}

impl<T: Element> Optimizer<T> for Sgd<T> {
    fn step(&mut self, params: &mut [&mut [T]], grads: &[&[T]]) -> Result<(), OptimError> {
        check_grads(params, grads)?;
        let rule = Rule::new(&self.options);
        if self.options.momentum == 0.0 {
            let after = |param: T, grad: T| rule.after(param, rule.decayed(grad, param));
            for (index, (param, grad)) in params.iter().zip(grads).enumerate() {
                let after = param.iter().zip(*grad).map(|(param, grad)| [after(*param, *grad)]);
                check_finite(index, after)?;
            }
            for (param, grad) in params.iter_mut().zip(grads) {
                for (param, grad) in param.iter_mut().zip(*grad) {
                    *param = after(*param, *grad);
                }
            }
            return Ok(());
        }
        let is_first = self.momentum.is_empty();
        // before the first step nothing is kept, so that one that fails leaves nothing either
        for (index, (param, grad)) in params.iter().zip(grads).enumerate() {
            let Some(state) = self.momentum.get(index).filter(|state| state.len() == param.len()) else {
                let elements = param.iter().zip(*grad);
                check_finite(index, elements.map(|(param, grad)| rule.with_momentum(*param, *grad, None)))?;
                continue;
            };
            let elements = param.iter().zip(*grad).zip(state);
            let after =
                elements.map(|((param, grad), state)| rule.with_momentum(*param, *grad, Some(*state)));
            check_finite(index, after)?;
        }
        prepare(&mut self.momentum, params)?;
        for ((param, grad), state) in params.iter_mut().zip(grads).zip(&mut self.momentum) {
            for ((param, grad), state) in param.iter_mut().zip(*grad).zip(state) {
                [*param, *state] = rule.with_momentum(*param, *grad, (!is_first).then_some(*state));
            }
        }
        Ok(())
    }

    fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), OptimError> {
        check_option(NAME, "lr", learning_rate)?;
        self.options.lr = learning_rate;
        Ok(())
    }

    fn learning_rate(&self) -> f64 {
        self.options.lr
    }

    fn state_bytes(&self, elements: usize) -> u64 {
        if self.options.momentum == 0.0 { 0 } else { elements as u64 * size_of::<T>() as u64 }
    }
}

/// A step's numbers, rounded to the type of the parameters.
struct Rule<T> {
    lr: T,
    momentum: T,
    share: T,
    decay: Option<T>,
    nesterov: bool,
}

impl<T: Element> Rule<T> {
    fn new(options: &SgdOptions) -> Self {
        let [lr, momentum, share] = [options.lr, options.momentum, 1.0 - options.dampening].map(T::from_f64);
        let decay = (options.weight_decay != 0.0).then(|| T::from_f64(options.weight_decay));
        Self { lr, momentum, share, decay, nesterov: options.nesterov }
    }

    #[inline(always)]
    fn decayed(&self, grad: T, param: T) -> T {
        self.decay.map_or(grad, |decay| grad + decay * param)
    }

    #[inline(always)]
    fn after(&self, param: T, step: T) -> T {
        param - self.lr * step
    }

    /// The parameter and its state after a step.
    #[inline(always)]
    fn with_momentum(&self, param: T, grad: T, state: Option<T>) -> [T; 2] {
        let grad = self.decayed(grad, param);
        let state = state.map_or(grad, |state| self.momentum * state + self.share * grad);
        let step = if self.nesterov { grad + self.momentum * state } else { state };
        [self.after(param, step), state]
    }
}

const NAME: &str = "sgd";
