//! From generic element types to concrete ones: each function is compiled here, once for `f32` and once for `f64`.

use std::marker::PhantomData;

use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD};
use tiled_kernel::dense::{
    Attention, Binary, CrossEntropy, Direction, Extreme, Fold, IndexError, LayerNorm, Product, Side, Softmax,
    Targets, Unary, Update,
};
use tiled_tensor::{ByElement, Element};

use super::{attention, elementwise, indexing, loss, norm, product, softmax};
use crate::Isa;

/// Functions for any element, of the same ones for those that have vectors.
macro_rules! by_element {
    ($(fn $name:ident<$($life:lifetime),*>($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $path:path;)*) => {$(
        pub(super) fn $name<$($life,)* T: Element>(isa: Isa, $($arg: $type),*) -> by_element!(@result $($result)?) {
            struct Code<$($life),*>(PhantomData<($(&$life (),)*)>);
            impl<$($life),*> ByElement for Code<$($life),*> {
                type Given<T: Element> = (Isa, $($type),*);
                type Result = by_element!(@result $($result)?);
                #[inline(never)]
                fn single((isa, $($arg),*): Self::Given<f32>) -> Self::Result {
                    $path(isa, $($arg),*)
                }
                #[inline(never)]
                fn double((isa, $($arg),*): Self::Given<f64>) -> Self::Result {
                    $path(isa, $($arg),*)
                }
            }
            T::call::<Code<$($life),*>>((isa, $($arg),*))
        }
    )*};
    (@result) => { () };
    (@result $result:ty) => { $result };
}

by_element! {
    fn product<'a, 'c>(product: Product<'a, T>, c: ArrayViewMutD<'c, T>, update: Update) = product::product;
    fn softmax<'x, 'y>(
        kind: Softmax,
        x: ArrayViewD<'x, T>,
        axis: usize,
        y: ArrayViewMutD<'y, T>,
    ) = softmax::forward;
    fn softmax_backward<'y, 'g, 'x>(
        kind: Softmax,
        y: ArrayViewD<'y, T>,
        dy: ArrayViewD<'g, T>,
        axis: usize,
        dx: ArrayViewMutD<'x, T>,
        update: Update,
    ) = softmax::backward;
    fn layer_norm<'n, 'x, 'y, 's>(
        norm: LayerNorm<'n, T>,
        x: ArrayView2<'x, T>,
        y: ArrayViewMut2<'y, T>,
        statistics: [ArrayViewMut1<'s, T>; 2],
    ) = norm::forward;
    fn layer_norm_backward<'n, 'x, 's, 'g, 'd, 'p>(
        norm: LayerNorm<'n, T>,
        x: ArrayView2<'x, T>,
        statistics: [ArrayView1<'s, T>; 2],
        dy: ArrayView2<'g, T>,
        dx: Option<(ArrayViewMut2<'d, T>, Update)>,
        parameters: [Option<ArrayViewMut1<'p, T>>; 2],
    ) = norm::backward;
    fn cross_entropy<'c, 'x, 't, 'l, 's>(
        spec: CrossEntropy<'c, T>,
        x: ArrayView2<'x, T>,
        targets: Targets<'t, T>,
        losses: ArrayViewMut1<'l, T>,
        log_sums: ArrayViewMut1<'s, T>,
    ) -> Result<f64, IndexError> = loss::forward;
    fn cross_entropy_backward<'c, 'x, 't, 'r, 'd>(
        spec: CrossEntropy<'c, T>,
        x: ArrayView2<'x, T>,
        targets: Targets<'t, T>,
        of_rows: [ArrayView1<'r, T>; 2],
        dx: ArrayViewMut2<'d, T>,
        update: Update,
    ) = loss::backward;
    fn map<'x, 'y>(f: Unary, x: ArrayViewD<'x, T>, y: ArrayViewMutD<'y, T>, update: Update) = elementwise::map;
    fn map_in_place<'x>(f: Unary, x: ArrayViewMutD<'x, T>) = elementwise::map_in_place;
    fn map_backward<'s, 'g, 'x>(
        f: Unary,
        saved: ArrayViewD<'s, T>,
        dy: ArrayViewD<'g, T>,
        dx: ArrayViewMutD<'x, T>,
        update: Update,
    ) = elementwise::map_backward;
    fn zip<'a, 'b, 'y>(
        f: Binary,
        a: ArrayViewD<'a, T>,
        b: ArrayViewD<'b, T>,
        y: ArrayViewMutD<'y, T>,
        update: Update,
    ) = elementwise::zip;
    fn zip_in_place<'a, 'b>(f: Binary, a: ArrayViewMutD<'a, T>, b: ArrayViewD<'b, T>) = elementwise::zip_in_place;
    fn zip_backward<'o, 'g, 'x>(
        f: Binary,
        side: Side,
        operands: [Option<ArrayViewD<'o, T>>; 2],
        dy: ArrayViewD<'g, T>,
        dx: ArrayViewMutD<'x, T>,
        update: Update,
    ) = elementwise::zip_backward;
    fn select<'m, 'a, 'b, 'y>(
        mask: ArrayViewD<'m, bool>,
        a: ArrayViewD<'a, T>,
        b: ArrayViewD<'b, T>,
        y: ArrayViewMutD<'y, T>,
        update: Update,
    ) = elementwise::select;
    fn reduce<'x, 'y>(
        fold: Fold,
        x: ArrayViewD<'x, T>,
        scale: T,
        y: ArrayViewMutD<'y, T>,
        update: Update,
    ) = elementwise::reduce;
    fn attention<'a, 'i, 'y, 's>(
        attention: Attention<'a, T>,
        qkv: [ArrayViewD<'i, T>; 3],
        y: ArrayViewMutD<'y, T>,
        log_sums: ArrayViewMut2<'s, T>,
    ) = attention::forward;
    fn attention_backward<'a, 'i, 'y, 's, 'd, 'g>(
        attention: Attention<'a, T>,
        qkv: [ArrayViewD<'i, T>; 3],
        y: ArrayViewD<'y, T>,
        log_sums: ArrayView2<'s, T>,
        dy: ArrayViewD<'d, T>,
        gradients: [Option<(ArrayViewMutD<'g, T>, Update)>; 3],
    ) = attention::backward;
    fn attention_weights<'a, 'i, 's, 'w>(
        attention: Attention<'a, T>,
        qk: [ArrayViewD<'i, T>; 2],
        log_sums: ArrayView2<'s, T>,
        weights: ArrayViewMutD<'w, T>,
    ) = attention::weights;
    fn take<'x, 'i, 'y>(
        x: ArrayViewD<'x, T>,
        axis: usize,
        index: ArrayView1<'i, i64>,
        y: ArrayViewMutD<'y, T>,
    ) -> Result<(), IndexError> = indexing::take;
    fn put_add<'y, 'i, 'x>(
        y: ArrayViewD<'y, T>,
        axis: usize,
        index: ArrayView1<'i, i64>,
        x: ArrayViewMutD<'x, T>,
    ) -> Result<(), IndexError> = indexing::put_add;
    fn gather<'x, 'i, 'y>(
        x: ArrayViewD<'x, T>,
        axis: usize,
        index: ArrayViewD<'i, i64>,
        y: ArrayViewMutD<'y, T>,
    ) -> Result<(), IndexError> = indexing::gather;
    fn scatter_add<'y, 'i, 'x>(
        y: ArrayViewD<'y, T>,
        axis: usize,
        index: ArrayViewD<'i, i64>,
        x: ArrayViewMutD<'x, T>,
    ) -> Result<(), IndexError> = indexing::scatter_add;
    fn arg<'x, 'y>(
        extreme: Extreme,
        x: ArrayViewD<'x, T>,
        axis: usize,
        y: ArrayViewMutD<'y, i64>,
    ) = indexing::arg;
    fn cumulate<'x, 'y>(
        x: ArrayViewD<'x, T>,
        axis: usize,
        direction: Direction,
        y: ArrayViewMutD<'y, T>,
        update: Update,
    ) = indexing::cumulate;
}
