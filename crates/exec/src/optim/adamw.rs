//! Adam with decoupled weight decay.

use tiled_tensor::Element;

use super::{OptimError, OptimState, Optimizer, check_finite, check_grads, check_option, prepare};

/// The options of [`AdamW`], with PyTorch's names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWOptions {
    /// The learning rate, `lr`.
    pub lr: f64,
    /// What is kept of the averages of the gradient and of its square, `β₁` and `β₂`.
    pub betas: [f64; 2],
    /// What is added to the denominator, `ε`.
    pub eps: f64,
    /// The weight decay, `λ`.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 1e-2 }
    }
}

/// The options of [`AdamW::coupled`], with PyTorch's names and defaults: those of [`AdamWOptions`] without a decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamOptions {
    /// The learning rate, `lr`.
    pub lr: f64,
    /// What is kept of the averages of the gradient and of its square, `β₁` and `β₂`.
    pub betas: [f64; 2],
    /// What is added to the denominator, `ε`.
    pub eps: f64,
    /// The factor of the penalty, `λ`.
    pub weight_decay: f64,
}

impl Default for AdamOptions {
    fn default() -> Self {
        let AdamWOptions { lr, betas, eps, .. } = AdamWOptions::default();
        Self { lr, betas, eps, weight_decay: 0.0 }
    }
}

/// Adam with decoupled weight decay, as `torch.optim.AdamW`.
///
/// ```text
///   p ← p·(1 − lr·λ)
///   m ← m + (1 − β₁)·(g − m)
///   v ← β₂·v + (1 − β₂)·g·g
///   p ← p − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)      at step t = 1, 2, …
/// ```
///
/// ```
/// # use tiled_exec::{AdamW, AdamWOptions, Optimizer};
/// let mut adamw = AdamW::new(AdamWOptions { lr: 0.1, weight_decay: 0.0, ..AdamWOptions::default() }).unwrap();
/// let mut weight = [1.0_f64];
/// adamw.step(&mut [&mut weight], &[&[123.0]]).unwrap();
/// assert!((weight[0] - 0.9).abs() < 1e-9); // the first step is lr long, whatever the gradient
/// ```
///
/// Source: I. Loshchilov, F. Hutter, "Decoupled Weight Decay Regularization", algorithm 2, 2019; PyTorch,
/// `torch.optim.AdamW`.
#[derive(Debug, Clone)]
pub struct AdamW<T> {
    options: AdamWOptions,
    /// Whether the decay is a penalty in the gradient.
    is_coupled: bool,
    steps: i32,
    averages: Vec<Vec<T>>,
    squares: Vec<Vec<T>>,
}

impl<T: Element> AdamW<T> {
    /// The optimiser before its first step.
    ///
    /// # Errors
    /// Where an option is negative or not a number, or a beta is not below one.
    pub fn new(options: AdamWOptions) -> Result<Self, OptimError> {
        let AdamWOptions { lr, betas, eps, weight_decay } = options;
        for (option, value) in [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)] {
            check_option(NAME, option, value)?;
        }
        for (option, got) in ["beta 1", "beta 2"].into_iter().zip(betas) {
            if !(0.0..1.0).contains(&got) {
                let expected = "a number from 0 to below 1";
                return Err(OptimError::Option { optimizer: NAME, option, expected, got });
            }
        }
        Ok(Self { options, is_coupled: false, steps: 0, averages: Vec::new(), squares: Vec::new() })
    }

    /// Adam as it first was, `torch.optim.Adam`: `g ← g + λ·p` in place of the decay of p.
    ///
    /// # Errors
    /// As [`AdamW::new`].
    ///
    /// ```
    /// # use tiled_exec::{AdamOptions, AdamW, Optimizer};
    /// let mut adam = AdamW::coupled(AdamOptions { lr: 0.1, weight_decay: 1.0, ..AdamOptions::default() }).unwrap();
    /// let mut weight = [1.0_f64];
    /// adam.step(&mut [&mut weight], &[&[-1.0]]).unwrap();
    /// assert_eq!(weight, [1.0]); // the penalty takes the gradient away
    /// ```
    ///
    /// Source: D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", algorithm 1, 2015.
    pub fn coupled(options: AdamOptions) -> Result<Self, OptimError> {
        let AdamOptions { lr, betas, eps, weight_decay } = options;
        Ok(Self { is_coupled: true, ..Self::new(AdamWOptions { lr, betas, eps, weight_decay })? })
    }

    /// What it keeps between steps.
    #[must_use]
    pub fn state(&self) -> OptimState<'_, T> {
        let tensors = vec![("averages", self.averages.as_slice()), ("squares", self.squares.as_slice())];
        OptimState { steps: self.steps, tensors }
    }

    /// Goes on from what [`AdamW::state`] gave, in its order. State of other parameters is found by the next step.
    pub fn set_state(&mut self, steps: i32, tensors: Vec<Vec<Vec<T>>>) {
        let mut tensors = tensors.into_iter();
        self.steps = steps;
        self.averages = tensors.next().unwrap_or_default();
        self.squares = tensors.next().unwrap_or_default();
    }
}

impl<T: Element> Optimizer<T> for AdamW<T> {
    fn step(&mut self, params: &mut [&mut [T]], grads: &[&[T]]) -> Result<(), OptimError> {
        check_grads(params, grads)?;
        let is_first = self.averages.is_empty();
        let steps = self.steps.saturating_add(1);
        let rule = Rule::new(&self.options, self.is_coupled, steps);
        if is_first {
            // what fails before the first step leaves nothing to keep
            for (index, (param, grad)) in params.iter().zip(grads).enumerate() {
                let elements = param.iter().zip(*grad);
                let after = elements.map(|(param, grad)| rule.after(*param, *grad, [T::ZERO; 2]));
                check_finite(index, after)?;
            }
        }
        prepare(&mut self.averages, params)?;
        prepare(&mut self.squares, params)?;
        if !is_first {
            let state = self.averages.iter().zip(&self.squares);
            for (index, ((param, grad), (average, square))) in params.iter().zip(grads).zip(state).enumerate()
            {
                let elements = param.iter().zip(*grad).zip(average.iter().zip(square));
                let after = elements
                    .map(|((param, grad), (average, square))| rule.after(*param, *grad, [*average, *square]));
                check_finite(index, after)?;
            }
        }
        self.steps = steps;
        let state = self.averages.iter_mut().zip(&mut self.squares);
        for ((param, grad), (average, square)) in params.iter_mut().zip(grads).zip(state) {
            let state = average.iter_mut().zip(square);
            for ((param, grad), (average, square)) in param.iter_mut().zip(*grad).zip(state) {
                [*param, *average, *square] = rule.after(*param, *grad, [*average, *square]);
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
        elements as u64 * 2 * size_of::<T>() as u64
    }
}

/// A step's numbers, rounded to the type of the parameters.
struct Rule<T> {
    keep: T,
    penalty: Option<T>,
    share1: T,
    keep2: T,
    share2: T,
    step: T,
    root: T,
    eps: T,
}

impl<T: Element> Rule<T> {
    fn new(options: &AdamWOptions, is_coupled: bool, steps: i32) -> Self {
        let &AdamWOptions { lr, betas: [beta1, beta2], eps, weight_decay } = options;
        let [correction1, correction2] = [beta1, beta2].map(|beta| 1.0 - beta.powi(steps));
        let keep = if is_coupled { T::ONE } else { T::from_f64(1.0 - lr * weight_decay) };
        let penalty = (is_coupled && weight_decay != 0.0).then(|| T::from_f64(weight_decay));
        let [share1, keep2, share2] = [1.0 - beta1, beta2, 1.0 - beta2].map(T::from_f64);
        let [step, root, eps] = [lr / correction1, correction2.sqrt(), eps].map(T::from_f64);
        Self { keep, penalty, share1, keep2, share2, step, root, eps }
    }

    /// The parameter and both averages after a step.
    #[inline(always)]
    fn after(&self, param: T, grad: T, [average, square]: [T; 2]) -> [T; 3] {
        let grad = self.penalty.map_or(grad, |penalty| grad + penalty * param);
        let average = average + self.share1 * (grad - average);
        let square = self.keep2 * square + self.share2 * grad * grad;
        [param * self.keep - self.step * average / (square.sqrt() / self.root + self.eps), average, square]
    }
}

const NAME: &str = "adamw";
