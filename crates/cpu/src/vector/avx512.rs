//! AVX-512 F, BW, DQ and VL: vectors of 64 bytes, 32 registers.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{MAX_LANES, Micro, Simd};
use crate::Isa;

/// Vectors of 64 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<E>(PhantomData<E>);

macro_rules! simd {
    (
        $element:ty, $vector:ty, $mask:ty, $lanes:literal,
        [
            $splat:ident $load:ident $store:ident $add:ident $sub:ident $mul:ident $div:ident
            $mul_add:ident $max:ident $min:ident $zero:ident $blend:ident $cmp:ident $mask_cmp:ident
            $maskz_mov:ident
        ],
        { $($own:tt)* }
    ) => {
        impl Simd for Avx512<$element> {
            type E = $element;
            type V = $vector;
            type Mask = $mask;
            type Index = __m512i;
            const ISA: Isa = Isa::Avx512;
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
                fn gate(value: $vector, by: $vector) -> $vector {
                    $maskz_mov($cmp::<_CMP_NLE_UQ>(by, $zero()), value)
                }
                // the instructions give their second operand where one is NaN or both are zeros
                fn clamp(value: $vector, bounds: [$vector; 2]) -> $vector {
                    $min(bounds[1], $max(bounds[0], value))
                }
                fn larger(x: $vector, held: $vector) -> $vector {
                    $blend($cmp::<_CMP_UNORD_Q>(x, x), $max(x, held), x)
                }
                fn wins(x: $vector, held: $vector) -> $mask {
                    $mask_cmp::<_CMP_NLE_UQ>($cmp::<_CMP_ORD_Q>(held, held), x, held)
                }
                fn equals(a: $vector, b: $vector) -> $mask { $cmp::<_CMP_EQ_OQ>(a, b) }
                fn select(mask: $mask, a: $vector, b: $vector) -> $vector { $blend(mask, b, a) }
            }
            $($own)*
            #[inline(always)]
            unsafe fn call<M: Micro<$element>>(self, micro: M) {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                #[inline(never)]
                unsafe fn enabled<M: Micro<$element>>(simd: Avx512<$element>, micro: M) {
                    // SAFETY: passed on to the caller.
                    unsafe { micro.run(simd) }
                }
                // SAFETY: `self` proves that the CPU has the instruction set; the rest is passed on.
                unsafe { enabled(self, micro) }
            }
        }
    };
}

simd!(f32, __m512, __mmask16, 16, [
    _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps
    _mm512_div_ps _mm512_fmadd_ps _mm512_max_ps _mm512_min_ps _mm512_setzero_ps _mm512_mask_blend_ps
    _mm512_cmp_ps_mask _mm512_mask_cmp_ps_mask _mm512_maskz_mov_ps
], {
    #[inline(always)]
    fn first(self, count: usize) -> __mmask16 {
        if count >= 16 { __mmask16::MAX } else { (1 << count) - 1 }
    }
    #[inline(always)]
    unsafe fn load_masked(self, from: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: the caller vouches for the elements, `self` for the instruction set.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: four sums are 16 bytes; `self` proves the instruction set.
        unsafe {
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            let quarters = _mm512_add_ps(
                _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd),
                _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd),
            );
            let upper = _mm512_extractf32x8_ps::<1>(quarters);
            let halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), upper);
            let upper = _mm256_extractf128_ps::<1>(halves);
            _mm_storeu_ps(sums.as_mut_ptr(), _mm_add_ps(_mm256_castps256_ps128(halves), upper));
        }
        sums
    }
    #[inline(always)]
    fn index(self, lanes: &[u8; MAX_LANES]) -> __m512i {
        let wide: [i32; 16] = std::array::from_fn(|i| i32::from(lanes[i]));
        // SAFETY: the lanes are 64 bytes; `self` proves the instruction set.
        unsafe { _mm512_loadu_si512(wide.as_ptr().cast()) }
    }
    methods! {
        fn permute(value: __m512, index: __m512i) -> __m512 { _mm512_permutexvar_ps(index, value) }
    }
    #[inline(always)]
    unsafe fn store_lanes(self, from: *const f32, to: *mut f32, stride: usize, [vectors, lanes]: [usize; 2]) {
        // SAFETY: nothing is read and written but what the caller vouches for; `self` proves the instruction set.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 16];
            for (p, row) in rows.iter_mut().enumerate() {
                if p < vectors {
                    *row = _mm512_loadu_ps(from.add(16 * p));
                }
            }
            let columns = transpose(rows);
            let mask = self.first(vectors);
            for (c, column) in columns.into_iter().enumerate() {
                if c < lanes {
                    _mm512_mask_storeu_ps(to.add(c * stride), mask, column);
                }
            }
        }
    }
});

/// Transposes a square of 16 by 16: the squares of four within it, then their places.
///
/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn transpose(rows: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut quarters = rows;
        for square in quarters.as_chunks_mut::<4>().0 {
            let [a, b, c, d] = *square;
            let pairs = |v, w| {
                (_mm512_castps_pd(_mm512_unpacklo_ps(v, w)), _mm512_castps_pd(_mm512_unpackhi_ps(v, w)))
            };
            let ((ab_low, ab_high), (cd_low, cd_high)) = (pairs(a, b), pairs(c, d));
            *square = [
                _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low)),
                _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high)),
                _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high)),
            ];
        }
        // quarter q of vector 4·r + i is column 4·q + i of rows 4·r to 4·r + 3
        let mut columns = rows;
        for i in 0..4 {
            let even = |v, w| _mm512_shuffle_f32x4::<0b10_00_10_00>(v, w);
            let odd = |v, w| _mm512_shuffle_f32x4::<0b11_01_11_01>(v, w);
            let [a, b, c, d] = [quarters[i], quarters[4 + i], quarters[8 + i], quarters[12 + i]];
            let (upper, lower) = ([even(a, b), odd(a, b)], [even(c, d), odd(c, d)]);
            columns[i] = even(upper[0], lower[0]);
            columns[4 + i] = even(upper[1], lower[1]);
            columns[8 + i] = odd(upper[0], lower[0]);
            columns[12 + i] = odd(upper[1], lower[1]);
        }
        columns
    }
}

simd!(f64, __m512d, __mmask8, 8, [
    _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_add_pd _mm512_sub_pd _mm512_mul_pd
    _mm512_div_pd _mm512_fmadd_pd _mm512_max_pd _mm512_min_pd _mm512_setzero_pd _mm512_mask_blend_pd
    _mm512_cmp_pd_mask _mm512_mask_cmp_pd_mask _mm512_maskz_mov_pd
], {
    #[inline(always)]
    fn first(self, count: usize) -> __mmask8 {
        if count >= 8 { __mmask8::MAX } else { (1 << count) - 1 }
    }
    #[inline(always)]
    unsafe fn load_masked(self, from: *const f64, mask: __mmask8) -> __m512d {
        // SAFETY: the caller vouches for the elements, `self` for the instruction set.
        unsafe { _mm512_maskz_loadu_pd(mask, from) }
    }
    #[inline(always)]
    fn sums(self, [a, b, c, d]: [__m512d; 4]) -> [f64; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: four sums are 32 bytes; `self` proves the instruction set.
        unsafe {
            let ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
            let cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
            let upper = |v| _mm512_extractf64x4_pd::<1>(v);
            let ab = _mm256_add_pd(_mm512_castpd512_pd256(ab), upper(ab));
            let cd = _mm256_add_pd(_mm512_castpd512_pd256(cd), upper(cd));
            let low = _mm256_permute2f128_pd::<0x20>(ab, cd);
            let high = _mm256_permute2f128_pd::<0x31>(ab, cd);
            _mm256_storeu_pd(sums.as_mut_ptr(), _mm256_add_pd(low, high));
        }
        sums
    }
    #[inline(always)]
    fn index(self, lanes: &[u8; MAX_LANES]) -> __m512i {
        let wide: [i64; 8] = std::array::from_fn(|i| i64::from(lanes[i]));
        // SAFETY: the lanes are 64 bytes; `self` proves the instruction set.
        unsafe { _mm512_loadu_si512(wide.as_ptr().cast()) }
    }
    methods! {
        fn permute(value: __m512d, index: __m512i) -> __m512d { _mm512_permutexvar_pd(index, value) }
    }
});
