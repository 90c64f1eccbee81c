//! The tape: rules, graph, changes in place, memory, errors.

mod differences;
mod errors;
mod graph;
mod in_place;
mod memory;
mod networks;
mod programs;
mod table;

use tiled_autograd::{Context, Tensor};
use tiled_kernel::Reference;

pub(crate) fn context() -> Context<f64> {
    Context::new(&Reference, 1).expect("a thread starts")
}

/// A leaf of values between −1 and 1 that depend on the seed.
pub(crate) fn leaf(context: &Context<f64>, seed: usize, shape: &[usize]) -> Tensor<f64> {
    let value = |i: usize| (1.0 + (i * 7 + seed * 13) as f64 * 0.618_033_988_7).fract().mul_add(1.8, -0.9);
    let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
    context.from_slice(shape, &values).and_then(Tensor::with_gradient).expect("a small tensor")
}
