//! The size of what a weight gradient sums.

use tiled_geometry::Region;
use tiled_kernel::{Backend, Kernel, Partial, Reduction};
use tiled_tensor::{AlignedBuffer, Element, OutOfMemory, View, ViewMut};

/// A backend whose gradients of convolution weights are `Σ|x·gy|` in place of `Σ x·gy`; all else is as it was.
#[derive(Debug)]
pub(super) struct Magnitudes<'b, T: Element>(pub(super) &'b dyn Backend<T>);

impl<T: Element> Backend<T> for Magnitudes<'_, T> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn block(&self, channels: usize) -> usize {
        self.0.block(channels)
    }

    fn packed_len(&self, kernel: &Kernel, params: &[usize]) -> usize {
        self.0.packed_len(kernel, params)
    }

    fn pack(&self, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        self.0.pack(kernel, params, packed);
    }

    fn fuses(&self, kernel: &Kernel) -> bool {
        self.0.fuses(kernel)
    }

    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
    ) {
        self.0.compute(kernel, packed, inputs, output, region);
    }

    fn partial_len(&self, reduction: &Reduction) -> usize {
        self.0.partial_len(reduction)
    }

    fn partial(
        &self,
        reduction: &Reduction,
        batch: usize,
        channels: usize,
    ) -> Result<Partial<T>, OutOfMemory> {
        self.0.partial(reduction, batch, channels)
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        if !matches!(reduction, Reduction::ConvWeight(_)) {
            return self.0.reduce(reduction, params, inputs, share, partial);
        }
        let sizes: Vec<AlignedBuffer<T>> = inputs.iter().map(absolute).collect();
        let views: Vec<View<'_, T>> =
            inputs.iter().zip(&sizes).map(|(input, sizes)| View::new(sizes, *input.layout())).collect();
        self.0.reduce(reduction, params, &views, share, partial);
    }

    fn unpack(&self, reduction: &Reduction, values: &[T], result: &mut [T]) {
        self.0.unpack(reduction, values, result);
    }
}

fn absolute<T: Element>(window: &View<'_, T>) -> AlignedBuffer<T> {
    let mut sizes = AlignedBuffer::new(window.layout().len());
    for (size, value) in sizes.iter_mut().zip(window.data()) {
        *size = value.abs();
    }
    sizes
}
