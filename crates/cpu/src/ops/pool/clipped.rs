//! Windows of any shape, clipped to the image: its borders.

use tiled_geometry::{Interval, Window};
use tiled_tensor::Element;

use super::super::band::{extent, index, signed};
use super::super::stamp::per_simd;
use super::whole::number;
use super::{Fold, ROWS};
use crate::vector::Simd;

/// Where the windows of a run of outputs lie in some rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clip {
    /// The windows along a row.
    pub(super) window: Window,
    /// The first output.
    pub(super) first: i64,
    /// The columns of the image that the rows hold.
    pub(super) columns: Interval,
    /// The lanes of a pixel.
    pub(super) lanes: usize,
    /// The rows: the first and the last tap that lie in the image.
    pub(super) taps: [usize; 2],
}

impl Clip {
    /// The taps of output `i` in the rows: number and column, in order.
    #[inline(always)]
    fn taps(self, i: usize) -> impl Iterator<Item = (usize, usize)> {
        let taps = self.window.taps_inside(self.first + signed(i), self.columns);
        let column = self.window.input(self.first + signed(i), taps.begin()) - self.columns.begin();
        let dilation = self.window.dilation();
        let begin = index(taps.begin());
        (0..extent(taps)).map(move |t| (begin + t, index(column + signed(t) * dilation)))
    }
}

per_simd! {
    /// Folds the taps of each output into `zero`, in row-major order.
    pub(super) fn forward<T: Lane, V: Simd, F: Fold>(
        simd, scalar, f: F, zero: T, clip: Clip, rows: [&[T]; ROWS], out: &mut [T]
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>, F: Fold>(simd: V, f: F, zero: T, clip: Clip, rows: [&[T]; ROWS], out: &mut [T]) {
            let [begin, end] = clip.taps;
            for (i, out) in out.chunks_exact_mut(clip.lanes).enumerate() {
                for lane in (0..clip.lanes).step_by(V::LANES) {
                    let mut held = simd.splat(zero);
                    for row in &rows[begin..end] {
                        for (_, column) in clip.taps(i) {
                            held = f.fold(simd, held, simd.read(&row[column * clip.lanes + lane..]));
                        }
                    }
                    simd.write(&mut out[lane..], held);
                }
            }
        }
        if clip.lanes.is_multiple_of(V::LANES) {
            all(simd, f, zero, clip, rows, out);
        } else {
            all(scalar, f, zero, clip, rows, out);
        }
    }
}

per_simd! {
    /// Adds each `gy` to the first maximum of its window, where that lies in the rows of `out`.
    ///
    /// `shift` is the first column of `rows` in columns of `out`.
    pub(super) fn give<T: Lane, V: Simd>(
        simd, scalar, clip: Clip, rows: [&[T]; ROWS], gy: &[T], shift: i64, out: [&mut [T]; ROWS]
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>>(
            simd: V, clip: Clip, rows: [&[T]; ROWS], gy: &[T], shift: i64, mut out: [&mut [T]; ROWS]
        ) {
            let [begin, end] = clip.taps;
            let (lanes, kernel) = (clip.lanes, index(clip.window.kernel()));
            for (i, gy) in gy.chunks_exact(lanes).enumerate() {
                for lane in (0..lanes).step_by(V::LANES) {
                    let mut best = None;
                    for (ty, row) in rows.iter().enumerate().take(end).skip(begin) {
                        for (tx, column) in clip.taps(i) {
                            let x = simd.read(&row[column * lanes + lane..]);
                            let code = simd.splat(number::<T>(ty * kernel + tx));
                            best = Some(match best {
                                None => (x, code),
                                Some((held, held_code)) => {
                                    let won = simd.wins(x, held);
                                    (simd.select(won, x, held), simd.select(won, code, held_code))
                                }
                            });
                        }
                    }
                    let Some((_, best)) = best else { continue };
                    let gy = simd.read(&gy[lane..]);
                    for (ty, row) in out.iter_mut().enumerate().take(end).skip(begin) {
                        for (tx, column) in clip.taps(i) {
                            let Some(to) = pixel(row, column, shift, lanes) else { continue };
                            let won = simd.equals(best, simd.splat(number::<T>(ty * kernel + tx)));
                            let share = simd.select(won, gy, simd.splat(T::ZERO));
                            let to = &mut to[lane..];
                            simd.write(to, simd.add(simd.read(to), share));
                        }
                    }
                }
            }
        }
        if clip.lanes.is_multiple_of(V::LANES) {
            all(simd, clip, rows, gy, shift, out);
        } else {
            all(scalar, clip, rows, gy, shift, out);
        }
    }
}

per_simd! {
    /// Adds `gy/divisor` to the elements of its window that lie in the rows of `out`.
    ///
    /// `shift` is the first column of the image in columns of `out`.
    pub(super) fn spread<T: Lane, V: Simd>(
        simd, scalar, clip: Clip, divisor: T, gy: &[T], shift: i64, out: [&mut [T]; ROWS]
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>>(
            simd: V, clip: Clip, divisor: T, gy: &[T], shift: i64, mut out: [&mut [T]; ROWS]
        ) {
            let [begin, end] = clip.taps;
            for (i, gy) in gy.chunks_exact(clip.lanes).enumerate() {
                for lane in (0..clip.lanes).step_by(V::LANES) {
                    let share = simd.div(simd.read(&gy[lane..]), simd.splat(divisor));
                    for row in &mut out[begin..end] {
                        for (_, column) in clip.taps(i) {
                            let Some(to) = pixel(row, column, shift, clip.lanes) else { continue };
                            let to = &mut to[lane..];
                            simd.write(to, simd.add(simd.read(to), share));
                        }
                    }
                }
            }
        }
        if clip.lanes.is_multiple_of(V::LANES) {
            all(simd, clip, divisor, gy, shift, out);
        } else {
            all(scalar, clip, divisor, gy, shift, out);
        }
    }
}

/// The pixel at a column of the image, if it lies in the row.
#[inline(always)]
fn pixel<T>(row: &mut [T], column: usize, shift: i64, lanes: usize) -> Option<&mut [T]> {
    let column = usize::try_from(signed(column) + shift).ok()?;
    row.get_mut(column * lanes..(column + 1) * lanes)
}
