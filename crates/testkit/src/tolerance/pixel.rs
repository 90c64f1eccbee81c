//! What is computed of each pixel over its channels: in `f64` whatever the type, and rounded once.
//!
//! So a result errs by ε of the type times itself, and by ε of `f64` times what its terms are made of, which bounds below take
//! from the largest numbers of the operands.

use tiled_kernel::{Kernel, LocalResponse, PixelNorm, Reference};
use tiled_tensor::{Element, Tensor};

use super::{count, largest, map_tensor, tiny};
use crate::conformance::case::Case;

/// The allowed difference of each element.
///
/// # Panics
/// Where the kernel is of another kind.
pub(super) fn bound<T: Element>(case: &Case<f64>) -> Tensor<f64> {
    let channels = count(case.output[1]);
    let first = largest(&case.inputs[0]);
    let second = case.inputs.get(1).map_or(0.0, largest);
    let terms = match case.kernel {
        // e^x errs by the rounding of x, and the sum by that of C terms of at most one
        Kernel::Softmax { .. } => (channels + 64.0) * (1.0 + first),
        // C terms of g·y, y at most one, or their sum times e^y
        Kernel::SoftmaxBackward { .. } => {
            (channels + 64.0) * (1.0 + channels) * first * (1.0 + second.min(1.0))
        }
        // x − μ errs by that of a mean of C terms; what is normalised is at most √C
        Kernel::PixelNorm(norm) => (channels + 16.0) * (steepest(norm) * first + channels.sqrt()),
        Kernel::PixelNormBackward(norm) => {
            let slope = steepest(norm);
            slope * first * (channels + 16.0) * (2.0 + channels + 2.0 * channels.sqrt() * second * slope)
        }
        Kernel::LocalResponse(local) => powers(local, first) * first * local.k.powf(-local.beta),
        Kernel::LocalResponseBackward(local) => {
            let own = first * local.k.powf(-local.beta);
            let shared = 2.0 * local.beta * local.alpha * second * second * first;
            2.0 * powers(local, second) * (own + shared * local.k.powf(-local.beta - 1.0))
        }
        kernel => panic!("{} is not of this kind", kernel.name()),
    };
    let (eps, own) = (T::EPSILON.to_f64(), terms * f64::EPSILON + tiny::<T>());
    map_tensor(&case.whole(&Reference), |value| eps * value.abs() + own)
}

/// The largest `1/√(σ² + ε)`.
fn steepest(norm: PixelNorm) -> f64 {
    1.0 / norm.eps.sqrt()
}

/// The relative error of a power of a sum, in ε: β times that of its logarithm, of a sum of squares of numbers up to `most`.
fn powers(local: LocalResponse, most: f64) -> f64 {
    let largest = local.k + local.alpha * most * most;
    let logarithm = largest.ln().abs().max(local.k.ln().abs());
    (local.beta + 1.0) * (count(local.size) + 8.0 + 4.0 * logarithm) + 16.0
}
