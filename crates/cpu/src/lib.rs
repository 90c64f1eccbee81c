//! The kernel contract on CPUs: one algorithm over a small vector trait, per instruction set.
//!
//! Kernels share the work of one call with [`rayon`], in whatever pool the caller runs; results do not depend
//! on the number of threads. They do depend on the instruction set, by rounding: a fused multiply-add rounds once.
//!
//! It is not the place of any decision about tiles, and it holds no memory: windows come from the caller.
//! But for one buffer a thread, which transforms need for the length of a call ([`Backend::scratch_len`]).
//!
//! ```text
//!   CpuBackend ─ Isa ─► vector: portable, AVX2, AVX-512        one trait, compiled once for each
//!       ├─ conv: convolution, its gradients                    by classes of pixels, weights packed once
//!       └─ ops: everything else                                loops over rows
//! ```
//!
//! # Example
//!
//! ```
//! use tiled_cpu::{CpuBackend, Isa};
//! use tiled_kernel::Backend;
//!
//! let backend = CpuBackend::with_isa(Isa::Portable)?;
//! assert_eq!(Backend::<f32>::name(&backend), "cpu-portable");
//! assert!(Isa::detect() >= Isa::Portable);
//! # Ok::<(), tiled_cpu::IsaError>(())
//! ```

mod concrete;
mod conv;
mod costs;
mod isa;
mod ops;
mod scratch;
mod vector;

pub use isa::{Isa, IsaError};

use tiled_geometry::Region;
use tiled_kernel::{Backend, Costs, Kernel, Partial, Reduction};
use tiled_tensor::{Element, OutOfMemory, PartMut, View, ViewMut};

/// The CPU backend for one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct CpuBackend {
    isa: Isa,
}

impl CpuBackend {
    /// The backend for the best instruction set of this CPU, or the one that the variable `TILED_ISA` names.
    ///
    /// # Errors
    /// Where `TILED_ISA` names one that does not exist or that this CPU lacks.
    pub fn new() -> Result<Self, IsaError> {
        Ok(Self { isa: Isa::from_environment()? })
    }

    /// The backend for this instruction set.
    ///
    /// # Errors
    /// Where this CPU lacks it.
    pub fn with_isa(isa: Isa) -> Result<Self, IsaError> {
        isa.require()?;
        Ok(Self { isa })
    }

    /// The instruction set.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }
}

impl<T: Element> Backend<T> for CpuBackend {
    fn name(&self) -> String {
        format!("cpu-{}", self.isa)
    }

    fn block(&self, channels: usize) -> usize {
        conv::block::<T>(self.isa, channels)
    }

    fn packed_len(&self, kernel: &Kernel, params: &[usize]) -> usize {
        if is_convolution(kernel) { conv::packed_len::<T>(self.isa, kernel) } else { params.iter().sum() }
    }

    fn pack(&self, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        if is_convolution(kernel) {
            conv::pack(self.isa, kernel, params, packed);
        } else {
            ops::pack(params, packed);
        }
    }

    fn fuses(&self, kernel: &Kernel) -> bool {
        conv::fuses::<T>(self.isa, kernel)
    }

    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
    ) {
        if region.is_empty() {
            return;
        }
        concrete::compute(self.isa, kernel, packed, inputs, output.into(), region);
    }

    fn compute_part(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: PartMut<'_, T>,
        region: Region<2>,
    ) {
        if region.is_empty() {
            return;
        }
        concrete::compute(self.isa, kernel, packed, inputs, output, region);
    }

    fn partial_len(&self, reduction: &Reduction) -> usize {
        match reduction {
            Reduction::ConvWeight(geometry) => conv::partial_len::<T>(self.isa, geometry),
            _ => 0,
        }
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        if share.is_empty() {
            return;
        }
        concrete::reduce(self.isa, reduction, params, inputs, share, partial);
    }

    fn unpack(&self, reduction: &Reduction, values: &[T], result: &mut [T]) {
        match reduction {
            Reduction::ConvWeight(geometry) => conv::unpack_weight(self.isa, geometry, values, result),
            _ => result.copy_from_slice(values),
        }
    }

    fn scratch_len(&self, kernel: &Kernel) -> usize {
        conv::scratch_len::<T>(self.isa, kernel)
    }

    fn reserve(&self, elements: usize) -> Result<(), OutOfMemory> {
        scratch::reserve::<T>(elements)
    }

    fn reads_planes(&self, kernel: &Kernel, _input: usize, channels: usize) -> bool {
        if is_convolution(kernel) {
            conv::reads_planes::<T>(self.isa, kernel)
        } else {
            conv::block::<T>(self.isa, channels) == 1
        }
    }

    fn reduces_planes(&self, reduction: &Reduction, input: usize, channels: usize) -> bool {
        match reduction {
            Reduction::ConvWeight(geometry) => conv::reduces_planes::<T>(self.isa, geometry, input),
            _ => conv::block::<T>(self.isa, channels) == 1,
        }
    }

    fn writes_planes(&self, kernel: &Kernel, channels: usize) -> bool {
        if is_convolution(kernel) {
            conv::writes_planes::<T>(self.isa, kernel)
        } else {
            conv::block::<T>(self.isa, channels) == 1
        }
    }

    fn costs(&self) -> Costs {
        costs::costs::<T>(self.isa)
    }

    fn share_of_peak(&self, kernel: &Kernel) -> f64 {
        conv::share_of_peak::<T>(self.isa, kernel)
    }

    fn reduce_share_of_peak(&self, reduction: &Reduction) -> f64 {
        match reduction {
            Reduction::ConvWeight(geometry) => conv::weight_share_of_peak::<T>(self.isa, geometry),
            _ => 1.0,
        }
    }
}

/// Whether the module [`conv`] carries out a kernel, not [`ops`].
const fn is_convolution(kernel: &Kernel) -> bool {
    matches!(
        kernel,
        Kernel::Conv2d { .. }
            | Kernel::Conv2dWinograd { .. }
            | Kernel::ConvThen { .. }
            | Kernel::Conv2dBackwardInput { .. }
    )
}
