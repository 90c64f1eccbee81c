//! Functions of one element and their derivatives, in `f64`, rounded once.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use tiled_tensor::Element;

use crate::Activation;

/// The function of `x`.
pub(super) fn value<T: Element>(activation: Activation, x: T) -> T {
    T::from_f64(evaluate(activation, x.to_f64()))
}

/// `gy` times the derivative, where `saved` is what [`Activation::differentiates_from_output`] says.
pub(super) fn gradient<T: Element>(activation: Activation, gy: T, saved: T) -> T {
    T::from_f64(gy.to_f64() * derivative(activation, saved.to_f64()))
}

fn evaluate(activation: Activation, x: f64) -> f64 {
    match activation {
        // a comparison with NaN is false, so that NaN stays
        Activation::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::LeakyRelu { slope } => {
            if x > 0.0 {
                x
            } else {
                slope * x
            }
        }
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => x * normal_cdf(x),
        Activation::GeluTanh => 0.5 * x * (1.0 + tanh_argument(x).tanh()),
    }
}

fn derivative(activation: Activation, saved: f64) -> f64 {
    match activation {
        Activation::Relu => {
            if saved <= 0.0 {
                0.0
            } else {
                1.0
            }
        }
        Activation::LeakyRelu { slope } => {
            if saved > 0.0 {
                1.0
            } else {
                slope
            }
        }
        Activation::Sigmoid => saved * (1.0 - saved),
        Activation::Tanh => 1.0 - saved * saved,
        Activation::Silu => {
            let s = sigmoid(saved);
            s * (1.0 + saved * (1.0 - s))
        }
        Activation::Gelu => normal_cdf(saved) + saved * normal_pdf(saved),
        Activation::GeluTanh => {
            let t = tanh_argument(saved).tanh();
            let slope = (2.0 / PI).sqrt() * (1.0 + 3.0 * CUBIC * saved * saved);
            0.5 * (1.0 + t) + 0.5 * saved * (1.0 - t * t) * slope
        }
    }
}

const CUBIC: f64 = 0.044_715;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `Φ(x) = erfc(−x/√2)/2`, which keeps its digits where `1 + erf` would cancel.
fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

fn normal_pdf(x: f64) -> f64 {
    0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (-0.5 * x * x).exp()
}

fn tanh_argument(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + CUBIC * x * x * x)
}
