//! Functions of the user's own, and what networks are on the tape.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use ndarray::ArrayViewMutD;
use tiled_kernel::dense::{IndexError, Update};
use tiled_tensor::Element;

use crate::context::no_grad;
use crate::error::{Result, TapeError};
use crate::op::Op;
use crate::tape::flow::Flow;
use crate::tape::record::Step;
use crate::tensor::{Kept, Tensor};

/// A function with gradients of its own.
///
/// ```
/// use std::sync::Arc;
/// use tiled_autograd::{Context, Function, Gradients, Result, Saver, Tensor, apply};
/// use tiled_kernel::Reference;
///
/// /// `x³`, whose gradient is written by hand.
/// #[derive(Debug)]
/// struct Cube;
///
/// impl Function<f64> for Cube {
///     fn name(&self) -> &'static str {
///         "cube"
///     }
///     fn forward(&self, inputs: &[&Tensor<f64>], saver: &mut Saver<f64>) -> Result<Vec<Tensor<f64>>> {
///         saver.save(inputs[0]);
///         Ok(vec![inputs[0].powf(3.0)?])
///     }
///     fn backward(&self, gradients: &mut Gradients<'_, '_, f64>) -> Result<()> {
///         let x = gradients.saved(0)?;
///         let slope = (&x.powf(2.0)? * 3.0)?;
///         let upstream = gradients.upstream()[0].clone().expect("there is one result");
///         gradients.pass(0, (&upstream * &slope)?)
///     }
/// }
///
/// let context = Context::new(&Reference, 1)?;
/// let x = context.full(&[], 2.0)?.with_gradient()?;
/// apply(&Arc::new(Cube), &[&x])?[0].backward()?;
/// assert_eq!(x.grad().expect("it needs one").item()?, 12.0);
/// # Ok::<(), tiled_autograd::TapeError>(())
/// ```
pub trait Function<T: Element>: Send + Sync + fmt::Debug {
    /// What messages and drawings call it.
    fn name(&self) -> &'static str;

    /// The results. It runs without being recorded; what backward will read is given to `saver`.
    ///
    /// # Errors
    /// Where it cannot be computed.
    fn forward(&self, inputs: &[&Tensor<T>], saver: &mut Saver<T>) -> Result<Vec<Tensor<T>>>;

    /// The gradients of the inputs, given those of the results.
    ///
    /// # Errors
    /// Where they cannot be computed.
    fn backward(&self, gradients: &mut Gradients<'_, '_, T>) -> Result<()>;
}

/// What a function keeps between forward and backward.
pub struct Saver<T: Element> {
    /// Which gradients will be wanted.
    wants: Vec<bool>,
    state: State<T>,
}

/// What a function has kept.
struct State<T: Element> {
    tensors: Vec<Tensor<T>>,
    other: Option<Box<dyn Any + Send>>,
}

impl<T: Element> Default for State<T> {
    fn default() -> Self {
        Self { tensors: Vec::new(), other: None }
    }
}

impl<T: Element> fmt::Debug for Saver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saver").field("tensors", &self.state.tensors.len()).finish_non_exhaustive()
    }
}

impl<T: Element> Saver<T> {
    /// Whether the gradient of an input will be wanted.
    #[must_use]
    pub fn wants(&self, input: usize) -> bool {
        self.wants.get(input).copied().unwrap_or(false)
    }

    /// Whether any gradient will be wanted: if not, nothing need be kept.
    #[must_use]
    pub fn wants_any(&self) -> bool {
        self.wants.contains(&true)
    }

    /// Keeps a tensor, which is not to be changed in place until backward.
    pub fn save(&mut self, tensor: &Tensor<T>) {
        self.state.tensors.push(tensor.detach());
    }

    /// Keeps anything else.
    pub fn keep(&mut self, other: impl Any + Send) {
        self.state.other = Some(Box::new(other));
    }
}

/// The gradients of a function's results, and where those of its inputs go.
pub struct Gradients<'f, 'a, T: Element> {
    flow: &'f mut Flow<'a, T>,
    state: State<T>,
}

impl<T: Element> fmt::Debug for Gradients<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradients").field("operator", &self.flow.op().name()).finish_non_exhaustive()
    }
}

impl<'a, T: Element> Gradients<'_, 'a, T> {
    /// The gradients of the results; `None` for those that nothing depends on.
    #[must_use]
    pub fn upstream(&self) -> &'a [Option<Tensor<T>>] {
        self.flow.upstream()
    }

    /// The shape of a result.
    #[must_use]
    pub fn result_shape(&self, result: usize) -> &'a [usize] {
        self.flow.result_shape(result)
    }

    /// Whether the gradient of an input is wanted.
    #[must_use]
    pub fn wants(&self, input: usize) -> bool {
        self.flow.wants(input)
    }

    /// Whether another backward may follow through this function.
    #[must_use]
    pub fn retains_graph(&self) -> bool {
        self.flow.retains_graph()
    }

    /// A tensor that was saved.
    ///
    /// # Errors
    /// Where there is none of this number, and where it has been changed in place.
    pub fn saved(&self, number: usize) -> Result<Tensor<T>> {
        let operator = self.flow.op().name();
        let saved = self.state.tensors.get(number);
        let saved = saved.ok_or_else(|| {
            let (index, extent) = (i64::try_from(number).unwrap_or(i64::MAX), self.state.tensors.len());
            TapeError::Index { operator, source: IndexError { index, extent } }
        })?;
        let (expected, got) = (saved.seen_version(), saved.version());
        if expected != got {
            let (what, shape) = ("a saved operand", saved.shape().into());
            return Err(TapeError::Changed { operator, what, shape, expected, got });
        }
        Ok(saved.clone())
    }

    /// What was kept besides.
    pub fn kept<S: 'static>(&mut self) -> Option<&mut S> {
        self.state.other.as_mut()?.downcast_mut()
    }

    /// Gives an input its gradient.
    ///
    /// # Errors
    /// Where it has not the shape of the input, and where memory is refused.
    pub fn pass(&mut self, input: usize, gradient: Tensor<T>) -> Result<()> {
        let (expected, got) = (self.flow.shape(input), gradient.shape());
        if expected != got {
            let (operator, what) = (self.flow.op().name(), "a gradient");
            return Err(TapeError::Shape { operator, what, expected: expected.into(), got: got.into() });
        }
        self.flow.pass(input, gradient)
    }

    /// Writes the gradient of an input, which has no gaps, where it ends up, or adds it to what lies there.
    ///
    /// # Errors
    /// What `write` reports, and where memory is refused.
    pub fn write(
        &mut self,
        input: usize,
        write: impl FnOnce(ArrayViewMutD<'_, T>, Update) -> Result<()>,
    ) -> Result<()> {
        self.flow.write(input, write)
    }

    pub(crate) const fn flow(&mut self) -> &mut Flow<'a, T> {
        self.flow
    }
}

/// Applies a function to inputs.
///
/// # Errors
/// What it reports, and where inputs belong to two contexts or are stale.
pub fn apply<T: Element, F: Function<T> + 'static>(
    function: &Arc<F>,
    inputs: &[&Tensor<T>],
) -> Result<Vec<Tensor<T>>> {
    let step = Step::begin(function.name(), inputs)?;
    let wants = (0..inputs.len()).map(|input| step.wants(input)).collect();
    let mut saver = Saver { wants, state: State::default() };
    let detached: Vec<Tensor<T>> = inputs.iter().map(|input| input.detach()).collect();
    let results = {
        let _guard = no_grad();
        function.forward(&detached.iter().collect::<Vec<_>>(), &mut saver)?
    };
    let op = Op::Function(function.name());
    let kept = || Kept::Function(Box::new((Arc::<F>::clone(function) as Arc<dyn Function<T>>, saver.state)));
    Ok(step.finish_all(|| (op, kept()), results))
}

/// A function and what it has kept, as its node holds them.
type Held<T> = (Arc<dyn Function<T>>, State<T>);

/// The rule of the table for functions.
pub(crate) fn backward<T: Element>(flow: &mut Flow<'_, T>) -> Result<()> {
    let Kept::Function(held) = std::mem::replace(flow.kept(), Kept::Nothing) else {
        unreachable!("invariant: functions keep a state")
    };
    let held = held.downcast::<Held<T>>();
    let mut held = held.unwrap_or_else(|_| unreachable!("invariant: it is that of a function"));
    let mut gradients = Gradients { flow, state: std::mem::take(&mut held.1) };
    let result = held.0.backward(&mut gradients);
    held.1 = gradients.state;
    *flow.kept() = Kept::Function(held);
    result
}
