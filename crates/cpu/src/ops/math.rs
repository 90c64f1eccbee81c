//! Functions of one number that vectorise: no branches, no tables, no calls.
//!
//! Errors against the true value, in units in the last place, checked by the tests below: `exp` 1,
//! `tanh`, `sigmoid`, `silu` 3, `gelu` 6 for `f32` and 4 for `f64`, its tanh form 1 for `f32` (computed in `f64`).
//!
//! Where the sigmoid is below the least normal number, `silu` errs by up to `|x|` of its units instead, and where `Φ` is, `gelu` of `f32` by up
//! to the least normal number.
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
                0.020_639_088_795_4,
                -0.053_739_715_553_1,
                0.133_314_422_036,
                -0.333_332_819_422,
            ],
        ),
        DType::F64 => {
            let numerator = [-0.964_399_179_425_052_2, -99.287_723_100_191_85, -1_614.687_684_417_084_5];
            let denominator = [1.0, 112.811_678_491_632_93, 2_235.488_390_601_004_5, 4_844.063_053_251_255];
            polynomial::<T, 3, FUSED>(square, numerator) / polynomial::<T, 4, FUSED>(square, denominator)
        }
    };
    let near = fma::<T, FUSED>(square * ratio, x, x);
    if size < T::from_f64(0.625) { near } else { far }
}

/// `1/(1 + e^(−x))`, without overflow for large negative x.
#[inline(always)]
pub(crate) fn sigmoid<T: Element, const FUSED: bool>(x: T) -> T {
    match T::DTYPE {
        DType::F32 => widen(sigmoids_f32::<1, FUSED>(&[narrow(x)])[0]),
        DType::F64 => {
            let small = exp::<T, FUSED>(-x.abs());
            let numerator = if x < T::ZERO { small } else { T::ONE };
            numerator / (T::ONE + small)
        }
    }
}

/// `x·sigmoid(x)` of many values at once, a step of all before the next one.
#[inline(always)]
pub(crate) fn silu_all<T: Element, const N: usize, const FUSED: bool>(x: &[T; N]) -> [T; N] {
    match T::DTYPE {
        DType::F32 => {
            let sigmoids = sigmoids_f32::<N, FUSED>(&each(|i| narrow(x[i])));
            each(|i| x[i] * widen::<T>(sigmoids[i]))
        }
        DType::F64 => each(|i| silu::<T, FUSED>(x[i])),
    }
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

/// Range reduction by ln 2 and a polynomial of degree 7 (Moshier, Cephes 2.8, `expf`, 2000).
#[inline(always)]
fn exp_f32<const FUSED: bool>(x: f32) -> f32 {
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (k, above_one) = reduced_f32::<FUSED>(x);
    let y = above_one + 1.0;
    // 2^k in two steps, so that results below the least normal number are rounded once
    let half = k >> 1;
    y * power_f32(half) * power_f32(k.wrapping_sub(half))
}

/// `2^−24/(2^−24 + 2^−24·e^(−x))`: so scaled, the exponential of every x whose sigmoid is not zero is a normal number, and `2^k` takes one
/// step where [`exp_f32`] takes two. Above 70 it is far below half a unit of one.
///
/// Nothing has `−x` but the multiply-adds, which take it for nothing. A step of a value waits for the one before it, longer than a CPU looks ahead
/// for others to do: so each step is done for all values.
#[inline(always)]
fn sigmoids_f32<const N: usize, const FUSED: bool>(x: &[f32; N]) -> [f32; N] {
    const SCALE: f32 = 1.0 / 16_777_216.0;
    let x: [f32; N] = each(|i| {
        let x = if x[i] < -104.0 { -104.0 } else { x[i] };
        if x > 70.0 { 70.0 } else { x }
    });
    let rounded: [f32; N] = each(|i| fma::<f32, FUSED>(x[i], -std::f32::consts::LOG2_E, ROUND_F32));
    let (k, above_one) = remainders_f32::<N, FUSED>(&each(|i| -x[i]), &rounded, None);
    each(|i| SCALE / fma::<f32, FUSED>(above_one[i] + 1.0, power_f32(k[i].wrapping_sub(24)), SCALE))
}

/// `f` of each index. Unlike [`std::array::from_fn`] it is a loop that vectorises.
#[inline(always)]
fn each<T: Copy + Default, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut values = [T::default(); N];
    for (i, value) in values.iter_mut().enumerate() {
        *value = f(i);
    }
    values
}

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

/// k and `e^r − 1` where `x = k·ln 2 + r`, for x between −104 and 89.
#[inline(always)]
pub(super) fn reduced_f32<const FUSED: bool>(x: f32) -> (i32, f32) {
    let rounded = fma::<f32, FUSED>(x, std::f32::consts::LOG2_E, ROUND_F32);
    let ([k], [above_one]) = remainders_f32::<1, FUSED>(&[x], &[rounded], None);
    (k, above_one)
}

/// `1.5·2^23`: the low bits of a sum with it are the rounded integer.
const ROUND_F32: f32 = 12_582_912.0;

/// The same of many values where `x/ln 2 + 1.5·2^23` is known, of `x − rest/2`, whose second part is below half a unit of x.
#[inline(always)]
fn remainders_f32<const N: usize, const FUSED: bool>(
    x: &[f32; N],
    rounded: &[f32; N],
    rest: Option<&[f32; N]>,
) -> ([i32; N], [f32; N]) {
    const COEFFICIENTS: [f32; 6] =
        [0.000_198_756_91, 1.398_199_9e-3, 8.333_452e-3, 0.041_665_796, 0.166_666_66, 0.5];
    let k: [f32; N] = each(|i| rounded[i] - ROUND_F32);
    let mut r: [f32; N] = each(|i| fma::<f32, FUSED>(k[i], -0.693_359_4, x[i]));
    r = each(|i| fma::<f32, FUSED>(k[i], 2.121_944_4e-4, r[i]));
    if let Some(rest) = rest {
        r = each(|i| fma::<f32, FUSED>(rest[i], -0.5, r[i]));
    }
    let mut p = [COEFFICIENTS[0]; N];
    for coefficient in &COEFFICIENTS[1..] {
        p = each(|i| fma::<f32, FUSED>(p[i], r[i], *coefficient));
    }
    let k = each(|i| rounded[i].to_bits().wrapping_sub(ROUND_F32.to_bits()).cast_signed());
    (k, each(|i| fma::<f32, FUSED>(p[i], r[i] * r[i], r[i])))
}

/// `2^k`, a normal number.
#[inline(always)]
pub(super) fn power_f32(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) << 23).cast_unsigned())
}

/// Range reduction by ln 2 (its two parts as in fdlibm) and the Taylor polynomial of degree 13.
#[inline(always)]
pub(super) fn exp_f64<const FUSED: bool>(x: f64) -> f64 {
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let (k, above_one) = reduced_f64::<FUSED>(x);
    let y = above_one + 1.0;
    let half = k >> 1;
    y * power_f64(half) * power_f64(k.wrapping_sub(half))
}

/// k and `e^r − 1` where `x = k·ln 2 + r`, for x between −746 and 710.
#[inline(always)]
pub(super) fn reduced_f64<const FUSED: bool>(x: f64) -> (i64, f64) {
    let (k, r) = remainder_f64::<FUSED>(x);
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
    (k, fma::<f64, FUSED>(p, r * r, r))
}

/// k and r where `x = k·ln 2 + r`, of which ln 2 has two parts.
#[inline(always)]
fn remainder_f64<const FUSED: bool>(x: f64) -> (i64, f64) {
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5·2^52: the sum's low bits are the rounded integer
    let rounded = fma::<f64, FUSED>(x, std::f64::consts::LOG2_E, ROUND);
    let k = rounded - ROUND;
    let r = fma::<f64, FUSED>(k, -0.693_147_180_369_123_8, x);
    let r = fma::<f64, FUSED>(k, -1.908_214_929_270_587_7e-10, r);
    (rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed(), r)
}

/// `2^k`, a normal number.
#[inline(always)]
pub(super) fn power_f64(k: i64) -> f64 {
    f64::from_bits((k.wrapping_add(1023) << 52).cast_unsigned())
}

/// `x^y` for x above the least normal number; where x is infinite or not a number, so is its logarithm here.
#[inline(always)]
pub(crate) fn power<const FUSED: bool>(x: f64, y: f64) -> f64 {
    exp_f64::<FUSED>(y * ln::<FUSED>(x))
}

/// The natural logarithm of a normal number above zero.
///
/// `x = 2^k·m` with m in `[√½, √2)`; `ln m = 2·artanh(t)`, `t = (m − 1)/(m + 1)`, by the series of artanh to `t^21`, whose
/// remainder is below 2⁻⁵⁹ of it.
#[inline(always)]
fn ln<const FUSED: bool>(x: f64) -> f64 {
    // the exponent and mantissa of x/√½, so that m is around one
    const ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    const MAGIC: u64 = 0x4330_0000_0000_0000; // 2^52: its low bits hold a whole number
    let shifted = x.to_bits().wrapping_sub(ROOT);
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT));
    let biased = (shifted >> 52).wrapping_add(1023) & 0x7ff;
    let k = f64::from_bits(MAGIC | biased) - f64::from_bits(MAGIC) - 1023.0;
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let series = polynomial::<f64, 11, FUSED>(
        square,
        [
            2.0 / 21.0,
            2.0 / 19.0,
            2.0 / 17.0,
            2.0 / 15.0,
            2.0 / 13.0,
            2.0 / 11.0,
            2.0 / 9.0,
            2.0 / 7.0,
            2.0 / 5.0,
            2.0 / 3.0,
            2.0,
        ],
    );
    let near = fma::<f64, FUSED>(k, 1.908_214_929_270_587_7e-10, t * series);
    let value = fma::<f64, FUSED>(k, 0.693_147_180_369_123_8, near);
    if x < f64::INFINITY { value } else { x }
}

/// `a·b + c`: one instruction where there is one, else two.
#[inline(always)]
pub(crate) fn fma<T: Element, const FUSED: bool>(a: T, b: T, c: T) -> T {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Horner's rule, the highest power first.
#[inline(always)]
pub(super) fn polynomial<T: Element, const N: usize, const FUSED: bool>(x: T, coefficients: [f64; N]) -> T {
    let mut sum = T::from_f64(coefficients[0]);
    let mut i = 1;
    while i < N {
        sum = fma::<T, FUSED>(sum, x, T::from_f64(coefficients[i]));
        i += 1;
    }
    sum
}

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

/// The same value as `f32`, for `T = f32`: the round trip through `f64` is exact and compiles to nothing.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "called for f32 alone, where it is exact")]
pub(super) fn narrow<T: Element>(x: T) -> f32 {
    x.to_f64() as f32
}

#[inline(always)]
pub(super) fn widen<T: Element>(x: f32) -> T {
    T::from_f64(f64::from(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x·Φ(x)` and its derivative, by mpmath 1.4 with 40 digits.
    const GELU: [(f64, f64, f64); 15] = [
        (-37.5, -1.7270073785932331e-306, -6.476_271_143_055_812e-305),
        (-20.0, -5.507_248_237_212_468e-88, -1.1014360483133464e-86),
        (-8.25, -6.533_774_209_580_044e-16, -5.388_191_138_027_795e-15),
        (-5.0, -1.4332578593959696e-6, -7.146_946_001_792_295e-6),
        (-3.125, -0.002_778_204_059_713_85, -0.008_555_531_060_887_68),
        (-1.5, -0.1002108019032871, -0.12746919222997953),
        (-0.75, -0.16997051428265115, 0.000_774_278_260_764_895_7),
        (-0.1, -0.046_017_216_272_297_1, 0.420_476_907_975_269_8),
        (-0.001, -0.000_499_601_057_786_089, 0.4992021157051586),
        (1e-09, 5.000_000_003_989_423e-10, 0.500_000_000_797_884_5),
        (0.3, 0.185_373_426_656_685_8, 0.732_327_766_827_109_9),
        (1.0, 0.841_344_746_068_542_9, 1.0833154705876863),
        (2.5, 2.4844758366855597, 1.037_611_085_908_145),
        (6.0, 5.999_999_994_080_474, 1.0000000354687095),
        (9.0, 9.0, 1.0),
    ];

    /// The distance from the truth in units in the last place of the truth.
    fn ulps(value: f32, truth: f64) -> f64 {
        let exponent = truth.abs().log2().floor().max(-126.0);
        (f64::from(value) - truth).abs() / (exponent - 23.0).exp2()
    }

    fn ulps_f64(value: f64, truth: f64) -> f64 {
        (value - truth).abs() / (truth.abs().log2().floor() - 52.0).exp2()
    }

    /// Singles over all exponents of both signs.
    fn singles() -> impl Iterator<Item = f32> {
        (0..u32::MAX / 3001).map(|i| f32::from_bits(i * 3001)).filter(|x| x.is_finite())
    }

    /// The largest error over singles where the truth is a finite single.
    fn worst(function: impl Fn(f32) -> f32, truth: impl Fn(f64) -> f64) -> f64 {
        let errors = singles().filter_map(|x| {
            let truth = truth(f64::from(x));
            (truth.abs() <= f64::from(f32::MAX)).then(|| {
                let error = ulps(function(x), truth);
                assert!(!error.is_nan(), "not a number at {x:e}");
                error
            })
        });
        errors.fold(0.0, f64::max)
    }

    fn sigmoid_of(x: f64) -> f64 {
        if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
    }

    /// Infinite where the sigmoid is subnormal, which takes the case out.
    fn silu_of(x: f64) -> f64 {
        let value = x * sigmoid_of(x);
        if value < 0.0 && value > -1.5e-36 { f64::INFINITY } else { value }
    }

    /// Infinite where Φ is below the least normal number, which takes the case out.
    fn gelu_of(x: f64) -> f64 {
        if x < -12.9 { f64::INFINITY } else { gelu::<f64, true>(x) }
    }

    #[test]
    fn gelu_ends_within_the_least_normal_number() {
        for x in singles().filter(|x| *x < -12.9) {
            let error = f64::from(gelu::<f32, true>(x)) - gelu::<f64, true>(f64::from(x));
            assert!(error.abs() <= f64::from(f32::MIN_POSITIVE), "{error:e} at {x}");
        }
    }

    #[test]
    fn singles_are_within_the_stated_units_in_the_last_place() {
        fn check<const FUSED: bool>() {
            let bounds = [
                ("exp", worst(exp::<f32, FUSED>, f64::exp), 1.0),
                ("tanh", worst(tanh::<f32, FUSED>, f64::tanh), 3.0),
                ("sigmoid", worst(sigmoid::<f32, FUSED>, sigmoid_of), 3.0),
                ("silu", worst(silu::<f32, FUSED>, silu_of), 3.0),
                ("gelu", worst(gelu::<f32, FUSED>, gelu_of), 6.0),
                ("gelu tanh", worst(gelu_tanh::<f32, FUSED>, gelu_tanh::<f64, true>), 1.0),
            ];
            for (name, worst, bound) in bounds {
                assert!(worst <= bound, "{name}, fused {FUSED}: {worst} units, {bound} allowed");
            }
        }
        check::<true>();
        check::<false>();
    }

    #[test]
    fn doubles_are_within_the_stated_units_in_the_last_place() {
        fn check<const FUSED: bool>() {
            for i in -70_000..=70_000 {
                let x = f64::from(i) / 100.0 + 1e-5;
                assert!(ulps_f64(exp::<f64, FUSED>(x), x.exp()) <= 1.5, "exp at {x}");
                assert!(ulps_f64(tanh::<f64, FUSED>(x / 30.0), (x / 30.0).tanh()) <= 3.0, "tanh at {x}/30");
                assert!(ulps_f64(sigmoid::<f64, FUSED>(x), sigmoid_of(x)) <= 3.0, "sigmoid at {x}");
            }
            for (x, value, slope) in GELU {
                let error = ulps_f64(gelu::<f64, FUSED>(x), value);
                assert!(error <= 4.0, "gelu at {x}: {error} units");
                let error = (gelu_slope::<f64, FUSED>(x) - slope).abs();
                assert!(error <= 4.0 * f64::EPSILON, "slope of gelu at {x}: {error}");
            }
        }
        check::<true>();
        check::<false>();
    }

    #[test]
    fn slopes_are_those_of_the_functions() {
        for i in -4000..4000 {
            let x = f64::from(i) / 250.0;
            let slope = |f: fn(f64) -> f64| (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
            assert!((silu_slope::<f64, true>(x) - slope(silu::<f64, true>)).abs() < 1e-9, "silu at {x}");
            assert!((gelu_slope::<f64, true>(x) - slope(gelu::<f64, true>)).abs() < 1e-9, "gelu at {x}");
            let error = gelu_tanh_slope::<f64, true>(x) - slope(gelu_tanh::<f64, true>);
            assert!(error.abs() < 1e-9, "gelu_tanh at {x}");
            let single = f32::from_f64(x);
            let error =
                f64::from(gelu_slope::<f32, true>(single)) - gelu_slope::<f64, true>(f64::from(single));
            assert!(error.abs() < 2.0 * f64::from(f32::EPSILON), "gelu in f32 at {x}");
        }
    }

    #[test]
    fn limits_and_not_a_number_are_kept() {
        assert_eq!(exp::<f32, true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp::<f32, true>(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp::<f64, true>(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp::<f64, true>(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp::<f32, true>(0.0), 1.0);
        assert_eq!(tanh::<f32, true>(f32::INFINITY), 1.0);
        assert_eq!(tanh::<f32, true>(f32::NEG_INFINITY), -1.0);
        assert_eq!(tanh::<f32, true>(1e-40), 1e-40);
        assert_eq!(sigmoid::<f32, true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(sigmoid::<f32, true>(f32::INFINITY), 1.0);
        assert_eq!(gelu::<f32, true>(f32::INFINITY), f32::INFINITY);
        assert_eq!(gelu::<f32, true>(-1e30), 0.0);
        assert!(gelu::<f32, true>(f32::NEG_INFINITY).is_nan(), "as in PyTorch");
        assert!(gelu_slope::<f32, true>(f32::INFINITY).is_nan(), "as in PyTorch");
        assert_eq!(gelu::<f64, true>(1e200), 1e200);
        assert_eq!(gelu_tanh::<f64, true>(f64::INFINITY), f64::INFINITY);
        for function in [
            exp::<f32, true>,
            tanh::<f32, true>,
            sigmoid::<f32, true>,
            silu::<f32, true>,
            gelu::<f32, true>,
            gelu_slope::<f32, true>,
            gelu_tanh::<f32, true>,
            gelu_tanh_slope::<f32, true>,
        ] {
            assert!(function(f32::NAN).is_nan());
        }
    }
}
