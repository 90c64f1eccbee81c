//! Convolution: forward, gradient for the input, gradient for the weights.

use tiled_geometry::Region;
use tiled_kernel::{Conv, Kernel};
use tiled_tensor::{Element, View, ViewMut};

use crate::Isa;

pub(crate) fn block<T: Element>(_isa: Isa, _channels: usize) -> usize {
    1
}
pub(crate) fn packed_len<T: Element>(_isa: Isa, _kernel: &Kernel) -> usize {
    0
}
pub(crate) fn pack<T: Element>(_isa: Isa, _kernel: &Kernel, _params: &[&[T]], _packed: &mut [T]) {}
pub(crate) fn compute<T: Element>(
    _isa: Isa,
    _kernel: &Kernel,
    _packed: &[T],
    _inputs: &[View<'_, T>],
    _output: ViewMut<'_, T>,
    _region: Region<2>,
) {
}
pub(crate) fn partial_len<T: Element>(_isa: Isa, conv: &Conv) -> usize {
    conv.weight_len()
}
pub(crate) fn reduce_weight<T: Element>(
    _isa: Isa,
    _conv: &Conv,
    _inputs: &[View<'_, T>],
    _share: Region<2>,
    _values: &mut [T],
) {
}
pub(crate) fn unpack_weight<T: Element>(_isa: Isa, _conv: &Conv, values: &[T], result: &mut [T]) {
    result.copy_from_slice(values);
}
