//! The kernel contract on CPUs: one algorithm over a small vector trait, per instruction set.
//!
//! Kernels share the work of one call with [`rayon`], in whatever pool the caller runs; results do not depend
//! on the number of threads. They do depend on the instruction set, by rounding: a fused multiply-add rounds once.
//!
//! It is not the place of any decision about tiles, and it holds no memory: windows come from the caller, and so do the buffers that
//! transforms need for the length of a call ([`Workspace`]).
//!
//! ```text
//!   CpuBackend ─ Isa ─► vector: portable, AVX2, AVX-512        one trait, compiled once for each
//!       ├─ conv: convolution, its gradients                    by classes of pixels, weights packed once
//!       ├─ ops: everything else of windows                     loops over rows
//!       └─ dense: arrays of any number of axes                 products by tiles in registers, the rest by pieces and rows
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
mod dense;
mod isa;
mod ops;
mod share;
mod support;
mod vector;

pub use isa::{Isa, IsaError};

use concrete::{Compute, Reduce};
use tiled_geometry::Region;
use tiled_kernel::{
    Backend, Context, DeviceError, Host, Kernel, Load, Needs, Operands, Params, Partial, Reduction, Support,
    Task, Work, Workspace, open, pack_plainly,
};
use tiled_tensor::{Element, PartMut, View, ViewMut};

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

    fn support(&self, work: &Work, operands: &Operands<'_>) -> Option<Support> {
        support::support::<T>(self.isa, work, operands)
    }

    fn transfers_beside(&self) -> bool {
        false
    }

    fn workers(&self, threads: usize) -> usize {
        threads
    }

    fn seconds(&self, task: Task<'_>, load: &Load) -> f64 {
        costs::costs::<T>(self.isa).seconds(task, load)
    }

    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'b>, DeviceError> {
        open(self, needs)
    }
}

impl<T: Element> Host<T> for CpuBackend {
    fn pack(&self, kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        if is_convolution(kernel) {
            conv::pack(self.isa, kernel, params, packed);
        } else {
            pack_plainly(params, packed);
        }
    }

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    ) {
        if region.is_empty() {
            return;
        }
        let (isa, output) = (self.isa, output.into());
        Compute { isa, kernel, params, inputs, output, region, workspace }.run();
    }

    fn compute_part(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        output: PartMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    ) {
        if region.is_empty() {
            return;
        }
        Compute { isa: self.isa, kernel, params, inputs, output, region, workspace }.run();
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
        Reduce { isa: self.isa, reduction, params, inputs, share, partial }.run();
    }

    fn unpack(&self, reduction: &Reduction, values: &[T], result: &mut [T]) {
        match reduction {
            Reduction::ConvWeight(geometry) => conv::unpack_weight(self.isa, geometry, values, result),
            _ => result.copy_from_slice(values),
        }
    }

    fn copy(&self, from: &View<'_, T>, to: ViewMut<'_, T>, region: Region<2>) {
        ops::copy(from, to.into(), region);
    }
}

/// Whether the module [`conv`] carries out a kernel, not [`ops`].
const fn is_convolution(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Conv2d { .. } | Kernel::Conv2dBackwardInput { .. })
}
