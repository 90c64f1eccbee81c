//! The conformance suite on the simulated device, or on the GPU where `TILED_CUDA_DEVICE` is `cuda`.
#![cfg(all(unix, feature = "simulated"))]

use std::sync::Arc;

use tiled_cuda::driver::simulated::{Order, Simulated};
use tiled_cuda::driver::{Driver, Facts};
use tiled_cuda::{CudaBackend, Precision};
use tiled_kernel::Backend;
use tiled_tensor::Element;
use tiled_testkit::conformance as suite;

type Check<T> = fn(&dyn Backend<T>, u64, usize);

const SEED: u64 = 20_250_131;

/// A backend in each order; none where there is no compiler.
fn backends(precision: Precision) -> Vec<CudaBackend> {
    let backend = |driver: Arc<dyn Driver>| CudaBackend::with_precision(driver, precision);
    #[cfg(feature = "device")]
    if std::env::var("TILED_CUDA_DEVICE").is_ok_and(|device| device == "cuda") {
        let gpu = tiled_cuda::driver::gpu::Gpu::new(0).expect("a GPU");
        return vec![backend(Arc::new(gpu))];
    }
    let orders = [Order::Forward, Order::Backward, Order::Shuffled(SEED)];
    let devices = orders.into_iter().map(|order| Simulated::new(Facts::h200(), order));
    match devices.collect::<Result<Vec<_>, _>>() {
        Ok(devices) => devices.into_iter().map(|device| backend(Arc::new(device))).collect(),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            Vec::new()
        }
    }
}

macro_rules! checks {
    ($($name:ident: $cases:literal;)*) => {
        mod single {
            $(#[test] fn $name() { super::each::<f32>(super::suite::$name, $cases); })*
        }
        mod double {
            $(#[test] fn $name() { super::each::<f64>(super::suite::$name, $cases); })*
        }
    };
}

fn each<T: Element>(check: Check<T>, cases: usize) {
    each_in(Precision::F32, check, cases);
}

fn each_in<T: Element>(precision: Precision, check: Check<T>, cases: usize) {
    for (index, backend) in backends(precision).iter().enumerate() {
        check(backend, suite::seed(SEED) + index as u64, cases);
    }
}

checks! {
    check_conv2d: 6;
    check_conv2d_winograd: 6;
    check_conv2d_epilogue: 6;
    check_conv2d_backward_input: 6;
    check_conv2d_backward_weight: 6;
    check_pool: 8;
    check_activation: 20;
    check_elementwise: 40;
    check_arithmetic: 12;
    check_scatter: 4;
    check_norm: 6;
    check_pixel: 16;
    check_resize: 8;
    check_adaptive: 8;
    check_pad: 6;
    check_movement: 6;
    check_loss: 4;
    check_reductions: 22;
}

/// Convolutions by tensor cores, with their own roundings: near the reference within the stated error, and the same bits whatever the region.
macro_rules! tensor_checks {
    ($($name:ident: $precision:ident;)*) => {$(
        mod $name {
            use super::{Precision::$precision, each_in, suite};

            #[test]
            fn check_conv2d() {
                each_in::<f32>($precision, suite::check_conv2d, 6);
            }
            #[test]
            fn check_conv2d_epilogue() {
                each_in::<f32>($precision, suite::check_conv2d_epilogue, 6);
            }
            #[test]
            fn check_conv2d_backward_input() {
                each_in::<f32>($precision, suite::check_conv2d_backward_input, 6);
            }
            #[test]
            fn check_conv2d_backward_weight() {
                each_in::<f32>($precision, suite::check_conv2d_backward_weight, 6);
            }
        }
    )*};
}

tensor_checks! {
    tf32: Tf32;
    f32x3: F32x3;
}
