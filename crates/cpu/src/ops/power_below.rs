//! Exponentials of a softmax, whose arguments are not above zero: no branches, no tables, no calls.

use tiled_tensor::{DType, Element};

use super::math::{each, fma, power_f64, reduced_f64};

/// What [`powers_below`] multiplies by, so that every power of which a share may not be zero is a normal number: of `f64` two to the bits of a
/// significand.
pub(crate) const fn scale_of_powers<T: Element>() -> f64 {
    match T::DTYPE {
        DType::F32 => 1.0,
        DType::F64 => 9_007_199_254_740_992.0,
    }
}

/// `scale·e^(x − largest)` of values that are not above the largest, as if the differences were not rounded: half a unit in the last place of
/// −80 would change the power by 32 of its own. Of `f32` to a twelfth of half a unit in its last place, so that shares are as if rounded once.
#[inline(always)]
pub(crate) fn powers_below<T: Element, const N: usize, const FUSED: bool>(
    x: &[T; N],
    largest: &[f64; N],
) -> [f64; N] {
    match T::DTYPE {
        DType::F32 => powers_f32_below::<N, FUSED>(&each(|i| x[i].to_f64() - largest[i])),
        DType::F64 => each(|i| power_f64_below::<FUSED>(x[i].to_f64(), largest[i])),
    }
}

/// e to the power of differences of two `f32`, not above zero; of all below −200 as of −200, which no sum of 53 bits that 1 is part of
/// ever shows, nor a gradient.
///
/// A minimax polynomial of degree 6 over ±ln 2/2 that is 1 at 0, off by 2.6e-9. NaN have no bits set where k is added. Each step is done for all
/// values: one waits for the step before it longer than a CPU looks ahead for others to do.
#[inline(always)]
fn powers_f32_below<const N: usize, const FUSED: bool>(differences: &[f64; N]) -> [f64; N] {
    const LEAST: f64 = -200.0;
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5·2^52: the sum's low bits are the rounded integer
    const COEFFICIENTS: [f64; 7] = [
        0.001_406_127_624_955_110_7,
        0.008_379_020_699_065_166,
        0.041_664_776_508_401_68,
        0.166_663_653_154_568_85,
        0.500_000_043_464_821_7,
        1.000_000_049_671_430_3,
        1.0,
    ];
    let difference: [f64; N] = each(|i| if differences[i] < LEAST { LEAST } else { differences[i] });
    let rounded: [f64; N] = each(|i| fma::<f64, FUSED>(difference[i], std::f64::consts::LOG2_E, ROUND));
    let r: [f64; N] = each(|i| fma::<f64, FUSED>(rounded[i] - ROUND, -std::f64::consts::LN_2, difference[i]));
    let mut power = [COEFFICIENTS[0]; N];
    for coefficient in &COEFFICIENTS[1..] {
        power = each(|i| fma::<f64, FUSED>(power[i], r[i], *coefficient));
    }
    each(|i| f64::from_bits(power[i].to_bits().wrapping_add(rounded[i].to_bits() << 52)))
}

/// `2^53·e^(x − largest)`, zero below e⁻⁷⁴⁶.
///
/// What a difference loses by rounding is a number again (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B).
#[inline(always)]
fn power_f64_below<const FUSED: bool>(x: f64, largest: f64) -> f64 {
    const LEAST: f64 = -746.0;
    let difference = x - largest;
    let near = x - difference;
    let lost = (x - (difference + near)) + (near - largest);
    let lost = if difference < LEAST { -1.0 } else { lost };
    let (k, above_one) = reduced_f64::<FUSED>(if difference < LEAST { LEAST } else { difference });
    let power = power_f64(k.wrapping_add(53));
    let scaled = fma::<f64, FUSED>(above_one, power, power);
    fma::<f64, FUSED>(scaled, lost, scaled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn power_below<T: Element, const FUSED: bool>(x: T, largest: f64) -> f64 {
        powers_below::<T, 1, FUSED>(&[x], &[largest])[0]
    }

    #[test]
    fn powers_of_differences_are_as_if_those_were_exact() {
        fn check<const FUSED: bool>() {
            let mut worst = [0.0_f64; 2];
            for i in 0..4_000_000_u32 {
                // without order, up to 1000 from zero, and differences down to the least normal power
                let [a, b] = [i.wrapping_mul(2_654_435_761), i.wrapping_mul(40_503).rotate_left(16)]
                    .map(|bits| f32::from_f64(f64::from(bits) / f64::from(u32::MAX) - 0.5));
                let (a, b) = (1000.0 * a, 1000.0 * a - 87.0 * b.abs());
                let truth = (f64::from(b) - f64::from(a)).exp();
                let error = |power: f64| (power / truth - 1.0).abs();
                // of doubles whose difference is rounded
                let (x, largest) = (f64::from(b) / 3.0, f64::from(a) / 3.0);
                let difference = x - largest;
                let near = x - difference;
                let lost = (x - (difference + near)) + (near - largest);
                let exact = difference.exp() * (1.0 + lost);
                let double = power_below::<f64, FUSED>(x, largest) / scale_of_powers::<f64>();
                worst[0] = worst[0].max(error(power_below::<f32, FUSED>(b, a.into())));
                worst[1] = worst[1].max((double / exact - 1.0).abs() / f64::EPSILON);
            }
            assert!(worst[0] <= 2.7e-9 && worst[1] <= 2.0, "fused {FUSED}: {worst:?}");
        }
        check::<true>();
        check::<false>();
        let (inf, most) = (f32::INFINITY, f32::MAX);
        let share = |x: f32, largest: f32| f32::from_f64(power_below::<f32, true>(x, largest.into()));
        for (x, largest, wanted) in [
            (-inf, 0.0, 0.0),
            (-inf, most, 0.0),
            (-most, most, 0.0),
            (-1e30, 1.0, 0.0),
            (-104.0, 0.0, 0.0),
            (3.5, 3.5, 1.0),
            (-most, -most, 1.0),
        ] {
            assert_eq!(share(x, largest), wanted, "{x} − {largest}");
            let double = power_below::<f64, true>(x.into(), largest.into()) / scale_of_powers::<f64>();
            assert_eq!(f32::from_f64(double), wanted, "{x} − {largest}");
        }
        for (x, largest) in [(inf, inf), (-inf, -inf), (f32::NAN, 1.0), (1.0, f32::NAN), (-f32::NAN, 1.0)] {
            assert!(share(x, largest).is_nan(), "{x} − {largest}");
            assert!(power_below::<f64, true>(x.into(), largest.into()).is_nan(), "{x} − {largest}");
        }
    }
}
