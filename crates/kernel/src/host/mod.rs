//! Backends whose kernels work on the memory of the host: what they provide, and the queues over them.
//!
//! All of a queue's edges are the window itself: what a source fills is the slot, what a sink reads is the slot.

mod context;
mod copy;
mod params;
mod queue;
mod shared;
mod workspace;

use tiled_geometry::Region;
use tiled_tensor::{AlignedBuffer, Element, OutOfMemory, PartMut, View, ViewMut, filled};

pub use context::open;
pub use copy::copy_region;
pub use params::Params;
pub use workspace::Workspace;

use crate::{Backend, ExactSum, Extremum, Kernel, Operands, Partial, Reduction, Work};

/// Carries out kernels and reductions on windows in the memory of the host. Each call has run when it returns.
///
/// [`Backend::open`] of such a backend is [`open`].
pub trait Host<T: Element>: Backend<T> {
    /// Arranges the parameters of a kernel for [`Host::compute`].
    ///
    /// # Panics
    /// Where `packed` has not the bytes that [`crate::Support::packed_bytes`] says.
    fn pack(&self, kernel: &Kernel, params: &[&[T]], packed: &mut [T]);

    /// Computes `region` of the output, which lies in the region that `output` holds.
    ///
    /// Each input holds at least what the region needs, clipped to the tensor.
    ///
    /// # Panics
    /// Where a window does not hold what the region needs.
    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    );

    /// The same into a part of a window of planes whose other parts others have, for a kernel with
    /// [`crate::Support::writes_planes`].
    ///
    /// # Panics
    /// As [`Host::compute`], and where it is not for such a kernel.
    fn compute_part(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        output: PartMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    );

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
    fn unpack(&self, reduction: &Reduction, values: &[T], result: &mut [T]);

    /// Copies a region between windows as [`copy_region`] does: tensors that are kept whole between sweeps come and go by it.
    ///
    /// # Panics
    /// As [`copy_region`].
    fn copy(&self, from: &View<'_, T>, to: ViewMut<'_, T>, region: Region<2>);
}

/// Lays parameters one after another: how a backend packs whose kernels read them as they are.
///
/// # Panics
/// Where `packed` is not as long as they are together.
pub fn pack_plainly<T: Element>(params: &[&[T]], packed: &mut [T]) {
    let mut rest = packed;
    for param in params {
        let (head, tail) = rest.split_at_mut(param.len());
        head.copy_from_slice(param);
        rest = tail;
    }
    assert!(rest.is_empty(), "{} packed elements left over", rest.len());
}

impl<T: Element> dyn Host<T> + '_ {
    /// The elements of the packed parameters of a kernel, given the lengths of these.
    ///
    /// # Panics
    /// Where the kernel is not supported.
    pub fn packed_len(&self, kernel: &Kernel, params: &[usize]) -> usize {
        let operands = Operands { batch: 1, inputs: &[], params, channels: 1 };
        match self.support(&Work::Map(*kernel), &operands) {
            Some(support) => support.packed_bytes / size_of::<T>(),
            None => panic!("invariant: {} carries out {kernel:?}", self.name()),
        }
    }

    /// A fresh state for a reduction over a domain of this batch size and channel count.
    ///
    /// # Errors
    /// Where memory is refused.
    ///
    /// # Panics
    /// Where the reduction is not supported.
    pub fn partial(
        &self,
        reduction: &Reduction,
        batch: usize,
        channels: usize,
    ) -> Result<Partial<T>, OutOfMemory> {
        let operands = Operands { batch, inputs: &[], params: &[], channels };
        let Some(support) = self.support(&Work::Reduce(*reduction), &operands) else {
            panic!("invariant: {} carries out {reduction:?}", self.name());
        };
        Partial::new(reduction, batch, channels, support.partial_bytes)
    }
}

impl<T: Element> Partial<T> {
    /// A state in which nothing is gathered, over a domain of this batch size and channel count; the sums of
    /// [`Reduction::ConvWeight`] take `bytes`.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn new(
        reduction: &Reduction,
        batch: usize,
        channels: usize,
        bytes: usize,
    ) -> Result<Self, OutOfMemory> {
        let len = Self::len_of(reduction, batch, channels, bytes);
        Ok(match reduction {
            Reduction::ConvWeight(_) => Self::Values(AlignedBuffer::try_new(len)?),
            Reduction::ImageMax => Self::Extrema(filled(len, Extremum::default())?),
            _ => Self::Exact(filled(len, ExactSum::default())?),
        })
    }

    /// The sums or maxima of a state over such a domain; the sums of [`Reduction::ConvWeight`] take `bytes`.
    #[must_use]
    pub const fn len_of(reduction: &Reduction, batch: usize, channels: usize, bytes: usize) -> usize {
        match reduction {
            Reduction::ConvWeight(_) => bytes / size_of::<T>(),
            Reduction::ImageMax => batch * channels,
            _ => reduction.slots(batch, channels),
        }
    }
}
