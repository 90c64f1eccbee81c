//! Views of tensors that operators and rules share.

use std::sync::Arc;

use ndarray::{ArrayView1, ArrayView2, ArrayViewD, Ix1, Ix2};
use tiled_tensor::Element;

use crate::error::Result;
use crate::layout::Layout;
use crate::storage::Read;
use crate::tensor::Tensor;
use crate::values::Values;

/// The same elements in another shape: a view where strides can say it.
pub(crate) fn reshaped<T: Element>(x: &Tensor<T>, shape: &[usize]) -> Result<Tensor<T>> {
    match x.layout().reshaped(shape) {
        Some(layout) => Ok(x.seen_as(layout)),
        None => {
            let copy = x.context().copied("reshape", x.values().view())?;
            let layout = copy.layout().reshaped(shape).expect("invariant: without gaps any shape is a view");
            Ok(copy.seen_as(layout))
        }
    }
}

/// All but the last axis as one.
pub(crate) fn rows<T: Element>(x: &Tensor<T>) -> Result<Tensor<T>> {
    let (last, before) = x.shape().split_last().expect("invariant: it has an axis");
    reshaped(x, &[before.iter().product(), *last])
}

/// A layout whose matrices are repeated to the batch of `like`.
pub(crate) fn repeated(operator: &'static str, layout: &Layout, like: &[usize]) -> Result<Layout> {
    let mut shape = like.to_vec();
    let axes = shape.len();
    shape[axes - 2..].copy_from_slice(&layout.shape()[layout.axes() - 2..]);
    Layout::contiguous(operator, &shape)?;
    Ok(layout.expanded(&shape).expect("invariant: the batches were broadcast"))
}

/// The elements of a tensor of one axis.
pub(crate) fn vector<'a, T: Element>(values: &'a Values<'_, T>) -> ArrayView1<'a, T> {
    values.view().into_dimensionality::<Ix1>().expect("invariant: it has one axis")
}

/// A matrix of a view of two axes.
pub(crate) fn matrix<'a, T: Element>(view: ArrayViewD<'a, T>) -> ArrayView2<'a, T> {
    view.into_dimensionality::<Ix2>().expect("invariant: it has two axes")
}

/// The elements of several tensors, to be read together. Tensors that share memory are locked once: a thread that waits to write
/// would otherwise come between. Memory is locked in the order of [`crate::storage::Storage::read_and_write`].
pub(crate) struct ReadAll<'a, T: Element, const N: usize> {
    guards: [Option<Read<'a, T>>; N],
    from: [usize; N],
    layouts: [Layout; N],
}

impl<'a, T: Element, const N: usize> ReadAll<'a, T, N> {
    pub(crate) fn of(tensors: [&'a Tensor<T>; N]) -> Self {
        let mut guards = [const { None }; N];
        let mut from = [0; N];
        let mut order: [usize; N] = std::array::from_fn(|at| at);
        order.sort_unstable_by_key(|at| Arc::as_ptr(tensors[*at].storage()));
        let mut locked = None;
        for at in order {
            let same = locked.filter(|locked: &usize| tensors[*locked].shares_memory(tensors[at]));
            from[at] = same.unwrap_or(at);
            if same.is_none() {
                guards[at] = Some(tensors[at].storage().read());
            }
            locked = Some(from[at]);
        }
        Self { guards, from, layouts: tensors.map(|tensor| *tensor.layout()) }
    }

    pub(crate) fn view(&self, at: usize) -> ArrayViewD<'_, T> {
        self.view_as(at, &self.layouts[at])
    }

    /// The same repeated to a shape that it broadcasts to.
    pub(crate) fn expanded(&self, at: usize, shape: &[usize]) -> ArrayViewD<'_, T> {
        let layout = self.layouts[at].expanded(shape);
        self.view_as(at, &layout.expect("invariant: the shapes were broadcast"))
    }

    pub(crate) fn view_as(&self, at: usize, layout: &Layout) -> ArrayViewD<'_, T> {
        layout
            .view(self.guards[self.from[at]].as_ref().expect("invariant: the first of them holds the guard"))
    }
}
