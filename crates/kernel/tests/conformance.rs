//! The reference backend against itself: the suite that every other backend passes.
//!
//! The reference reads plain windows only through its own choice of channel block, so blocked windows are
//! covered by a wrapper that asks for them.

use tiled_geometry::Region;
use tiled_kernel::{Backend, Kernel, Partial, Reduction, Reference};
use tiled_tensor::{Element, View, ViewMut};
use tiled_testkit::conformance;

/// The reference on windows of channel blocks of eight.
#[derive(Debug)]
struct Blocked;

impl<T: Element> Backend<T> for Blocked {
    fn name(&self) -> String {
        "reference in blocks".to_owned()
    }
    fn block(&self, channels: usize) -> usize {
        if channels < 4 { 1 } else { 8 }
    }
    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
    ) {
        Reference.compute(kernel, packed, inputs, output, region);
    }
    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        Reference.reduce(reduction, params, inputs, share, partial);
    }
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
    check_elementwise: 45;
    check_norm: 16;
    check_resize: 30;
    check_pad: 24;
    check_loss: 12;
    check_reductions: 40;
}
