//! Comparisons: masks, which have no gradient.

use ndarray::{ArrayD, Zip};
use tiled_tensor::Element;

use super::arrange::with_pair;
use crate::error::Result;
use crate::layout::broadcast;
use crate::tensor::Tensor;

impl<T: Element> Tensor<T> {
    fn compare(
        &self,
        operator: &'static str,
        other: &Self,
        holds: impl Fn(T, T) -> bool,
    ) -> Result<ArrayD<bool>> {
        if !self.context().is(other.context()) {
            return Err(crate::TapeError::Contexts { operator });
        }
        let shape = broadcast(operator, self.shape(), other.shape())?;
        Ok(with_pair([self, other], &shape, |a, b| Zip::from(a).and(b).map_collect(|a, b| holds(*a, *b))))
    }

    /// Where a claim holds of an element.
    pub fn mask(&self, holds: impl Fn(T) -> bool) -> ArrayD<bool> {
        self.values().view().mapv(holds)
    }

    /// Where this is zero.
    #[must_use]
    pub fn logical_not(&self) -> ArrayD<bool> {
        self.mask(|x| x == T::ZERO)
    }
}

macro_rules! comparisons {
    ($($(#[doc = $doc:literal])* $name:ident $operation:tt;)*) => {
        impl<T: Element> Tensor<T> {
            $(
                $(#[doc = $doc])*
                ///
                /// # Errors
                /// Where the shapes do not broadcast, or the contexts differ.
                pub fn $name(&self, other: &Self) -> Result<ArrayD<bool>> {
                    self.compare(stringify!($name), other, |a, b| a $operation b)
                }
            )*
        }
    };
}

comparisons! {
    /// Where both are equal.
    eq ==;
    /// Where both differ.
    ne !=;
    /// Where this is less.
    lt <;
    /// Where this is not greater.
    le <=;
    /// Where this is greater.
    gt >;
    /// Where this is not less.
    ge >=;
}
