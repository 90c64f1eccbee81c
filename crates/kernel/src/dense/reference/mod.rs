//! The reference of dense work: naive loops over indices, in `f64`, each result rounded once.

mod attention;
mod elementwise;
mod indexing;
mod rows;

use ndarray::{
    ArrayView1, ArrayView2, ArrayView4, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMut4,
    ArrayViewMutD, Ix4,
};
use tiled_tensor::Element;

use super::{
    Attention, Binary, CrossEntropy, Dense, Direction, Extreme, Fold, IndexError, LayerNorm, Product, Side,
    Softmax, Targets, Unary, Update,
};
use crate::Reference;

impl<T: Element> Dense<T> for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }

    fn product(&self, product: &Product<'_, T>, c: ArrayViewMutD<'_, T>, update: Update) {
        rows::product(product, c, update);
    }

    fn map(&self, f: Unary, x: ArrayViewD<'_, T>, y: ArrayViewMutD<'_, T>, update: Update) {
        elementwise::map(f, &x, y, update);
    }

    fn map_in_place(&self, f: Unary, mut x: ArrayViewMutD<'_, T>) {
        x.mapv_inplace(|x| elementwise::unary(f, x));
    }

    fn map_backward(
        &self,
        f: Unary,
        saved: ArrayViewD<'_, T>,
        dy: ArrayViewD<'_, T>,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        elementwise::map_backward(f, &saved, &dy, dx, update);
    }

    fn zip(
        &self,
        f: Binary,
        a: ArrayViewD<'_, T>,
        b: ArrayViewD<'_, T>,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        elementwise::zip(f, &a, &b, y, update);
    }

    fn zip_in_place(&self, f: Binary, a: ArrayViewMutD<'_, T>, b: ArrayViewD<'_, T>) {
        elementwise::zip_in_place(f, a, &b);
    }

    fn zip_backward(
        &self,
        f: Binary,
        side: Side,
        operands: [Option<ArrayViewD<'_, T>>; 2],
        dy: ArrayViewD<'_, T>,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        elementwise::zip_backward((f, side), operands, &dy, dx, update);
    }

    fn select(
        &self,
        mask: ArrayViewD<'_, bool>,
        a: ArrayViewD<'_, T>,
        b: ArrayViewD<'_, T>,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        require("mask", mask.shape(), y.shape());
        require("a", a.shape(), y.shape());
        require("b", b.shape(), y.shape());
        write(y, update, |i| if mask[i] { a[i] } else { b[i] });
    }

    fn reduce(&self, fold: Fold, x: ArrayViewD<'_, T>, scale: T, y: ArrayViewMutD<'_, T>, update: Update) {
        elementwise::reduce(fold, &x, scale, y, update);
    }

    fn arg(&self, extreme: Extreme, x: ArrayViewD<'_, T>, axis: usize, y: ArrayViewMutD<'_, i64>) {
        indexing::arg(extreme, &x, axis, y);
    }

    fn cumulate(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        direction: Direction,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        rows::cumulate(&x, axis, direction, y, update);
    }

    fn softmax(&self, kind: Softmax, x: ArrayViewD<'_, T>, axis: usize, y: ArrayViewMutD<'_, T>) {
        rows::softmax(kind, &x, axis, y);
    }

    fn softmax_backward(
        &self,
        kind: Softmax,
        y: ArrayViewD<'_, T>,
        dy: ArrayViewD<'_, T>,
        axis: usize,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        rows::softmax_backward(kind, [&y, &dy], axis, dx, update);
    }

    fn layer_norm(
        &self,
        norm: &LayerNorm<'_, T>,
        x: ArrayView2<'_, T>,
        y: ArrayViewMut2<'_, T>,
        statistics: [ArrayViewMut1<'_, T>; 2],
    ) {
        rows::layer_norm(norm, &x, y, statistics);
    }

    fn layer_norm_backward(
        &self,
        norm: &LayerNorm<'_, T>,
        x: ArrayView2<'_, T>,
        statistics: [ArrayView1<'_, T>; 2],
        dy: ArrayView2<'_, T>,
        dx: Option<(ArrayViewMut2<'_, T>, Update)>,
        parameters: [Option<ArrayViewMut1<'_, T>>; 2],
    ) {
        rows::layer_norm_backward(norm, [&x, &dy], statistics, dx, parameters);
    }

    fn attention(
        &self,
        attention: &Attention<'_, T>,
        qkv: [ArrayViewD<'_, T>; 3],
        y: ArrayViewMutD<'_, T>,
        log_sums: ArrayViewMut2<'_, T>,
    ) {
        attention::forward(attention, qkv.map(four), four_mut(y), log_sums);
    }

    fn attention_backward(
        &self,
        attention: &Attention<'_, T>,
        qkv: [ArrayViewD<'_, T>; 3],
        y: ArrayViewD<'_, T>,
        log_sums: ArrayView2<'_, T>,
        dy: ArrayViewD<'_, T>,
        gradients: [Option<(ArrayViewMutD<'_, T>, Update)>; 3],
    ) {
        attention::backward(attention, qkv.map(four), [four(y), four(dy)], log_sums, gradients);
    }

    fn attention_weights(
        &self,
        attention: &Attention<'_, T>,
        qk: [ArrayViewD<'_, T>; 2],
        log_sums: ArrayView2<'_, T>,
        weights: ArrayViewMutD<'_, T>,
    ) {
        attention::weights(attention, qk.map(four), log_sums, weights);
    }

    fn cross_entropy(
        &self,
        spec: &CrossEntropy<'_, T>,
        x: ArrayView2<'_, T>,
        targets: &Targets<'_, T>,
        losses: ArrayViewMut1<'_, T>,
        log_sums: ArrayViewMut1<'_, T>,
    ) -> Result<T, IndexError> {
        rows::cross_entropy(spec, &x, targets, losses, log_sums)
    }

    fn cross_entropy_backward(
        &self,
        spec: &CrossEntropy<'_, T>,
        x: ArrayView2<'_, T>,
        targets: &Targets<'_, T>,
        of_rows: [ArrayView1<'_, T>; 2],
        dx: ArrayViewMut2<'_, T>,
        update: Update,
    ) {
        rows::cross_entropy_backward(spec, &x, targets, of_rows, dx, update);
    }

    fn take(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayView1<'_, i64>,
        y: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        indexing::take(&x, axis, &index, y)
    }

    fn put_add(
        &self,
        y: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayView1<'_, i64>,
        x: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        indexing::put_add(&y, axis, &index, x)
    }

    fn gather(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayViewD<'_, i64>,
        y: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        indexing::gather(&x, axis, &index, y)
    }

    fn scatter_add(
        &self,
        y: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayViewD<'_, i64>,
        x: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        indexing::scatter_add(&y, axis, &index, x)
    }
}

/// Writes `value(index)` to each element, or adds it.
fn write<T: Element>(mut y: ArrayViewMutD<'_, T>, update: Update, value: impl Fn(&[usize]) -> T) {
    for (index, y) in y.indexed_iter_mut() {
        put(y, value(ndarray::Dimension::slice(&index)), update);
    }
}

/// Writes a value, or adds it.
fn put<T: Element>(y: &mut T, value: T, update: Update) {
    *y = match update {
        Update::Replace => value,
        Update::Add => *y + value,
    };
}

fn require(what: &str, shape: &[usize], expected: &[usize]) {
    assert_eq!(shape, expected, "{what}: this shape, where the other is needed");
}

fn four<T>(view: ArrayViewD<'_, T>) -> ArrayView4<'_, T> {
    view.into_dimensionality::<Ix4>().expect("invariant: attention has four axes")
}

fn four_mut<T>(view: ArrayViewMutD<'_, T>) -> ArrayViewMut4<'_, T> {
    view.into_dimensionality::<Ix4>().expect("invariant: attention has four axes")
}
