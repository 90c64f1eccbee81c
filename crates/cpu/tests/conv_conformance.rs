//! Convolutions on every instruction set under the conformance suite.

use tiled_cpu::{CpuBackend, Isa};
use tiled_kernel::Backend;
use tiled_tensor::Element;
use tiled_testkit::conformance;

const SEED: u64 = 20_240_923;

fn check<T: Element>(check: fn(&dyn Backend<T>, u64, usize), cases: usize) {
    for isa in Isa::ALL {
        match CpuBackend::with_isa(isa) {
            Ok(backend) => check(&backend, conformance::seed(SEED), cases),
            Err(reason) => eprintln!("skipped: {reason}"),
        }
    }
}

#[test]
fn forward_conforms_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d, 120);
    check::<f64>(conformance::check_conv2d, 120);
}

#[test]
fn sums_over_thousands_of_channels_conform_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_deep, 6);
    check::<f64>(conformance::check_conv2d_deep, 2);
}

#[test]
fn taps_far_apart_conform_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_spread, 12);
    check::<f64>(conformance::check_conv2d_spread, 6);
}

#[test]
fn points_and_patches_conform_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_point, 60);
    check::<f64>(conformance::check_conv2d_point, 30);
}

#[test]
fn gradient_for_the_input_conforms_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_backward_input, 120);
    check::<f64>(conformance::check_conv2d_backward_input, 120);
}

#[test]
fn gradient_for_the_weights_conforms_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_backward_weight, 120);
    check::<f64>(conformance::check_conv2d_backward_weight, 120);
}

#[test]
fn winograd_conforms_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_winograd, 60);
    check::<f64>(conformance::check_conv2d_winograd, 60);
}

#[test]
fn what_follows_a_convolution_conforms_on_every_instruction_set() {
    check::<f32>(conformance::check_conv2d_epilogue, 120);
    check::<f64>(conformance::check_conv2d_epilogue, 120);
}
