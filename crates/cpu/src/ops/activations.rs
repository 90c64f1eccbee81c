//! Activations beside those that [`super::elementwise`] has, and their derivatives.

use tiled_kernel::{Activation, Exponential};
use tiled_tensor::Element;

use super::function::{Binary, Unary, functions};
use super::{math, powers};

functions! {
    /// NaN stays, and the larger bound wins where they cross.
    Clamp(min, max): Unary |self, x| {
        let x = if x < self.min { self.min } else { x };
        if x > self.max { self.max } else { x }
    };
    /// An infinite bound is none: NaN, which nothing meets, stands for it.
    ClampBackward(min, max): Binary |self, g, y| {
        let g = if y <= self.min { T::ZERO } else { g };
        if y >= self.max { T::ZERO } else { g }
    };
    Threshold(threshold, value): Unary |self, x| if x <= self.threshold { self.value } else { x };
    ThresholdBackward(threshold): Binary |self, g, x| if x <= self.threshold { T::ZERO } else { g };

    Elu(high, low, rate): Unary |self, x| {
        let below = self.low * powers::exp_less_one::<T, FUSED>(x * self.rate);
        if x > T::ZERO { x * self.high } else { below }
    };
    SoftplusBackward(beta, threshold): Binary |self, g, x| {
        let z = x * self.beta;
        let slope = math::sigmoid::<T, FUSED>(z);
        if z > self.threshold { g } else { g * slope }
    };
    Softsign: Unary |self, x| x / (T::ONE + x.abs());
    SoftsignBackward: Binary |self, g, x| g / ((T::ONE + x.abs()) * (T::ONE + x.abs()));
    HardSigmoid: Unary |self, x| clamped(x + number(3.0), number(6.0)) / number(6.0);
    HardSigmoidBackward: Binary |self, g, x| {
        let g = if x <= number(-3.0) { T::ZERO } else { g / number(6.0) };
        if x >= number(3.0) { T::ZERO } else { g }
    };
    HardSwish: Unary |self, x| x * clamped(x + number(3.0), number(6.0)) / number(6.0);
    HardSwishBackward: Binary |self, g, x| {
        let between = g * (x / number(3.0) + number(0.5));
        let between = if x <= number(-3.0) { T::ZERO } else { between };
        // NaN passes the gradient
        if x < number(3.0) { between } else { g }
    };
    Mish: Unary |self, x| powers::mish::<T, FUSED>(x);
    MishBackward: Binary |self, g, x| g * powers::mish_slope::<T, FUSED>(x);
    LogSigmoid: Unary |self, x| T::from_f64(-powers::softplus::<FUSED>(-x.to_f64()));
    LogSigmoidBackward: Binary |self, g, x| g * math::sigmoid::<T, FUSED>(-x);
    Exp: Unary |self, x| math::exp::<T, FUSED>(x);
    Log: Unary |self, x| T::from_f64(powers::log::<FUSED>(x.to_f64()));
    Sqrt: Unary |self, x| x.sqrt();
    SqrtBackward: Binary |self, g, y| g / (y + y);
    Abs: Unary |self, x| x.abs();
    AbsBackward: Binary |self, g, x| {
        let below = if x < T::ZERO { -g } else { g * T::ZERO };
        if x > T::ZERO { g } else { below }
    };
    Neg: Unary |self, x| -x;
    NegBackward: Binary |self, g, _x| -g;
    Reciprocal: Unary |self, x| T::ONE / x;
    ReciprocalBackward: Binary |self, g, y| -(g * (y * y));
    /// Of a constant.
    NoGradient: Binary |self, _g, _x| T::ZERO;
}

impl<T: Element> ClampBackward<T> {
    pub(super) fn of(min: f64, max: f64) -> Self {
        let (min, max, none) = (T::from_f64(min), T::from_f64(max), T::from_f64(f64::NAN));
        let is_bound = |bound: T, infinity: f64| bound.to_f64() != infinity;
        Self {
            min: if is_bound(min, f64::NEG_INFINITY) { min } else { none },
            max: if is_bound(max, f64::INFINITY) { max } else { none },
        }
    }
}

impl<T: Element> Elu<T> {
    /// The constants of an activation that is one.
    pub(super) fn of(activation: Activation) -> Self {
        let Exponential { high, low, rate } =
            activation.exponential().expect("invariant: the activation is an exponential and a line");
        Self { high: T::from_f64(high), low: T::from_f64(low), rate: T::from_f64(rate) }
    }
}

/// The gradient of [`Elu`].
#[derive(Clone, Copy)]
pub(super) struct EluBackward<T>(pub(super) Elu<T>);

impl<T: Element> Binary<T> for EluBackward<T> {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, g: T, x: T) -> T {
        let Elu { high, low, rate } = self.0;
        let below = low * rate * math::exp::<T, FUSED>(x * rate);
        // NaN passes the gradient
        g * if x <= T::ZERO { below } else { high }
    }
}

/// `ln(1 + e^(β·x))/β`, in double.
#[derive(Clone, Copy)]
pub(super) struct Softplus {
    pub(super) beta: f64,
    pub(super) threshold: f64,
}

impl<T: Element> Unary<T> for Softplus {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, x: T) -> T {
        let z = x.to_f64() * self.beta;
        let bent = T::from_f64(powers::softplus::<FUSED>(z) / self.beta);
        if z > self.threshold { x } else { bent }
    }
}

/// `g·y·x^(y − 1)`.
#[derive(Clone, Copy)]
pub(super) struct PowerBackward<P> {
    /// y.
    pub(super) exponent: f64,
    /// The power with the exponent `y − 1`.
    pub(super) power: P,
}

impl<T: Element, P: Unary<f64>> Binary<T> for PowerBackward<P> {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, g: T, x: T) -> T {
        T::from_f64(g.to_f64() * (self.exponent * self.power.apply::<FUSED>(x.to_f64())))
    }
}

/// `min(max(x, 0), most)`.
#[inline(always)]
fn clamped<T: Element>(x: T, most: T) -> T {
    let x = if x < T::ZERO { T::ZERO } else { x };
    if x > most { most } else { x }
}

#[inline(always)]
fn number<T: Element>(value: f64) -> T {
    T::from_f64(value)
}
