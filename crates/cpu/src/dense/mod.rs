//! Dense work: products by tiles in registers, what treats elements alone by pieces, what treats rows by rows.

mod attention;
mod concrete;
mod elementwise;
mod fold;
mod indexing;
mod lines;
mod loss;
mod matrix;
mod norm;
mod product;
mod row;
mod softmax;
mod stream;

use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD};
use tiled_kernel::dense::{
    Attention, Binary, CrossEntropy, Dense, Direction, Extreme, Fold, IndexError, LayerNorm, Product, Side,
    Softmax, Targets, Unary, Update,
};
use tiled_tensor::Element;

use crate::CpuBackend;

impl<T: Element> Dense<T> for CpuBackend {
    fn name(&self) -> String {
        format!("cpu-{}", self.isa)
    }

    fn product(&self, product: &Product<'_, T>, c: ArrayViewMutD<'_, T>, update: Update) {
        concrete::product(self.isa, product.clone(), c, update);
    }

    fn map(&self, f: Unary, x: ArrayViewD<'_, T>, y: ArrayViewMutD<'_, T>, update: Update) {
        concrete::map(self.isa, f, x, y, update);
    }

    fn map_in_place(&self, f: Unary, x: ArrayViewMutD<'_, T>) {
        concrete::map_in_place(self.isa, f, x);
    }

    fn map_backward(
        &self,
        f: Unary,
        saved: ArrayViewD<'_, T>,
        dy: ArrayViewD<'_, T>,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        concrete::map_backward(self.isa, f, saved, dy, dx, update);
    }

    fn zip(
        &self,
        f: Binary,
        a: ArrayViewD<'_, T>,
        b: ArrayViewD<'_, T>,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        concrete::zip(self.isa, f, a, b, y, update);
    }

    fn zip_in_place(&self, f: Binary, a: ArrayViewMutD<'_, T>, b: ArrayViewD<'_, T>) {
        concrete::zip_in_place(self.isa, f, a, b);
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
        concrete::zip_backward(self.isa, f, side, operands, dy, dx, update);
    }

    fn select(
        &self,
        mask: ArrayViewD<'_, bool>,
        a: ArrayViewD<'_, T>,
        b: ArrayViewD<'_, T>,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        concrete::select(self.isa, mask, a, b, y, update);
    }

    fn reduce(&self, fold: Fold, x: ArrayViewD<'_, T>, scale: T, y: ArrayViewMutD<'_, T>, update: Update) {
        concrete::reduce(self.isa, fold, x, scale, y, update);
    }

    fn arg(&self, extreme: Extreme, x: ArrayViewD<'_, T>, axis: usize, y: ArrayViewMutD<'_, i64>) {
        concrete::arg(self.isa, extreme, x, axis, y);
    }

    fn cumulate(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        direction: Direction,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    ) {
        concrete::cumulate(self.isa, x, axis, direction, y, update);
    }

    fn softmax(&self, kind: Softmax, x: ArrayViewD<'_, T>, axis: usize, y: ArrayViewMutD<'_, T>) {
        concrete::softmax(self.isa, kind, x, axis, y);
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
        concrete::softmax_backward(self.isa, kind, y, dy, axis, dx, update);
    }

    fn layer_norm(
        &self,
        norm: &LayerNorm<'_, T>,
        x: ArrayView2<'_, T>,
        y: ArrayViewMut2<'_, T>,
        statistics: [ArrayViewMut1<'_, T>; 2],
    ) {
        concrete::layer_norm(self.isa, *norm, x, y, statistics);
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
        concrete::layer_norm_backward(self.isa, *norm, x, statistics, dy, dx, parameters);
    }

    fn attention(
        &self,
        attention: &Attention<'_, T>,
        qkv: [ArrayViewD<'_, T>; 3],
        y: ArrayViewMutD<'_, T>,
        log_sums: ArrayViewMut2<'_, T>,
    ) {
        concrete::attention(self.isa, attention.clone(), qkv, y, log_sums);
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
        concrete::attention_backward(self.isa, attention.clone(), qkv, y, log_sums, dy, gradients);
    }

    fn attention_weights(
        &self,
        attention: &Attention<'_, T>,
        qk: [ArrayViewD<'_, T>; 2],
        log_sums: ArrayView2<'_, T>,
        weights: ArrayViewMutD<'_, T>,
    ) {
        concrete::attention_weights(self.isa, attention.clone(), qk, log_sums, weights);
    }

    fn cross_entropy(
        &self,
        spec: &CrossEntropy<'_, T>,
        x: ArrayView2<'_, T>,
        targets: &Targets<'_, T>,
        losses: ArrayViewMut1<'_, T>,
        log_sums: ArrayViewMut1<'_, T>,
    ) -> Result<T, IndexError> {
        concrete::cross_entropy(self.isa, *spec, x, *targets, losses, log_sums).map(T::from_f64)
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
        concrete::cross_entropy_backward(self.isa, *spec, x, *targets, of_rows, dx, update);
    }

    fn take(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayView1<'_, i64>,
        y: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        concrete::take(self.isa, x, axis, index, y)
    }

    fn put_add(
        &self,
        y: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayView1<'_, i64>,
        x: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        concrete::put_add(self.isa, y, axis, index, x)
    }

    fn gather(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayViewD<'_, i64>,
        y: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        concrete::gather(self.isa, x, axis, index, y)
    }

    fn scatter_add(
        &self,
        y: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayViewD<'_, i64>,
        x: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError> {
        concrete::scatter_add(self.isa, y, axis, index, x)
    }
}
