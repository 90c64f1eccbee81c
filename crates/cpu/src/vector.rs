//! The small vector trait that the kernels are written over, and its instruction sets.
//!
//! A value of an instruction set ([`Simd`]) proves that the CPU has it, so what it computes is safe. A kernel is
//! always inlined into a function that the compiler builds for the instruction set: convolution writes it as a
//! [`Micro`] ([`Simd::call`]), the other operators as a body that [`crate::ops::stamp`] builds. [`Routine`] is the
//! code around kernels: loops that need no vectors, generic all the same, so that they can name the kernels.

/// Methods that are expressions of an instruction set's intrinsics, on values alone.
#[cfg(target_arch = "x86_64")]
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty { $value:expr })*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) -> $result {
                // SAFETY: `self` proves that the CPU has the instruction set.
                unsafe { $value }
            }
        )*
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use tiled_tensor::Element;

pub(crate) use portable::Scalar;

use crate::Isa;
use portable::Portable;

/// The most lanes of a vector of any instruction set and type.
pub(crate) const MAX_LANES: usize = 16;

/// Vectors of `LANES` elements.
///
/// A value exists only where the CPU has the instruction set.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// The type of an element.
    type E: Element;
    /// A vector.
    type V: Copy;
    /// A truth value for each lane.
    type Mask: Copy;
    /// The lanes of a permutation.
    type Index: Copy;
    /// The instruction set.
    const ISA: Isa;
    /// Elements of a vector.
    const LANES: usize;

    /// The proof that the CPU has the instruction set.
    ///
    /// # Safety
    /// The CPU has it.
    unsafe fn new() -> Self;

    /// Every lane `value`.
    fn splat(self, value: Self::E) -> Self::V;
    /// The vector at `from`, unaligned.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` elements.
    unsafe fn load(self, from: *const Self::E) -> Self::V;
    /// The lanes of the mask of the vector at `from`, zero in the others.
    ///
    /// # Safety
    /// `from` is valid for reading `LANES` elements.
    unsafe fn load_masked(self, from: *const Self::E, mask: Self::Mask) -> Self::V;
    /// Writes the vector to `to`, unaligned.
    ///
    /// # Safety
    /// `to` is valid for writing `LANES` elements.
    unsafe fn store(self, to: *mut Self::E, value: Self::V);
    /// Writes lanes apart: lane `c` of the vector at `from + p·LANES` to `to + c·stride + p`, for `p` below `vectors`
    /// and `c` below `lanes`, both at most `LANES`.
    ///
    /// # Safety
    /// `from` is valid for reading the vectors; `to` is valid for what is written.
    #[inline(always)]
    unsafe fn store_lanes(
        self,
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
    /// The vector at the start of `from`, which is long enough.
    #[inline(always)]
    fn read(self, from: &[Self::E]) -> Self::V {
        assert!(from.len() >= Self::LANES);
        // SAFETY: `from` has the elements, by the assertion.
        unsafe { self.load(from.as_ptr()) }
    }
    /// Writes the vector to the start of `to`, which is long enough.
    #[inline(always)]
    fn write(self, to: &mut [Self::E], value: Self::V) {
        assert!(to.len() >= Self::LANES);
        // SAFETY: `to` has the elements, by the assertion.
        unsafe { self.store(to.as_mut_ptr(), value) }
    }

    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a − b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a·b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a/b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a·b + c`; one rounding where the instruction set has it.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The sums of the lanes of four vectors, each in the same order of the instruction set's own.
    fn sums(self, values: [Self::V; 4]) -> [Self::E; 4];
    /// `value` where `by` is not at most zero, else zero; a `by` that is not a number lets it pass.
    fn gate(self, value: Self::V, by: Self::V) -> Self::V;
    /// `max(value, 0)`; NaN stays NaN, and negative zero becomes zero.
    #[inline(always)]
    fn relu(self, value: Self::V) -> Self::V {
        self.gate(value, value)
    }
    /// `min` where the value is less, then `max` where it is more; NaN stays, and a zero its sign.
    fn clamp(self, value: Self::V, bounds: [Self::V; 2]) -> Self::V;
    /// The maximum: `x` where it [`Simd::wins`], else `held`; what NaN carries may be that of a later one.
    fn larger(self, x: Self::V, held: Self::V) -> Self::V;
    /// Whether `x` takes the place of the maximum held so far: it is larger, or the first that is not a number.
    fn wins(self, x: Self::V, held: Self::V) -> Self::Mask;
    /// Whether both are equal.
    fn equals(self, a: Self::V, b: Self::V) -> Self::Mask;
    /// The first `count` lanes.
    fn first(self, count: usize) -> Self::Mask;
    /// `a` where the mask is true, else `b`.
    fn select(self, mask: Self::Mask, a: Self::V, b: Self::V) -> Self::V;
    /// The permutation that takes lane `lanes[i]` to lane `i`.
    fn index(self, lanes: &[u8; MAX_LANES]) -> Self::Index;
    /// Lane `index[i]` of `value` in lane `i`.
    fn permute(self, value: Self::V, index: Self::Index) -> Self::V;

    /// Runs the kernel in a function built for this instruction set.
    ///
    /// # Safety
    /// The preconditions of the kernel hold.
    unsafe fn call<M: Micro<Self::E>>(self, micro: M);
}

/// An element type with vectors of every instruction set.
pub(crate) trait Lane: Element {
    /// Of what any target can do.
    type Portable: Simd<E = Self>;
    /// Of AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Simd<E = Self>;
    /// Of AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Simd<E = Self>;
}

macro_rules! lane {
    ($($element:ty),*) => {
        $(impl Lane for $element {
            type Portable = Portable<$element, { 16 / size_of::<$element>() }, { portable::FUSED }>;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = avx2::Avx2<$element>;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = avx512::Avx512<$element>;
        })*
    };
}
lane!(f32, f64);

/// A kernel: a body that is always inlined into [`Simd::call`].
pub(crate) trait Micro<E> {
    /// Runs it.
    ///
    /// # Safety
    /// What the kernel's own documentation asks.
    unsafe fn run<S: Simd<E = E>>(self, simd: S);
}

/// Code around kernels, generic over the vectors.
pub(crate) trait Routine<T> {
    /// Runs it with vectors of the type of its elements.
    fn run<S: Simd<E = T>>(self, simd: S);
}

/// Runs `routine` with the vectors of this instruction set and type.
pub(crate) fn run<T: Lane>(isa: Isa, routine: impl Routine<T>) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a backend exists only for an instruction set that this CPU has.
        Isa::Avx512 => routine.run(unsafe { T::Avx512::new() }),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => routine.run(unsafe { T::Avx2::new() }),
        // SAFETY: every CPU has what the target asks for.
        _ => routine.run(unsafe { T::Portable::new() }),
    }
}

/// Whether `x` takes the place of the maximum held so far, for one element ([`Simd::wins`]).
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "not a number is not less or equal: it wins")]
pub(crate) fn wins<T: Element>(x: T, held: T) -> bool {
    !(x <= held) & !held.is_nan()
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
