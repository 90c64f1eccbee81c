//! Kernels that treat every element alone.

use std::hint::black_box;

use tiled_geometry::Region;
use tiled_kernel::Activation;
use tiled_tensor::{Element, PartMut, View};

use super::activations::{
    Abs, AbsBackward, Clamp, ClampBackward, Elu, EluBackward, Exp, HardSigmoid, HardSigmoidBackward,
    HardSwish, HardSwishBackward, Log, LogSigmoid, LogSigmoidBackward, Mish, MishBackward, Neg, NegBackward,
    NoGradient, PowerBackward, Reciprocal, ReciprocalBackward, Softplus, SoftplusBackward, Softsign,
    SoftsignBackward, Sqrt, SqrtBackward, Threshold, ThresholdBackward,
};
use super::arithmetic::Quotient;
use super::band::for_bands;
use super::function::{Aligned, Binary, Product, Unary, functions, map, map2};
use super::gather::zip_rows;
use super::powers::Power;
use super::stamp::per_isa;
use super::{gelu, math};
use crate::Isa;

/// Cost of an element where a polynomial is evaluated, in copies of an element.
const POLYNOMIAL: usize = 6;

per_isa! {
    /// `x[i] = f(x[i])`.
    ///
    /// Of a copy that the compiler knows nothing of: where a function leaves some values as they are, it would write the others alone, and AVX2 takes
    /// four times as long to write some lanes as to write all.
    fn map_in_place<T: Element, F: Unary<T>>(f: F, x: &mut [T]) {
        if VECTOR == 64 { map_all_in_place::<T, F, 128, FUSED>(f, x) } else { map_all_in_place::<T, F, 64, FUSED>(f, x) }
    }
}

/// The same, so many at once.
#[inline(always)]
fn map_all_in_place<T: Element, F: Unary<T>, const N: usize, const FUSED: bool>(f: F, x: &mut [T]) {
    let (chunks, rest) = x.as_chunks_mut::<N>();
    for chunk in chunks {
        let before = Aligned(*chunk);
        *chunk = f.apply_all::<N, FUSED>(&black_box(&before).0);
    }
    for x in rest {
        *x = f.apply::<FUSED>(*x);
    }
}

fn unary<T: Element, F: Unary<T>>(
    isa: Isa,
    f: F,
    weight: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, weight, |band| {
        zip_rows([x], band, |[x], out| map(isa, f, x, out));
    });
}

/// `out = f(a, b)` over two inputs.
pub(crate) fn binary<T: Element, F: Binary<T>>(
    isa: Isa,
    f: F,
    weight: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (a, b) = (&inputs[0], &inputs[1]);
    for_bands(output, region, weight, |band| {
        zip_rows([a, b], band, |[a, b], out| map2(isa, f, a, b, out));
    });
}

functions! {
    Relu: Unary |self, x| if x <= T::ZERO { T::ZERO } else { x };
    LeakyRelu(slope): Unary |self, x| if x > T::ZERO { x } else { x * self.slope };
    Sigmoid: Unary |self, x| math::sigmoid::<T, FUSED>(x);
    Tanh: Unary |self, x| math::tanh::<T, FUSED>(x);
    Gelu: Unary |self, x| gelu::gelu::<T, FUSED>(x);
    GeluTanh: Unary |self, x| gelu::gelu_tanh::<T, FUSED>(x);

    /// NaN passes the gradient, as in PyTorch.
    ReluBackward: Binary |self, g, y| if y <= T::ZERO { T::ZERO } else { g };
    LeakyReluBackward(slope): Binary |self, g, x| if x > T::ZERO { g } else { g * self.slope };
    SigmoidBackward: Binary |self, g, y| g * (y * (T::ONE - y));
    TanhBackward: Binary |self, g, y| g * (T::ONE - y * y);
    SiluBackward: Binary |self, g, x| g * math::silu_slope::<T, FUSED>(x);
    GeluBackward: Binary |self, g, x| g * gelu::gelu_slope::<T, FUSED>(x);
    GeluTanhBackward: Binary |self, g, x| g * gelu::gelu_tanh_slope::<T, FUSED>(x);

    DifferenceScaled(scale): Binary |self, a, b| (a - b) * self.scale;
}

/// `x·sigmoid(x)`.
#[derive(Clone, Copy)]
struct Silu;

impl<T: Element> Unary<T> for Silu {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, x: T) -> T {
        math::silu::<T, FUSED>(x)
    }

    #[inline(always)]
    fn apply_all<const N: usize, const FUSED: bool>(self, x: &[T; N]) -> [T; N] {
        math::silu_all::<T, N, FUSED>(x)
    }
}

/// Calls `$call!($function, weight)` with the function that an activation names.
macro_rules! with_activation {
    ($activation:expr, $T:ty, |$function:ident, $weight:ident| $body:expr) => {{
        macro_rules! each {
            ($value:expr, $cost:expr) => {{
                let ($function, $weight) = ($value, $cost);
                $body
            }};
        }
        match $activation {
            Activation::Relu => each!(Relu, 1),
            Activation::LeakyRelu { slope } => each!(LeakyRelu { slope: <$T>::from_f64(slope) }, 1),
            Activation::Sigmoid => each!(Sigmoid, POLYNOMIAL),
            Activation::Tanh => each!(Tanh, POLYNOMIAL),
            Activation::Silu => each!(Silu, POLYNOMIAL),
            Activation::Gelu => each!(Gelu, 2 * POLYNOMIAL),
            Activation::GeluTanh => each!(GeluTanh, 4 * POLYNOMIAL),
            Activation::Clamp { min, max } => {
                each!(Clamp { min: <$T>::from_f64(min), max: <$T>::from_f64(max) }, 1)
            }
            Activation::Threshold { threshold, value } => {
                each!(Threshold { threshold: <$T>::from_f64(threshold), value: <$T>::from_f64(value) }, 1)
            }
            Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
                each!(Elu::of($activation), POLYNOMIAL)
            }
            Activation::Softplus { beta, threshold } => each!(Softplus { beta, threshold }, 4 * POLYNOMIAL),
            Activation::Softsign => each!(Softsign, 2),
            Activation::HardSigmoid => each!(HardSigmoid, 2),
            Activation::HardSwish => each!(HardSwish, 2),
            Activation::Mish => each!(Mish, POLYNOMIAL),
            Activation::LogSigmoid => each!(LogSigmoid, 4 * POLYNOMIAL),
            Activation::Exp => each!(Exp, POLYNOMIAL),
            Activation::Log => each!(Log, 2 * POLYNOMIAL),
            Activation::Sqrt => each!(Sqrt, 2),
            Activation::Abs => each!(Abs, 1),
            Activation::Neg => each!(Neg, 1),
            Activation::Reciprocal => each!(Reciprocal, 2),
            Activation::Pow { exponent } => match Power::of(exponent) {
                Power::Whole(power) => each!(power, 4),
                Power::Real(power) => each!(power, 4 * POLYNOMIAL),
            },
        }
    }};
}

/// The activation of `[x]`.
pub(crate) fn activation<T: Element>(
    isa: Isa,
    activation: Activation,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    with_activation!(activation, T, |function, weight| unary(isa, function, weight, inputs, output, region));
}

/// Applies the activation to elements in place.
pub(crate) fn activate<T: Element>(isa: Isa, activation: Activation, values: &mut [T]) {
    with_activation!(activation, T, |function, _weight| map_in_place(isa, function, values));
}

/// Evaluates the body with the function whose value at `(gy, saved)` is the gradient of an activation.
macro_rules! with_activation_backward {
    ($activation:expr, $T:ty, |$function:ident, $weight:ident| $body:expr) => {{
        macro_rules! each {
            ($value:expr, $cost:expr) => {{
                let ($function, $weight) = ($value, $cost);
                $body
            }};
        }
        match $activation {
            Activation::Relu => each!(ReluBackward, 1),
            Activation::LeakyRelu { slope } => {
                let slope = <$T>::from_f64(slope);
                each!(LeakyReluBackward { slope }, 1);
            }
            Activation::Sigmoid => each!(SigmoidBackward, 1),
            Activation::Tanh => each!(TanhBackward, 1),
            Activation::Silu => each!(SiluBackward, POLYNOMIAL),
            Activation::Gelu => each!(GeluBackward, 2 * POLYNOMIAL),
            Activation::GeluTanh => each!(GeluTanhBackward, 4 * POLYNOMIAL),
            Activation::Clamp { min, max } => {
                each!(ClampBackward::of(min, max), 1);
            }
            Activation::Threshold { threshold, .. } => {
                let threshold = <$T>::from_f64(threshold);
                each!(ThresholdBackward { threshold }, 1);
            }
            Activation::Elu { .. } | Activation::Selu | Activation::Celu { .. } => {
                each!(EluBackward(Elu::of($activation)), POLYNOMIAL);
            }
            Activation::Softplus { beta, threshold } => {
                let (beta, threshold) = (<$T>::from_f64(beta), <$T>::from_f64(threshold));
                each!(SoftplusBackward { beta, threshold }, POLYNOMIAL);
            }
            Activation::Softsign => each!(SoftsignBackward, 2),
            Activation::HardSigmoid => each!(HardSigmoidBackward, 2),
            Activation::HardSwish => each!(HardSwishBackward, 2),
            Activation::Mish => each!(MishBackward, POLYNOMIAL),
            Activation::LogSigmoid => each!(LogSigmoidBackward, POLYNOMIAL),
            Activation::Exp => each!(Product, 1),
            Activation::Log => each!(Quotient, 2),
            Activation::Sqrt => each!(SqrtBackward, 2),
            Activation::Abs => each!(AbsBackward, 1),
            Activation::Neg => each!(NegBackward, 1),
            Activation::Reciprocal => each!(ReciprocalBackward, 1),
            Activation::Pow { exponent } => match Power::of(exponent - 1.0) {
                _ if exponent == 0.0 => each!(NoGradient, 1),
                Power::Whole(power) => {
                    each!(PowerBackward { exponent, power }, 4);
                }
                Power::Real(power) => {
                    let power = PowerBackward { exponent, power };
                    each!(power, 4 * POLYNOMIAL);
                }
            },
        }
    }};
}

/// `gy` times the derivative, of `[gy, saved]`.
pub(crate) fn activation_backward<T: Element>(
    isa: Isa,
    activation: Activation,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    with_activation_backward!(activation, T, |function, weight| {
        binary(isa, function, weight, inputs, output, region);
    });
}

/// The activation of each element of a slice.
pub(crate) fn apply<T: Element>(isa: Isa, activation: Activation, x: &[T], out: &mut [T]) {
    with_activation!(activation, T, |function, _weight| map(isa, function, x, out));
}

/// `gy` times the derivative for each element of slices.
pub(crate) fn apply_backward<T: Element>(
    isa: Isa,
    activation: Activation,
    gy: &[T],
    saved: &[T],
    out: &mut [T],
) {
    with_activation_backward!(activation, T, |function, _weight| map2(isa, function, gy, saved, out));
}
