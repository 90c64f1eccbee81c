//! Everything but convolution.

use tiled_geometry::Region;
use tiled_kernel::{Kernel, Partial, Reduction};
use tiled_tensor::{Element, View, ViewMut};

use crate::Isa;

pub(crate) fn pack<T: Element>(params: &[&[T]], packed: &mut [T]) {
    let mut rest = packed;
    for param in params {
        let (head, tail) = rest.split_at_mut(param.len());
        head.copy_from_slice(param);
        rest = tail;
    }
}
pub(crate) fn compute<T: Element>(
    _isa: Isa,
    _kernel: &Kernel,
    _packed: &[T],
    _inputs: &[View<'_, T>],
    _output: ViewMut<'_, T>,
    _region: Region<2>,
) {
}
pub(crate) fn reduce<T: Element>(
    _isa: Isa,
    _reduction: &Reduction,
    _params: &[&[T]],
    _inputs: &[View<'_, T>],
    _share: Region<2>,
    _partial: &mut Partial<T>,
) {
}
