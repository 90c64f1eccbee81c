//! What moves elements by indices.

use std::sync::Arc;

use ndarray::{Array1, ArrayD};
use tiled_kernel::dense::{IndexError, Unary, Update};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};
use crate::op::Op;
use crate::tape::record::Step;
use crate::tensor::Tensor;

impl<T: Element> Tensor<T> {
    /// The elements at some places of an axis; a place below zero counts from the end.
    ///
    /// # Errors
    /// Where a place is out of range, and where memory is refused.
    pub fn index_select(&self, axis: isize, index: &Array1<i64>) -> Result<Self> {
        let axis = self.layout().axis("index_select", axis, 0)?;
        self.take("index_select", axis, index, None)
    }

    fn take(
        &self,
        operator: &'static str,
        axis: usize,
        index: &Array1<i64>,
        padding: Option<i64>,
    ) -> Result<Self> {
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let mut shape = self.shape().to_vec();
        shape[axis] = index.len();
        let context = self.context();
        let y = context.empty(operator, &shape)?;
        {
            let (x, mut memory) = (self.values(), y.storage().write());
            let to = y.layout().view_mut(&mut memory);
            let taken =
                context.share(y.elements(), || context.dense().take(x.view(), axis, index.view(), to));
            taken.map_err(|source| TapeError::Index { operator, source })?;
        }
        Ok(step.finish(|| Op::Take { axis, index: Arc::new(index.clone()), padding }, y))
    }

    /// The element at an index along an axis, for each index; along the other axes this is at least as long.
    ///
    /// # Errors
    /// Where the shapes do not fit, where an index is out of range, and where memory is refused.
    pub fn gather(&self, axis: isize, index: &ArrayD<i64>) -> Result<Self> {
        let operator = "gather";
        let axis = self.indexed(operator, axis, index)?;
        let operands = [self];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let y = context.empty(operator, index.shape())?;
        {
            let (x, mut memory) = (self.values(), y.storage().write());
            let to = y.layout().view_mut(&mut memory);
            let taken =
                context.share(y.elements(), || context.dense().gather(x.view(), axis, index.view(), to));
            taken.map_err(|source| TapeError::Index { operator, source })?;
        }
        Ok(step.finish(|| Op::Gather { axis, index: Arc::new(index.clone()) }, y))
    }

    /// A copy of this to which each element of `source` is added at its index along an axis.
    ///
    /// # Errors
    /// As [`Tensor::gather`], and where source and index have two shapes.
    pub fn scatter_add(&self, axis: isize, index: &ArrayD<i64>, source: &Self) -> Result<Self> {
        let operator = "scatter_add";
        let axis = self.indexed(operator, axis, index)?;
        if source.shape() != index.shape() {
            let (what, expected, got) = ("the source", index.shape().into(), source.shape().into());
            return Err(TapeError::Shape { operator, what, expected, got });
        }
        let operands = [self, source];
        let step = Step::begin(operator, &operands)?;
        let context = self.context();
        let y = context.empty(operator, self.shape())?;
        {
            let mut memory = y.storage().write();
            let x = self.values();
            let to = y.layout().view_mut(&mut memory);
            context
                .share(y.elements(), || context.dense().map(Unary::Identity, x.view(), to, Update::Replace));
            drop(x);
            let values = source.values();
            let to = y.layout().view_mut(&mut memory);
            let added = context.dense().scatter_add(values.view(), axis, index.view(), to);
            added.map_err(|source| TapeError::Index { operator, source })?;
        }
        Ok(step.finish(|| Op::ScatterAdd { axis, index: Arc::new(index.clone()) }, y))
    }

    /// Checks the shape of an index for each element.
    fn indexed(&self, operator: &'static str, axis: isize, index: &ArrayD<i64>) -> Result<usize> {
        let at = self.layout().axis(operator, axis, 0)?;
        let fits = index.ndim() == self.axes()
            && (0..self.axes()).all(|axis| axis == at || index.shape()[axis] <= self.shape()[axis]);
        if fits {
            return Ok(at);
        }
        let (what, expected, got) = ("the index", self.shape().into(), index.shape().into());
        Err(TapeError::Shape { operator, what, expected, got })
    }
}

/// The rows of `weight` at indices of any shape; rows of `padding` have no gradient.
///
/// # Errors
/// Where the weight has not two axes, where an index is not one of its rows, and where memory is refused.
pub fn embedding<T: Element>(
    index: &ArrayD<i64>,
    weight: &Tensor<T>,
    padding: Option<i64>,
) -> Result<Tensor<T>> {
    let operator = "embedding";
    let &[rows, columns] = weight.shape() else {
        let (what, expected) = ("the weight", "2");
        return Err(TapeError::Axes { operator, what, expected, got: weight.shape().into() });
    };
    if let Some(index) = index.iter().chain(padding.iter()).find(|index| **index < 0) {
        let source = IndexError { index: *index, extent: rows };
        return Err(TapeError::Index { operator, source });
    }
    let flat: Array1<i64> = index.iter().copied().collect();
    let shape: Vec<usize> = index.shape().iter().copied().chain([columns]).collect();
    // a padding that no row has leaves the name
    weight.take(operator, 0, &flat, Some(padding.unwrap_or(i64::MIN)))?.reshape(&shape)
}
