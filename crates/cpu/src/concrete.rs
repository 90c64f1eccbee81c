//! From generic element types to concrete ones.
//!
//! Kernels are compiled here, once for `f32` and once for `f64`. Were they generic up to the surface of the crate,
//! every crate and test that runs them would compile all of them again.

use std::any::TypeId;
use std::marker::PhantomData;

use tiled_geometry::Region;
use tiled_kernel::{Kernel, Partial, Reduction, Workspace};
use tiled_tensor::{Element, PartMut, View};

use crate::{Isa, conv, is_convolution, ops};

/// Computes `region` of the output of a kernel.
pub(crate) fn compute<T: Element>(
    isa: Isa,
    kernel: &Kernel,
    packed: &[T],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
    workspace: &Workspace<T>,
) {
    if let Some(same) = Same::<T, f32>::proof() {
        let (packed, inputs, output) = (same.slice(packed), same.views(inputs), same.part(output));
        compute_f32(isa, kernel, packed, inputs, output, region, same.workspace(workspace));
    } else if let Some(same) = Same::<T, f64>::proof() {
        let (packed, inputs, output) = (same.slice(packed), same.views(inputs), same.part(output));
        compute_f64(isa, kernel, packed, inputs, output, region, same.workspace(workspace));
    } else {
        panic!("no kernels for elements of type {}", std::any::type_name::<T>());
    }
}

/// Takes `share` of the domain of a reduction into `partial`.
pub(crate) fn reduce<T: Element>(
    isa: Isa,
    reduction: &Reduction,
    params: &[&[T]],
    inputs: &[View<'_, T>],
    share: Region<2>,
    partial: &mut Partial<T>,
) {
    if let Some(same) = Same::<T, f32>::proof() {
        reduce_f32(isa, reduction, same.slices(params), same.views(inputs), share, same.partial(partial));
    } else if let Some(same) = Same::<T, f64>::proof() {
        reduce_f64(isa, reduction, same.slices(params), same.views(inputs), share, same.partial(partial));
    } else {
        panic!("no kernels for elements of type {}", std::any::type_name::<T>());
    }
}

macro_rules! compiled {
    ($element:ty, $compute:ident, $reduce:ident) => {
        #[inline(never)]
        fn $compute(
            isa: Isa,
            kernel: &Kernel,
            packed: &[$element],
            inputs: &[View<'_, $element>],
            mut output: PartMut<'_, $element>,
            region: Region<2>,
            workspace: &Workspace<$element>,
        ) {
            if is_convolution(kernel) {
                conv::compute(isa, kernel, packed, inputs, output.reborrow(), region, workspace);
            } else {
                ops::compute(isa, kernel, packed, inputs, output.reborrow(), region);
            }
            if isa == Isa::Portable && ops::nan::is_mixed(kernel) {
                ops::nan::unite(output, region);
            }
        }

        #[inline(never)]
        fn $reduce(
            isa: Isa,
            reduction: &Reduction,
            params: &[&[$element]],
            inputs: &[View<'_, $element>],
            share: Region<2>,
            partial: &mut Partial<$element>,
        ) {
            match (reduction, partial) {
                (Reduction::ConvWeight(geometry), Partial::Values(values)) => {
                    conv::reduce_weight(isa, geometry, inputs, share, values);
                }
                (_, partial) => ops::reduce(isa, reduction, params, inputs, share, partial),
            }
        }
    };
}
compiled!(f32, compute_f32, reduce_f32);
compiled!(f64, compute_f64, reduce_f64);

/// The proof that `T` and `U` are one type.
#[derive(Clone, Copy)]
struct Same<T, U>(PhantomData<(T, U)>);

impl<T: Element, U: Element> Same<T, U> {
    fn proof() -> Option<Self> {
        (TypeId::of::<T>() == TypeId::of::<U>()).then_some(Self(PhantomData))
    }

    fn slice(self, values: &[T]) -> &[U] {
        // SAFETY: `T` and `U` are one type.
        unsafe { &*(std::ptr::from_ref(values) as *const [U]) }
    }

    fn slices<'a>(self, values: &'a [&'a [T]]) -> &'a [&'a [U]] {
        // SAFETY: `T` and `U` are one type.
        unsafe { &*(std::ptr::from_ref(values) as *const [&'a [U]]) }
    }

    fn views<'a>(self, views: &'a [View<'a, T>]) -> &'a [View<'a, U>] {
        // SAFETY: `T` and `U` are one type.
        unsafe { &*(std::ptr::from_ref(views) as *const [View<'a, U>]) }
    }

    fn part<'a>(self, part: PartMut<'a, T>) -> PartMut<'a, U> {
        let mut part = std::mem::ManuallyDrop::new(part);
        // SAFETY: `T` and `U` are one type; the original is neither used nor dropped again.
        unsafe { std::ptr::from_mut(&mut part).cast::<PartMut<'a, U>>().read() }
    }

    fn workspace(self, workspace: &Workspace<T>) -> &Workspace<U> {
        // SAFETY: `T` and `U` are one type.
        unsafe { &*std::ptr::from_ref(workspace).cast() }
    }

    fn partial(self, partial: &mut Partial<T>) -> &mut Partial<U> {
        // SAFETY: `T` and `U` are one type.
        unsafe { &mut *std::ptr::from_mut(partial).cast() }
    }
}
