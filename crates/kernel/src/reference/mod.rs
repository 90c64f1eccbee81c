//! The reference backend: naive loops, every operator, every element type.

use tiled_geometry::Region;
use tiled_tensor::{Element, View, ViewMut};

use crate::{Backend, Kernel, Partial, Reduction};

/// Naive loops over [`View::get`] and [`ViewMut::set`]: the oracle of every other backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl<T: Element> Backend<T> for Reference {
    fn name(&self) -> String {
        "reference".to_owned()
    }
    fn block(&self, _channels: usize) -> usize {
        1
    }
    fn compute(
        &self,
        _kernel: &Kernel,
        _packed: &[T],
        _inputs: &[View<'_, T>],
        _output: ViewMut<'_, T>,
        _region: Region<2>,
    ) {
        unreachable!("being written")
    }
    fn reduce(
        &self,
        _reduction: &Reduction,
        _params: &[&[T]],
        _inputs: &[View<'_, T>],
        _share: Region<2>,
        _partial: &mut Partial<T>,
    ) {
        unreachable!("being written")
    }
}
