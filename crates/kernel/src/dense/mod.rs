//! Dense work: products, softmax, norms, attention, elementwise functions and reductions over strided memory.
//!
//! [`Dense`] stands beside [`crate::Backend`]: that one is for windows of images, which slide; this one for whole arrays of any
//! number of axes, as a tape of operators has them. Operands are views of `ndarray`: a shape, a stride for each axis, also zero or
//! negative. What is written never overlaps what is read, but for [`Dense::map`] and [`Dense::zip`] in place, which say so.
//!
//! # Laws
//!
//! - The bits of a result depend on the values, the shapes and the instruction set alone: not on strides, nor on the number of
//!   threads, nor on what lies beside a matrix in a batch.
//! - A sum has an order of its own, fixed by the extent summed over. A product is summed over k in blocks that depend on k alone.
//! - With [`Update::Add`] the result is computed as with [`Update::Replace`], then added to what the destination holds, rounded once more. Nothing
//!   else is read of a destination.
//! - Extents are checked once, by assertions: to call with shapes that do not fit is a mistake of the caller, who has checked them
//!   and told the user. Indices are values, not shapes: one out of range is returned as an error before anything is written.

mod reference;
mod spec;

pub use spec::{
    Attention, Binary, CrossEntropy, Direction, Extreme, Fold, IndexError, LayerNorm, Product, Saves, Side,
    Softmax, Targets, Unary, Update,
};

use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD};
use tiled_tensor::Element;

/// Dense work on the memory of the host, in whatever pool of threads the caller runs.
///
/// No method has a default, so that a decorator that forgets one does not compile.
pub trait Dense<T: Element>: Send + Sync + std::fmt::Debug {
    /// The name, with the instruction set: results of equal names have equal bits.
    fn name(&self) -> String;

    /// `c = activation(a·b + bias)`, or added to `c`: a is …×m×k, b …×k×n, c …×m×n, with equal axes before the last two (a
    /// stride of zero repeats a matrix).
    ///
    /// # Panics
    /// Where extents do not fit each other.
    fn product(&self, product: &Product<'_, T>, c: ArrayViewMutD<'_, T>, update: Update);

    /// `y = f(x)` for each element.
    ///
    /// # Panics
    /// Where the shapes differ.
    fn map(&self, f: Unary, x: ArrayViewD<'_, T>, y: ArrayViewMutD<'_, T>, update: Update);

    /// `x = f(x)` for each element.
    fn map_in_place(&self, f: Unary, x: ArrayViewMutD<'_, T>);

    /// `dx = dy·f'(x)`, where `saved` is what [`Unary::saves`] names: x, or y = f(x). Where that is nothing, it is not looked at.
    ///
    /// # Panics
    /// Where the shapes differ.
    fn map_backward(
        &self,
        f: Unary,
        saved: ArrayViewD<'_, T>,
        dy: ArrayViewD<'_, T>,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    );

    /// `y = f(a, b)` for each element; operands have the shape of y (a stride of zero repeats an element).
    ///
    /// # Panics
    /// Where the shapes differ.
    fn zip(
        &self,
        f: Binary,
        a: ArrayViewD<'_, T>,
        b: ArrayViewD<'_, T>,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    );

    /// `a = f(a, b)` for each element.
    ///
    /// # Panics
    /// Where the shapes differ.
    fn zip_in_place(&self, f: Binary, a: ArrayViewMutD<'_, T>, b: ArrayViewD<'_, T>);

    /// The gradient of [`Dense::zip`] for one of its operands: `dx = dy·∂f/∂side`. An axis of which `dx` has extent 1 and dy more is
    /// summed over, as broadcasting repeated the operand there. Operands have the shape of dy; those whose values the derivative does
    /// not need ([`Binary::saves`]) may be `None`.
    ///
    /// # Panics
    /// Where shapes do not fit, or an operand that is needed is missing.
    fn zip_backward(
        &self,
        f: Binary,
        side: Side,
        operands: [Option<ArrayViewD<'_, T>>; 2],
        dy: ArrayViewD<'_, T>,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    );

    /// `y = a` where the mask is true, else `b`.
    ///
    /// # Panics
    /// Where the shapes differ.
    fn select(
        &self,
        mask: ArrayViewD<'_, bool>,
        a: ArrayViewD<'_, T>,
        b: ArrayViewD<'_, T>,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    );

    /// `y = scale · fold(x)` over the axes of which y has extent 1 and x another: of no elements the sum is zero, the largest −∞, the
    /// smallest ∞.
    ///
    /// # Panics
    /// Where shapes do not fit.
    fn reduce(&self, fold: Fold, x: ArrayViewD<'_, T>, scale: T, y: ArrayViewMutD<'_, T>, update: Update);

    /// The place of the first largest or smallest element along an axis, of which `y` has extent 1; the first that is not a number wins.
    ///
    /// # Panics
    /// Where shapes do not fit, or the axis is empty.
    fn arg(&self, extreme: Extreme, x: ArrayViewD<'_, T>, axis: usize, y: ArrayViewMutD<'_, i64>);

    /// The running sums along an axis, from its start or from its end.
    ///
    /// # Panics
    /// Where shapes differ.
    fn cumulate(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        direction: Direction,
        y: ArrayViewMutD<'_, T>,
        update: Update,
    );

    /// Softmax or its logarithm along an axis, less the largest value: `e^(x−m)/Σ`. A row of −∞ alone is NaN, as in torch.
    ///
    /// # Panics
    /// Where shapes differ.
    fn softmax(&self, kind: Softmax, x: ArrayViewD<'_, T>, axis: usize, y: ArrayViewMutD<'_, T>);

    /// `dx = y·(dy − Σ y·dy)`, or `dx = dy − e^y·Σ dy` of the logarithm.
    ///
    /// # Panics
    /// Where shapes differ.
    fn softmax_backward(
        &self,
        kind: Softmax,
        y: ArrayViewD<'_, T>,
        dy: ArrayViewD<'_, T>,
        axis: usize,
        dx: ArrayViewMutD<'_, T>,
        update: Update,
    );

    /// `y = (x − mean)·rstd·γ + β` of each row, with the variance of all its elements; statistics are a row each of mean and `rstd = 1/√(variance + ε)`.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn layer_norm(
        &self,
        norm: &LayerNorm<'_, T>,
        x: ArrayView2<'_, T>,
        y: ArrayViewMut2<'_, T>,
        statistics: [ArrayViewMut1<'_, T>; 2],
    );

    /// The gradients of [`Dense::layer_norm`]: for x with `update`, for γ and β, where they are wanted, always added.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn layer_norm_backward(
        &self,
        norm: &LayerNorm<'_, T>,
        x: ArrayView2<'_, T>,
        statistics: [ArrayView1<'_, T>; 2],
        dy: ArrayView2<'_, T>,
        dx: Option<(ArrayViewMut2<'_, T>, Update)>,
        parameters: [Option<ArrayViewMut1<'_, T>>; 2],
    );

    /// `y = softmax(scale·q·kᵀ + mask)·v` for each head, by blocks of keys: no matrix of queries by keys is ever held. Keeps for each query the logarithm of the
    /// sum of exponentials, from which backward makes the probabilities again. q is N×H×L×E, k N×H×S×E, v N×H×S×F, y N×H×L×F, `log_sums` N·H×L.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn attention(
        &self,
        attention: &Attention<'_, T>,
        qkv: [ArrayViewD<'_, T>; 3],
        y: ArrayViewMutD<'_, T>,
        log_sums: ArrayViewMut2<'_, T>,
    );

    /// The gradients of [`Dense::attention`] for q, k and v, each with its update, where it is wanted.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn attention_backward(
        &self,
        attention: &Attention<'_, T>,
        qkv: [ArrayViewD<'_, T>; 3],
        y: ArrayViewD<'_, T>,
        log_sums: ArrayView2<'_, T>,
        dy: ArrayViewD<'_, T>,
        gradients: [Option<(ArrayViewMutD<'_, T>, Update)>; 3],
    );

    /// The probabilities of [`Dense::attention`] from what it kept, N×L×S: the mean over heads.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn attention_weights(
        &self,
        attention: &Attention<'_, T>,
        qk: [ArrayViewD<'_, T>; 2],
        log_sums: ArrayView2<'_, T>,
        weights: ArrayViewMutD<'_, T>,
    );

    /// The loss of each row, not yet averaged, and the logarithm of its sum of exponentials: `−Σ w·t·log softmax(x)` with the targets t
    /// smoothed, `(1 − s)·t + s/classes`; zero where the class is the one to ignore. Returns the sum of weights that a mean divides by: those of the classes that are not
    /// ignored, or the number of rows where targets are probabilities.
    ///
    /// # Errors
    /// Where a class is not one of the columns, nor the one to ignore.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn cross_entropy(
        &self,
        spec: &CrossEntropy<'_, T>,
        x: ArrayView2<'_, T>,
        targets: &Targets<'_, T>,
        losses: ArrayViewMut1<'_, T>,
        log_sums: ArrayViewMut1<'_, T>,
    ) -> Result<T, IndexError>;

    /// The gradient of [`Dense::cross_entropy`] for x, given two values of each row: the logarithm that was kept, and the gradient of
    /// its loss.
    ///
    /// # Panics
    /// Where extents do not fit, or a class is out of range.
    fn cross_entropy_backward(
        &self,
        spec: &CrossEntropy<'_, T>,
        x: ArrayView2<'_, T>,
        targets: &Targets<'_, T>,
        of_rows: [ArrayView1<'_, T>; 2],
        dx: ArrayViewMut2<'_, T>,
        update: Update,
    );

    /// `y[.., i, ..] = x[.., index[i], ..]` along an axis. An index below zero counts from the end.
    ///
    /// # Errors
    /// Where an index is out of range.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn take(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayView1<'_, i64>,
        y: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError>;

    /// `x[.., index[i], ..] += y[.., i, ..]`, in the order of i.
    ///
    /// # Errors
    /// Where an index is out of range.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn put_add(
        &self,
        y: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayView1<'_, i64>,
        x: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError>;

    /// `y[.., i, ..] = x[.., index[.., i, ..], ..]`: an index for each element; along the other axes x is at least as long as index and y.
    ///
    /// # Errors
    /// Where an index is out of range.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn gather(
        &self,
        x: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayViewD<'_, i64>,
        y: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError>;

    /// `x[.., index[.., i, ..], ..] += y[.., i, ..]`, in row-major order.
    ///
    /// # Errors
    /// Where an index is out of range.
    ///
    /// # Panics
    /// Where extents do not fit.
    fn scatter_add(
        &self,
        y: ArrayViewD<'_, T>,
        axis: usize,
        index: ArrayViewD<'_, i64>,
        x: ArrayViewMutD<'_, T>,
    ) -> Result<(), IndexError>;
}
