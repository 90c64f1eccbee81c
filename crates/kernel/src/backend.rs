//! What a backend must provide.

use std::fmt::Debug;

use tiled_geometry::Region;
use tiled_tensor::{AlignedBuffer, Element, OutOfMemory, PartMut, View, ViewMut, filled};

use crate::{ExactSum, Extremum, Kernel, Load, Operands, Partial, Reduction, Support, Task, Work};

/// The most inputs that a kernel has.
pub const MAX_INPUTS: usize = 8;

/// Answers the questions of a planner, and carries out kernels and reductions on windows.
///
/// No method has a default: what decorates a backend passes on every one of them, or does not compile.
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

    /// How this work is carried out; `None` where it is not.
    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support>;

    /// The seconds that one worker takes for a task. Only ratios steer the planner; the sums are the predicted seconds of a plan. They never
    /// fall where a number of the load grows: the planner leaves out what cannot be better by such a bound.
    fn seconds(&self, task: Task<'_>, load: &Load) -> f64;

    /// Arranges the parameters of a kernel for [`Backend::compute`].
    ///
    /// # Panics
    /// Where `packed` has not the bytes that [`Support::packed_bytes`] says.
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
        packed: &[T],
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
    );

    /// The same into a part of a window of planes whose other parts others have, for a kernel with
    /// [`Support::writes_planes`].
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
    );

    /// Makes room for [`Support::workspace_bytes`] on this thread of a pool, which keeps it until it ends.
    ///
    /// # Errors
    /// Where memory is refused.
    fn reserve(&self, workspace_bytes: usize) -> Result<(), OutOfMemory>;

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

impl<T: Element> dyn Backend<T> + '_ {
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
        Ok(match reduction {
            Reduction::ConvWeight(_) => {
                Partial::Values(AlignedBuffer::try_new(support.partial_bytes / size_of::<T>())?)
            }
            Reduction::ImageMax => Partial::Extrema(filled(batch * channels, Extremum::default())?),
            _ => Partial::Exact(filled(reduction.slots(batch, channels), ExactSum::default())?),
        })
    }
}
