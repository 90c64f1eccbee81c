//! Functions of one element and their derivatives, in `f64`, rounded once.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

use tiled_tensor::Element;

use crate::{Activation, Exponential};

/// The function of `x`.
pub(crate) fn value<T: Element>(activation: Activation, x: T) -> T {
    T::from_f64(evaluate(rounded::<T>(activation), x.to_f64()))
}

/// `gy` times the derivative, where `saved` is what [`Activation::differentiates_from_output`] says.
pub(crate) fn gradient<T: Element>(activation: Activation, gy: T, saved: T) -> T {
    let (activation, gy, saved) = (rounded::<T>(activation), gy.to_f64(), saved.to_f64());
    T::from_f64(match slope(activation, saved) {
        Slope::None => 0.0,
        Slope::Of(slope) => gy * slope,
    })
}

/// A derivative. Where there is none, no gradient passes, not even one that is infinite.
enum Slope {
    None,
    Of(f64),
}

/// The function with the bounds that values of the type are compared with.
fn rounded<T: Element>(activation: Activation) -> Activation {
    let round = |bound: f64| T::from_f64(bound).to_f64();
    match activation {
        Activation::Clamp { min, max } => Activation::Clamp { min: round(min), max: round(max) },
        Activation::Threshold { threshold, value } => {
            Activation::Threshold { threshold: round(threshold), value }
        }
        other => other,
    }
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
        Activation::Clamp { min, max } => clamp(x, min, max),
        Activation::Threshold { threshold, value } => {
            if x <= threshold {
                value
            } else {
                x
            }
        }
        Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
            let Exponential { high, low, rate } = parts(activation);
            if x > 0.0 { high * x } else { low * (rate * x).exp_m1() }
        }
        Activation::Softplus { beta, threshold } => {
            if beta * x > threshold {
                x
            } else {
                softplus(beta * x) / beta
            }
        }
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::HardSigmoid => clamp(x + 3.0, 0.0, 6.0) / 6.0,
        Activation::HardSwish => x * clamp(x + 3.0, 0.0, 6.0) / 6.0,
        Activation::Mish => x * softplus(x).tanh(),
        Activation::LogSigmoid => -softplus(-x),
        Activation::Exp => x.exp(),
        Activation::Log => x.ln(),
        Activation::Sqrt => x.sqrt(),
        Activation::Abs => x.abs(),
        Activation::Neg => -x,
        Activation::Reciprocal => 1.0 / x,
        Activation::Pow { exponent } => x.powf(exponent),
    }
}

fn slope(activation: Activation, saved: f64) -> Slope {
    let is_shut = match activation {
        // an infinite bound is none
        Activation::Clamp { min, max } => {
            saved <= min && min > f64::NEG_INFINITY || saved >= max && max < f64::INFINITY
        }
        Activation::Threshold { threshold, .. } => saved <= threshold,
        Activation::HardSigmoid => saved <= -3.0 || saved >= 3.0,
        Activation::HardSwish => saved <= -3.0,
        Activation::Pow { exponent } => exponent == 0.0,
        _ => false,
    };
    if is_shut { Slope::None } else { Slope::Of(derivative(activation, saved)) }
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
            // at infinity the second term is its limit: 0·∞ is no number
            let bell = 1.0 - t * t;
            0.5 * (1.0 + t) + if bell == 0.0 { 0.0 } else { 0.5 * saved * bell * slope }
        }
        Activation::Clamp { .. } | Activation::Threshold { .. } => 1.0,
        Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
            let Exponential { high, low, rate } = parts(activation);
            if saved <= 0.0 { low * rate * (rate * saved).exp() } else { high }
        }
        Activation::Softplus { beta, threshold } => {
            if beta * saved > threshold {
                1.0
            } else {
                sigmoid(beta * saved)
            }
        }
        Activation::Softsign => (1.0 + saved.abs()).powi(-2),
        Activation::HardSigmoid => 1.0 / 6.0,
        Activation::HardSwish => {
            if saved < 3.0 {
                saved / 3.0 + 0.5
            } else {
                1.0
            }
        }
        Activation::Mish => {
            let t = softplus(saved).tanh();
            let bell = (1.0 - t * t) * sigmoid(saved);
            t + if bell == 0.0 { 0.0 } else { saved * bell }
        }
        Activation::LogSigmoid => sigmoid(-saved),
        Activation::Exp => saved,
        Activation::Log => 1.0 / saved,
        Activation::Sqrt => 0.5 / saved,
        Activation::Abs => {
            if saved == 0.0 || saved.is_nan() {
                0.0
            } else {
                saved.signum()
            }
        }
        Activation::Neg => -1.0,
        Activation::Reciprocal => -saved * saved,
        Activation::Pow { exponent } => exponent * saved.powf(exponent - 1.0),
    }
}

fn parts(activation: Activation) -> Exponential {
    activation.exponential().expect("invariant: it is one of those that are made of one")
}

/// NaN stays, and the larger bound wins where they cross.
fn clamp(x: f64, min: f64, max: f64) -> f64 {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

/// `ln(1 + e^x)`, without overflow.
fn softplus(x: f64) -> f64 {
    let above = if x > 0.0 { x } else { 0.0 };
    if x.is_nan() { x } else { above + (-x.abs()).exp().ln_1p() }
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
