//! Every kernel but convolution, on every instruction set, under the conformance suite.
//!
//! Beside the blocks that the backend asks for, the suite runs with others, also different ones for the windows
//! of one call: kernels must not rely on the choice.

use tiled_cpu::{CpuBackend, Isa};
use tiled_geometry::Region;
use tiled_kernel::{Backend, Kernel, Partial, Reduction};
use tiled_tensor::{Element, View, ViewMut};
use tiled_testkit::conformance;

const SEED: u64 = 20_240_917;

/// The backend with another choice of channel blocks.
#[derive(Debug)]
struct Blocked {
    backend: CpuBackend,
    block: fn(usize) -> usize,
}

impl<T: Element> Backend<T> for Blocked {
    fn name(&self) -> String {
        Backend::<T>::name(&self.backend)
    }

    fn block(&self, channels: usize) -> usize {
        (self.block)(channels)
    }

    fn compute(
        &self,
        kernel: &Kernel,
        packed: &[T],
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
    ) {
        self.backend.compute(kernel, packed, inputs, output, region);
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        self.backend.reduce(reduction, params, inputs, share, partial);
    }
}

/// Blocks of one, of a vector of each instruction set, and several in one call.
const BLOCKS: [fn(usize) -> usize; 5] =
    [|_| 1, |_| 4, |_| 8, |_| 16, |channels| [1, 16, 64, 8, 2, 4, 32][channels % 7]];

fn check<T: Element>(check: fn(&dyn Backend<T>, u64, usize), cases: usize) {
    for isa in Isa::ALL {
        let backend = match CpuBackend::with_isa(isa) {
            Ok(backend) => backend,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                continue;
            }
        };
        for block in BLOCKS {
            check(&Blocked { backend, block }, SEED, cases);
        }
    }
}

macro_rules! suite {
    ($($name:ident: $check:ident, $cases:literal;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn conform_in_f32_on_every_instruction_set() {
                check::<f32>(conformance::$check, $cases);
            }
            #[test]
            fn conform_in_f64_on_every_instruction_set() {
                check::<f64>(conformance::$check, $cases);
            }
        }
    )*};
}

suite! {
    pools: check_pool, 40;
    activations: check_activation, 20;
    elements: check_elementwise, 40;
    norms: check_norm, 20;
    resizes: check_resize, 30;
    paddings: check_pad, 20;
    losses: check_loss, 20;
    reductions: check_reductions, 30;
}
