//! Every kernel but convolution, on every instruction set, under the conformance suite.

use tiled_cpu::{CpuBackend, Isa};
use tiled_kernel::Backend;
use tiled_tensor::Element;
use tiled_testkit::conformance;

const SEED: u64 = 20_240_917;

fn check<T: Element>(isa: Isa, check: fn(&dyn Backend<T>, u64, usize), cases: usize) {
    match CpuBackend::with_isa(isa) {
        Ok(backend) => check(&backend, SEED, cases),
        Err(reason) => eprintln!("skipped: {reason}"),
    }
}

macro_rules! suite {
    ($($name:ident: $check:ident, $cases:literal;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn conforms_in_f32_on_portable() {
                check::<f32>(Isa::Portable, conformance::$check, $cases);
            }
            #[test]
            fn conforms_in_f64_on_portable() {
                check::<f64>(Isa::Portable, conformance::$check, $cases);
            }
            #[test]
            fn conforms_in_f32_on_avx2() {
                check::<f32>(Isa::Avx2, conformance::$check, $cases);
            }
            #[test]
            fn conforms_in_f64_on_avx2() {
                check::<f64>(Isa::Avx2, conformance::$check, $cases);
            }
            #[test]
            fn conforms_in_f32_on_avx512() {
                check::<f32>(Isa::Avx512, conformance::$check, $cases);
            }
            #[test]
            fn conforms_in_f64_on_avx512() {
                check::<f64>(Isa::Avx512, conformance::$check, $cases);
            }
        }
    )*};
}

suite! {
    pooling: check_pool, 60;
    activations: check_activation, 40;
    elements: check_elementwise, 60;
    norms: check_norm, 30;
    resampling: check_resize, 60;
    padding: check_pad, 40;
    losses: check_loss, 30;
    reductions: check_reductions, 60;
}
