//! From generic element types to concrete ones.
//!
//! Kernels are compiled here, once for `f32` and once for `f64`. Were they generic up to the surface of the crate,
//! every crate and test that runs them would compile all of them again. And were the backend implemented for the two
//! types one by one, generic code that runs it would have to ask for that at every level.

use std::marker::PhantomData;

use tiled_geometry::Region;
use tiled_kernel::{Kernel, Params, Partial, Reduction, Workspace};
use tiled_tensor::{ByElement, Element, PartMut, View};

use crate::vector::Lane;
use crate::{Isa, conv, is_convolution, ops};

/// A call that computes `region` of the output of a kernel.
pub(crate) struct Compute<'a, T: Element> {
    pub(crate) isa: Isa,
    pub(crate) kernel: &'a Kernel,
    pub(crate) params: Params<'a, T>,
    pub(crate) inputs: &'a [View<'a, T>],
    pub(crate) output: PartMut<'a, T>,
    pub(crate) region: Region<2>,
    pub(crate) workspace: &'a Workspace<T>,
}

impl<T: Element> Compute<'_, T> {
    pub(crate) fn run(self) {
        T::call::<Computing<'_>>(self);
    }
}

/// A call that takes `share` of the domain of a reduction into `partial`.
pub(crate) struct Reduce<'a, T: Element> {
    pub(crate) isa: Isa,
    pub(crate) reduction: &'a Reduction,
    pub(crate) params: &'a [&'a [T]],
    pub(crate) inputs: &'a [View<'a, T>],
    pub(crate) share: Region<2>,
    pub(crate) partial: &'a mut Partial<T>,
}

impl<T: Element> Reduce<'_, T> {
    pub(crate) fn run(self) {
        T::call::<Reducing<'_>>(self);
    }
}

struct Computing<'a>(PhantomData<&'a ()>);

impl<'a> ByElement for Computing<'a> {
    type Given<T: Element> = Compute<'a, T>;
    type Result = ();

    #[inline(never)]
    fn single(given: Compute<'a, f32>) {
        compute(given);
    }
    #[inline(never)]
    fn double(given: Compute<'a, f64>) {
        compute(given);
    }
}

struct Reducing<'a>(PhantomData<&'a ()>);

impl<'a> ByElement for Reducing<'a> {
    type Given<T: Element> = Reduce<'a, T>;
    type Result = ();

    #[inline(never)]
    fn single(given: Reduce<'a, f32>) {
        reduce(given);
    }
    #[inline(never)]
    fn double(given: Reduce<'a, f64>) {
        reduce(given);
    }
}

fn compute<T: Lane>(call: Compute<'_, T>) {
    let Compute { isa, kernel, params, inputs, mut output, region, workspace } = call;
    if is_convolution(kernel) {
        conv::compute(isa, kernel, params.packed(), inputs, output.reborrow(), region, workspace);
    } else {
        ops::compute(isa, kernel, params, inputs, output.reborrow(), region);
    }
    if isa == Isa::Portable && ops::nan::is_mixed(kernel) {
        ops::nan::unite(output, region);
    }
}

fn reduce<T: Lane>(call: Reduce<'_, T>) {
    let Reduce { isa, reduction, params, inputs, share, partial } = call;
    match (reduction, partial) {
        (Reduction::ConvWeight(geometry), Partial::Values(values)) => {
            conv::reduce_weight(isa, geometry, inputs, share, values);
        }
        (_, partial) => ops::reduce(isa, reduction, params, inputs, share, partial),
    }
}
