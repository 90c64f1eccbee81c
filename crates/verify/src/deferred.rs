//! Random cases whose calls run later, on another thread, from copies.

use tiled::cpu::CpuBackend;
use tiled::exec::NoProgress;
use tiled_testkit::deferred::Deferred;

use super::{Subject, VerifyOptions, verify_on};

#[test]
fn cases_whose_calls_run_later_have_the_bits_of_the_untiled_run() {
    let backend = CpuBackend::new().expect("an instruction set");
    let (narrow, wide) = (Deferred::<f32>::new(&backend), Deferred::<f64>::new(&backend));
    let options = VerifyOptions { cases: 40, seed: 11, threads: 2, ..VerifyOptions::default() };
    let narrow = Subject { backend: &narrow, host: &backend };
    let wide = Subject { backend: &wide, host: &backend };
    let report = verify_on(&options, &NoProgress, narrow, wide).expect("nobody cancels");
    assert!(report.passed(), "{:#?}", report.failures);
    assert!(report.min_tiles > 1 && report.compared > 10_000, "{report:?}");
}
