//! Functions of one, two or three elements, and loops over them.

use tiled_tensor::Element;

use super::stamp::per_isa;

/// A function of one element.
pub(crate) trait Unary<T: Element>: Copy + Sync {
    /// The value at `x`.
    fn apply<const FUSED: bool>(self, x: T) -> T;

    /// The values at many, the same bits, by whatever order of steps is fastest.
    #[inline(always)]
    fn apply_all<const N: usize, const FUSED: bool>(self, x: &[T; N]) -> [T; N] {
        let mut values = [T::ZERO; N];
        for (value, x) in values.iter_mut().zip(x) {
            *value = self.apply::<FUSED>(*x);
        }
        values
    }
}

/// A function of two elements.
pub(crate) trait Binary<T>: Copy + Sync {
    /// The value at `(a, b)`.
    fn apply<const FUSED: bool>(self, a: T, b: T) -> T;
}

/// An array on the stack at the beginning of a cache line. By itself it begins wherever its elements may, and half of the loads of 32 bytes and all of 64
/// then read two lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Aligned<A>(pub(crate) A);

/// `out[i] = f(x[i])`, so many at once: best eight vectors of AVX2 of `f32`, as many as registers hold beside what they need.
#[inline(always)]
fn map_all<T: Element, F: Unary<T>, const N: usize, const FUSED: bool>(f: F, x: &[T], out: &mut [T]) {
    let (chunks, rest) = x.as_chunks::<N>();
    let (out_chunks, out_rest) = out.as_chunks_mut::<N>();
    for (out, x) in out_chunks.iter_mut().zip(chunks) {
        *out = f.apply_all::<N, FUSED>(x);
    }
    for (out, x) in out_rest.iter_mut().zip(rest) {
        *out = f.apply::<FUSED>(*x);
    }
}

per_isa! {
    /// `out[i] = f(x[i])`.
    ///
    /// One by one in vectors of 64 bytes: a CPU that has them looks far enough ahead to compute some while it waits for others, also for memory.
    pub(crate) fn map<T: Element, F: Unary<T>>(f: F, x: &[T], out: &mut [T]) {
        debug_assert_eq!(x.len(), out.len(), "values and results");
        if VECTOR < 64 {
            return map_all::<T, F, 64, FUSED>(f, x, out);
        }
        for (out, x) in out.iter_mut().zip(x) {
            *out = f.apply::<FUSED>(*x);
        }
    }
}

per_isa! {
    /// `out[i] = f(a[i], b[i])`.
    pub(crate) fn map2<T: Element, F: Binary<T>>(f: F, a: &[T], b: &[T], out: &mut [T]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = f.apply::<FUSED>(*a, *b);
        }
    }
}

/// Defines functions of one, two or three elements, with parameters or none.
macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident $(($($field:ident),+))?: $trait:ident |$self:ident, $($arg:ident),+| $value:expr;)*) => {
        $(functions!(@one [$(#[$meta])*] $name $(($($field),+))?: $trait |$self, $($arg),+| $value);)*
    };
    (@one [$($meta:tt)*] $name:ident: $trait:ident |$self:ident, $($arg:ident),+| $value:expr) => {
        $($meta)*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        impl<T: Element> $trait<T> for $name {
            #[inline(always)]
            fn apply<const FUSED: bool>($self, $($arg: T),+) -> T { $value }
        }
    };
    (@one [$($meta:tt)*] $name:ident($($field:ident),+): $trait:ident |$self:ident, $($arg:ident),+| $value:expr) => {
        $($meta)*
        #[derive(Clone, Copy)]
        pub(crate) struct $name<T> {
            $(
                /// A constant of the function.
                pub(crate) $field: T,
            )+
        }
        impl<T: Element> $trait<T> for $name<T> {
            #[inline(always)]
            fn apply<const FUSED: bool>($self, $($arg: T),+) -> T { $value }
        }
    };
}
pub(crate) use functions;

functions! {
    Sum: Binary |self, a, b| a + b;
    Product: Binary |self, a, b| a * b;
}
