//! Random cases on the simulated GPU.

use std::sync::Arc;

use tiled::cpu::CpuBackend;
use tiled::cuda::CudaBackend;
use tiled::cuda::driver::Facts;
use tiled::cuda::driver::simulated::{Order, Simulated};
use tiled::exec::NoProgress;

use super::shadow::Shadow;
use super::{Subject, VerifyOptions, verify_on};

#[test]
fn cases_on_the_simulated_gpu_have_the_bits_of_the_untiled_run() {
    let gpu = match Simulated::new(Facts::h200(), Order::Shuffled(3)) {
        Ok(gpu) => Arc::new(gpu),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    let backend = CudaBackend::new(Arc::<Simulated>::clone(&gpu));
    let shadow = Shadow::new(&backend, CpuBackend::new().expect("an instruction set"));
    let options = VerifyOptions { cases: 60, seed: 18, threads: 2, ..VerifyOptions::default() };
    let narrow = Subject { backend: &backend, host: &shadow };
    let wide = Subject { backend: &backend, host: &shadow };
    let report = verify_on(&options, &NoProgress, narrow, wide).expect("nobody cancels");
    assert!(report.passed(), "{:#?}", report.failures);
    assert!(report.min_tiles > 1 && report.compared > 10_000, "{report:?}");
    assert_eq!(gpu.left(), [0; 4], "memory, pinned memory, streams and events are given back");
}
