//! Random cases on the simulated GPU.

use std::sync::Arc;

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled::geometry::Region;
use tiled::kernel::{
    Backend, Context, DeviceError, Host, Kernel, Needs, Params, Reference, Workspace, forward, open,
};
use tiled::tensor::{Element, View, ViewMut};
use tiled_cuda::CudaBackend;
use tiled_cuda::driver::Facts;
use tiled_cuda::driver::simulated::{Order, Simulated};

use super::{Subject, VerifyOptions, verify_on};

/// Kernels on the host for plans of the GPU: those of the CPU, whose functions have the GPU's bits, and convolutions of the reference.
/// Parameters lie at the beginning of what the GPU packs them into.
#[derive(Debug)]
struct Shadow {
    gpu: CudaBackend,
    cpu: CpuBackend,
}

impl<T: Element> Backend<T> for Shadow {
    forward!(T, |shadow| &shadow.gpu; name block support seconds workers);

    fn open<'b>(&'b self, needs: &Needs<'_>) -> Result<Box<dyn Context<T> + 'b>, DeviceError> {
        open(self, needs)
    }
}

impl<T: Element> Host<T> for Shadow {
    forward!(T, |_shadow| &Reference; compute_part reduce unpack);

    fn pack(&self, _kernel: &Kernel, params: &[&[T]], packed: &mut [T]) {
        let len = params.iter().map(|param| param.len()).sum();
        tiled::kernel::pack_plainly(params, &mut packed[..len]);
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
        let host: &dyn Host<T> = if kernel.epilogue().is_some() { &Reference } else { &self.cpu };
        host.compute(kernel, params, inputs, output, region, workspace);
    }
}

#[test]
fn cases_on_the_simulated_gpu_have_the_bits_of_the_untiled_run() {
    let device = || Simulated::new(Facts::h200(), Order::Shuffled(3));
    let (gpu, shadowed) = match (device(), device()) {
        (Ok(gpu), Ok(shadowed)) => (Arc::new(gpu), shadowed),
        (Err(reason), _) | (_, Err(reason)) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    let backend = CudaBackend::new(Arc::<Simulated>::clone(&gpu));
    let cpu = CpuBackend::new().expect("an instruction set");
    let shadow = Shadow { gpu: CudaBackend::new(Arc::new(shadowed)), cpu };
    let options = VerifyOptions { cases: 30, seed: 19, threads: 2, only: None };
    let narrow = Subject { backend: &backend, host: &shadow };
    let wide = Subject { backend: &backend, host: &shadow };
    let report = verify_on(&options, &NoProgress, narrow, wide).expect("nobody cancels");
    assert!(report.passed(), "{:#?}", report.failures);
    assert!(report.min_tiles > 1 && report.compared > 10_000, "{report:?}");
    assert_eq!(gpu.left(), [0; 4], "memory, pinned memory, streams and events are given back");
}
