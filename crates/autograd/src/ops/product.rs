//! Products of matrices.

use tiled_kernel::Activation;
use tiled_kernel::dense::{Product, Update};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::layout::{Layout, broadcast};
use crate::op::Op;
use crate::tape::record::Step;
use crate::tensor::Tensor;
use crate::views::ReadAll;
use crate::views::{repeated, rows};

impl<T: Element> Tensor<T> {
    /// The product of matrices …×m×k and …×k×n, whose other axes broadcast. An operand of one axis is a row on the left and a column
    /// on the right, whose axis the result lacks.
    ///
    /// # Errors
    /// Where an operand has no axis, the inner extents differ, the others do not broadcast, or memory is refused.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        let operator = "matmul";
        for (what, operand) in [("the first operand", self), ("the second operand", other)] {
            if operand.axes() == 0 {
                return Err(TapeError::Axes {
                    operator,
                    what,
                    expected: "at least 1",
                    got: [].as_slice().into(),
                });
            }
        }
        let inner = [self.shape()[self.axes() - 1], other.shape()[other.axes().saturating_sub(2)]];
        if inner[0] != inner[1] {
            let (first, second) = (self.shape().into(), other.shape().into());
            return Err(TapeError::Inner { operator, a: inner[0], b: inner[1], first, second });
        }
        match (self.axes(), other.axes()) {
            (1, 1) => self.unsqueeze(0)?.product(&other.unsqueeze(1)?)?.reshape(&[]),
            (1, _) => self.unsqueeze(0)?.product(other)?.squeeze(&[-2]),
            (_, 1) => self.matmul(&other.unsqueeze(1)?)?.squeeze(&[-1]),
            // one matrix on the right: all rows are those of one product
            (axes, 2) if axes > 2 => {
                let mut shape = self.shape().to_vec();
                shape[axes - 1] = other.shape()[1];
                let rows = self.shape()[..axes - 1].iter().product();
                self.reshape(&[rows, inner[0]])?.product(other)?.reshape(&shape)
            }
            _ => self.product(other),
        }
    }

    fn product(&self, other: &Self) -> Result<Self> {
        let operator = "matmul";
        let operands = [self, other];
        let step = Step::begin(operator, &operands)?;
        let ([.., m, k], [.., n]) = (self.shape(), other.shape()) else {
            unreachable!("invariant: both have two axes");
        };
        let batch =
            broadcast(operator, &self.shape()[..self.axes() - 2], &other.shape()[..other.axes() - 2])?;
        let shape = [batch.as_slice(), &[*m, *n]].concat();
        let elements = Layout::contiguous(operator, &shape)?.elements();
        let layouts =
            [repeated(operator, self.layout(), &shape)?, repeated(operator, other.layout(), &shape)?];
        let context = self.context();
        let work = elements.saturating_mul(*k) / 16;
        let y = context.filled_by(operator, &shape, |y| {
            let read = ReadAll::of(operands);
            let (a, b) = (read.view_as(0, &layouts[0]), read.view_as(1, &layouts[1]));
            let product = Product { a, b, bias: None, activation: None };
            context.share(work, || context.dense().product(&product, y, Update::Replace));
        })?;
        Ok(step.finish(|| Op::Product, y))
    }

    /// `x·Wᵀ + b` over the last axis: W is outputs × inputs.
    ///
    /// # Errors
    /// Where the weight has not two axes, inner extents or the bias do not fit, or memory is refused.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        self.linear_then(weight, bias, None)
    }

    /// The same with an activation, in one pass over the result where nothing is recorded.
    ///
    /// # Errors
    /// As [`Tensor::linear`].
    #[expect(clippy::missing_panics_doc, reason = "what is expected is an invariant")]
    pub fn linear_then(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        activation: Option<Activation>,
    ) -> Result<Self> {
        let operator = "linear";
        let &[outputs, inputs] = weight.shape() else {
            let (what, expected) = ("the weight", "2");
            return Err(TapeError::Axes { operator, what, expected, got: weight.shape().into() });
        };
        let Some((last, before)) = self.shape().split_last() else {
            let (what, expected) = ("the input", "at least 1");
            return Err(TapeError::Axes { operator, what, expected, got: self.shape().into() });
        };
        if *last != inputs {
            let (first, second) = (self.shape().into(), weight.shape().into());
            return Err(TapeError::Inner { operator, a: *last, b: inputs, first, second });
        }
        if let Some(bias) = bias.filter(|bias| bias.shape() != [outputs]) {
            let (what, expected, got) = ("the bias", [outputs].as_slice().into(), bias.shape().into());
            return Err(TapeError::Shape { operator, what, expected, got });
        }
        let all: Vec<&Self> = [self, weight].into_iter().chain(bias).collect();
        let step = Step::begin(operator, &all)?;
        let shape = [before, &[outputs]].concat();
        let context = self.context();
        let x = rows(self)?;
        let fused = activation.filter(|_| !step.is_recorded());
        let work = x.elements().saturating_mul(outputs) / 16;
        let y = context.filled_by(operator, &shape, |y| {
            let y = y
                .into_shape_with_order((x.shape()[0], outputs))
                .expect("invariant: a new tensor has no gaps");
            let read = ReadAll::of([&x, weight, bias.unwrap_or(weight)]);
            let product = Product {
                a: read.view(0),
                b: read.view(1).reversed_axes(),
                bias: bias.map(|_| read.view(2).into_dimensionality().expect("invariant: it has one axis")),
                activation: fused,
            };
            context.share(work, || context.dense().product(&product, y.into_dyn(), Update::Replace));
        })?;
        let y = step.finish(|| Op::Linear { has_bias: bias.is_some() }, y);
        match activation.filter(|_| fused.is_none()) {
            Some(activation) => y.activation(activation),
            None => Ok(y),
        }
    }
}
