//! Rows that lie somewhere in memory, and loops over contiguous ones.

use std::marker::PhantomData;

use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use crate::Isa;
use crate::ops::math;
use crate::ops::stamp::{per_isa, per_simd};
use crate::vector::{Lane, MAX_LANES, Simd};

/// Elements whose sum is taken in the element type, by lanes; sums of pieces are added in `f64`.
pub(super) const PIECE: usize = 1024;

/// Lanes of the largest, whatever the vectors.
const LANES: usize = 32;

/// The vectors of a sum that are added side by side.
const SIDE: usize = 4;

/// What is summed of the elements of some slices at each place.
trait Term<S: Simd, const N: usize>: Copy {
    fn of(self, simd: S, values: [S::V; N]) -> S::V;
}

/// The sum of a term, by lanes within a piece.
#[inline(always)]
fn by_lanes<S: Simd, const N: usize>(simd: S, slices: [&[S::E]; N], term: impl Term<S, N>) -> f64 {
    let (len, zero) = (slices[0].len(), simd.splat(S::E::ZERO));
    let mut total = 0.0;
    let mut at = 0;
    while at < len {
        let end = len.min(at + PIECE);
        let mut sums = [zero; SIDE];
        while at + SIDE * S::LANES <= end {
            for (side, sum) in sums.iter_mut().enumerate() {
                let mut values = [zero; N];
                for (value, slice) in values.iter_mut().zip(slices) {
                    *value = simd.read(&slice[at + side * S::LANES..]);
                }
                *sum = simd.add(*sum, term.of(simd, values));
            }
            at += SIDE * S::LANES;
        }
        while at < end {
            let count = S::LANES.min(end - at);
            let mut values = [zero; N];
            for (value, slice) in values.iter_mut().zip(slices) {
                let mut rest = [S::E::ZERO; MAX_LANES];
                rest[..count].copy_from_slice(&slice[at..at + count]);
                *value = simd.read(&rest);
            }
            let own = simd.select(simd.first(count), term.of(simd, values), zero);
            sums[0] = simd.add(sums[0], own);
            at += count;
        }
        let [a, b, c, d] = simd.sums(sums);
        total += (a + b + (c + d)).to_f64();
    }
    total
}

/// Defines sums over slices of one length, each with the vectors of an instruction set.
macro_rules! sums {
    ($(
        $(#[$meta:meta])*
        fn $name:ident / $to:ident / $term:ident([$($slice:ident),+] $(, $given:ident)*)
            |$simd:ident, $own:ident, [$($value:ident),+]| $body:expr;
    )*) => {$(
        #[derive(Clone, Copy)]
        struct $term<T> {
            $($given: T,)*
            element: PhantomData<T>,
        }

        impl<S: Simd> Term<S, { [$(stringify!($slice)),+].len() }> for $term<S::E> {
            #[inline(always)]
            fn of(self, $simd: S, [$($value),+]: [S::V; { [$(stringify!($slice)),+].len() }]) -> S::V {
                let $own = self;
                $body
            }
        }

        per_simd! {
            fn $to<T: Lane, S: Simd>(simd, _scalar, slices: [&[T]; { [$(stringify!($slice)),+].len() }], term: $term<T>, total: &mut f64) {
                *total = by_lanes(simd, slices, term);
            }
        }

        $(#[$meta])*
        pub(super) fn $name<T: Lane>(isa: Isa, $($slice: &[T],)+ $($given: T,)*) -> f64 {
            let mut total = 0.0;
            $to(isa, [$($slice),+], $term { $($given,)* element: PhantomData }, &mut total);
            total
        }
    )*};
}

sums! {
    /// The sum.
    fn sum/sum_to/Plain([x]) |simd, own, [x]| {
        let _ = (simd, own.element);
        x
    };
    /// The sum of products.
    fn dot/dot_to/Dot([x, y]) |simd, own, [x, y]| {
        let _ = own.element;
        simd.mul(x, y)
    };
    /// The sum of squares of what is left without `mean`.
    fn squares/squares_to/Squares([x], mean) |simd, own, [x]| {
        let rest = simd.sub(x, simd.splat(own.mean));
        simd.mul(rest, rest)
    };
    /// `Σ dy·gamma·(x − mean)·rstd`.
    fn norm_dot/norm_dot_to/NormDot([x, dy, gamma], mean, rstd) |simd, own, [x, dy, gamma]| {
        let normal = simd.mul(simd.sub(x, simd.splat(own.mean)), simd.splat(own.rstd));
        simd.mul(simd.mul(dy, gamma), normal)
    };
    /// `Σ weight·(log − (x − largest))`.
    fn losses/losses_to/Losses([x, weights], largest, log) |simd, own, [x, weight]| {
        let log = simd.sub(simd.splat(own.log), simd.sub(x, simd.splat(own.largest)));
        simd.mul(weight, log)
    };
    /// The same without what has no weight, whatever its logarithm.
    fn named_losses/named_losses_to/NamedLosses([x, weights], largest, log) |simd, own, [x, weight]| {
        let log = simd.sub(simd.splat(own.log), simd.sub(x, simd.splat(own.largest)));
        let zero = simd.splat(S::E::ZERO);
        simd.select(simd.equals(weight, zero), zero, simd.mul(weight, log))
    };
}

per_isa! {
    /// The largest; not a number loses, and shows in sums.
    pub(super) fn largest<T: Element>(x: &[T]) -> T {
        let mut lanes = [T::NEG_INFINITY; LANES];
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (held, x) in lanes.iter_mut().zip(chunk) {
                *held = if *x > *held { *x } else { *held };
            }
        }
        let mut last = [T::NEG_INFINITY; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for (held, x) in lanes.iter_mut().zip(last) {
            *held = if x > *held { x } else { *held };
        }
        lanes.into_iter().fold(T::NEG_INFINITY, |held, x| if x > held { x } else { held })
    }
}

per_isa! {
    /// `y = e^(x − largest)`.
    pub(super) fn exponentials<T: Element>(x: &[T], largest: T, y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = math::exp::<T, FUSED>(*x - largest);
        }
    }
}

per_isa! {
    /// `y = y·factor`.
    pub(super) fn scale<T: Element>(y: &mut [T], factor: T) {
        for y in y {
            *y *= factor;
        }
    }
}

per_isa! {
    /// `y = (x − largest) − log`.
    pub(super) fn less<T: Element>(x: &[T], largest: T, log: T, y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = (*x - largest) - log;
        }
    }
}

per_isa! {
    /// `dx = y·(dy − sum)`.
    pub(super) fn slopes<T: Element>(y: &[T], dy: &[T], sum: T, dx: &mut [T]) {
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = *y * (*dy - sum);
        }
    }
}

per_isa! {
    /// `dx = dy − e^y·sum`.
    pub(super) fn log_slopes<T: Element>(y: &[T], dy: &[T], sum: T, dx: &mut [T]) {
        for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
            *dx = *dy - math::exp::<T, FUSED>(*y) * sum;
        }
    }
}

per_isa! {
    /// `y = y + x`.
    pub(super) fn add<T: Element>(x: &[T], y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += *x;
        }
    }
}

per_isa! {
    /// `y = (x − mean)·rstd·gamma + beta`.
    pub(super) fn normalise<T: Element>(x: &[T], statistics: [T; 2], gamma: &[T], beta: &[T], y: &mut [T]) {
        let [mean, rstd] = statistics;
        for (((y, x), gamma), beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
            *y = math::fma::<T, FUSED>((*x - mean) * rstd, *gamma, *beta);
        }
    }
}

per_isa! {
    /// `dx = rstd·(dy·gamma − means[0] − (x − mean)·rstd·means[1])`.
    pub(super) fn norm_slopes<T: Element>(x: &[T], dy: &[T], statistics: [T; 2], gamma: &[T], means: [T; 2], dx: &mut [T]) {
        let [mean, rstd] = statistics;
        for (((dx, x), dy), gamma) in dx.iter_mut().zip(x).zip(dy).zip(gamma) {
            *dx = rstd * ((*dy * *gamma - means[0]) - (*x - mean) * rstd * means[1]);
        }
    }
}

per_isa! {
    /// `gamma += dy·(x − mean)·rstd`, `beta += dy`.
    pub(super) fn norm_parameters<T: Element>(x: &[T], dy: &[T], statistics: [T; 2], gamma: &mut [f64], beta: &mut [f64]) {
        let [mean, rstd] = statistics;
        for (((gamma, beta), x), dy) in gamma.iter_mut().zip(beta).zip(x).zip(dy) {
            *gamma += (*dy * ((*x - mean) * rstd)).to_f64();
            *beta += dy.to_f64();
        }
    }
}

per_isa! {
    /// `dx = d·(e^(x − log)·total − weight)`.
    pub(super) fn loss_slopes<T: Element>(x: &[T], weights: &[T], log: T, total: T, d: T, dx: &mut [T]) {
        for ((dx, x), weight) in dx.iter_mut().zip(x).zip(weights) {
            *dx = d * (math::exp::<T, FUSED>(*x - log) * total - *weight);
        }
    }
}

per_isa! {
    /// `weights = of_classes·(targets·factor + share)`.
    pub(super) fn weigh<T: Element>(targets: &[T], of_classes: &[T], factor: T, share: T, weights: &mut [T]) {
        for ((weight, target), of_class) in weights.iter_mut().zip(targets).zip(of_classes) {
            *weight = *of_class * (*target * factor + share);
        }
    }
}

per_isa! {
    /// `x = e^(x − largest)`.
    pub(super) fn soften<T: Element>(x: &mut [T], largest: T) {
        for x in x {
            *x = math::exp::<T, FUSED>(*x - largest);
        }
    }
}

per_isa! {
    /// `ds = scale·(p·(ds − own))`.
    pub(super) fn score_slopes<T: Element>(p: &[T], own: T, scale: T, ds: &mut [T]) {
        for (ds, p) in ds.iter_mut().zip(p) {
            *ds = scale * (*p * (*ds - own));
        }
    }
}

/// The elements of a row, a stride apart, side by side: where they lie, or copied into `buffer`.
///
/// # Safety
/// The row is readable, and the buffer for as many elements, for the life of what is returned.
pub(super) unsafe fn read<'r, T: Element>(
    start: *const T,
    stride: isize,
    len: usize,
    buffer: *mut T,
) -> &'r [T] {
    // SAFETY: passed on to the caller.
    unsafe {
        if stride == 1 || len <= 1 {
            return std::slice::from_raw_parts(start, len);
        }
        let to = std::slice::from_raw_parts_mut(buffer, len);
        if stride == 0 {
            to.fill(*start);
        } else {
            for (i, to) in to.iter_mut().enumerate() {
                *to = *start.wrapping_offset(i.cast_signed() * stride);
            }
        }
        to
    }
}

/// Writes a row: `fill` is given where it lies, or the buffer if it cannot be written there, and what it left is put in its place.
///
/// # Safety
/// The row is writable by this call alone, and the buffer for as many elements.
pub(super) unsafe fn write<T: Element>(
    isa: Isa,
    start: *mut T,
    stride: isize,
    len: usize,
    buffer: *mut T,
    update: Update,
    fill: impl FnOnce(&mut [T]),
) {
    // SAFETY: passed on to the caller; whatever the elements are, they are plain floats.
    unsafe {
        let is_plain = stride == 1 || len <= 1;
        if is_plain && update == Update::Replace {
            return fill(std::slice::from_raw_parts_mut(start, len));
        }
        let values = std::slice::from_raw_parts_mut(buffer, len);
        fill(values);
        if is_plain {
            return add(isa, values, std::slice::from_raw_parts_mut(start, len));
        }
        for (i, value) in values.iter().enumerate() {
            let to = start.wrapping_offset(i.cast_signed() * stride);
            *to = if update == Update::Add { *to + *value } else { *value };
        }
    }
}
