//! What a backend must provide.

use std::fmt::Debug;

use tiled_geometry::Region;
use tiled_tensor::{AlignedBuffer, Element, OutOfMemory, PartMut, View, ViewMut, filled};

use crate::{Costs, ExactSum, Extremum, Kernel, Partial, Reduction};

/// The most inputs that a kernel has.
pub const MAX_INPUTS: usize = 8;

/// Carries out kernels and reductions on windows.
///
/// The contract, in full in `docs/`:
/// - An output element depends only on the values in its receptive field (that of its cell of the [`Kernel::grain`]), in
///   an order of summation that does not depend on the region asked for. So a tiled run equals an untiled one bit for bit.
/// - Padding lanes (see [`tiled_tensor::Layout`]) never reach a real lane.
/// - A reduction gives the same bits for the same sequence of shares, whatever the number of threads.
pub trait Backend<T: Element>: Send + Sync + Debug {
    /// The name with the instruction set, as it stands in reports.
    fn name(&self) -> String;

    /// The channel block of windows with this many channels: a power of two, at most 64.
    fn block(&self, channels: usize) -> usize;

    /// The elements that [`Backend::pack`] fills for this kernel, given the lengths of its parameters.
    fn packed_len(&self, kernel: &Kernel, params: &[usize]) -> usize {
        let _ = kernel;
        params.iter().sum()
    }

    /// Arranges the parameters of a kernel for [`Backend::compute`]; the default lays them one after another.
    ///
    /// # Panics
    /// Where `packed` is not as long as [`Backend::packed_len`] says.
    fn pack(&self, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        let _ = kernel;
        let mut rest = packed;
        for param in params {
            let (head, tail) = rest.split_at_mut(param.len());
            head.copy_from_slice(param);
            rest = tail;
        }
        assert!(rest.is_empty(), "{} packed elements left over", rest.len());
    }

    /// Whether [`Backend::compute`] carries out this [`Kernel::ConvThen`].
    fn fuses(&self, kernel: &Kernel) -> bool {
        let _ = kernel;
        false
    }

    /// Computes `region` of the output, which lies in the region that `output` holds.
    ///
    /// Each input holds at least what the region needs, clipped to the tensor.
    ///
    /// # Panics
    /// Where a window does not hold what the region needs.
    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
    );

    /// The same into a part of a window of planes whose other parts others have, for a kernel of which
    /// [`Backend::writes_planes`] holds.
    ///
    /// # Panics
    /// As [`Backend::compute`], and where it is not for such a kernel.
    fn compute_part(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: PartMut<'_, T>,
        region: Region<2>,
    ) {
        let _ = (packed, inputs, output, region);
        panic!("{} writes no parts of windows", kernel.name());
    }

    /// The elements that each thread needs beside the windows while it carries out this kernel.
    fn scratch_len(&self, kernel: &Kernel) -> usize {
        let _ = kernel;
        0
    }

    /// Makes room for [`Backend::scratch_len`] elements on this thread of a pool, which keeps it until it ends.
    ///
    /// # Errors
    /// Where memory is refused.
    fn reserve(&self, elements: usize) -> Result<(), OutOfMemory> {
        let _ = elements;
        Ok(())
    }

    /// The elements of a [`Partial::Values`] of this reduction; zero where it keeps exact sums or extrema.
    fn partial_len(&self, reduction: &Reduction) -> usize {
        match reduction {
            Reduction::ConvWeight(conv) => conv.weight_len(),
            _ => 0,
        }
    }

    /// A fresh state for a reduction over a domain of this batch size and channel count.
    ///
    /// # Errors
    /// Where memory is refused.
    fn partial(
        &self,
        reduction: &Reduction,
        batch: usize,
        channels: usize,
    ) -> Result<Partial<T>, OutOfMemory> {
        Ok(match reduction {
            Reduction::ConvWeight(_) => Partial::Values(AlignedBuffer::try_new(self.partial_len(reduction))?),
            Reduction::ImageMax => Partial::Extrema(filled(batch * channels, Extremum::default())?),
            _ => Partial::Exact(filled(reduction.slots(batch, channels), ExactSum::default())?),
        })
    }

    /// Takes the disjoint `share` of the domain into `partial`. `params` are in the layouts of [`Reduction`].
    ///
    /// # Panics
    /// Where a window does not hold what the share needs, or `partial` belongs to another reduction.
    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    );

    /// Brings a finished [`Partial::Values`] into the layout that [`Reduction`] names.
    ///
    /// # Panics
    /// Where a length does not fit the reduction.
    fn unpack(&self, reduction: &Reduction, values: &[T], result: &mut [T]) {
        let _ = reduction;
        result.copy_from_slice(values);
    }

    /// Whether a kernel reads an input of this many channels whose window has blocks of one channel (plain NCHW) about
    /// as fast as one in blocks of [`Backend::block`], so that it is not worth copying for it.
    fn reads_planes(&self, kernel: &Kernel, input: usize, channels: usize) -> bool {
        let _ = (kernel, input, channels);
        false
    }

    /// The same for an input of a reduction.
    fn reduces_planes(&self, reduction: &Reduction, input: usize, channels: usize) -> bool {
        let _ = (reduction, input, channels);
        false
    }

    /// Whether a kernel writes its output, of this many channels, into a window with blocks of one channel (plain NCHW)
    /// by [`Backend::compute_part`], faster than into one in blocks of [`Backend::block`] that is copied after it.
    /// Asked for kernels whose grain is one.
    fn writes_planes(&self, kernel: &Kernel, channels: usize) -> bool {
        let _ = (kernel, channels);
        false
    }

    /// What work costs.
    fn costs(&self) -> Costs {
        Costs::default()
    }

    /// The share of [`Costs::flops`] that a convolution or the gradient for its input reaches. Of other kernels the
    /// bytes count.
    fn share_of_peak(&self, kernel: &Kernel) -> f64 {
        let _ = kernel;
        1.0
    }

    /// The share of [`Costs::flops`] that the gradient for the weights of a convolution reaches.
    fn reduce_share_of_peak(&self, reduction: &Reduction) -> f64 {
        let _ = reduction;
        1.0
    }
}
