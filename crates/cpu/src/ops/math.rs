//! Functions of one number that vectorise: no branches, no tables, no calls.
//!
//! Errors against the true value, in units in the last place, checked by the tests below: `exp` 1, `ln` 1 (`f32`),
//! `tanh`, `sigmoid`, `silu` 3, `gelu` and `gelu_tanh` 1 for `f32` (computed in `f64`) and 4 for `f64`.
//!
//! A multiply-add is fused where `FUSED`, else two instructions: instruction sets may differ in the last bits.

use tiled_tensor::{DType, Element};

/// e to the power x.
#[inline(always)]
pub(crate) fn exp<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => widen(exp_f32::<FUSED>(narrow(x))),
        DType::F64 => T::from_f64(exp_f64::<FUSED>(x.to_f64())),
    }
}

/// The natural logarithm of a positive normal number.
#[inline(always)]
pub(crate) fn ln<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => widen(ln_f32::<FUSED>(narrow(x))),
        DType::F64 => x.ln(),
    }
}

/// The hyperbolic tangent.
///
/// Near zero an odd polynomial (Moshier, Cephes 2.8, `tanhf` and `tanh`, 2000), else `1 − 2/(e^(2|x|) + 1)`.
#[inline(always)]
pub(crate) fn tanh<T: Element, const FUSED: bool>(x: T) -> T {
    let size = x.abs();
    let two = T::ONE + T::ONE;
    let far = T::ONE - two / (exp::<T, FUSED>(size + size) + T::ONE);
    let far = if x < T::ZERO { -far } else { far };
    let square = x * x;
    let ratio = match T::DTYPE {
        DType::F32 => polynomial::<T, 5, FUSED>(
            square,
            [
                -5.704_988_727_45e-3,
                2.063_908_879_54e-2,
                -5.373_971_555_31e-2,
                1.333_144_220_36e-1,
                -3.333_328_194_22e-1,
            ],
        ),
        DType::F64 => {
            let numerator = [-9.643_991_794_250_522e-1, -9.928_772_310_019_185e1, -1.614_687_684_417_084_5e3];
            let denominator =
                [1.0, 1.128_116_784_916_329_3e2, 2.235_488_390_601_004_5e3, 4.844_063_053_251_255e3];
            polynomial::<T, 3, FUSED>(square, numerator) / polynomial::<T, 4, FUSED>(square, denominator)
        }
    };
    let near = fma::<T, FUSED>(square * ratio, x, x);
    if size < T::from_f64(0.625) { near } else { far }
}

/// `1/(1 + e^(−x))`, without overflow for large negative x.
#[inline(always)]
pub(crate) fn sigmoid<T: Element, const FUSED: bool>(x: T) -> T {
    let small = exp::<T, FUSED>(-x.abs());
    let numerator = if x < T::ZERO { small } else { T::ONE };
    numerator / (T::ONE + small)
}

/// `x·sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu<T: Element, const FUSED: bool>(x: T) -> T {
    x * sigmoid::<T, FUSED>(x)
}

/// The derivative of [`silu`]: `s + x·s·(1 − s)`.
#[inline(always)]
pub(crate) fn silu_slope<T: Element, const FUSED: bool>(x: T) -> T {
    let small = exp::<T, FUSED>(-x.abs());
    let inverse = T::ONE / (T::ONE + small);
    let sigmoid = if x < T::ZERO { small * inverse } else { inverse };
    fma::<T, FUSED>(x * inverse, small * inverse, sigmoid)
}

/// `x·Φ(x)`.
#[inline(always)]
pub(crate) fn gelu<T: Element, const FUSED: bool>(x: T) -> T {
    let wide = x.to_f64();
    T::from_f64(wide * normal::<T, FUSED>(wide).0)
}

/// The derivative of [`gelu`]: `Φ(x) + x·φ(x)`.
#[inline(always)]
pub(crate) fn gelu_slope<T: Element, const FUSED: bool>(x: T) -> T {
    let wide = x.to_f64();
    let (below, bell) = normal::<T, FUSED>(wide);
    const DENSITY: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 / 2.0;
    T::from_f64(fma::<f64, FUSED>(wide * bell, DENSITY, below))
}

/// `x·sigmoid(2u)` with `u = √(2/π)·(x + 0.044715·x³)`, which is `x·(1 + tanh u)/2` without cancellation.
#[inline(always)]
pub(crate) fn gelu_tanh<T: Element, const FUSED: bool>(x: T) -> T {
    let wide = x.to_f64();
    let argument = GELU_TANH_SLOPE * wide * fma::<f64, FUSED>(GELU_TANH_CUBIC, wide * wide, 1.0);
    T::from_f64(wide * sigmoid::<f64, FUSED>(argument))
}

/// The derivative of [`gelu_tanh`]: `s + x·s·(1 − s)·2u′` with `s = sigmoid(2u)`.
#[inline(always)]
pub(crate) fn gelu_tanh_slope<T: Element, const FUSED: bool>(x: T) -> T {
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

/// `2·√(2/π)`.
const GELU_TANH_SLOPE: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
const GELU_TANH_CUBIC: f64 = 0.044_715;

/// `Φ(x)` and `e^(−x²/2)`, to the precision that `T` needs.
///
/// `Φ(−|x|) = erfcx(z)·e^(−z²)/2` with `z = |x|/√2`; `(1 + 2z)·erfcx(z)/2` is a polynomial in
/// `t = (z − 3.75)/(z + 3.75)`, truncated from its Chebyshev series: relative error 6e-9 and 5e-18.
/// Source: Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x)exp(x²)erfc x in 0 ≤ x < ∞" (1981),
/// for the form; the coefficients are our own.
#[inline(always)]
fn normal<T: Element, const FUSED: bool>(x: f64) -> (f64, f64) {
    let square = x * x;
    let bell = exp_f64::<FUSED>(-0.5 * square);
    let bell = match T::DTYPE {
        DType::F32 => bell, // the square of a single is exact in double
        DType::F64 => {
            // past 2^500 the exponential is zero and the error of an infinite square is not a number
            let error = if square < 1e150 { x.mul_add(x, -square) } else { 0.0 };
            bell - bell * (0.5 * error)
        }
    };
    let size = x.abs() * std::f64::consts::FRAC_1_SQRT_2;
    let size = if size > 64.0 { 64.0 } else { size };
    let t = (size - 3.75) / (size + 3.75);
    let series = match T::DTYPE {
        DType::F32 => polynomial::<f64, 13, FUSED>(t, ERFCX_13),
        DType::F64 => polynomial::<f64, 25, FUSED>(t, ERFCX_25),
    };
    let tail = series * bell / fma::<f64, FUSED>(2.0, size, 1.0);
    (if x < 0.0 { tail } else { 1.0 - tail }, bell)
}

const ERFCX_13: [f64; 13] = [
    0.000_011_023_359_452_847_012,
    -0.000_112_058_373_372_080_1,
    0.000_165_083_728_136_140_32,
    0.000_837_956_108_990_565_6,
    -0.004_885_043_591_684_117,
    0.014_204_626_182_063_63,
    -0.029_342_720_246_815_554,
    0.046_145_384_795_651_89,
    -0.054_402_613_774_749_766,
    0.041_139_209_991_735_23,
    0.001_792_747_657_031_545,
    -0.070_120_329_160_693_21,
    0.618_756_315_016_349_7,
];

const ERFCX_25: [f64; 25] = [
    2.125_735_722_398_195e-10,
    1.555_716_690_489_962_6e-10,
    -2.586_995_107_005_654_8e-9,
    -1.872_105_040_481_009_3e-9,
    1.933_766_712_111_118_4e-8,
    1.163_175_435_442_956_2e-8,
    -1.293_342_535_807_794_3e-7,
    -2.860_911_530_161_204_4e-8,
    8.758_188_244_245_311e-7,
    -4.867_799_483_683_874e-7,
    -5.722_073_118_850_262e-6,
    0.000_011_192_119_577_541_115,
    0.000_025_824_549_446_341_202,
    -0.000_145_077_040_270_420_86,
    0.000_146_856_832_795_672_4,
    0.000_877_812_926_447_647_7,
    -0.004_873_289_779_014_638,
    0.014_181_138_709_478_202,
    -0.029_346_699_294_818_71,
    0.046_152_160_580_188_74,
    -0.054_401_965_070_874_43,
    0.041_138_369_245_072_604,
    0.001_792_707_742_732_214_7,
    -0.070_120_299_292_773_48,
    0.618_756_315_418_913_8,
];

/// Range reduction by ln 2 and a polynomial of degree 7 (Moshier, Cephes 2.8, `expf`, 2000).
#[inline(always)]
fn exp_f32<const FUSED: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5·2^23: the sum's low bits are the rounded integer
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = fma::<f32, FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let k = rounded - ROUND;
    let r = fma::<f32, FUSED>(k, -0.693_359_4, x);
    let r = fma::<f32, FUSED>(k, 2.121_944_4e-4, r);
    let p = polynomial::<f32, 6, FUSED>(
        r,
        [
            1.987_569_150_0e-4,
            1.398_199_950_7e-3,
            8.333_451_907_3e-3,
            4.166_579_589_4e-2,
            1.666_666_545_9e-1,
            5.000_000_120_1e-1,
        ],
    );
    let y = fma::<f32, FUSED>(p, r * r, r) + 1.0;
    // 2^k in two steps, so that results below the least normal number are rounded once
    let k = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = k >> 1;
    let power = |k: i32| f32::from_bits((k.wrapping_add(127) << 23).cast_unsigned());
    y * power(half) * power(k.wrapping_sub(half))
}

/// Range reduction by ln 2 (its two parts as in fdlibm) and the Taylor polynomial of degree 13.
#[inline(always)]
fn exp_f64<const FUSED: bool>(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5·2^52
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let rounded = fma::<f64, FUSED>(x, std::f64::consts::LOG2_E, ROUND);
    let k = rounded - ROUND;
    let r = fma::<f64, FUSED>(k, -6.931_471_803_691_238e-1, x);
    let r = fma::<f64, FUSED>(k, -1.908_214_929_270_587_7e-10, r);
    let p = polynomial::<f64, 12, FUSED>(
        r,
        [
            1.0 / 6_227_020_800.0,
            1.0 / 479_001_600.0,
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
        ],
    );
    let y = fma::<f64, FUSED>(p, r * r, r) + 1.0;
    let k = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = k >> 1;
    let power = |k: i64| f64::from_bits((k.wrapping_add(1023) << 52).cast_unsigned());
    y * power(half) * power(k.wrapping_sub(half))
}

/// Reduction to `[√½, √2)` and a polynomial of degree 8 (Moshier, Cephes 2.8, `logf`, 2000).
#[inline(always)]
fn ln_f32<const FUSED: bool>(x: f32) -> f32 {
    // the exponent field counts from √½ instead of 1
    const ORIGIN: u32 = 0x3f35_04f3;
    let shifted = x.to_bits().wrapping_sub(ORIGIN);
    let exponent = shifted.cast_signed() >> 23;
    let mantissa = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(ORIGIN));
    #[expect(clippy::cast_precision_loss, reason = "exponents lie within ±150")]
    let e = exponent as f32;
    let m = mantissa - 1.0;
    let square = m * m;
    let p = polynomial::<f32, 9, FUSED>(
        m,
        [
            7.037_683_629_2e-2,
            -1.151_461_031_0e-1,
            1.167_699_874_0e-1,
            -1.242_014_084_6e-1,
            1.424_932_278_7e-1,
            -1.666_805_766_5e-1,
            2.000_071_476_5e-1,
            -2.499_999_399_3e-1,
            3.333_333_117_4e-1,
        ],
    );
    let y = fma::<f32, FUSED>(e, -2.121_944_4e-4, m * square * p);
    let y = fma::<f32, FUSED>(-0.5, square, y);
    fma::<f32, FUSED>(e, 0.693_359_4, m + y)
}

/// `a·b + c`: one instruction where there is one, else two.
#[inline(always)]
pub(crate) fn fma<T: Element, const FUSED: bool>(a: T, b: T, c: T) -> T {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Horner's rule, the highest power first.
#[inline(always)]
fn polynomial<T: Element, const N: usize, const FUSED: bool>(x: T, coefficients: [f64; N]) -> T {
    let mut sum = T::from_f64(coefficients[0]);
    let mut i = 1;
    while i < N {
        sum = fma::<T, FUSED>(sum, x, T::from_f64(coefficients[i]));
        i += 1;
    }
    sum
}

/// The same value as `f32`, for `T = f32`: the round trip through `f64` is exact and compiles to nothing.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "called for f32 alone, where it is exact")]
fn narrow<T: Element>(x: T) -> f32 {
    x.to_f64() as f32
}

#[inline(always)]
fn widen<T: Element>(x: f32) -> T {
    T::from_f64(f64::from(x))
}
