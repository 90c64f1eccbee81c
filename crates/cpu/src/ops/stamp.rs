//! One body, compiled once per instruction set.

/// Defines `fn name(isa, …)` whose body is compiled for every instruction set.
///
/// The body sees the constants `FUSED`, whether [`tiled_tensor::Element::mul_add`] is one instruction, and `VECTOR`, the bytes of a vector. What it
/// calls must be `#[inline(always)]`, or it is compiled for the target's least instruction set.
macro_rules! per_isa {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident<$T:ident: Element $(, $G:ident: $bound:path)* $(; $(const $N:ident: usize),+)?>(
            $($arg:ident: $type:ty),* $(,)?
        ) $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name<$T: Element $(, $G: $bound)* $($(, const $N: usize)+)?>(
            isa: $crate::Isa,
            $($arg: $type),*
        ) $(-> $result)? {
            #[inline(always)]
            fn body<$T: Element $(, $G: $bound)* $($(, const $N: usize)+)?, const FUSED: bool, const VECTOR: usize>(
                $($arg: $type),*
            ) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$T: Element $(, $G: $bound)* $($(, const $N: usize)+)?>($($arg: $type),*) $(-> $result)? {
                body::<$T $(, $G)* $($(, $N)+)?, true, 64>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$T: Element $(, $G: $bound)* $($(, const $N: usize)+)?>($($arg: $type),*) $(-> $result)? {
                body::<$T $(, $G)* $($(, $N)+)?, true, 32>($($arg),*)
            }

            match isa {
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx512 => {
                    // SAFETY: a backend exists only for an instruction set that this CPU has.
                    unsafe { avx512::<$T $(, $G)* $($(, $N)+)?>($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx2 => {
                    // SAFETY: as above.
                    unsafe { avx2::<$T $(, $G)* $($(, $N)+)?>($($arg),*) }
                }
                _ => body::<$T $(, $G)* $($(, $N)+)?, false, 16>($($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;

/// Defines `fn name(isa, …)` whose body is compiled for every instruction set and written with its vectors.
///
/// The body sees `simd`, a [`crate::vector::Simd`], and `scalar`, the same arithmetic one element at a time. What it
/// calls must be `#[inline(always)]`, or it is compiled for the target's least instruction set.
macro_rules! per_simd {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident<$T:ident: Lane, $S:ident: Simd $(, $F:ident: $bound:path)? $(; $(const $N:ident: usize),+)?>(
            $simd:ident, $scalar:ident $(, $arg:ident: $type:ty)* $(,)?
        ) $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name<$T: $crate::vector::Lane $(, $F: $bound)? $($(, const $N: usize)+)?>(
            isa: $crate::Isa $(, $arg: $type)*
        ) {
            #[inline(always)]
            fn body<$T: $crate::vector::Lane, $S: $crate::vector::Simd<E = $T> $(, $F: $bound)? $($(, const $N: usize)+)?, const FUSED: bool>(
                $simd: $S, $scalar: $crate::vector::Scalar<$T, FUSED> $(, $arg: $type)*
            ) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$T: $crate::vector::Lane $(, $F: $bound)? $($(, const $N: usize)+)?>(simd: $T::Avx512 $(, $arg: $type)*) {
                body::<$T, _ $(, $F)? $($(, $N)+)?, true>(simd, $crate::vector::Scalar::EVERYWHERE $(, $arg)*);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$T: $crate::vector::Lane $(, $F: $bound)? $($(, const $N: usize)+)?>(simd: $T::Avx2 $(, $arg: $type)*) {
                body::<$T, _ $(, $F)? $($(, $N)+)?, true>(simd, $crate::vector::Scalar::EVERYWHERE $(, $arg)*);
            }

            match isa {
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx512 => {
                    // SAFETY: a backend exists only for an instruction set that this CPU has.
                    unsafe { avx512::<$T $(, $F)? $($(, $N)+)?>($crate::vector::Simd::new() $(, $arg)*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx2 => {
                    // SAFETY: as above.
                    unsafe { avx2::<$T $(, $F)? $($(, $N)+)?>($crate::vector::Simd::new() $(, $arg)*) }
                }
                _ => {
                    let scalar = $crate::vector::Scalar::<$T, false>::EVERYWHERE;
                    body::<$T, _ $(, $F)? $($(, $N)+)?, false>(scalar, scalar $(, $arg)*);
                }
            }
        }
    };
}
pub(crate) use per_simd;
