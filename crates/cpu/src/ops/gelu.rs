//! GELU: the normal distribution, and its approximation by `tanh`.
//!
//! Errors are those stated in [`super::math`], whose tests check them.

use tiled_tensor::{DType, Element};

use super::math::{ROUND_F32, exp_f64, fma, narrow, polynomial, power_f32, remainders_f32, sigmoid, widen};

/// `x·Φ(x)`.
#[inline(always)]
pub(crate) fn gelu<T: Element, const FUSED: bool>(x: T) -> T {
    x * normal::<T, FUSED>(x).0
}

/// The derivative of [`gelu`]: `Φ(x) + x·φ(x)`.
#[inline(always)]
pub(crate) fn gelu_slope<T: Element, const FUSED: bool>(x: T) -> T {
    const DENSITY: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    let (below, bell) = normal::<T, FUSED>(x);
    fma::<T, FUSED>(x * bell, T::from_f64(DENSITY), below)
}

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

/// `Φ(x)` and `e^(−x²/2)`.
#[inline(always)]
fn normal<T: Element, const FUSED: bool>(x: T) -> (T, T) {
    match T::DTYPE {
        DType::F32 => {
            let (below, bell) = normal_f32::<FUSED>(narrow(x));
            (widen(below), widen(bell))
        }
        DType::F64 => {
            let (below, bell) = normal_f64::<FUSED>(x.to_f64());
            (T::from_f64(below), T::from_f64(bell))
        }
    }
}

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

/// `Φ(x)` and `e^(−x²/2)` in single precision.
///
/// `Φ(−a) = s·u·e^(−a²/2)` with `u = 1/(a + 2.5)`; s is a polynomial in u, for a up to 13.3, where Φ is zero: relative error 2e-8, the
/// coefficients our own. An exponent of −88 that is rounded makes its power err by 32 units, so what `a²` loses is added to what is left of it.
#[inline(always)]
fn normal_f32<const FUSED: bool>(x: f32) -> (f32, f32) {
    const FAR: f32 = 13.25; // the bits of 2^−127 are those of zero
    let size = x.abs();
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
    let ([k], [above_one]) = remainders_f32::<1, FUSED>(&[-0.5 * square], &[rounded], Some(&[lost]));
    let power = power_f32(k);
    let inverse = 1.0 / (size + 2.5);
    let t = fma::<f32, FUSED>(inverse, -5.939_85, 1.375_939_8);
    let scaled = two_chains::<10, FUSED>(t, SCALED_TAIL_10) * inverse;
    let tail = fma::<f32, FUSED>(scaled, above_one, scaled) * power;
    (if x < 0.0 { tail } else { 1.0 - tail }, (above_one + 1.0) * power)
}

const SCALED_TAIL_10: [f64; 10] = [
    -3.286_081_12e-5,
    -2.232_349_65e-5,
    0.000_279_288_506,
    0.000_570_047_356,
    -0.001_512_426_42,
    -0.007_169_621_07,
    0.011_346_126,
    0.088_733_516_6,
    -0.399_431_914,
    0.778_536_558,
];

/// The same of an even number of coefficients in two chains of half the length, of the odd and of the even powers: a long one waits for each of
/// its multiply-adds.
#[inline(always)]
fn two_chains<const N: usize, const FUSED: bool>(x: f32, coefficients: [f64; N]) -> f32 {
    const { assert!(N & 1 == 0, "the highest power is odd") };
    let square = x * x;
    let [mut odd, mut even] = [f32::from_f64(coefficients[0]), f32::from_f64(coefficients[1])];
    let mut i = 2;
    while i < N {
        odd = fma::<f32, FUSED>(odd, square, f32::from_f64(coefficients[i]));
        even = fma::<f32, FUSED>(even, square, f32::from_f64(coefficients[i + 1]));
        i += 2;
    }
    fma::<f32, FUSED>(odd, x, even)
}
