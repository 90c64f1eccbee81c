//! Vectors, for loops that the compiler does not vectorise by itself: whole pixels of a channel block.
//!
//! A value of an instruction set ([`Simd`]) proves that the CPU has it, so its methods are safe. Methods are
//! always inlined into the function that [`super::stamp::per_simd`] builds for the instruction set. One vector
//! type serves `f32` and `f64`: which one it holds is the type parameter of the method.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

#[cfg(target_arch = "x86_64")]
use tiled_tensor::DType;
use tiled_tensor::Element;

/// The vector operations of an instruction set.
pub(crate) trait Simd: Copy {
    /// A vector of elements.
    type V<T: Element>: Copy;
    /// A truth value for each element.
    type Mask<T: Element>: Copy;

    /// The elements of a vector.
    fn lanes<T: Element>() -> usize;
    /// Every element `value`.
    fn splat<T: Element>(self, value: T) -> Self::V<T>;
    /// The vector at the start of `from`, which is long enough.
    fn load<T: Element>(self, from: &[T]) -> Self::V<T>;
    /// Writes the vector to the start of `to`, which is long enough.
    fn store<T: Element>(self, to: &mut [T], value: Self::V<T>);
    /// `a + b`.
    fn add<T: Element>(self, a: Self::V<T>, b: Self::V<T>) -> Self::V<T>;
    /// `a·b`.
    fn mul<T: Element>(self, a: Self::V<T>, b: Self::V<T>) -> Self::V<T>;
    /// `a/b`.
    fn div<T: Element>(self, a: Self::V<T>, b: Self::V<T>) -> Self::V<T>;
    /// `a·b + c`; one rounding where the instruction set has it.
    fn fma<T: Element>(self, a: Self::V<T>, b: Self::V<T>, c: Self::V<T>) -> Self::V<T>;
    /// Whether `x` takes the place of the maximum held so far: it is larger, or the first that is not a number.
    fn wins<T: Element>(self, x: Self::V<T>, held: Self::V<T>) -> Self::Mask<T>;
    /// The maximum: `x` where it [`Simd::wins`], else `held`; what NaN carries may be that of a later one.
    fn larger<T: Element>(self, x: Self::V<T>, held: Self::V<T>) -> Self::V<T>;
    /// Whether both are equal.
    fn equals<T: Element>(self, a: Self::V<T>, b: Self::V<T>) -> Self::Mask<T>;
    /// `a` where the mask is true, else `b`.
    fn select<T: Element>(self, mask: Self::Mask<T>, a: Self::V<T>, b: Self::V<T>) -> Self::V<T>;
}

/// Whether `x` takes the place of the maximum held so far, for one element.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "not a number is not less or equal: it wins")]
pub(crate) fn wins<T: Element>(x: T, held: T) -> bool {
    !(x <= held) & !held.is_nan()
}

/// One element at a time, in the arithmetic of the instruction set around it.
#[derive(Clone, Copy)]
pub(crate) struct Scalar<const FUSED: bool>;

impl<const FUSED: bool> Simd for Scalar<FUSED> {
    type V<T: Element> = T;
    type Mask<T: Element> = bool;

    #[inline(always)]
    fn lanes<T: Element>() -> usize {
        1
    }
    #[inline(always)]
    fn splat<T: Element>(self, value: T) -> T {
        value
    }
    #[inline(always)]
    fn load<T: Element>(self, from: &[T]) -> T {
        from[0]
    }
    #[inline(always)]
    fn store<T: Element>(self, to: &mut [T], value: T) {
        to[0] = value;
    }
    #[inline(always)]
    fn add<T: Element>(self, a: T, b: T) -> T {
        a + b
    }
    #[inline(always)]
    fn mul<T: Element>(self, a: T, b: T) -> T {
        a * b
    }
    #[inline(always)]
    fn div<T: Element>(self, a: T, b: T) -> T {
        a / b
    }
    #[inline(always)]
    fn fma<T: Element>(self, a: T, b: T, c: T) -> T {
        super::math::fma::<T, FUSED>(a, b, c)
    }
    #[inline(always)]
    fn wins<T: Element>(self, x: T, held: T) -> bool {
        wins(x, held)
    }
    #[inline(always)]
    fn larger<T: Element>(self, x: T, held: T) -> T {
        let larger = if x > held { x } else { held };
        if x.is_nan() { x } else { larger }
    }
    #[inline(always)]
    fn equals<T: Element>(self, a: T, b: T) -> bool {
        a == b
    }
    #[inline(always)]
    fn select<T: Element>(self, mask: bool, a: T, b: T) -> T {
        if mask { a } else { b }
    }
}

/// The intrinsic for the element type, on vectors of singles or doubles.
#[cfg(target_arch = "x86_64")]
macro_rules! by_type {
    ($T:ty, $single:expr, $double:expr) => {
        match <$T>::DTYPE {
            // SAFETY: the value that the method was called on proves that the CPU has the instruction set.
            DType::F32 => unsafe { $single },
            // SAFETY: as above.
            DType::F64 => unsafe { $double },
        }
    };
}

/// Vectors of 512 bits; exists only where the CPU has AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// The proof that the CPU has it.
    ///
    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

#[cfg(target_arch = "x86_64")]
impl Simd for Avx512 {
    type V<T: Element> = __m512;
    type Mask<T: Element> = __mmask16;

    #[inline(always)]
    fn lanes<T: Element>() -> usize {
        64 / size_of::<T>()
    }
    #[inline(always)]
    fn splat<T: Element>(self, value: T) -> __m512 {
        #[expect(clippy::cast_possible_truncation, reason = "a single, which the round trip keeps")]
        let single = value.to_f64() as f32;
        by_type!(T, _mm512_set1_ps(single), _mm512_castpd_ps(_mm512_set1_pd(value.to_f64())))
    }
    #[inline(always)]
    fn load<T: Element>(self, from: &[T]) -> __m512 {
        assert!(from.len() >= Self::lanes::<T>());
        // SAFETY: `from` has 64 bytes, by the assertion; the CPU has the instruction set, by `self`.
        unsafe { _mm512_loadu_ps(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store<T: Element>(self, to: &mut [T], value: __m512) {
        assert!(to.len() >= Self::lanes::<T>());
        // SAFETY: `to` has 64 bytes, by the assertion; the CPU has the instruction set, by `self`.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr().cast(), value) }
    }
    #[inline(always)]
    fn add<T: Element>(self, a: __m512, b: __m512) -> __m512 {
        by_type!(T, _mm512_add_ps(a, b), {
            _mm512_castpd_ps(_mm512_add_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn mul<T: Element>(self, a: __m512, b: __m512) -> __m512 {
        by_type!(T, _mm512_mul_ps(a, b), {
            _mm512_castpd_ps(_mm512_mul_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn div<T: Element>(self, a: __m512, b: __m512) -> __m512 {
        by_type!(T, _mm512_div_ps(a, b), {
            _mm512_castpd_ps(_mm512_div_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn fma<T: Element>(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        by_type!(T, _mm512_fmadd_ps(a, b, c), {
            let (a, b, c) = (_mm512_castps_pd(a), _mm512_castps_pd(b), _mm512_castps_pd(c));
            _mm512_castpd_ps(_mm512_fmadd_pd(a, b, c))
        })
    }
    #[inline(always)]
    fn wins<T: Element>(self, x: __m512, held: __m512) -> __mmask16 {
        by_type!(
            T,
            {
                let is_number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(held, held);
                _mm512_mask_cmp_ps_mask::<_CMP_NLE_UQ>(is_number, x, held)
            },
            {
                let (x, held) = (_mm512_castps_pd(x), _mm512_castps_pd(held));
                let is_number = _mm512_cmp_pd_mask::<_CMP_ORD_Q>(held, held);
                __mmask16::from(_mm512_mask_cmp_pd_mask::<_CMP_NLE_UQ>(is_number, x, held))
            }
        )
    }
    #[inline(always)]
    fn larger<T: Element>(self, x: __m512, held: __m512) -> __m512 {
        // the instruction gives its second operand where one is NaN or both are zeros
        by_type!(
            T,
            {
                let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
                _mm512_mask_blend_ps(is_nan, _mm512_max_ps(x, held), x)
            },
            {
                let (x, held) = (_mm512_castps_pd(x), _mm512_castps_pd(held));
                let is_nan = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, x);
                _mm512_castpd_ps(_mm512_mask_blend_pd(is_nan, _mm512_max_pd(x, held), x))
            }
        )
    }
    #[inline(always)]
    fn equals<T: Element>(self, a: __m512, b: __m512) -> __mmask16 {
        by_type!(T, _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), {
            __mmask16::from(_mm512_cmp_pd_mask::<_CMP_EQ_OQ>(_mm512_castps_pd(a), _mm512_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn select<T: Element>(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        by_type!(T, _mm512_mask_blend_ps(mask, b, a), {
            let low = mask.to_le_bytes()[0];
            _mm512_castpd_ps(_mm512_mask_blend_pd(low, _mm512_castps_pd(b), _mm512_castps_pd(a)))
        })
    }
}

/// Vectors of 256 bits; exists only where the CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// The proof that the CPU has it.
    ///
    /// # Safety
    /// The CPU has AVX2 and FMA.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

#[cfg(target_arch = "x86_64")]
impl Simd for Avx2 {
    type V<T: Element> = __m256;
    type Mask<T: Element> = __m256;

    #[inline(always)]
    fn lanes<T: Element>() -> usize {
        32 / size_of::<T>()
    }
    #[inline(always)]
    fn splat<T: Element>(self, value: T) -> __m256 {
        #[expect(clippy::cast_possible_truncation, reason = "a single, which the round trip keeps")]
        let single = value.to_f64() as f32;
        by_type!(T, _mm256_set1_ps(single), _mm256_castpd_ps(_mm256_set1_pd(value.to_f64())))
    }
    #[inline(always)]
    fn load<T: Element>(self, from: &[T]) -> __m256 {
        assert!(from.len() >= Self::lanes::<T>());
        // SAFETY: `from` has 32 bytes, by the assertion; the CPU has the instruction set, by `self`.
        unsafe { _mm256_loadu_ps(from.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store<T: Element>(self, to: &mut [T], value: __m256) {
        assert!(to.len() >= Self::lanes::<T>());
        // SAFETY: `to` has 32 bytes, by the assertion; the CPU has the instruction set, by `self`.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr().cast(), value) }
    }
    #[inline(always)]
    fn add<T: Element>(self, a: __m256, b: __m256) -> __m256 {
        by_type!(T, _mm256_add_ps(a, b), {
            _mm256_castpd_ps(_mm256_add_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn mul<T: Element>(self, a: __m256, b: __m256) -> __m256 {
        by_type!(T, _mm256_mul_ps(a, b), {
            _mm256_castpd_ps(_mm256_mul_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn div<T: Element>(self, a: __m256, b: __m256) -> __m256 {
        by_type!(T, _mm256_div_ps(a, b), {
            _mm256_castpd_ps(_mm256_div_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn fma<T: Element>(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        by_type!(T, _mm256_fmadd_ps(a, b, c), {
            let (a, b, c) = (_mm256_castps_pd(a), _mm256_castps_pd(b), _mm256_castps_pd(c));
            _mm256_castpd_ps(_mm256_fmadd_pd(a, b, c))
        })
    }
    #[inline(always)]
    fn wins<T: Element>(self, x: __m256, held: __m256) -> __m256 {
        by_type!(
            T,
            {
                let is_number = _mm256_cmp_ps::<_CMP_ORD_Q>(held, held);
                _mm256_and_ps(is_number, _mm256_cmp_ps::<_CMP_NLE_UQ>(x, held))
            },
            {
                let (x, held) = (_mm256_castps_pd(x), _mm256_castps_pd(held));
                let is_number = _mm256_cmp_pd::<_CMP_ORD_Q>(held, held);
                _mm256_castpd_ps(_mm256_and_pd(is_number, _mm256_cmp_pd::<_CMP_NLE_UQ>(x, held)))
            }
        )
    }
    #[inline(always)]
    fn larger<T: Element>(self, x: __m256, held: __m256) -> __m256 {
        // the instruction gives its second operand where one is NaN or both are zeros
        by_type!(T, _mm256_blendv_ps(_mm256_max_ps(x, held), x, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x)), {
            let (x, held) = (_mm256_castps_pd(x), _mm256_castps_pd(held));
            let is_nan = _mm256_cmp_pd::<_CMP_UNORD_Q>(x, x);
            _mm256_castpd_ps(_mm256_blendv_pd(_mm256_max_pd(x, held), x, is_nan))
        })
    }
    #[inline(always)]
    fn equals<T: Element>(self, a: __m256, b: __m256) -> __m256 {
        by_type!(T, _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b), {
            _mm256_castpd_ps(_mm256_cmp_pd::<_CMP_EQ_OQ>(_mm256_castps_pd(a), _mm256_castps_pd(b)))
        })
    }
    #[inline(always)]
    fn select<T: Element>(self, mask: __m256, a: __m256, b: __m256) -> __m256 {
        by_type!(T, _mm256_blendv_ps(b, a, mask), {
            let (a, b, mask) = (_mm256_castps_pd(a), _mm256_castps_pd(b), _mm256_castps_pd(mask));
            _mm256_castpd_ps(_mm256_blendv_pd(b, a, mask))
        })
    }
}
