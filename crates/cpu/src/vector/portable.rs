//! Vectors as arrays: what any target can do, written so that it vectorises.

use std::marker::PhantomData;

use tiled_tensor::Element;

use super::{MAX_LANES, Micro, Simd, wins};
use crate::Isa;

/// Arrays of `L` elements. A multiply-add rounds once if `FUSED`, else twice.
///
/// That is a parameter because its uses differ: convolution takes what the target has ([`FUSED`]); the other operators round
/// twice where the instruction set is the portable one, and once in what vectors of AVX2 and AVX-512 leave over.
#[derive(Clone, Copy)]
pub(crate) struct Portable<E, const L: usize, const FUSED: bool>(PhantomData<E>);

/// One element at a time.
pub(crate) type Scalar<E, const FUSED: bool> = Portable<E, 1, FUSED>;

impl<E, const L: usize, const FUSED: bool> Portable<E, L, FUSED> {
    /// Every CPU has it.
    pub(crate) const EVERYWHERE: Self = Self(PhantomData);
}

/// Whether the target has a fused multiply-add.
pub(super) const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

impl<E: Element, const L: usize, const FUSED: bool> Simd for Portable<E, L, FUSED> {
    type E = E;
    type V = [E; L];
    type Mask = [bool; L];
    type Index = [u8; L];
    const ISA: Isa = Isa::Portable;
    const LANES: usize = L;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self::EVERYWHERE
    }

    #[inline(always)]
    fn splat(self, value: E) -> [E; L] {
        [value; L]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const E) -> [E; L] {
        // SAFETY: the caller vouches for `L` readable elements; arrays of elements are aligned like them.
        unsafe { from.cast::<[E; L]>().read() }
    }
    #[inline(always)]
    unsafe fn load_masked(self, from: *const E, mask: [bool; L]) -> [E; L] {
        // SAFETY: passed on to the caller.
        let value = unsafe { self.load(from) };
        std::array::from_fn(|i| if mask[i] { value[i] } else { E::ZERO })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut E, value: [E; L]) {
        // SAFETY: the caller vouches for `L` writable elements; arrays of elements are aligned like them.
        unsafe { to.cast::<[E; L]>().write(value) }
    }
    #[inline(always)]
    fn add(self, a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: [E; L], b: [E; L], c: [E; L]) -> [E; L] {
        std::array::from_fn(|i| if FUSED { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
    #[inline(always)]
    fn sums(self, values: [[E; L]; 4]) -> [E; 4] {
        values.map(|value| {
            let mut sums = value;
            let mut half = L / 2;
            while half > 0 {
                for i in 0..half {
                    sums[i] += sums[i + half];
                }
                half /= 2;
            }
            sums[0]
        })
    }
    #[inline(always)]
    fn gate(self, value: [E; L], by: [E; L]) -> [E; L] {
        std::array::from_fn(|i| if by[i] <= E::ZERO { E::ZERO } else { value[i] })
    }
    #[inline(always)]
    fn clamp(self, value: [E; L], [min, max]: [[E; L]; 2]) -> [E; L] {
        std::array::from_fn(|i| {
            let value = if value[i] < min[i] { min[i] } else { value[i] };
            if value > max[i] { max[i] } else { value }
        })
    }
    #[inline(always)]
    fn larger(self, x: [E; L], held: [E; L]) -> [E; L] {
        std::array::from_fn(|i| {
            let larger = if x[i] > held[i] { x[i] } else { held[i] };
            if x[i].is_nan() { x[i] } else { larger }
        })
    }
    #[inline(always)]
    fn wins(self, x: [E; L], held: [E; L]) -> [bool; L] {
        std::array::from_fn(|i| wins(x[i], held[i]))
    }
    #[inline(always)]
    fn equals(self, a: [E; L], b: [E; L]) -> [bool; L] {
        std::array::from_fn(|i| a[i] == b[i])
    }
    #[inline(always)]
    fn first(self, count: usize) -> [bool; L] {
        std::array::from_fn(|i| i < count)
    }
    #[inline(always)]
    fn select(self, mask: [bool; L], a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| if mask[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn index(self, lanes: &[u8; MAX_LANES]) -> [u8; L] {
        std::array::from_fn(|i| lanes[i])
    }
    #[inline(always)]
    fn permute(self, value: [E; L], index: [u8; L]) -> [E; L] {
        index.map(|lane| value[usize::from(lane) % L])
    }

    #[inline(always)]
    unsafe fn call<M: Micro<E>>(self, micro: M) {
        #[inline(never)]
        unsafe fn outlined<S: Simd, M: Micro<S::E>>(simd: S, micro: M) {
            // SAFETY: passed on to the caller.
            unsafe { micro.run(simd) }
        }
        // SAFETY: passed on to the caller.
        unsafe { outlined(self, micro) }
    }
}
