//! GELU: the normal distribution, and its approximation by `tanh`.
//!
//! Errors are those stated in [`super::math`], whose tests check them.

use tiled_tensor::{DType, Element};

use super::math::{ROUND_F32, exp_f64, fma, narrow, polynomial, power_f32, sigmoid, widen};

/// `x·Φ(x)`.
#[inline(always)]
pub(crate) fn gelu<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => widen(gelu_f32::<FUSED>(narrow(x))),
        DType::F64 => {
            let x = x.to_f64();
            T::from_f64(x * normal_f64::<FUSED>(x).0)
        }
    }
}

/// The derivative of [`gelu`]: `Φ(x) + x·φ(x)`.
#[inline(always)]
pub(crate) fn gelu_slope<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => widen(gelu_slope_f32::<FUSED>(narrow(x))),
        DType::F64 => {
            let x = x.to_f64();
            let (below, bell) = normal_f64::<FUSED>(x);
            T::from_f64(fma::<f64, FUSED>(x * bell, DENSITY, below))
        }
    }
}

/// `1/√(2π)`.
const DENSITY: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;

/// `x·sigmoid(2u)` with `u = √(2/π)·(x + 0.044715·x³)`, which is `x·(1 + tanh u)/2` without cancellation.
#[inline(always)]
pub(crate) fn gelu_tanh<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => T::from_f64(x.to_f64() / (1.0 + falling_power::<FUSED>(bounded(x, -21.16)))),
        DType::F64 => {
            let wide = x.to_f64();
            let argument = GELU_TANH_SLOPE * wide * fma::<f64, FUSED>(GELU_TANH_CUBIC, wide * wide, 1.0);
            T::from_f64(wide * sigmoid::<f64, FUSED>(argument))
        }
    }
}

/// The derivative of [`gelu_tanh`]: `s + x·s·(1 − s)·2u′` with `s = sigmoid(2u)`.
#[inline(always)]
pub(crate) fn gelu_tanh_slope<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => {
            let x = bounded(x, -20.0);
            let slope = GELU_TANH_SLOPE * fma::<f64, FUSED>(3.0 * GELU_TANH_CUBIC, x * x, 1.0);
            let power = falling_power::<FUSED>(x);
            let sigmoid = 1.0 / (1.0 + power);
            // s·(1 − s) is s²·e^(−2u)
            T::from_f64(fma::<f64, FUSED>(x * slope, power * sigmoid * sigmoid, sigmoid))
        }
        DType::F64 => {
            let wide = x.to_f64();
            let square = wide * wide;
            let argument = GELU_TANH_SLOPE * wide * fma::<f64, FUSED>(GELU_TANH_CUBIC, square, 1.0);
            let slope = GELU_TANH_SLOPE * fma::<f64, FUSED>(3.0 * GELU_TANH_CUBIC, square, 1.0);
            let small = exp_f64::<FUSED>(-argument.abs());
            let inverse = 1.0 / (1.0 + small);
            let sigmoid = if wide < 0.0 { small * inverse } else { inverse };
            // the exponential dies before x·u′ overflows, but 0·∞ would not
            let product = if small == 0.0 { 0.0 } else { wide * slope * (small * inverse * inverse) };
            T::from_f64(sigmoid + product)
        }
    }
}

/// A value of `f32`, or 20 and `least` where it is past them: there its GELU is x and zero, as are one and zero the slope. Of −21.16 the power is
/// infinite, so that −∞ gives not a number, as in PyTorch.
#[inline(always)]
fn bounded<T: Element>(x: T, least: f32) -> f64 {
    let x = narrow(x);
    let x = if x < least { least } else { x };
    f64::from(if x > 20.0 { 20.0 } else { x })
}

/// `e^(−2u)` of a [`bounded`] x, off by 2.6e-9 of it.
///
/// A power of two: its polynomial is that of [`super::power_below`] with the powers of ln 2 in the coefficients.
#[inline(always)]
fn falling_power<const FUSED: bool>(x: f64) -> f64 {
    const SLOPE: f64 = -GELU_TANH_SLOPE * std::f64::consts::LOG2_E;
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5·2^52: the sum's low bits are the rounded integer
    let exponent = x * fma::<f64, FUSED>(SLOPE * GELU_TANH_CUBIC, x * x, SLOPE);
    let rounded = exponent + ROUND;
    let power = polynomial::<f64, 7, FUSED>(
        exponent - (rounded - ROUND),
        [
            0.000_155_947_173_177_380_72,
            0.001_340_665_916_413_354_7,
            0.009_617_692_792_759_041,
            0.055_503_105_091_003_94,
            0.240_226_527_841_905_3,
            0.693_147_214_989_557_2,
            1.0,
        ],
    );
    power * f64::from_bits((rounded.to_bits() << 52).wrapping_add(1023 << 52))
}

/// `2·√(2/π)`.
const GELU_TANH_SLOPE: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const GELU_TANH_CUBIC: f64 = 0.044_715;

/// `Φ(x)` and `e^(−x²/2)` in double precision.
///
/// `Φ(−|x|) = erfcx(z)·e^(−z²)/2` with `z = |x|/√2`; `(1 + 2z)·erfcx(z)/2` is a polynomial in
/// `t = (z − 3.75)/(z + 3.75)`, truncated from its Chebyshev series: relative error 5e-18.
/// Source: Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x)exp(x²)erfc x in 0 ≤ x < ∞" (1981),
/// for the form; the coefficients are our own.
#[inline(always)]
fn normal_f64<const FUSED: bool>(x: f64) -> (f64, f64) {
    let square = x * x;
    let bell = exp_f64::<FUSED>(-0.5 * square);
    // past 2^500 the exponential is zero and the error of an infinite square is not a number
    let error = if square < 1e150 { x.mul_add(x, -square) } else { 0.0 };
    let bell = bell - bell * (0.5 * error);
    let size = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    let size = if size > 64.0 { 64.0 } else { size };
    // one division for both quotients
    let (below, denominator) = (size + 3.75, fma::<f64, FUSED>(2.0, size, 1.0));
    let inverse = 1.0 / (below * denominator);
    let t = (size - 3.75) * (denominator * inverse);
    let tail = polynomial::<f64, 25, FUSED>(t, ERFCX_25) * bell * (below * inverse);
    (if x < 0.0 { tail } else { 1.0 - tail }, bell)
}

const ERFCX_25: [f64; 25] = [
    2.125_735_722_398_195e-10,
    1.555_716_690_489_962_6e-10,
    -2.586_995_107_005_654_8e-9,
    -1.872_105_040_481_009e-9,
    1.933_766_712_111_118_4e-8,
    1.163_175_435_442_956_2e-8,
    -1.293_342_535_807_794_3e-7,
    -2.860_911_530_161_204_4e-8,
    8.758_188_244_245_311e-7,
    -4.867_799_483_683_874e-7,
    -5.722_073_118_850_262e-6,
    1.119_211_957_754_111_5e-5,
    2.582_454_944_634_120_3e-5,
    -0.000_145_077_040_270_420_86,
    0.000_146_856_832_795_672_4,
    0.000_877_812_926_447_647_7,
    -0.004_873_289_779_014_638,
    0.014_181_138_709_478_202,
    -0.029_346_699_294_818_71,
    0.046_152_160_580_188_74,
    -0.054_401_965_070_874_43,
    0.041_138_369_245_072_6,
    0.001_792_707_742_732_214_7,
    -0.070_120_299_292_773_48,
    0.618_756_315_418_913_8,
];

/// `max(x, 0) − |x|·Φ(−|x|)`, which is `x·Φ(x)`.
#[inline(always)]
fn gelu_f32<const FUSED: bool>(x: f32) -> f32 {
    // +∞ is far, so that nothing is taken from it; −∞ times zero is not a number, as in PyTorch
    let size = (if x > FAR { FAR } else { x }).abs();
    let Tail { ratio, above_one, power } = tail_f32::<FUSED>(size);
    let scaled = size * ratio;
    let scaled = fma::<f32, FUSED>(scaled, above_one, scaled);
    fma::<f32, FUSED>(-scaled, power, if x < 0.0 { 0.0 } else { x })
}

/// `Φ(x) + x·φ(x)`.
#[inline(always)]
fn gelu_slope_f32<const FUSED: bool>(x: f32) -> f32 {
    let Tail { ratio, above_one, power } = tail_f32::<FUSED>(x.abs());
    let [ratio, step] = if x < 0.0 { [ratio, 0.0] } else { [-ratio, 1.0] };
    let factor = fma::<f32, FUSED>(x, f32::from_f64(DENSITY), ratio);
    fma::<f32, FUSED>(fma::<f32, FUSED>(factor, above_one, factor), power, step)
}

/// From here on Φ(−a) is zero in single precision: the bits of 2^−127 are those of zero.
const FAR: f32 = 13.25;

/// `Φ(−a) = ratio·(1 + above_one)·power`, without the ratio `e^(−a²/2)`.
struct Tail {
    ratio: f32,
    above_one: f32,
    /// A power of two.
    power: f32,
}

/// The tail of the normal distribution in single precision, of a size.
///
/// `Φ(−a)·e^(a²/2)` is a quotient of two polynomials up to [`FAR`], off by 5e-9 of it, and `e^(r/2)` a polynomial within ±ln 2, off by 2e-9, the coefficients
/// our own. An exponent of −88 that is rounded makes its power err by 32 units, so what `a²` loses is taken from what is left of it.
#[inline(always)]
fn tail_f32<const FUSED: bool>(size: f32) -> Tail {
    let size = if size > FAR { FAR } else { size };
    let square = size * size;
    let lost = if FUSED {
        size.mul_add(size, -square)
    } else {
        // the product of 12 bits by 12 is exact
        let high = f32::from_bits(size.to_bits() & 0xffff_f000);
        let low = size - high;
        (high * high - square + 2.0 * high * low) + low * low
    };
    let rounded = fma::<f32, FUSED>(square, -0.5 * std::f32::consts::LOG2_E, ROUND_F32);
    let k = rounded - ROUND_F32;
    // 2·ln 2 in two parts
    let r = fma::<f32, FUSED>(k, -1.386_718_8, -square);
    let r = fma::<f32, FUSED>(k, 4.243_888_9e-4, r) - lost;
    let above_one = r * polynomial::<f32, 6, FUSED>(
        r,
        [2.161_990_89e-5, 0.000_261_715_577, 0.002_604_264_49, 0.020_833_023, 0.124_999_98, 0.500_000_018],
    );
    // not Horner's rule: it rounds once more for each power, and those of a size up to 13 are not small
    let pair = |high: f64, low: f64| fma::<f32, FUSED>(size, f32::from_f64(high), f32::from_f64(low));
    let join = |high: f32, low: f32| fma::<f32, FUSED>(square, high, low);
    let above = join(join(0.004_015_946_8, pair(0.039_955_407_4, 0.181_221_098)), pair(0.435_570_061, 0.5));
    let below = join(pair(0.010_066_340_7, 0.100_160_778), pair(0.464_154_243, 1.194_127_44));
    let below = join(below, pair(1.669_025_06, 1.0));
    Tail {
        ratio: above / below,
        above_one,
        power: power_f32(rounded.to_bits().wrapping_sub(ROUND_F32.to_bits()).cast_signed()),
    }
}
