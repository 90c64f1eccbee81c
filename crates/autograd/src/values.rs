//! The elements of a tensor, to be read.

use std::fmt;

use ndarray::ArrayViewD;
use tiled_tensor::Element;

use crate::layout::Layout;
use crate::storage::Read;

/// The elements of a tensor, which nobody changes while this lives: a change waits until it is dropped, and what would read them may wait
/// behind that change. The thread that holds this would wait forever: drop it before the memory is changed.
pub struct Values<'a, T: Element> {
    pub(crate) guard: Read<'a, T>,
    pub(crate) layout: &'a Layout,
}

impl<T: Element> Values<'_, T> {
    /// The elements as an array, without a copy.
    #[must_use]
    pub fn view(&self) -> ArrayViewD<'_, T> {
        self.layout.view(&self.guard)
    }

    /// The elements as a slice, where they lie one after the other.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[T]> {
        let begin = self.layout.offset();
        self.layout.is_contiguous().then(|| match self.layout.elements() {
            0 => &[],
            elements => &self.guard[begin..begin + elements],
        })
    }
}

impl<T: Element> Values<'_, T> {
    /// All memory that the tensor shares.
    pub(crate) fn memory(&self) -> &[T] {
        &self.guard
    }
}

impl<T: Element> fmt::Debug for Values<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), f)
    }
}
