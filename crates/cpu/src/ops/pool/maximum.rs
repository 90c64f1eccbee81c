//! Maximum pooling.

use tiled_geometry::{Interval, Region};
use tiled_kernel::Pool;
use tiled_tensor::{Element, PartMut, View};

use super::super::band::{Band, extent, for_bands, index, span};
use super::super::gather::Place;
use super::super::runs::{Pixels, Run, for_pixels, runs};
use super::super::stamp::per_isa;
use super::{Fold, Give, Loops, PIECE, ROWS, backward, clipped, fold_row, inside, pieces, whole};
use crate::Isa;
use crate::vector::{Lane, Simd, wins};

/// The larger; the first where neither is, NaN over every number.
#[derive(Clone, Copy)]
struct Larger;

impl Fold for Larger {
    #[inline(always)]
    fn fold<S: Simd>(self, simd: S, held: S::V, x: S::V) -> S::V {
        simd.larger(x, held)
    }
}

/// Maximum over the window of `[x]`.
pub(crate) fn maximum<T: Lane>(
    isa: Isa,
    pool: &Pool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, 4, |band| {
        for oy in band.rows().begin()..band.rows().end() {
            fold_row(isa, (Larger, T::NEG_INFINITY), pool, x, band, oy);
        }
    });
}

/// From `[gy, x]`: each `gy` goes to the first maximum of its window.
pub(crate) fn maximum_backward<T: Lane>(
    isa: Isa,
    pool: &Pool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let gradient = Gradient { isa, pool, gy: &inputs[0], x: &inputs[1] };
    for_bands(output, region, 8, |band| backward(pool, inputs, band, &gradient));
}

/// The gradient of the maximum.
struct Gradient<'a, 'v, T> {
    isa: Isa,
    pool: &'a Pool,
    gy: &'a View<'v, T>,
    x: &'a View<'v, T>,
}

impl<T: Lane> Give<T> for Gradient<'_, '_, T> {
    fn whole(&self, loops: Loops<'_>, place: Place, oy: i64, cols: Interval, rows: [&mut [T]; ROWS]) {
        let gy = span(self.gy, [place.n, place.first / place.lanes], oy, cols);
        let x = loops.rows(self.x, place, oy, cols);
        if loops.is_whole(oy) {
            whole::give(self.isa, loops.shape(), x, gy, rows);
        } else {
            inside::give(self.isa, loops.along(), loops.clip(oy, cols).taps, x, gy, rows);
        }
    }

    fn clipped(
        &self,
        loops: Loops<'_>,
        place: Place,
        oy: i64,
        cols: Interval,
        begin: i64,
        rows: [&mut [T]; ROWS],
    ) {
        let gy = span(self.gy, [place.n, place.first / place.lanes], oy, cols);
        let (clip, x) = (loops.clip(oy, cols), loops.rows(self.x, place, oy, cols));
        clipped::give(self.isa, clip, x, gy, loops.needed(cols).begin() - begin, rows);
    }

    fn by_taps(&self, band: &mut Band<'_, T>, oy: i64, cols: Interval) {
        for run in runs(self.x.layout(), Place::of(band)) {
            for piece in pieces(cols, run.len) {
                scatter(self.isa, self.pool, [self.gy, self.x], band, oy, piece, run);
            }
        }
    }
}

/// Adds the gradients of the outputs `cols` of row `oy` where they belong.
fn scatter<T: Lane>(
    isa: Isa,
    pool: &Pool,
    [gy, x]: [&View<'_, T>; 2],
    band: &mut Band<'_, T>,
    oy: i64,
    cols: Interval,
    run: Run,
) {
    let [vertical, horizontal] = pool.windows;
    let (place, lanes, begin) = (Place::of(band), band.lanes(), band.cols().begin());
    let (stride, kernel) = (index(horizontal.stride()), horizontal.kernel());
    let rows = vertical.taps_inside(oy, Interval::whole(pool.input[0]));
    let image = Interval::whole(pool.input[1]);
    let mut held = [T::NEG_INFINITY; PIECE];
    let mut codes = [0_u64; PIECE];
    for (ox, codes) in (cols.begin()..cols.end()).zip(codes.chunks_mut(run.len)) {
        codes.fill(code(kernel, rows.begin(), horizontal.taps_inside(ox, image).begin()));
    }
    for ty in rows.begin()..rows.end() {
        let y = vertical.input(oy, ty);
        for tx in 0..kernel {
            let part = horizontal.outputs_inside(tx, image).intersect(cols);
            if part.is_empty() {
                continue;
            }
            let pixels = Pixels::of(x, place.n, run, [y, horizontal.input(part.begin(), tx)], stride);
            let from = index(part.begin() - cols.begin()) * run.len;
            let (held, codes) = (&mut held[from..], &mut codes[from..]);
            find(isa, code(kernel, ty, tx), extent(part), run.len, pixels, held, codes);
        }
    }
    for ty in rows.begin()..rows.end() {
        let y = vertical.input(oy, ty);
        if !band.rows().contains(y) {
            continue;
        }
        // a later tap of one input belongs to an earlier window
        for tx in (0..kernel).rev() {
            let part = horizontal.outputs_inside(tx, band.cols()).intersect(cols);
            for gy_run in runs(gy.layout(), Place { first: place.first + run.to, lanes: run.len, ..place }) {
                if part.is_empty() {
                    continue;
                }
                let pixels = Pixels::of(gy, place.n, gy_run, [oy, part.begin()], 1);
                let from = index(part.begin() - cols.begin()) * run.len + gy_run.to;
                let codes = Codes { values: &codes[from..], step: run.len, wanted: code(kernel, ty, tx) };
                let to = index(horizontal.input(part.begin(), tx) - begin) * lanes + run.to + gy_run.to;
                let row = &mut band.row(y)[to..];
                give(isa, codes, extent(part), gy_run.len, pixels, row, stride * lanes);
            }
        }
    }
}

/// The number of a tap in row-major order.
fn code(kernel: i64, ty: i64, tx: i64) -> u64 {
    (ty * kernel + tx).cast_unsigned()
}

/// Which tap won at each pixel, and the one that is asked for.
#[derive(Clone, Copy)]
struct Codes<'a> {
    values: &'a [u64],
    step: usize,
    wanted: u64,
}

per_isa! {
    /// Notes the tap where it wins.
    fn find<T: Element>(
        code: u64, count: usize, len: usize, x: Pixels<'_, T>, held: &mut [T], codes: &mut [u64]
    ) {
        let values = x.values();
        for_pixels!(count, len, |i, len| {
            let pixel = held[i * len..][..len].iter_mut().zip(&mut codes[i * len..][..len]);
            for ((held, held_code), x) in pixel.zip(&values[i * x.step()..][..len]) {
                let won = wins(*x, *held);
                *held = if won { *x } else { *held };
                *held_code = if won { code } else { *held_code };
            }
        });
    }
}

per_isa! {
    /// Adds the gradient where the tap won.
    fn give<T: Element>(
        codes: Codes<'_>, count: usize, len: usize, gy: Pixels<'_, T>, out: &mut [T], out_step: usize
    ) {
        let values = gy.values();
        for_pixels!(count, len, |i, len| {
            let pixel = values[i * gy.step()..][..len].iter().zip(&codes.values[i * codes.step..][..len]);
            for (out, (gy, code)) in out[i * out_step..][..len].iter_mut().zip(pixel) {
                *out += if *code == codes.wanted { *gy } else { T::ZERO };
            }
        });
    }
}
