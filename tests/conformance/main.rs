//! One suite, every backend and instruction set.
//!
//! With `TILED_ISA` set, the instruction set that it names alone.

use tiled::cpu::{CpuBackend, Isa};
use tiled::kernel::Reference;
use tiled::tensor::Element;
use tiled_testkit::conformance::{check_backend, seed};
use tiled_testkit::dense::{check_dense, check_gradients};

const SEED: u64 = 20_250_131;
const CASES: usize = 6;

fn backend(isa: Isa) -> Option<CpuBackend> {
    let chosen = std::env::var("TILED_ISA").ok();
    if chosen.is_some_and(|name| name != isa.to_string()) {
        eprintln!("skipped: TILED_ISA names another instruction set than {isa}");
        return None;
    }
    let backend = CpuBackend::with_isa(isa);
    backend.inspect_err(|reason| eprintln!("skipped: {reason}")).ok()
}

fn check<T: Element>(isa: Isa) {
    if let Some(backend) = backend(isa) {
        check_backend::<T>(&backend, seed(SEED), CASES);
    }
}

fn check_dense_work<T: Element>(isa: Isa) {
    if let Some(backend) = backend(isa) {
        check_dense::<T>(&backend, seed(SEED), CASES);
    }
}

macro_rules! suites {
    ($($name:ident: $isa:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn conforms_in_f32() {
                check::<f32>(Isa::$isa);
            }
            #[test]
            fn conforms_in_f64() {
                check::<f64>(Isa::$isa);
            }
            #[test]
            fn dense_work_conforms_in_f32() {
                check_dense_work::<f32>(Isa::$isa);
            }
            #[test]
            fn dense_work_conforms_in_f64() {
                check_dense_work::<f64>(Isa::$isa);
            }
            #[test]
            fn derivatives_are_those_of_the_functions() {
                if let Some(backend) = backend(Isa::$isa) {
                    check_gradients(&backend, seed(SEED));
                }
            }
        }
    )*};
}

suites! {
    portable: Portable;
    avx2: Avx2;
    avx512: Avx512;
}

#[test]
fn suites_cover_every_instruction_set() {
    assert_eq!(Isa::ALL, [Isa::Portable, Isa::Avx2, Isa::Avx512]);
}

#[test]
fn the_reference_conforms_to_itself() {
    check_backend::<f32>(&Reference, seed(SEED), CASES);
}

#[test]
fn dense_work_of_the_reference_conforms_to_itself() {
    check_dense::<f32>(&Reference, seed(SEED), CASES);
    check_gradients(&Reference, seed(SEED));
}
