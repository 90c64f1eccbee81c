//! Rows that lie somewhere in memory, and loops over contiguous ones.

use std::marker::PhantomData;

use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use crate::Isa;
use crate::ops::stamp::{per_isa, per_simd};
use crate::ops::{math, powers};
use crate::vector::{Lane, MAX_LANES, Simd};

/// Elements whose sum is taken in the element type, by lanes; sums of pieces are added in `f64`.
pub(super) const PIECE: usize = 1024;

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
        while at + S::LANES <= end {
            let mut values = [zero; N];
            for (value, slice) in values.iter_mut().zip(slices) {
                *value = simd.read(&slice[at..]);
            }
            sums[0] = simd.add(sums[0], term.of(simd, values));
            at += S::LANES;
        }
        if at < end {
            let count = end - at;
            let mut values = [zero; N];
            for (value, slice) in values.iter_mut().zip(slices) {
                let mut rest = [S::E::ZERO; MAX_LANES];
                rest[..count].copy_from_slice(&slice[at..at + count]);
                *value = simd.read(&rest);
            }
            let own = simd.select(simd.first(count), term.of(simd, values), zero);
            sums[0] = simd.add(sums[0], own);
            at = end;
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

/// The largest of vectors, given the place of each and how many of its elements count; the first that is not a number wins.
#[inline(always)]
fn largest_by<S: Simd>(simd: S, len: usize, mut vector: impl FnMut(usize, usize) -> S::V) -> S::E {
    let none = simd.splat(S::E::NEG_INFINITY);
    let mut held = [none; SIDE];
    let mut at = 0;
    while at + SIDE * S::LANES <= len {
        for (side, held) in held.iter_mut().enumerate() {
            *held = simd.larger(vector(at + side * S::LANES, S::LANES), *held);
        }
        at += SIDE * S::LANES;
    }
    while at < len {
        let count = S::LANES.min(len - at);
        let own = simd.select(simd.first(count), vector(at, count), none);
        held[0] = simd.larger(own, held[0]);
        at += count;
    }
    let [a, b, c, d] = held;
    let mut all = simd.larger(simd.larger(a, b), simd.larger(c, d));
    let mut step = S::LANES / 2;
    while step > 0 {
        let turned = std::array::from_fn(|lane| u8::try_from((lane + step) % S::LANES).unwrap_or(0));
        all = simd.larger(all, simd.permute(all, simd.index(&turned)));
        step /= 2;
    }
    let mut lanes = [S::E::ZERO; MAX_LANES];
    simd.write(&mut lanes, all);
    lanes[0]
}

/// The first `count` elements as a vector.
#[inline(always)]
fn read_first<S: Simd>(simd: S, x: &[S::E], count: usize) -> S::V {
    if count == S::LANES {
        return simd.read(x);
    }
    let mut rest = [S::E::ZERO; MAX_LANES];
    rest[..count].copy_from_slice(&x[..count]);
    simd.read(&rest)
}

per_simd! {
    fn largest_to<T: Lane, S: Simd>(simd, _scalar, x: &[T], found: &mut T) {
        *found = largest_by(simd, x.len(), |at, count| read_first(simd, &x[at..], count));
    }
}

/// The largest; the first that is not a number wins.
pub(super) fn largest<T: Lane>(isa: Isa, x: &[T]) -> T {
    let mut found = T::NEG_INFINITY;
    largest_to(isa, x, &mut found);
    found
}

/// Rows that are softened side by side: a short row is a chain of steps each of which waits for the one before, and the steps of others fill
/// the time.
pub(super) const SIDE_ROWS: usize = 4;

/// The sums of rows, each in an order that its length alone decides.
#[inline(always)]
fn sums_of_rows<S: Simd, const N: usize>(simd: S, rows: [&[S::E]; N]) -> [f64; N] {
    const { assert!(N <= SIDE_ROWS) };
    let mut totals = [0.0; N];
    let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    for begin in (0..longest).step_by(PIECE) {
        let mut sums = [simd.splat(S::E::ZERO); SIDE_ROWS];
        for (sum, row) in sums.iter_mut().zip(rows) {
            let piece = &row[begin.min(row.len())..(begin + PIECE).min(row.len())];
            *sum = sum_by_lanes(simd, piece);
        }
        for (total, sum) in totals.iter_mut().zip(simd.sums(sums)) {
            *total += sum.to_f64();
        }
    }
    totals
}

/// The sum of vectors of a piece.
#[inline(always)]
fn sum_by_lanes<S: Simd>(simd: S, piece: &[S::E]) -> S::V {
    let zero = simd.splat(S::E::ZERO);
    let mut sums = [zero; SIDE];
    let mut at = 0;
    while at + SIDE * S::LANES <= piece.len() {
        for (side, sum) in sums.iter_mut().enumerate() {
            *sum = simd.add(*sum, simd.read(&piece[at + side * S::LANES..]));
        }
        at += SIDE * S::LANES;
    }
    while at + S::LANES <= piece.len() {
        sums[0] = simd.add(sums[0], simd.read(&piece[at..]));
        at += S::LANES;
    }
    if at < piece.len() {
        let count = piece.len() - at;
        let rest = simd.select(simd.first(count), read_first(simd, &piece[at..], count), zero);
        sums[0] = simd.add(sums[0], rest);
    }
    simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3]))
}

per_simd! {
    /// Softmax of rows, or its logarithm.
    pub(super) fn softmax<T: Lane, S: Simd; const N: usize>(
        simd, _scalar, x: [&[T]; N], logarithms: bool, y: [&mut [T]; N],
    ) {
        let largest = x.map(|x| largest_by(simd, x.len(), |at, count| read_first(simd, &x[at..], count)));
        let mut y = y;
        for ((y, x), largest) in y.iter_mut().zip(x).zip(largest) {
            for (y, x) in y.iter_mut().zip(x) {
                *y = math::exp::<T, FUSED>(*x - largest);
            }
        }
        let sums = sums_of_rows(simd, y.each_ref().map(|y| &**y));
        if logarithms {
            let logs = sums.map(|sum| T::from_f64(sum.ln()));
            for (((y, x), largest), log) in y.into_iter().zip(x).zip(largest).zip(logs) {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = (*x - largest) - log;
                }
            }
        } else {
            let factors = sums.map(|sum| T::from_f64(1.0 / sum));
            for (y, factor) in y.into_iter().zip(factors) {
                for y in y {
                    *y *= factor;
                }
            }
        }
    }
}

per_simd! {
    /// `x = e^(x·factor − most)` of rows, where `most` becomes the larger of what it was and the largest `x·factor`, NaN before all; the
    /// sums of that. Where all are −∞ so far, the row is zero.
    pub(super) fn soften<T: Lane, S: Simd; const N: usize>(
        simd, _scalar, x: [&mut [T]; N], factor: T, most: &mut [T; N], sums: &mut [T; N],
    ) {
        let mut x = x;
        let by = simd.splat(factor);
        for (x, most) in x.iter().zip(most.iter_mut()) {
            let own = largest_by(simd, x.len(), |at, count| simd.mul(read_first(simd, &x[at..], count), by));
            // not a number is not less or equal: it wins, also where it came before
            *most = if own <= *most || most.to_f64().is_nan() { *most } else { own };
        }
        for (x, most) in x.iter_mut().zip(most.iter()) {
            let from = if *most == T::NEG_INFINITY { T::ZERO } else { *most };
            for x in x.iter_mut() {
                *x = math::exp::<T, FUSED>(*x * factor - from);
            }
        }
        *sums = sums_of_rows(simd, x.each_ref().map(|x| &**x)).map(T::from_f64);
    }
}

per_isa! {
    /// `y = ln x`.
    pub(super) fn logarithms<T: Element>(x: &[T], y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::from_f64(powers::log::<FUSED>(x.to_f64()));
        }
    }
}

per_isa! {
    /// `x = e^(x·factor − log)`.
    pub(super) fn probabilities<T: Element>(factor: T, log: T, x: &mut [T]) {
        for x in x {
            *x = math::exp::<T, FUSED>(*x * factor - log);
        }
    }
}

per_isa! {
    /// `x = x·factor`.
    pub(super) fn scale<T: Element>(factor: T, x: &mut [T]) {
        for x in x {
            *x *= factor;
        }
    }
}

/// Defines loops over the elements of slices of one length, the last of which is written.
macro_rules! loops {
    ($(
        $(#[$meta:meta])*
        fn $name:ident([$($x:ident),+] $(, $given:ident: $type:ty)*) |$y:ident| $body:expr;
    )*) => {$(
        per_isa! {
            $(#[$meta])*
            pub(super) fn $name<T: Element>($($x: &[T],)+ $($given: $type,)* y: &mut [T]) {
                let len = y.len();
                $(let $x = &$x[..len];)+
                for (at, to) in y.iter_mut().enumerate() {
                    $(let $x = $x[at];)+
                    let $y = *to;
                    *to = $body;
                }
            }
        }
    )*};
}

loops! {
    /// `y = e^(x − largest)`.
    fn exponentials([x], largest: T) |_y| math::exp::<T, FUSED>(x - largest);
    /// `dx = y·(dy − sum)`.
    fn slopes([y, dy], sum: T) |_dx| y * (dy - sum);
    /// `dx = dy − e^y·sum`.
    fn log_slopes([y, dy], sum: T) |_dx| dy - math::exp::<T, FUSED>(y) * sum;
    /// `y = y + x`.
    fn add([x]) |y| y + x;
    /// `y = (x − mean)·rstd·gamma + beta`.
    fn normalise([x, gamma, beta], statistics: [T; 2]) |_y| {
        math::fma::<T, FUSED>((x - statistics[0]) * statistics[1], gamma, beta)
    };
    /// `dx = rstd·(dy·gamma − means[0] − (x − mean)·rstd·means[1])`.
    fn norm_slopes([x, dy, gamma], statistics: [T; 2], means: [T; 2]) |_dx| {
        let [mean, rstd] = statistics;
        rstd * ((dy * gamma - means[0]) - (x - mean) * rstd * means[1])
    };
    /// `dx = d·(e^(x − log)·total − weight)`.
    fn loss_slopes([x, weight], log: T, total: T, d: T) |_dx| {
        d * (math::exp::<T, FUSED>(x - log) * total - weight)
    };
    /// `weights = of_classes·(targets·factor + share)`.
    fn weigh([target, of_class], factor: T, share: T) |_weight| of_class * (target * factor + share);
    /// `ds = scale·(p·(ds − own))`.
    fn score_slopes([p], own: T, scale: T) |ds| scale * (p * (ds - own));
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
