//! Windows of any shape whose columns lie in the image, without questions inside their loops.

use tiled_geometry::Window;
use tiled_tensor::Element;

use super::super::band::index;
use super::super::stamp::per_simd;
use super::whole::number;
use super::{Fold, ROWS};
use crate::vector::Simd;

/// The vectors that are folded side by side: each waits for its last tap.
const BESIDE: usize = 4;

/// The windows along a row, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Along {
    /// The taps.
    kernel: usize,
    /// From tap to tap.
    step: usize,
    /// From the window of an output to the next one's.
    stride: usize,
    /// The lanes of a pixel.
    lanes: usize,
}

impl Along {
    pub(super) fn of(window: Window, lanes: usize) -> Self {
        let [kernel, dilation, stride] = [window.kernel(), window.dilation(), window.stride()].map(index);
        Self { kernel, step: dilation * lanes, stride: stride * lanes, lanes }
    }
}

per_simd! {
    /// Folds the taps of each output into `zero`, in row-major order. Every row begins with the first window's first column.
    pub(super) fn forward<T: Lane, V: Simd, F: Fold>(
        simd, scalar, f: F, zero: T, along: Along, rows: &[&[T]], out: &mut [T]
    ) {
        /// The outputs whose first taps lie at `from` and further on by `apart` each.
        #[inline(always)]
        fn some<T: Element, V: Simd<E = T>, F: Fold, const N: usize>(
            simd: V, f: F, zero: T, along: Along, rows: &[&[T]], from: usize, apart: usize
        ) -> [V::V; N] {
            let mut held = [simd.splat(zero); N];
            for row in rows {
                for tap in 0..along.kernel {
                    let taps = &row[from + tap * along.step..][..(N - 1) * apart + V::LANES];
                    for (i, held) in held.iter_mut().enumerate() {
                        *held = f.fold(simd, *held, simd.read(&taps[i * apart..]));
                    }
                }
            }
            held
        }
        #[inline(always)]
        fn neighbours<T: Element, V: Simd<E = T>, F: Fold, const N: usize>(
            simd: V, f: F, zero: T, along: Along, rows: &[&[T]], at: usize, out: &mut [T]
        ) -> usize {
            let mut at = at;
            for out in out[at..].chunks_exact_mut(N * V::LANES) {
                let held = some::<T, V, F, N>(simd, f, zero, along, rows, at, V::LANES);
                for (out, held) in out.chunks_exact_mut(V::LANES).zip(held) {
                    simd.write(out, held);
                }
                at += N * V::LANES;
            }
            at
        }
        #[inline(always)]
        fn strided<T: Element, V: Simd<E = T>, F: Fold>(
            simd: V, f: F, zero: T, along: Along, rows: &[&[T]], out: &mut [T]
        ) {
            let lanes = along.lanes;
            for (i, out) in out.chunks_mut(BESIDE * lanes).enumerate() {
                let from = i * BESIDE * along.stride;
                for lane in (0..lanes).step_by(V::LANES) {
                    if out.len() == BESIDE * lanes {
                        let held = some::<T, V, F, BESIDE>(simd, f, zero, along, rows, from + lane, along.stride);
                        for (out, held) in out.chunks_exact_mut(lanes).zip(held) {
                            simd.write(&mut out[lane..], held);
                        }
                    } else {
                        for (i, out) in out.chunks_exact_mut(lanes).enumerate() {
                            let from = from + i * along.stride + lane;
                            let [held] = some::<T, V, F, 1>(simd, f, zero, along, rows, from, 0);
                            simd.write(&mut out[lane..], held);
                        }
                    }
                }
            }
        }
        if along.stride == along.lanes {
            // elements of neighbouring pixels are neighbours
            let at = neighbours::<T, V, F, BESIDE>(simd, f, zero, along, rows, 0, out);
            let at = neighbours::<T, V, F, 1>(simd, f, zero, along, rows, at, out);
            neighbours::<T, _, F, 1>(scalar, f, zero, along, rows, at, out);
        } else if along.lanes.is_multiple_of(V::LANES) {
            strided(simd, f, zero, along, rows, out);
        } else {
            strided(scalar, f, zero, along, rows, out);
        }
    }
}

per_simd! {
    /// Adds each `gy` to the first maximum of its window, of which the rows of the taps from `begin` to `end` lie in the image. Empty rows of `out`
    /// are left out.
    pub(super) fn give<T: Lane, V: Simd>(
        simd, scalar, along: Along, taps: [usize; 2], rows: [&[T]; ROWS], gy: &[T], out: [&mut [T]; ROWS]
    ) {
        /// The numbers of the first maxima of neighbouring outputs.
        #[inline(always)]
        fn find<T: Element, V: Simd<E = T>, const N: usize>(
            simd: V, along: Along, [begin, end]: [usize; 2], rows: &[&[T]; ROWS], from: usize
        ) -> [V::V; N] {
            let mut held: [V::V; N] = std::array::from_fn(|i| simd.read(&rows[begin][from + i * along.stride..]));
            let mut codes = [simd.splat(number::<T>(begin * along.kernel)); N];
            for (ty, row) in rows.iter().enumerate().take(end).skip(begin) {
                for tx in 0..along.kernel {
                    let taps = &row[from + tx * along.step..][..(N - 1) * along.stride + V::LANES];
                    let number = simd.splat(number::<T>(ty * along.kernel + tx));
                    for (i, (held, code)) in held.iter_mut().zip(&mut codes).enumerate() {
                        let x = simd.read(&taps[i * along.stride..]);
                        let won = simd.wins(x, *held);
                        *held = simd.select(won, x, *held);
                        *code = simd.select(won, number, *code);
                    }
                }
            }
            codes
        }
        /// Adds the gradients of an output where they belong.
        #[inline(always)]
        fn add<T: Element, V: Simd<E = T>>(
            simd: V, along: Along, codes: V::V, from: usize, gy: &[T], out: &mut [&mut [T]; ROWS]
        ) {
            let (gy, zero) = (simd.read(gy), simd.splat(T::ZERO));
            for (ty, row) in out.iter_mut().enumerate().filter(|(_, row)| !row.is_empty()) {
                for tx in 0..along.kernel {
                    let won = simd.equals(codes, simd.splat(number::<T>(ty * along.kernel + tx)));
                    let to = &mut row[from + tx * along.step..];
                    simd.write(to, simd.add(simd.read(to), simd.select(won, gy, zero)));
                }
            }
        }
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>>(
            simd: V, along: Along, taps: [usize; 2], rows: [&[T]; ROWS], gy: &[T], mut out: [&mut [T]; ROWS]
        ) {
            let lanes = along.lanes;
            for (i, gy) in gy.chunks(BESIDE * lanes).enumerate() {
                for lane in (0..lanes).step_by(V::LANES) {
                    let from = i * BESIDE * along.stride + lane;
                    if gy.len() == BESIDE * lanes {
                        let codes = find::<T, V, BESIDE>(simd, along, taps, &rows, from);
                        for (i, codes) in codes.into_iter().enumerate() {
                            let from = from + i * along.stride;
                            add(simd, along, codes, from, &gy[i * lanes + lane..], &mut out);
                        }
                    } else {
                        for (i, gy) in gy.chunks_exact(lanes).enumerate() {
                            let from = from + i * along.stride;
                            let [codes] = find::<T, V, 1>(simd, along, taps, &rows, from);
                            add(simd, along, codes, from, &gy[lane..], &mut out);
                        }
                    }
                }
            }
        }
        if along.lanes.is_multiple_of(V::LANES) {
            all(simd, along, taps, rows, gy, out);
        } else {
            all(scalar, along, taps, rows, gy, out);
        }
    }
}

per_simd! {
    /// Adds `gy/divisor` to every element of its window. Empty rows of `out` are left out.
    pub(super) fn spread<T: Lane, V: Simd>(
        simd, scalar, along: Along, divisor: T, gy: &[T], out: [&mut [T]; ROWS]
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>>(simd: V, along: Along, divisor: T, gy: &[T], out: [&mut [T]; ROWS]) {
            let (lanes, divisor) = (along.lanes, simd.splat(divisor));
            for row in out.into_iter().filter(|row| !row.is_empty()) {
                for (i, gy) in gy.chunks_exact(lanes).enumerate() {
                    for lane in (0..lanes).step_by(V::LANES) {
                        let share = simd.div(simd.read(&gy[lane..]), divisor);
                        for tap in 0..along.kernel {
                            let to = &mut row[i * along.stride + tap * along.step + lane..];
                            simd.write(to, simd.add(simd.read(to), share));
                        }
                    }
                }
            }
        }
        if along.lanes.is_multiple_of(V::LANES) {
            all(simd, along, divisor, gy, out);
        } else {
            all(scalar, along, divisor, gy, out);
        }
    }
}
