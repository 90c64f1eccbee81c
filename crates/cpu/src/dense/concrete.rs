//! From generic element types to concrete ones: each function is compiled here, once for `f32` and once for `f64`.

use std::marker::PhantomData;

use ndarray::ArrayViewMutD;
use tiled_kernel::dense::{Product, Update};
use tiled_tensor::{ByElement, Element};

use super::product;
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
}
