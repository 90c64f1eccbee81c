//! New tensors of a context.

use std::sync::Arc;

use ndarray::{ArrayBase, ArrayViewD, ArrayViewMutD, Data, Dimension};
use tiled_kernel::dense::{Unary, Update};
use tiled_tensor::Element;

use crate::context::Context;
use crate::error::{Result, TapeError};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::tensor::Tensor;

impl<T: Element> Context<T> {
    /// A tensor of elements in row-major order.
    ///
    /// # Errors
    /// Where they are not as many as the shape says, and where memory is refused.
    pub fn from_slice(&self, shape: &[usize], values: &[T]) -> Result<Tensor<T>> {
        let layout = Layout::contiguous(FROM, shape)?;
        if layout.elements() != values.len() {
            return Err(TapeError::Elements { operator: FROM, expected: shape.into(), got: values.len() });
        }
        let tensor = self.empty(FROM, shape)?;
        tensor.storage().write()[..values.len()].copy_from_slice(values);
        Ok(tensor)
    }

    /// A tensor of the elements of an array.
    ///
    /// # Errors
    /// Where it has more than [`crate::MAX_AXES`] axes, and where memory is refused.
    pub fn from_array<S: Data<Elem = T>, D: Dimension>(&self, array: &ArrayBase<S, D>) -> Result<Tensor<T>> {
        let array = array.view().into_dyn();
        self.filled_by(FROM, array.shape(), |mut values| values.assign(&array))
    }

    /// A tensor of one value.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn full(&self, shape: &[usize], value: f64) -> Result<Tensor<T>> {
        self.filled_by("full", shape, |mut values| values.fill(T::from_f64(value)))
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn zeros(&self, shape: &[usize]) -> Result<Tensor<T>> {
        self.full(shape, 0.0)
    }

    /// A tensor of ones.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn ones(&self, shape: &[usize]) -> Result<Tensor<T>> {
        self.full(shape, 1.0)
    }

    /// Independent numbers that are uniform in `[low, high)`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn uniform(&self, shape: &[usize], low: f64, high: f64) -> Result<Tensor<T>> {
        let tensor = self.empty("uniform", shape)?;
        let mut generator = self.generator();
        let mut values = tensor.storage().write();
        for value in &mut values[..tensor.elements()] {
            *value = T::from_f64((high - low).mul_add(generator.uniform(), low));
        }
        drop((values, generator));
        Ok(tensor)
    }

    /// Independent numbers of the normal distribution (Box and Muller, 1958).
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn normal(&self, shape: &[usize], mean: f64, deviation: f64) -> Result<Tensor<T>> {
        let tensor = self.empty("normal", shape)?;
        let mut generator = self.generator();
        let mut values = tensor.storage().write();
        for pair in values[..tensor.elements()].chunks_mut(2) {
            // one less the number is never zero, of which there is no logarithm
            let radius = deviation * (-2.0 * (1.0 - generator.uniform()).ln()).sqrt();
            let angle = std::f64::consts::TAU * generator.uniform();
            for (value, share) in pair.iter_mut().zip([angle.cos(), angle.sin()]) {
                *value = T::from_f64(radius.mul_add(share, mean));
            }
        }
        drop((values, generator));
        Ok(tensor)
    }

    /// A tensor whose elements are yet to be written.
    pub(crate) fn empty(&self, operator: &'static str, shape: &[usize]) -> Result<Tensor<T>> {
        let layout = Layout::contiguous(operator, shape)?;
        let buffer = self.buffers().take(operator, layout.elements())?;
        Ok(Tensor::new(Arc::new(Storage::new(self.clone(), buffer)), layout))
    }

    /// A tensor whose elements somebody writes.
    pub(crate) fn filled_by<R>(
        &self,
        operator: &'static str,
        shape: &[usize],
        fill: impl FnOnce(ArrayViewMutD<'_, T>) -> R,
    ) -> Result<Tensor<T>> {
        let tensor = self.empty(operator, shape)?;
        fill(tensor.layout().view_mut(&mut tensor.storage().write()));
        Ok(tensor)
    }

    /// A copy of values.
    pub(crate) fn copied(&self, operator: &'static str, values: ArrayViewD<'_, T>) -> Result<Tensor<T>> {
        let shape = values.shape().to_vec();
        self.filled_by(operator, &shape, |to| {
            self.share(values.len(), || self.dense().map(Unary::Identity, values, to, Update::Replace));
        })
    }
}

const FROM: &str = "from_array";
