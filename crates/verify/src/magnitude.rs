//! The size of what a weight gradient sums.

use tiled::geometry::Region;
use tiled::kernel::{Backend, Host, Partial, Reduction, forward};
use tiled::tensor::{AlignedBuffer, Element, View};

/// A backend whose gradients of convolution weights are `Σ|x·gy|` in place of `Σ x·gy`; all else is as it was.
#[derive(Debug)]
pub(super) struct Magnitudes<'b, T: Element>(pub(super) &'b dyn Host<T>);

impl<T: Element> Backend<T> for Magnitudes<'_, T> {
    forward!(T, |sizes| sizes.0; name block support seconds transfers_beside workers open_own);
}

impl<T: Element> Host<T> for Magnitudes<'_, T> {
    forward!(T, |sizes| sizes.0; pack compute compute_part unpack copy);

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
}

fn absolute<T: Element>(window: &View<'_, T>) -> AlignedBuffer<T> {
    let mut sizes = AlignedBuffer::new(window.layout().len());
    for (size, value) in sizes.iter_mut().zip(window.data()) {
        *size = value.abs();
    }
    sizes
}
