//! From generic element types to concrete ones: each function is compiled here, once for `f32` and once for `f64`.

use std::marker::PhantomData;

use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, ArrayViewMut2, ArrayViewMutD};
use tiled_kernel::dense::{
    Binary, CrossEntropy, Fold, IndexError, LayerNorm, Product, Side, Softmax, Targets, Unary, Update,
};
use tiled_tensor::{ByElement, Element};

use super::{elementwise, loss, norm, product, softmax};
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
}
