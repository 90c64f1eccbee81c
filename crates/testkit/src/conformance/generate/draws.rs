//! Random sizes, values and functions, of which all computations are made.

use tiled_kernel::Activation;
use tiled_tensor::{Element, Tensor};

use super::super::rng::Rng;

/// Functions that may follow a convolution.
pub const ACTIVATIONS: [Activation; 11] = [
    Activation::Relu,
    Activation::LeakyRelu { slope: 0.01 },
    Activation::LeakyRelu { slope: -0.25 },
    Activation::Sigmoid,
    Activation::Tanh,
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Clamp { min: 0.0, max: 6.0 },
    Activation::HardSigmoid,
    Activation::HardSwish,
];

pub(super) fn some_activation(rng: &mut Rng) -> Option<Activation> {
    match rng.index(0, 9) {
        0..5 => None,
        5..7 => Some(Activation::Relu),
        _ => Some(rng.pick(&ACTIVATIONS)),
    }
}

/// Around the vector widths and register blocks of every instruction set.
pub(in crate::conformance) fn channels(rng: &mut Rng) -> usize {
    rng.pick(&[1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33])
}

pub(in crate::conformance) fn batch(rng: &mut Rng) -> usize {
    rng.pick(&[1, 1, 2])
}

/// More channels than a backend may keep of a few pixels, now and then, and rows of several runs of them.
pub(super) fn many_channels(rng: &mut Rng) -> [usize; 4] {
    [1, rng.index(230, 300), rng.index(1, 2), rng.index(1, 140)]
}

pub(in crate::conformance) fn plain_shape(rng: &mut Rng) -> [usize; 4] {
    [batch(rng), channels(rng), rng.index(1, 12), rng.pick(&[1, 2, 3, 7, 8, 15, 16, 17, 33])]
}

pub(in crate::conformance) fn shape(batch: usize, channels: usize, extents: [i64; 2]) -> [usize; 4] {
    let [height, width] = extents.map(|extent| usize::try_from(extent).expect("positive extents"));
    [batch, channels, height, width]
}

pub(super) fn numbers<T: Element>(len: usize, rng: &mut Rng) -> Vec<T> {
    (0..len).map(|_| T::from_f64(rng.uniform(-1.0, 1.0))).collect()
}

/// Numbers in `[−1, 1)`.
pub(in crate::conformance) fn tensor<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    from_fn(shape, || rng.uniform(-1.0, 1.0))
}

/// Numbers in `[−9, 9)`, zeros of both signs, and small and large ones.
pub(super) fn wide_tensor<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    from_fn(shape, || match rng.index(0, 19) {
        0 => 0.0,
        1 => -0.0,
        2 => rng.uniform(-1e-6, 1e-6),
        3 => rng.uniform(-30.0, 30.0),
        _ => rng.uniform(-9.0, 9.0),
    })
}

/// Few different numbers, so that windows have several maxima; sometimes NaN and infinities.
pub(in crate::conformance) fn with_ties<T: Element>(shape: [usize; 4], rng: &mut Rng) -> Tensor<T> {
    let special = rng.chance(30);
    from_fn(shape, || match rng.index(0, 40) {
        0 if special => f64::NAN,
        1 if special => f64::NEG_INFINITY,
        2 if special => f64::INFINITY,
        3 => -0.0,
        _ => rng.pick(&[-2.0, -1.0, -0.5, 0.0, 0.5]),
    })
}

pub(super) fn from_fn<T: Element>(shape: [usize; 4], mut f: impl FnMut() -> f64) -> Tensor<T> {
    Tensor::from_fn(shape, |_| T::from_f64(f())).expect("a small tensor")
}
