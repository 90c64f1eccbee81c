//! The small vector trait that the kernels are written over, and its instruction sets.
//!
//! A kernel is a [`Micro`]: its body is generic over [`Simd`] and always inlined into a function that the
//! compiler builds for one instruction set ([`Simd::call`]). [`Routine`] is the code around it: loops that
//! need no vectors, generic all the same, so that they can name the kernels.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use tiled_tensor::{DType, Element};

use crate::Isa;

/// The most lanes of a vector of any instruction set and type.
pub(crate) const MAX_LANES: usize = 16;

/// Vectors of `LANES` elements.
///
/// # Safety
/// Every method needs a CPU that has the instruction set; values of these types exist only as type
/// parameters, chosen by [`run`] from an [`Isa`] that was checked when the backend was made.
pub(crate) trait Simd: Copy + 'static {
    /// The type of an element.
    type E: Element;
    /// A vector.
    type V: Copy;
    /// The first lanes of a vector.
    type Mask: Copy;
    /// The lanes of a permutation.
    type Index: Copy;
    /// The instruction set.
    const ISA: Isa;
    /// Elements of a vector.
    const LANES: usize;

    /// Every lane `value`.
    unsafe fn splat(value: Self::E) -> Self::V;
    /// The vector at `from`, unaligned.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` elements.
    unsafe fn load(from: *const Self::E) -> Self::V;
    /// The first `count` lanes.
    unsafe fn mask(count: usize) -> Self::Mask;
    /// The lanes of the mask of the vector at `from`, zero in the others.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` elements.
    unsafe fn load_masked(from: *const Self::E, mask: Self::Mask) -> Self::V;
    /// The sums of the lanes of four vectors, each in the same order of the instruction set's own.
    unsafe fn sums(values: [Self::V; 4]) -> [Self::E; 4];
    /// Writes the vector to `to`, unaligned.
    ///
    /// # Safety
    /// `to` is valid for writing `LANES` elements.
    unsafe fn store(to: *mut Self::E, value: Self::V);
    /// `a + b`.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// `a − b`.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// Writes lanes apart: lane `c` of the vector at `from + p·LANES` to `to + c·stride + p`, for `p` below `vectors`
    /// and `c` below `lanes`, both at most `LANES`.
    ///
    /// # Safety
    /// `from` is valid for reading the vectors; `to` is valid for what is written.
    #[inline(always)]
    unsafe fn store_lanes(
        from: *const Self::E,
        to: *mut Self::E,
        stride: usize,
        [vectors, lanes]: [usize; 2],
    ) {
        for c in 0..lanes {
            for p in 0..vectors {
                // SAFETY: passed on to the caller.
                unsafe { *to.add(c * stride + p) = *from.add(p * Self::LANES + c) };
            }
        }
    }
    /// `a·b + c`; one rounding where the instruction set has it.
    unsafe fn mul_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `value` where `by` is not at most zero, else zero; a `by` that is not a number lets it pass.
    unsafe fn gate(value: Self::V, by: Self::V) -> Self::V;
    /// `max(value, 0)`; NaN stays NaN, and negative zero becomes zero.
    #[inline(always)]
    unsafe fn relu(value: Self::V) -> Self::V {
        // SAFETY: passed on to the caller.
        unsafe { Self::gate(value, value) }
    }
    /// The permutation that takes lane `lanes[i]` to lane `i`.
    unsafe fn index(lanes: &[u8; MAX_LANES]) -> Self::Index;
    /// Lane `index[i]` of `value` in lane `i`.
    unsafe fn permute(value: Self::V, index: Self::Index) -> Self::V;
    /// Runs the kernel in a function built for this instruction set.
    ///
    /// # Safety
    /// The preconditions of the kernel hold.
    unsafe fn call<M: Micro<Self::E>>(micro: M);
}

/// A kernel: a body that is always inlined into [`Simd::call`].
pub(crate) trait Micro<E> {
    /// Runs it.
    ///
    /// # Safety
    /// The CPU has the instruction set, and what the kernel's own documentation asks.
    unsafe fn run<S: Simd<E = E>>(self);
}

/// Code around kernels, generic over the vectors.
pub(crate) trait Routine {
    /// Runs it with vectors of the type of its elements.
    fn run<S: Simd>(self);
}

/// Runs `routine` with the vectors of this instruction set and type.
pub(crate) fn run<T: Element>(isa: Isa, routine: impl Routine) {
    #[cfg(target_arch = "x86_64")]
    match (isa, T::DTYPE) {
        (Isa::Avx512, DType::F32) => return routine.run::<avx512::Avx512<f32>>(),
        (Isa::Avx512, DType::F64) => return routine.run::<avx512::Avx512<f64>>(),
        (Isa::Avx2, DType::F32) => return routine.run::<avx2::Avx2<f32>>(),
        (Isa::Avx2, DType::F64) => return routine.run::<avx2::Avx2<f64>>(),
        (Isa::Portable, _) => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    match T::DTYPE {
        DType::F32 => routine.run::<portable::Portable<f32, 4>>(),
        DType::F64 => routine.run::<portable::Portable<f64, 2>>(),
    }
}

/// Fetches the line of the first cache that an element lies in, if there is one.
#[inline(always)]
pub(crate) fn prefetch<E>(element: *const E) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which does nothing where the address is not valid; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(element.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}

/// The same for the second level cache alone.
#[inline(always)]
pub(crate) fn prefetch_far<E>(element: *const E) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(element.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}

/// The lanes of the vectors of this instruction set and type.
pub(crate) const fn lanes<T: Element>(isa: Isa) -> usize {
    let bytes = match isa {
        Isa::Portable => 16,
        Isa::Avx2 => 32,
        Isa::Avx512 => 64,
    };
    bytes / size_of::<T>()
}
