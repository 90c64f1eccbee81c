//! Owned `NCHW` tensors.

use crate::{AlignedBuffer, Element, Layout, LayoutError, OutOfMemory, View, ViewMut};

/// A tensor that cannot be made.
///
/// ```
/// use tiled_tensor::{Tensor, TensorError};
/// let error = Tensor::<f32>::zeros([1 << 20; 4]).unwrap_err();
/// assert!(matches!(error, TensorError::Layout(_)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Its size overflows.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Its memory is refused.
    #[error("tensor: {0}")]
    OutOfMemory(#[from] OutOfMemory),
}

/// An owned, contiguous `NCHW` tensor.
///
/// ```
/// use tiled_tensor::Tensor;
/// let mut tensor = Tensor::<f32>::zeros([1, 2, 2, 2])?;
/// tensor.view_mut().set(0, 1, 0, 1, 3.0);
/// assert_eq!(tensor.data(), [0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
/// assert_eq!(tensor.shape(), [1, 2, 2, 2]);
/// # Ok::<(), tiled_tensor::TensorError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tensor<T: Element> {
    data: AlignedBuffer<T>,
    layout: Layout,
}

impl<T: Element> Tensor<T> {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// Where the size overflows, or memory is refused.
    ///
    /// ```
    /// use tiled_tensor::Tensor;
    /// assert_eq!(Tensor::<f64>::zeros([1, 2, 1, 2])?.data(), [0.0; 4]);
    /// # Ok::<(), tiled_tensor::TensorError>(())
    /// ```
    pub fn zeros(shape: [usize; 4]) -> Result<Self, TensorError> {
        let layout = Layout::nchw(shape)?;
        Ok(Self { data: AlignedBuffer::try_new(layout.len())?, layout })
    }

    /// A copy.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { data: self.data.try_clone()?, layout: self.layout })
    }

    /// A tensor whose element (n, c, y, x) is `f([n, c, y, x])`.
    ///
    /// # Errors
    /// Where the size overflows, or memory is refused.
    ///
    /// ```
    /// use tiled_tensor::Tensor;
    /// let tensor = Tensor::from_fn([1, 1, 2, 3], |[_, _, y, x]| (10 * y + x) as f32)?;
    /// assert_eq!(tensor.data(), [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
    /// assert_eq!(tensor.view().get(0, 0, 1, 2), 12.0);
    /// # Ok::<(), tiled_tensor::TensorError>(())
    /// ```
    pub fn from_fn(shape: [usize; 4], mut f: impl FnMut([usize; 4]) -> T) -> Result<Self, TensorError> {
        let mut tensor = Self::zeros(shape)?;
        let [batch, channels, height, width] = shape;
        let mut values = tensor.data.iter_mut();
        for n in 0..batch {
            for c in 0..channels {
                for y in 0..height {
                    for (x, value) in values.by_ref().take(width).enumerate() {
                        *value = f([n, c, y, x]);
                    }
                }
            }
        }
        Ok(tensor)
    }

    /// The shape, NCHW.
    #[must_use]
    pub fn shape(&self) -> [usize; 4] {
        let [rows, cols] = self.layout.region().axes().map(|axis| usize::try_from(axis.len()).unwrap_or(0));
        [self.layout.batch(), self.layout.channels(), rows, cols]
    }

    /// The elements in row-major order.
    #[must_use]
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// The elements in row-major order.
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// The whole tensor as a window.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        View::new(&self.data, self.layout)
    }

    /// The whole tensor as a window.
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(&mut self.data, self.layout)
    }
}
