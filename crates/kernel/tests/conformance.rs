//! The reference backend against itself: the suite that every other backend passes.
//!
//! The reference reads plain windows only through its own choice of channel block, so blocked windows are
//! covered by a wrapper that asks for them.

use tiled_kernel::{Backend, Host, Reference, forward};
use tiled_tensor::Element;
use tiled_testkit::conformance;
use tiled_testkit::deferred::Deferred;

/// The reference on windows of channel blocks of eight.
#[derive(Debug)]
struct Blocked;

impl<T: Element> Backend<T> for Blocked {
    forward!(T, |_blocked| &Reference; support seconds transfers_beside workers open_own);

    fn name(&self) -> String {
        "reference in blocks".to_owned()
    }
    fn block(&self, channels: usize) -> usize {
        if channels < 4 { 1 } else { 8 }
    }
}

impl<T: Element> Host<T> for Blocked {
    forward!(T, |_blocked| &Reference; pack compute compute_part reduce unpack copy);
}

macro_rules! suite {
    ($($check:ident: $cases:literal;)*) => {
        $(
            mod $check {
                use super::*;

                #[test]
                fn reference_f32_conforms() {
                    conformance::$check::<f32>(&Reference, 1, $cases);
                }

                #[test]
                fn reference_f64_conforms_in_blocks() {
                    conformance::$check::<f64>(&Blocked, 2, $cases);
                }

                #[test]
                fn calls_that_run_later_conform() {
                    conformance::$check::<f32>(&Deferred::new(&Blocked), 3, $cases);
                }
            }
        )*
    };
}

suite! {
    check_conv2d: 25;
    check_conv2d_backward_input: 25;
    check_conv2d_backward_weight: 15;
    check_pool: 40;
    check_activation: 32;
    check_elementwise: 40;
    check_scatter: 20;
    check_norm: 16;
    check_pixel: 32;
    check_resize: 30;
    check_pad: 24;
    check_movement: 36;
    check_loss: 12;
    check_reductions: 40;
}
