//! Softmax and layer norm.

use ndarray::{Ix1, Ix2};
use tiled_kernel::dense;
use tiled_kernel::dense::Softmax;
use tiled_tensor::Element;

use crate::context::no_grad;
use crate::error::{Result, TapeError};
use crate::op::{Op, softmax_name};
use crate::tape::record::Step;
use crate::tensor::Kept;
use crate::tensor::Tensor;
use crate::views::{reshaped, vector};

impl<T: Element> Tensor<T> {
    /// `e^x/Σ e^x` along an axis.
    ///
    /// # Errors
    /// Where the axis is out of range, and where memory is refused.
    pub fn softmax(&self, axis: isize) -> Result<Self> {
        self.softmax_as(Softmax::Probabilities, axis)
    }

    /// `x − ln Σ e^x` along an axis.
    ///
    /// # Errors
    /// As [`Tensor::softmax`].
    pub fn log_softmax(&self, axis: isize) -> Result<Self> {
        self.softmax_as(Softmax::Logarithms, axis)
    }

    fn softmax_as(&self, kind: Softmax, axis: isize) -> Result<Self> {
        let operator = softmax_name(kind);
        let axis = self.layout().axis(operator, axis, 0)?;
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let y = context.filled_by(operator, self.shape(), |y| {
            let x = self.values();
            context.share(self.elements(), || context.dense().softmax(kind, x.view(), axis, y));
        })?;
        Ok(step.finish(|| Op::Softmax { kind, axis }, y))
    }

    /// `ln Σ e^x` over axes; of no elements it is −∞.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn logsumexp(&self, axes: &[isize], keepdim: bool) -> Result<Self> {
        if self.elements() == 0 {
            // there is no largest one
            return self.exp()?.sum(axes, keepdim)?.log();
        }
        let largest = {
            let _guard = no_grad();
            let largest = self.detach().max(axes, true)?;
            // of −∞ alone the difference would not be a number
            let is_infinite = largest.mask(|x| x.abs() == -T::NEG_INFINITY);
            largest.masked_fill(&is_infinite, 0.0)?
        };
        let sum = (&(self - &largest)?.exp()?.sum(axes, true)?.log()? + &largest)?;
        if keepdim {
            return Ok(sum);
        }
        let named = self.layout().named("logsumexp", axes)?;
        let left = (0..self.axes()).filter(|axis| !named[*axis]).map(|axis| self.shape()[axis]);
        sum.reshape(&left.collect::<Vec<_>>())
    }

    /// `(x − mean)/√(variance + ε)·γ + β` over the last axes, as many as `shape` has.
    ///
    /// # Errors
    /// Where the last axes, the weight or the bias have another shape, where ε is not a number of at least 0, and where memory is
    /// refused.
    #[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
    pub fn layer_norm(
        &self,
        shape: &[usize],
        weight: Option<&Self>,
        bias: Option<&Self>,
        epsilon: f64,
    ) -> Result<Self> {
        let operator = "layer_norm";
        let parts = [("the weight", weight), ("the bias", bias)];
        let last = self.axes().checked_sub(shape.len()).map(|first| &self.shape()[first..]);
        if last != Some(shape) || shape.is_empty() {
            let (what, got) = ("the end of the input", self.shape().into());
            return Err(TapeError::Shape { operator, what, expected: shape.into(), got });
        }
        for (what, part) in parts {
            if let Some(part) = part.filter(|part| part.shape() != shape) {
                let (expected, got) = (shape.into(), part.shape().into());
                return Err(TapeError::Shape { operator, what, expected, got });
            }
        }
        if epsilon.is_nan() || epsilon < 0.0 {
            let (attribute, expected) = ("eps", "a number of at least 0");
            return Err(TapeError::Attribute { operator, attribute, expected, got: epsilon });
        }
        let all: Vec<&Self> = [Some(self), weight, bias].into_iter().flatten().collect();
        let step = Step::begin(operator, &all)?;
        let context = self.context();
        let columns = shape.iter().product();
        let rows: usize = self.shape()[..self.axes() - shape.len()].iter().product();
        let x = reshaped(self, &[rows, columns])?;
        let flat = |part: Option<&Self>| part.map(|part| reshaped(part, &[columns])).transpose();
        let (gamma, beta) = (flat(weight)?, flat(bias)?);
        let [mean, deviation] = [context.empty(operator, &[rows])?, context.empty(operator, &[rows])?];
        let y = context.filled_by(operator, self.shape(), |y| {
            let (gamma, beta) = (gamma.as_ref().map(Self::values), beta.as_ref().map(Self::values));
            let (gamma, beta) = (gamma.as_ref().map(vector), beta.as_ref().map(vector));
            let norm = dense::LayerNorm { epsilon, gamma, beta };
            let mut memories = [mean.storage().write(), deviation.storage().write()];
            let statistics = memories.each_mut().map(|memory| {
                mean.layout()
                    .view_mut(memory)
                    .into_dimensionality::<Ix1>()
                    .expect("invariant: it has one axis")
            });
            let y = y.into_shape_with_order((rows, columns)).expect("invariant: a new tensor has no gaps");
            let x = x.values();
            let x = x.view().into_dimensionality::<Ix2>().expect("invariant: it has two axes");
            context.share(rows * columns, || context.dense().layer_norm(&norm, x, y, statistics));
        })?;
        let has = [weight.is_some(), bias.is_some()];
        let keep = || (Op::LayerNorm { epsilon, has }, Kept::Tensors(vec![mean, deviation]));
        Ok(step.finish_keeping(keep, y))
    }
}
