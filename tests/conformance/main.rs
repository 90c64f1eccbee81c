//! One suite, every backend and instruction set.
//!
//! With `TILED_ISA` set, the instruction set that it names alone.

use tiled::cpu::{CpuBackend, Isa};
use tiled::kernel::Reference;
use tiled::tensor::Element;
use tiled_testkit::conformance::check_backend;

const SEED: u64 = 20_250_131;
const CASES: usize = 6;

fn check<T: Element>(isa: Isa) {
    let chosen = std::env::var("TILED_ISA").ok();
    if chosen.is_some_and(|name| name != isa.to_string()) {
        eprintln!("skipped: TILED_ISA names another instruction set than {isa}");
        return;
    }
    match CpuBackend::with_isa(isa) {
        Ok(backend) => check_backend::<T>(&backend, SEED, CASES),
        Err(reason) => eprintln!("skipped: {reason}"),
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
    check_backend::<f32>(&Reference, SEED, CASES);
}
