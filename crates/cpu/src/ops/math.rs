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
    let (k, above_one) = remainders_f32::<N, FUSED>(&each(|i| -x[i]), &rounded);
    each(|i| SCALE / fma::<f32, FUSED>(above_one[i] + 1.0, power_f32(k[i].wrapping_sub(24)), SCALE))
}

/// `f` of each index. Unlike [`std::array::from_fn`] it is a loop that vectorises.
#[inline(always)]
pub(crate) fn each<T: Copy + Default, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut values = [T::default(); N];
    for (i, value) in values.iter_mut().enumerate() {
        *value = f(i);
    }
    values
}

/// k and `e^r − 1` where `x = k·ln 2 + r`, for x between −104 and 89.
#[inline(always)]
pub(super) fn reduced_f32<const FUSED: bool>(x: f32) -> (i32, f32) {
    let rounded = fma::<f32, FUSED>(x, std::f32::consts::LOG2_E, ROUND_F32);
    let ([k], [above_one]) = remainders_f32::<1, FUSED>(&[x], &[rounded]);
    (k, above_one)
}

/// `1.5·2^23`: the low bits of a sum with it are the rounded integer.
pub(super) const ROUND_F32: f32 = 12_582_912.0;

/// The same of many values where `x/ln 2 + 1.5·2^23` is known.
#[inline(always)]
fn remainders_f32<const N: usize, const FUSED: bool>(
    x: &[f32; N],
    rounded: &[f32; N],
) -> ([i32; N], [f32; N]) {
    const COEFFICIENTS: [f32; 6] =
        [0.000_198_756_91, 1.398_199_9e-3, 8.333_452e-3, 0.041_665_796, 0.166_666_66, 0.5];
    let k: [f32; N] = each(|i| rounded[i] - ROUND_F32);
    let mut r: [f32; N] = each(|i| fma::<f32, FUSED>(k[i], -0.693_359_4, x[i]));
    r = each(|i| fma::<f32, FUSED>(k[i], 2.121_944_4e-4, r[i]));
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

/// The same value as `f32`, for `T = f32`: by its bits, which compiles to nothing. A round trip through `f64` would too, but comparisons of the
/// value are then made in `f64`.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "called for f32 alone, whose bits these are")]
pub(super) fn narrow<T: Element>(x: T) -> f32 {
    f32::from_bits(x.to_bits_u64() as u32)
}

#[inline(always)]
pub(super) fn widen<T: Element>(x: f32) -> T {
    T::from_f64(f64::from(x))
}

#[cfg(test)]
mod tests {
    use super::super::gelu::{gelu, gelu_slope, gelu_tanh, gelu_tanh_slope};
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
            let error = f64::from(gelu_tanh_slope::<f32, true>(single))
                - gelu_tanh_slope::<f64, true>(f64::from(single));
            assert!(error.abs() < f64::from(f32::EPSILON), "gelu_tanh in f32 at {x}");
        }
    }

    #[test]
    fn many_at_once_have_the_bits_of_one() {
        fn check<const FUSED: bool>() {
            let ends =
                [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0, -104.0, 70.0, f32::MAX, f32::MIN];
            let values: Vec<f32> = ends.into_iter().chain(singles()).collect();
            for many in values.as_chunks::<64>().0 {
                let all = silu_all::<f32, 64, FUSED>(many);
                for (x, value) in many.iter().zip(all) {
                    assert_eq!(value.to_bits(), silu::<f32, FUSED>(*x).to_bits(), "silu of {x}");
                }
            }
            let doubles = [-800.0, -3.5, -0.0, f64::INFINITY];
            assert_eq!(silu_all::<f64, 4, FUSED>(&doubles)[..3], doubles.map(silu::<f64, FUSED>)[..3]);
        }
        check::<true>();
        check::<false>();
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
        assert_eq!(gelu_tanh::<f32, true>(f32::INFINITY), f32::INFINITY);
        assert!(gelu_tanh::<f32, true>(f32::NEG_INFINITY).is_nan(), "as in PyTorch");
        assert_eq!([f32::MIN, f32::MAX].map(gelu_tanh::<f32, true>), [0.0, f32::MAX]);
        assert_eq!([f32::MIN, f32::MAX].map(gelu_tanh_slope::<f32, true>), [0.0, 1.0]);
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
