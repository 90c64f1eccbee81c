//! Rows that lie somewhere in memory, and loops over contiguous ones.

use tiled_kernel::dense::Update;
use tiled_tensor::Element;

use crate::Isa;
use crate::ops::math;
use crate::ops::stamp::per_isa;

/// Elements whose sum is taken in the element type, by lanes; sums of pieces are added in `f64`.
pub(super) const PIECE: usize = 1024;

/// The lanes of a sum, whatever the vectors.
const LANES: usize = 32;

/// The sum of lanes: halves, and halves of them.
#[inline(always)]
fn tree<T: Element>(mut lanes: [T; LANES]) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0].to_f64()
}

/// The sum of `term(i)` for `i` below `len`, of which there are at most [`PIECE`] a piece.
macro_rules! sum_by_lanes {
    ($T:ident, $len:expr, |$i:ident| $term:expr) => {{
        let len = $len;
        let mut total = 0.0;
        let mut piece = 0;
        while piece < len {
            let end = len.min(piece + PIECE);
            let mut lanes = [$T::ZERO; LANES];
            let mut first = piece;
            while first + LANES <= end {
                for (lane, sum) in lanes.iter_mut().enumerate() {
                    let $i = first + lane;
                    *sum += $term;
                }
                first += LANES;
            }
            for (lane, $i) in (first..end).enumerate() {
                lanes[lane] += $term;
            }
            total += tree(lanes);
            piece = end;
        }
        total
    }};
}

per_isa! {
    /// The sum.
    pub(super) fn sum<T: Element>(x: &[T]) -> f64 {
        sum_by_lanes!(T, x.len(), |i| x[i])
    }
}

per_isa! {
    /// The sum of products.
    pub(super) fn dot<T: Element>(x: &[T], y: &[T]) -> f64 {
        let y = &y[..x.len()];
        sum_by_lanes!(T, x.len(), |i| x[i] * y[i])
    }
}

per_isa! {
    /// The sum of squares of what is left without `mean`.
    pub(super) fn squares<T: Element>(x: &[T], mean: T) -> f64 {
        sum_by_lanes!(T, x.len(), |i| (x[i] - mean) * (x[i] - mean))
    }
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
        for (held, x) in lanes.iter_mut().zip(rest) {
            *held = if *x > *held { *x } else { *held };
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
    /// `Σ dy·gamma` and `Σ dy·gamma·(x − mean)·rstd`.
    pub(super) fn norm_sums<T: Element>(x: &[T], dy: &[T], statistics: [T; 2], gamma: &[T]) -> [f64; 2] {
        let ([mean, rstd], dy, gamma) = (statistics, &dy[..x.len()], &gamma[..x.len()]);
        [
            sum_by_lanes!(T, x.len(), |i| dy[i] * gamma[i]),
            sum_by_lanes!(T, x.len(), |i| (dy[i] * gamma[i]) * ((x[i] - mean) * rstd)),
        ]
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
    /// `Σ weight·(log − (x − largest))`; where `named`, what has no weight is left out.
    pub(super) fn losses<T: Element>(x: &[T], weights: &[T], largest: T, log: T, named: bool) -> f64 {
        let weights = &weights[..x.len()];
        sum_by_lanes!(T, x.len(), |i| {
            let term = weights[i] * (log - (x[i] - largest));
            if named & (weights[i] == T::ZERO) { T::ZERO } else { term }
        })
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
