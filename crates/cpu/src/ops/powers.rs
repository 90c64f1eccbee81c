//! Logarithms, powers, and functions made of them and of exponentials: no branches, no tables, no calls.
//!
//! Errors against the true value, in units in the last place, checked by the tests below: `log` 1 in `f64`, `softplus` 3 in
//! `f64` where the result is a normal number; rounded to `f32`, both 1. `exp_less_one` 3, `mish` 4, of `f32` and `f64`. A whole
//! power n: |n| + 9 in `f64`, 1 rounded to `f32`. Another power y: `2 + 2·|y·ln x|` in `f64`, 1 rounded to `f32`.

use tiled_tensor::{DType, Element};

use super::function::Unary;
use super::math::{
    exp, exp_f64, fma, narrow, polynomial, power_f32, power_f64, reduced_f32, reduced_f64, widen,
};

/// The natural logarithm: NaN below zero.
///
/// `ln x = k·ln 2 + ln(1 + f)` with `1 + f` between `√½` and `√2` (Sun Microsystems, fdlibm 5.3, `e_log.c`, 1993).
#[inline(always)]
pub(crate) fn log<const FUSED: bool>(x: f64) -> f64 {
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const MAGIC: f64 = 4_503_599_627_370_496.0; // 2^52: the sum's low bits are a whole number
    let is_small = x < f64::MIN_POSITIVE;
    let scaled = if is_small { x * 18_014_398_509_481_984.0 } else { x };
    let bits = scaled.to_bits().wrapping_add(1.0_f64.to_bits().wrapping_sub(ROOT_HALF));
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT_HALF));
    let exponent = f64::from_bits(MAGIC.to_bits() | (bits >> 52)) - (MAGIC + 1023.0);
    let k = exponent - if is_small { 54.0 } else { 0.0 };
    let f = mantissa - 1.0;
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
    let square = s * s;
    let series = polynomial::<f64, 7, FUSED>(
        square,
        [
            0.147_981_986_051_165_86,
            0.153_138_376_992_093_73,
            0.181_835_721_616_180_5,
            0.222_221_984_321_497_84,
            0.285_714_287_436_623_9,
            0.399_999_999_994_094_2,
            0.666_666_666_666_673_5,
        ],
    );
    let tail = fma::<f64, FUSED>(s, fma::<f64, FUSED>(series, square, half_square), k * LN_2_LOW);
    let value = fma::<f64, FUSED>(k, LN_2_HIGH, f - (half_square - tail));
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    let value = if x < 0.0 { f64::NAN } else { value };
    // infinity and NaN are themselves
    if x < f64::INFINITY { value } else { x }
}

const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// `ln(1 + e^x)`, without overflow: `max(x, 0) + ln(1 + u)` with `u = e^(−|x|)`, whose sum with one is corrected for its rounding.
#[inline(always)]
pub(super) fn softplus<const FUSED: bool>(x: f64) -> f64 {
    let small = exp_f64::<FUSED>(-x.abs());
    let sum = 1.0 + small;
    let rest = small - (sum - 1.0);
    let above = if x < 0.0 { 0.0 } else { x };
    above + (log::<FUSED>(sum) + rest / sum)
}

/// `e^x − 1` for x at most zero; larger ones count as zero.
#[inline(always)]
pub(super) fn exp_less_one<T: Element, const FUSED: bool>(x: T) -> T {
    let x = if x > T::ZERO { T::ZERO } else { x };
    // below, it is −1 to the last bit
    match T::DTYPE {
        DType::F32 => {
            let x = narrow(x);
            let (k, above_one) = reduced_f32::<FUSED>(if x < -30.0 { -30.0 } else { x });
            let power = power_f32(k);
            widen(fma::<f32, FUSED>(power, above_one, power - 1.0))
        }
        DType::F64 => {
            let x = x.to_f64();
            let (k, above_one) = reduced_f64::<FUSED>(if x < -60.0 { -60.0 } else { x });
            let power = power_f64(k);
            T::from_f64(fma::<f64, FUSED>(power, above_one, power - 1.0))
        }
    }
}

/// `x·tanh(ln(1 + e^x))`, with `e = e^(−|x|)`: `x·(1 + 2e)/(1 + 2e + 2e²)` above zero, else `x·e·(e + 2)/(e·(e + 2) + 2)`.
#[inline(always)]
pub(super) fn mish<T: Element, const FUSED: bool>(x: T) -> T {
    x * mish_gate::<T, FUSED>(x).0
}

/// The derivative of [`mish`]: `t + x·(1 − t²)·sigmoid(x)` with `t = tanh(ln(1 + e^x))`.
#[inline(always)]
pub(super) fn mish_slope<T: Element, const FUSED: bool>(x: T) -> T {
    let (gate, small, divisor) = mish_gate::<T, FUSED>(x);
    let numerator = if x < T::ZERO { small } else { small * small };
    let product = x * (T::from_f64(4.0) * numerator * (T::ONE + small) / (divisor * divisor));
    // the exponential dies before x is infinite, but 0·∞ is no number
    gate + if small == T::ZERO { T::ZERO } else { product }
}

/// `tanh(ln(1 + e^x))`, `e^(−|x|)` and the divisor of the first.
#[inline(always)]
fn mish_gate<T: Element, const FUSED: bool>(x: T) -> (T, T, T) {
    let (small, two) = (exp::<T, FUSED>(-x.abs()), T::from_f64(2.0));
    let low = small * (small + two);
    let high = fma::<T, FUSED>(two, small, T::ONE);
    let (numerator, rest) = if x < T::ZERO { (low, two) } else { (high, two * small * small) };
    let divisor = numerator + rest;
    (numerator / divisor, small, divisor)
}

/// `x^y` by a constant y, in double.
#[derive(Clone, Copy)]
pub(super) enum Power {
    Whole(WholePower),
    Real(RealPower),
}

impl Power {
    pub(super) fn of(exponent: f64) -> Self {
        let size = exponent.abs();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number up to 31"
        )]
        if size <= 31.0 && size.fract() == 0.0 {
            return Self::Whole(WholePower { size: size as u32, inverts: exponent < 0.0 });
        }
        let is_whole = exponent.fract() == 0.0;
        Self::Real(RealPower { exponent, is_whole, is_odd: is_whole && (exponent * 0.5).fract() != 0.0 })
    }
}

/// By a whole number up to 31: squares and products.
#[derive(Clone, Copy)]
pub(super) struct WholePower {
    size: u32,
    inverts: bool,
}

impl<T: Element> Unary<T> for WholePower {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, x: T) -> T {
        let x = x.to_f64();
        let mut base = if self.inverts { 1.0 / x } else { x };
        let mut value = 1.0;
        let mut bit = 0;
        while bit < 5 {
            value *= if self.size >> bit & 1 == 1 { base } else { 1.0 };
            base *= base;
            bit += 1;
        }
        T::from_f64(value)
    }
}

/// By any other number: `e^(y·ln |x|)`.
#[derive(Clone, Copy)]
pub(super) struct RealPower {
    exponent: f64,
    is_whole: bool,
    is_odd: bool,
}

impl<T: Element> Unary<T> for RealPower {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, x: T) -> T {
        let x = x.to_f64();
        let size = x.abs();
        let value = exp_f64::<FUSED>(self.exponent * log::<FUSED>(size));
        let negative = if self.is_whole { -value } else { f64::NAN };
        let has_none = x < 0.0 && size < f64::INFINITY && !self.is_whole;
        let turns = x.is_sign_negative() && self.is_odd;
        T::from_f64(if has_none | turns { negative } else { value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance from the truth in units in the last place of the truth, as a single.
    fn ulps(value: f32, truth: f64) -> f64 {
        if f64::from(value) == truth {
            return 0.0;
        }
        let exponent = truth.abs().log2().floor().max(-126.0);
        (f64::from(value) - truth).abs() / (exponent - 23.0).exp2()
    }

    fn ulps_f64(value: f64, truth: f64) -> f64 {
        if value == truth {
            return 0.0;
        }
        (value - truth).abs() / (truth.abs().log2().floor().max(-1022.0) - 52.0).exp2()
    }

    /// Singles over all exponents of both signs.
    fn singles() -> impl Iterator<Item = f32> {
        (0..u32::MAX / 3001).map(|i| f32::from_bits(i * 3001)).filter(|x| x.is_finite())
    }

    /// Doubles over all exponents above zero, and many near one.
    fn doubles() -> impl Iterator<Item = f64> {
        let all = (1..200_000_u64).map(|i| f64::from_bits(i * 46_116_860_184_273)).filter(|x| x.is_finite());
        all.chain((1..40_000).map(|i| 0.5 + f64::from(i) / 23_457.0))
    }

    fn power<T: Element, const FUSED: bool>(exponent: f64, x: T) -> T {
        match Power::of(exponent) {
            Power::Whole(power) => power.apply::<FUSED>(x),
            Power::Real(power) => power.apply::<FUSED>(x),
        }
    }

    fn true_mish(x: f64) -> f64 {
        let e = (-x.abs()).exp();
        x * if x < 0.0 {
            e * (e + 2.0) / (e * (e + 2.0) + 2.0)
        } else {
            (1.0 + 2.0 * e) / (1.0 + 2.0 * e + 2.0 * e * e)
        }
    }

    #[test]
    fn doubles_are_within_the_stated_units_in_the_last_place() {
        fn check<const FUSED: bool>() {
            for x in doubles() {
                let error = ulps_f64(log::<FUSED>(x), x.ln());
                assert!(error <= 1.0, "log at {x:e}: {error} units");
            }
            for i in -70_000..=70_000 {
                let x = f64::from(i) / 100.0 + 1e-5;
                let truth = x.max(0.0) + (-x.abs()).exp().ln_1p();
                let error = ulps_f64(softplus::<FUSED>(x), truth);
                assert!(error <= 3.0, "softplus at {x}: {error} units");
                let (x, truth) = (-x.abs() / 7.0, (-x.abs() / 7.0).exp_m1());
                let error = ulps_f64(exp_less_one::<f64, FUSED>(x), truth);
                assert!(error <= 3.0, "exp_less_one at {x}: {error} units");
                let x = f64::from(i) / 1000.0 + 1e-5;
                let error = ulps_f64(mish::<f64, FUSED>(x), true_mish(x));
                assert!(error <= 4.0, "mish at {x}: {error} units");
            }
            for exponent in [-31.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 30.0, 31.0] {
                for i in 1..4000 {
                    let x = f64::from(i - 2000) / 311.0 + 1e-4;
                    let error = ulps_f64(power::<f64, FUSED>(exponent, x), x.powf(exponent));
                    let bound = f64::abs(exponent) + 9.0;
                    assert!(error <= bound, "{x}^{exponent}: {error} units, {bound} allowed");
                }
            }
            for exponent in [-33.0, -2.5, -0.5, 0.5, 0.75, 1.7, 32.0, 100.25] {
                for i in 1..4000 {
                    let x = f64::from(i) / 311.0;
                    let error = ulps_f64(power::<f64, FUSED>(exponent, x), x.powf(exponent));
                    let bound = 2.0 + 2.0 * (exponent * x.ln()).abs();
                    assert!(error <= bound, "{x}^{exponent}: {error} units, {bound} allowed");
                }
            }
        }
        check::<true>();
        check::<false>();
    }

    #[test]
    fn singles_are_within_the_stated_units_in_the_last_place() {
        fn check<const FUSED: bool>() {
            for x in singles() {
                let wide = f64::from(x);
                if x >= 0.0 {
                    let error = ulps(f32::from_f64(log::<FUSED>(wide)), wide.ln());
                    assert!(error <= 1.0, "log at {x:e}: {error} units");
                    for exponent in [-3.0, 2.0, 0.5, -1.5, 33.0] {
                        let truth = wide.powf(exponent);
                        if truth <= f64::from(f32::MAX) {
                            let error = ulps(power::<f32, FUSED>(exponent, x), truth);
                            assert!(error <= 1.0, "{x:e}^{exponent}: {error} units");
                        }
                    }
                } else {
                    let error = ulps(exp_less_one::<f32, FUSED>(x), wide.exp_m1());
                    assert!(error <= 3.0, "exp_less_one at {x:e}: {error} units");
                }
                let truth = wide.max(0.0) + (-wide.abs()).exp().ln_1p();
                let error = ulps(f32::from_f64(softplus::<FUSED>(wide)), truth);
                assert!(error <= 1.0, "softplus at {x:e}: {error} units");
                // below, the exponential is subnormal
                if x > -80.0 {
                    let error = ulps(mish::<f32, FUSED>(x), true_mish(wide));
                    assert!(error <= 4.0, "mish at {x:e}: {error} units");
                }
            }
        }
        check::<true>();
        check::<false>();
    }

    #[test]
    fn the_slope_of_mish_is_that_of_the_function() {
        for i in -4000..4000 {
            let x = f64::from(i) / 250.0;
            let slope = (true_mish(x + 1e-5) - true_mish(x - 1e-5)) / 2e-5;
            assert!((mish_slope::<f64, true>(x) - slope).abs() < 1e-9, "at {x}");
        }
    }

    #[test]
    fn limits_and_not_a_number_are_kept() {
        assert_eq!(log::<true>(0.0), f64::NEG_INFINITY);
        assert_eq!(log::<true>(-0.0), f64::NEG_INFINITY);
        assert_eq!(log::<true>(1.0), 0.0);
        assert_eq!(log::<true>(f64::INFINITY), f64::INFINITY);
        assert!(log::<true>(-1.0).is_nan() && log::<true>(f64::NEG_INFINITY).is_nan());
        assert_eq!(softplus::<true>(f64::NEG_INFINITY), 0.0);
        assert_eq!(softplus::<true>(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp_less_one::<f32, true>(f32::NEG_INFINITY), -1.0);
        assert_eq!(mish::<f32, true>(f32::INFINITY), f32::INFINITY);
        assert_eq!(mish_slope::<f32, true>(f32::INFINITY), 1.0);
        for (exponent, x) in [
            (2.0, -3.0),
            (-2.0, 0.0),
            (-3.0, -0.0),
            (0.0, f64::NAN),
            (0.5, -2.0),
            (2.5, 0.0),
            (-2.5, 0.0),
            (33.0, -1.5),
            (34.0, -1.5),
            (-33.0, -0.0),
            (2.5, f64::INFINITY),
            (2.5, f64::NEG_INFINITY),
            (-2.5, f64::INFINITY),
        ] {
            let (got, truth) = (power::<f64, true>(exponent, x), f64::powf(x, exponent));
            let is_close =
                got == truth || (got.is_nan() && truth.is_nan()) || (got / truth - 1.0).abs() < 1e-13;
            assert!(is_close, "{x}^{exponent} is {got}, must be {truth}");
        }
        assert!(log::<true>(f64::NAN).is_nan() && softplus::<true>(f64::NAN).is_nan());
        assert!(mish::<f32, true>(f32::NAN).is_nan() && mish_slope::<f32, true>(f32::NAN).is_nan());
        assert!(exp_less_one::<f32, true>(f32::NAN).is_nan() && power::<f32, true>(1.5, f32::NAN).is_nan());
    }
}
