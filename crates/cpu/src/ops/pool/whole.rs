//! Windows of the usual shapes that lie in the image, with the loops over their taps unrolled.

use tiled_tensor::Element;

use super::super::stamp::{per_isa, per_simd};
use super::{Fold, ROWS};
use crate::Isa;
use crate::vector::{Lane, Scalar, Simd, wins};

/// Square windows: kernel, stride, and the lanes of a pixel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) lanes: usize,
}

impl Shape {
    /// Whether there are loops for it.
    pub(super) const fn is_unrolled(self) -> bool {
        matches!((self.kernel, self.stride), (2, 2) | (3, 2) | (3, 1))
    }
}

/// `out[i] = f(…f(zero, x[i,0,0])…, x[i,K−1,K−1])`.
pub(super) fn forward<T: Lane, F: Fold>(
    isa: Isa,
    (f, zero): (F, T),
    shape: Shape,
    rows: [&[T]; ROWS],
    out: &mut [T],
) {
    match (shape.kernel, shape.stride, shape.lanes) {
        (2, _, 1) => planes::<T, F, 2>(isa, f, zero, rows, out),
        (3, 2, 1) => planes::<T, F, 3>(isa, f, zero, rows, out),
        (3, 1, lanes) => flat::<T, F>(isa, f, zero, lanes, rows, out),
        (2, _, lanes) => blocks::<T, F, 2>(isa, f, zero, lanes, rows, out),
        (_, _, lanes) => blocks::<T, F, 3>(isa, f, zero, lanes, rows, out),
    }
}

per_simd! {
    /// Kernel 3, stride 1: the taps of neighbouring elements are neighbours.
    fn flat<T: Lane, S: Simd, F: Fold>(simd, scalar, f: F, zero: T, lanes: usize, rows: [&[T]; ROWS], out: &mut [T]) {
        #[inline(always)]
        fn one<T: Element, S: Simd<E = T>, F: Fold>(simd: S, (f, zero): (F, T), lanes: usize, at: usize, rows: [&[T]; ROWS], out: &mut [T]) {
            let mut held = simd.splat(zero);
            for tap in 0..9 {
                held = f.fold(simd, held, simd.read(&rows[tap / 3][at + tap % 3 * lanes..]));
            }
            simd.write(&mut out[at..], held);
        }
        let vectors = out.len() / S::LANES * S::LANES;
        for at in (0..vectors).step_by(S::LANES) {
            one(simd, (f, zero), lanes, at, rows, out);
        }
        for at in vectors..out.len() {
            one(scalar, (f, zero), lanes, at, rows, out);
        }
    }
}

per_simd! {
    /// Stride 2, more lanes than one.
    fn blocks<T: Lane, S: Simd, F: Fold; const K: usize>(
        simd, scalar, f: F, zero: T, lanes: usize, rows: [&[T]; ROWS], out: &mut [T]
    ) {
        #[inline(always)]
        fn all<T: Element, S: Simd<E = T>, F: Fold, const K: usize>(
            simd: S, (f, zero): (F, T), lanes: usize, rows: [&[T]; ROWS], out: &mut [T]
        ) {
            for (i, out) in out.chunks_exact_mut(lanes).enumerate() {
                let window: [&[T]; K] = std::array::from_fn(|ty| &rows[ty][2 * i * lanes..][..K * lanes]);
                for lane in (0..lanes).step_by(S::LANES) {
                    let mut held = simd.splat(zero);
                    for tap in 0..K * K {
                        held = f.fold(simd, held, simd.read(&window[tap / K][tap % K * lanes + lane..]));
                    }
                    simd.write(&mut out[lane..], held);
                }
            }
        }
        if lanes.is_multiple_of(S::LANES) {
            all::<T, S, F, K>(simd, (f, zero), lanes, rows, out);
        } else {
            all::<T, _, F, K>(scalar, (f, zero), lanes, rows, out);
        }
    }
}

per_isa! {
    /// Stride 2, one lane.
    fn planes<T: Element, F: Fold; const K: usize>(f: F, zero: T, rows: [&[T]; ROWS], out: &mut [T]) {
        let scalar = Scalar::<T, FUSED>::EVERYWHERE;
        // tap t of window i is element t mod 2 of chunk i + t div 2
        let chunks: [[&[[T; 2]]; K]; K] = std::array::from_fn(|ty| {
            std::array::from_fn(|tx| rows[ty].get(tx / 2 * 2..).unwrap_or(&[]).as_chunks::<2>().0)
        });
        let count = chunks.iter().flatten().map(|chunks| chunks.len()).min().unwrap_or(0).min(out.len());
        let chunks = chunks.map(|row| row.map(|chunks| &chunks[..count]));
        let (head, tail) = out.split_at_mut(count);
        for (i, out) in head.iter_mut().enumerate() {
            let mut held = [zero];
            for tap in 0..K * K {
                held = f.fold(scalar, held, [chunks[tap / K][tap % K][i][tap % K % 2]]);
            }
            [*out] = held;
        }
        for (i, out) in (count..).zip(tail) {
            let mut held = [zero];
            for tap in 0..K * K {
                held = f.fold(scalar, held, [rows[tap / K][2 * i + tap % K]]);
            }
            [*out] = held;
        }
    }
}

/// Adds each `gy` to the first maximum of its window; writes, where windows do not overlap. Empty rows of `out`
/// are left out.
pub(super) fn give<T: Lane>(isa: Isa, shape: Shape, rows: [&[T]; ROWS], gy: &[T], out: [&mut [T]; ROWS]) {
    match (shape.kernel, shape.stride, shape.lanes) {
        (2, _, 1) => give_pairs(isa, rows, gy, out),
        (2, _, lanes) => give_windows::<T, 2, 2>(isa, lanes, rows, gy, out),
        (_, 2, lanes) => give_windows::<T, 3, 2>(isa, lanes, rows, gy, out),
        (_, _, lanes) => give_windows::<T, 3, 1>(isa, lanes, rows, gy, out),
    }
}

per_simd! {
    fn give_windows<T: Lane, V: Simd; const K: usize, const S: usize>(
        simd, scalar, lanes: usize, rows: [&[T]; ROWS], gy: &[T], out: [&mut [T]; ROWS]
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>, const K: usize, const S: usize>(
            simd: V, lanes: usize, rows: [&[T]; ROWS], gy: &[T], mut out: [&mut [T]; ROWS]
        ) {
            let zero = simd.splat(T::ZERO);
            for (i, gy) in gy.chunks_exact(lanes).enumerate() {
                let begin = i * S * lanes;
                let window: [&[T]; K] = std::array::from_fn(|ty| &rows[ty][begin..][..K * lanes]);
                for lane in (0..lanes).step_by(V::LANES) {
                    let mut held = simd.read(&window[0][lane..]);
                    let mut code = zero;
                    for tap in 1..K * K {
                        let x = simd.read(&window[tap / K][tap % K * lanes + lane..]);
                        let won = simd.wins(x, held);
                        held = simd.select(won, x, held);
                        code = simd.select(won, simd.splat(number::<T>(tap)), code);
                    }
                    let gy = simd.read(&gy[lane..]);
                    for (ty, row) in out.iter_mut().enumerate().take(K) {
                        if row.is_empty() {
                            continue;
                        }
                        let row = &mut row[begin..][..K * lanes];
                        for tx in 0..K {
                            let won = simd.equals(code, simd.splat(number::<T>(ty * K + tx)));
                            let share = simd.select(won, gy, zero);
                            let to = &mut row[tx * lanes + lane..];
                            let before = if K == S { zero } else { simd.read(to) };
                            simd.write(to, simd.add(before, share));
                        }
                    }
                }
            }
        }
        if lanes.is_multiple_of(V::LANES) {
            all::<T, V, K, S>(simd, lanes, rows, gy, out);
        } else {
            all::<T, _, K, S>(scalar, lanes, rows, gy, out);
        }
    }
}

per_isa! {
    /// Kernel 2, stride 2, one lane.
    fn give_pairs<T: Element>(rows: [&[T]; ROWS], gy: &[T], out: [&mut [T]; ROWS]) {
        let (top, bottom) = (rows[0].as_chunks::<2>().0, rows[1].as_chunks::<2>().0);
        let [out_top, out_bottom, ..] = out.map(|row| row.as_chunks_mut::<2>().0);
        let give = |a: &[T; 2], b: &[T; 2], gy: &T| {
            let gy = T::ZERO + *gy;
            let first = wins(a[1], a[0]);
            let held = if first { a[1] } else { a[0] };
            let second = wins(b[0], held);
            let held = if second { b[0] } else { held };
            let third = wins(b[1], held);
            let give = |won: bool| if won { gy } else { T::ZERO };
            let left = !second & !third;
            [[give(!first & left), give(first & left)], [give(second & !third), give(third)]]
        };
        let pixels = top.iter().zip(bottom).zip(gy);
        if out_bottom.is_empty() {
            pixels.zip(out_top).for_each(|(((a, b), gy), out)| *out = give(a, b, gy)[0]);
        } else if out_top.is_empty() {
            pixels.zip(out_bottom).for_each(|(((a, b), gy), out)| *out = give(a, b, gy)[1]);
        } else {
            for (((a, b), gy), (top, bottom)) in pixels.zip(out_top.iter_mut().zip(out_bottom)) {
                [*top, *bottom] = give(a, b, gy);
            }
        }
    }
}

/// Adds `gy/divisor` to every element of its window; writes, where windows do not overlap. Empty rows of `out`
/// are left out.
pub(super) fn spread<T: Lane>(isa: Isa, shape: Shape, divisor: T, gy: &[T], out: [&mut [T]; ROWS]) {
    for row in out.into_iter().take(shape.kernel).filter(|row| !row.is_empty()) {
        match (shape.kernel, shape.stride, shape.lanes) {
            (2, _, 1) => spread_pairs(isa, divisor, gy, row),
            (2, _, lanes) => spread_row::<T, 2, 2>(isa, lanes, divisor, gy, row),
            (_, 2, lanes) => spread_row::<T, 3, 2>(isa, lanes, divisor, gy, row),
            (_, _, lanes) => spread_row::<T, 3, 1>(isa, lanes, divisor, gy, row),
        }
    }
}

per_simd! {
    fn spread_row<T: Lane, V: Simd; const K: usize, const S: usize>(
        simd, scalar, lanes: usize, divisor: T, gy: &[T], row: &mut [T]
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>, const K: usize, const S: usize>(
            simd: V, lanes: usize, divisor: T, gy: &[T], row: &mut [T]
        ) {
            let divisor = simd.splat(divisor);
            for (i, gy) in gy.chunks_exact(lanes).enumerate() {
                let row = &mut row[i * S * lanes..][..K * lanes];
                for lane in (0..lanes).step_by(V::LANES) {
                    let share = simd.div(simd.read(&gy[lane..]), divisor);
                    for tx in 0..K {
                        let to = &mut row[tx * lanes + lane..];
                        let before = if K == S { simd.splat(T::ZERO) } else { simd.read(to) };
                        simd.write(to, simd.add(before, share));
                    }
                }
            }
        }
        if lanes.is_multiple_of(V::LANES) {
            all::<T, V, K, S>(simd, lanes, divisor, gy, row);
        } else {
            all::<T, _, K, S>(scalar, lanes, divisor, gy, row);
        }
    }
}

per_isa! {
    /// Kernel 2, stride 2, one lane.
    fn spread_pairs<T: Element>(divisor: T, gy: &[T], row: &mut [T]) {
        for (out, gy) in row.as_chunks_mut::<2>().0.iter_mut().zip(gy) {
            *out = [T::ZERO + *gy / divisor; 2];
        }
    }
}

/// The number of a tap as an element, so that it fills the same lanes.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "windows here have far fewer than 2^24 taps")]
pub(super) fn number<T: Element>(tap: usize) -> T {
    T::from_f64(tap as f64)
}

#[cfg(test)]
mod tests {
    use super::super::super::function::Sum;
    use super::*;

    #[test]
    fn a_sum_begins_with_zero_as_in_the_other_loops() {
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for (kernel, stride, lanes) in [(2, 2, 1), (3, 2, 1), (3, 1, 1), (3, 1, 8), (2, 2, 16), (3, 2, 5)]
            {
                let count = 21;
                let row = vec![-0.0_f32; ((count - 1) * stride + kernel) * lanes];
                let mut out = vec![1.0; count * lanes];
                let shape = Shape { kernel, stride, lanes };
                forward(isa, (Sum, 0.0), shape, [&row[..]; ROWS], &mut out);
                assert!(out.iter().all(|sum| sum.to_bits() == 0), "{isa:?} {shape:?}: {out:?}");
            }
        }
    }
}
