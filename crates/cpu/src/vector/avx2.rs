//! AVX2 and FMA: vectors of 32 bytes, 16 registers.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{MAX_LANES, Micro, Simd};
use crate::Isa;

/// Vectors of 32 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2<E>(PhantomData<E>);

macro_rules! simd {
    (
        $element:ty, $vector:ty, $mask:ty, $lanes:literal,
        [
            $splat:ident $load:ident $store:ident $add:ident $sub:ident $mul:ident $div:ident
            $mul_add:ident $max:ident $min:ident $zero:ident $blend:ident $cmp:ident $and:ident
        ],
        { $($own:tt)* }
    ) => {
        impl Simd for Avx2<$element> {
            type E = $element;
            type V = $vector;
            type Mask = $mask;
            type Index = __m256i;
            const ISA: Isa = Isa::Avx2;
            const LANES: usize = $lanes;

            #[inline(always)]
            unsafe fn new() -> Self {
                Self(PhantomData)
            }
            #[inline(always)]
            unsafe fn load(self, from: *const $element) -> $vector {
                // SAFETY: the caller vouches for the elements, `self` for the instruction set.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element, value: $vector) {
                // SAFETY: the caller vouches for the elements, `self` for the instruction set.
                unsafe { $store(to, value) }
            }
            methods! {
                fn splat(value: $element) -> $vector { $splat(value) }
                fn add(a: $vector, b: $vector) -> $vector { $add(a, b) }
                fn sub(a: $vector, b: $vector) -> $vector { $sub(a, b) }
                fn mul(a: $vector, b: $vector) -> $vector { $mul(a, b) }
                fn div(a: $vector, b: $vector) -> $vector { $div(a, b) }
                fn mul_add(a: $vector, b: $vector, c: $vector) -> $vector { $mul_add(a, b, c) }
                fn gate(value: $vector, by: $vector) -> $vector { $and($cmp::<_CMP_NLE_UQ>(by, $zero()), value) }
                // the instructions give their second operand where one is NaN or both are zeros
                fn clamp(value: $vector, bounds: [$vector; 2]) -> $vector {
                    $min(bounds[1], $max(bounds[0], value))
                }
                fn larger(x: $vector, held: $vector) -> $vector {
                    $blend($max(x, held), x, $cmp::<_CMP_UNORD_Q>(x, x))
                }
                fn wins(x: $vector, held: $vector) -> $vector {
                    $and($cmp::<_CMP_ORD_Q>(held, held), $cmp::<_CMP_NLE_UQ>(x, held))
                }
                fn equals(a: $vector, b: $vector) -> $vector { $cmp::<_CMP_EQ_OQ>(a, b) }
                fn select(mask: $vector, a: $vector, b: $vector) -> $vector { $blend(b, a, mask) }
            }
            $($own)*
            #[inline(always)]
            unsafe fn call<M: Micro<$element>>(self, micro: M) {
                #[target_feature(enable = "avx2,fma")]
                #[inline(never)]
                unsafe fn enabled<M: Micro<$element>>(simd: Avx2<$element>, micro: M) {
                    // SAFETY: passed on to the caller.
                    unsafe { micro.run(simd) }
                }
                // SAFETY: `self` proves that the CPU has the instruction set; the rest is passed on.
                unsafe { enabled(self, micro) }
            }
        }
    };
}

simd!(f32, __m256, __m256, 8, [
    _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps
    _mm256_div_ps _mm256_fmadd_ps _mm256_max_ps _mm256_min_ps _mm256_setzero_ps _mm256_blendv_ps _mm256_cmp_ps
    _mm256_and_ps
], {
    #[inline(always)]
    fn first(self, count: usize) -> __m256 {
        let lanes: [i32; 8] = std::array::from_fn(|i| if i < count { -1 } else { 0 });
        // SAFETY: the lanes are 32 bytes; `self` proves the instruction set.
        unsafe { _mm256_loadu_ps(lanes.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn load_masked(self, from: *const f32, mask: __m256) -> __m256 {
        // SAFETY: the caller vouches for the elements, `self` for the instruction set.
        unsafe { _mm256_and_ps(_mm256_loadu_ps(from), mask) }
    }
    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: four sums are 16 bytes; `self` proves the instruction set.
        unsafe {
            let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let upper = _mm256_extractf128_ps::<1>(halves);
            _mm_storeu_ps(sums.as_mut_ptr(), _mm_add_ps(_mm256_castps256_ps128(halves), upper));
        }
        sums
    }
    #[inline(always)]
    fn index(self, lanes: &[u8; MAX_LANES]) -> __m256i {
        let wide: [i32; 8] = std::array::from_fn(|i| i32::from(lanes[i]));
        // SAFETY: the lanes are 32 bytes; `self` proves the instruction set.
        unsafe { _mm256_loadu_si256(wide.as_ptr().cast()) }
    }
    methods! {
        fn permute(value: __m256, index: __m256i) -> __m256 { _mm256_permutevar8x32_ps(value, index) }
    }
    #[inline(always)]
    unsafe fn store_lanes(self, from: *const f32, to: *mut f32, stride: usize, [vectors, lanes]: [usize; 2]) {
        // SAFETY: nothing is read and written but what the caller vouches for; `self` proves the instruction set.
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 8];
            for (p, row) in rows.iter_mut().enumerate() {
                if p < vectors {
                    *row = _mm256_loadu_ps(from.add(8 * p));
                }
            }
            let columns = transpose(rows);
            let mask = _mm256_castps_si256(self.first(vectors));
            for (c, column) in columns.into_iter().enumerate() {
                if c >= lanes {
                    return;
                }
                // a masked store is slow on some CPUs
                if vectors == 8 {
                    _mm256_storeu_ps(to.add(c * stride), column);
                } else {
                    _mm256_maskstore_ps(to.add(c * stride), mask, column);
                }
            }
        }
    }
});

/// Transposes a square of 8 by 8: the squares of four within it, then their places.
///
/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut halves = rows;
        for square in halves.as_chunks_mut::<4>().0 {
            let [a, b, c, d] = *square;
            let pairs = |v, w| {
                (_mm256_castps_pd(_mm256_unpacklo_ps(v, w)), _mm256_castps_pd(_mm256_unpackhi_ps(v, w)))
            };
            let ((ab_low, ab_high), (cd_low, cd_high)) = (pairs(a, b), pairs(c, d));
            *square = [
                _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low)),
                _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low)),
                _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high)),
                _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high)),
            ];
        }
        let mut columns = rows;
        for i in 0..4 {
            columns[i] = _mm256_permute2f128_ps::<0x20>(halves[i], halves[4 + i]);
            columns[4 + i] = _mm256_permute2f128_ps::<0x31>(halves[i], halves[4 + i]);
        }
        columns
    }
}

simd!(f64, __m256d, __m256d, 4, [
    _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd _mm256_sub_pd _mm256_mul_pd
    _mm256_div_pd _mm256_fmadd_pd _mm256_max_pd _mm256_min_pd _mm256_setzero_pd _mm256_blendv_pd _mm256_cmp_pd
    _mm256_and_pd
], {
    #[inline(always)]
    fn first(self, count: usize) -> __m256d {
        let lanes: [i64; 4] = std::array::from_fn(|i| if i < count { -1 } else { 0 });
        // SAFETY: the lanes are 32 bytes; `self` proves the instruction set.
        unsafe { _mm256_loadu_pd(lanes.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn load_masked(self, from: *const f64, mask: __m256d) -> __m256d {
        // SAFETY: the caller vouches for the elements, `self` for the instruction set.
        unsafe { _mm256_and_pd(_mm256_loadu_pd(from), mask) }
    }
    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m256d; 4]) -> [f64; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: four sums are 32 bytes; `self` proves the instruction set.
        unsafe {
            let (ab, cd) = (_mm256_hadd_pd(a, b), _mm256_hadd_pd(c, d));
            let low = _mm256_permute2f128_pd::<0x20>(ab, cd);
            let high = _mm256_permute2f128_pd::<0x31>(ab, cd);
            _mm256_storeu_pd(sums.as_mut_ptr(), _mm256_add_pd(low, high));
        }
        sums
    }
    #[inline(always)]
    fn index(self, lanes: &[u8; MAX_LANES]) -> __m256i {
        let wide: [i32; 8] = std::array::from_fn(|i| 2 * i32::from(lanes[i / 2]) + i32::from(i % 2 == 1));
        // SAFETY: the lanes are 32 bytes; `self` proves the instruction set.
        unsafe { _mm256_loadu_si256(wide.as_ptr().cast()) }
    }
    methods! {
        fn permute(value: __m256d, index: __m256i) -> __m256d {
            _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(value), index))
        }
    }
});
