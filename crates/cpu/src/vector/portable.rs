//! Vectors as arrays: what any target can do, written so that it vectorises.

use tiled_tensor::Element;

use super::{MAX_LANES, Micro, Simd};
use crate::Isa;

/// Arrays of `L` elements. A multiply-add rounds twice unless the target has a fused one.
#[derive(Clone, Copy)]
pub(super) struct Portable<E, const L: usize>(std::marker::PhantomData<E>);

const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

impl<E: Element, const L: usize> Simd for Portable<E, L> {
    type E = E;
    type V = [E; L];
    type Mask = [bool; L];
    type Index = [u8; L];
    const ISA: Isa = Isa::Portable;
    const LANES: usize = L;

    #[inline(always)]
    unsafe fn splat(value: E) -> [E; L] {
        [value; L]
    }
    #[inline(always)]
    unsafe fn load(from: *const E) -> [E; L] {
        // SAFETY: the caller vouches for `L` readable elements; arrays of elements are aligned like them.
        unsafe { from.cast::<[E; L]>().read() }
    }
    #[inline(always)]
    unsafe fn mask(count: usize) -> [bool; L] {
        std::array::from_fn(|i| i < count)
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const E, mask: [bool; L]) -> [E; L] {
        // SAFETY: passed on to the caller.
        let value = unsafe { Self::load(from) };
        std::array::from_fn(|i| if mask[i] { value[i] } else { E::ZERO })
    }
    #[inline(always)]
    unsafe fn sums(values: [[E; L]; 4]) -> [E; 4] {
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
    unsafe fn store(to: *mut E, value: [E; L]) {
        // SAFETY: the caller vouches for `L` writable elements; arrays of elements are aligned like them.
        unsafe { to.cast::<[E; L]>().write(value) }
    }
    #[inline(always)]
    unsafe fn add(a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: [E; L], b: [E; L]) -> [E; L] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul_add(a: [E; L], b: [E; L], c: [E; L]) -> [E; L] {
        std::array::from_fn(|i| if FUSED { a[i].mul_add(b[i], c[i]) } else { a[i] * b[i] + c[i] })
    }
    #[inline(always)]
    unsafe fn gate(value: [E; L], by: [E; L]) -> [E; L] {
        std::array::from_fn(|i| if by[i] <= E::ZERO { E::ZERO } else { value[i] })
    }
    #[inline(always)]
    unsafe fn index(lanes: &[u8; MAX_LANES]) -> [u8; L] {
        std::array::from_fn(|i| lanes[i])
    }
    #[inline(always)]
    unsafe fn permute(value: [E; L], index: [u8; L]) -> [E; L] {
        index.map(|lane| value[usize::from(lane) % L])
    }
    #[inline(always)]
    unsafe fn call<M: Micro<E>>(micro: M) {
        #[inline(never)]
        unsafe fn outlined<E: Element, const L: usize, M: Micro<E>>(micro: M) {
            // SAFETY: passed on to the caller; the instruction set is the target's own.
            unsafe { micro.run::<Portable<E, L>>() }
        }
        // SAFETY: as above.
        unsafe { outlined::<E, L, M>(micro) }
    }
}
