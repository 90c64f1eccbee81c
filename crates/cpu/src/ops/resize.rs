//! Resampling and its gradient.

use tiled_geometry::{Filter, Interval, Region, Resize};
use tiled_kernel::Taps;
use tiled_tensor::{Element, PartMut, View};

use super::band::{extent, for_bands, index, signed};
use super::gather::{Place, read};
use super::math::fma;
use super::runs::{Pixels, Run, runs};
use super::stamp::{per_isa, per_simd};
use crate::Isa;
use crate::vector::{Lane, Simd};

/// Columns whose taps are worked out at a time.
const COLUMNS: usize = 128;

/// Rows that share the taps worked out, few enough that they stay in the second cache.
const ROWS: usize = 16;

/// Elements of the output gradient that are treated at a time.
const PIECE: usize = 1024;

/// The most inputs of an output of a cubic mode along an axis, and of the others.
const CUBIC: usize = Taps::<f64>::MOST;
const LINEAR: usize = 2;

/// The taps of the outputs `cols`.
fn table<T: Element>(resize: Resize, cols: Interval) -> [Taps<T>; COLUMNS] {
    let mut table = [Taps::ONE; COLUMNS];
    for (o, taps) in (cols.begin()..cols.end()).zip(&mut table) {
        *taps = Taps::of(resize, o);
    }
    table
}

/// The rows that an output row reads, and their weights.
#[derive(Clone, Copy)]
struct Rows<'a, T, const N: usize> {
    /// Of those past the last one the first again.
    pixels: [Pixels<'a, T>; N],
    taps: Taps<T>,
    /// The column that they begin with.
    begin: i64,
}

/// Resampling of `[x]`.
pub(crate) fn forward<T: Lane>(
    isa: Isa,
    resize: [Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    if resize.iter().any(|axis| matches!(axis.mode().filter, Filter::Cubic(_))) {
        forward_of::<T, CUBIC>(isa, resize, inputs, output, region);
    } else {
        forward_of::<T, LINEAR>(isa, resize, inputs, output, region);
    }
}

/// The same of at most so many taps along an axis.
fn forward_of<T: Lane, const N: usize>(
    isa: Isa,
    [vertical, horizontal]: [Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, N, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for (rows, part) in tiles(band.rows(), cols, COLUMNS) {
            let begin = horizontal.needed(part).begin();
            let table = table(horizontal, part);
            let table = &table[..extent(part)];
            for y in rows.begin()..rows.end() {
                let taps = Taps::of(vertical, y);
                let to = index(part.begin() - cols.begin()) * lanes;
                let row = &mut band.row(y)[to..];
                for run in runs(x.layout(), place) {
                    let pixels = std::array::from_fn(|k| {
                        let k = if k < taps.weights().len() { k } else { 0 };
                        Pixels::of(x, place.n, run, [taps.first + signed(k), begin], 1)
                    });
                    let rows = Rows { pixels, taps, begin };
                    interpolate::<T, N>(isa, table, rows, run, &mut row[run.to..], lanes);
                }
            }
        }
    });
}

/// Tiles of at most [`ROWS`] rows and `width` columns, from left to right, then down.
fn tiles(rows: Interval, cols: Interval, width: usize) -> impl Iterator<Item = (Interval, Interval)> {
    parts(rows, ROWS).flat_map(move |rows| parts(cols, width).map(move |cols| (rows, cols)))
}

/// Consecutive parts of at most `len` coordinates.
fn parts(whole: Interval, len: usize) -> impl Iterator<Item = Interval> {
    (0..extent(whole).div_ceil(len)).map(move |i| {
        let begin = whole.begin() + signed(i * len);
        Interval::new(begin, (begin + signed(len)).min(whole.end()))
    })
}

per_simd! {
    /// Rows are mixed first, then columns, in order.
    fn interpolate<T: Lane, V: Simd; const N: usize>(
        simd,
        scalar,
        table: &[Taps<T>],
        rows: Rows<'_, T, N>,
        run: Run,
        out: &mut [T],
        out_step: usize,
    ) {
        #[inline(always)]
        fn column<T: Element, V: Simd<E = T>, const N: usize>(
            simd: V, weights: &[V::V; N], rows: &Rows<'_, T, N>, at: usize
        ) -> V::V {
            let count = rows.taps.weights().len();
            let first = simd.read(&rows.pixels[0].values()[at..]);
            if count == 1 {
                return first;
            }
            let mut sum = simd.mul(weights[0], first);
            for (k, (weight, pixels)) in weights.iter().zip(&rows.pixels).enumerate().skip(1) {
                if k < count {
                    sum = simd.mul_add(*weight, simd.read(&pixels.values()[at..]), sum);
                }
            }
            sum
        }
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>, const N: usize>(
            simd: V,
            table: &[Taps<T>],
            rows: &Rows<'_, T, N>,
            run: Run,
            out: &mut [T],
            out_step: usize,
        ) {
            let step = rows.pixels[0].step();
            let of_rows = rows.taps.weights();
            let of_rows: [V::V; N] =
                std::array::from_fn(|k| simd.splat(of_rows.get(k).copied().unwrap_or(T::ZERO)));
            for (taps, out) in table.iter().zip(out.chunks_mut(out_step)) {
                let (weights, left) = (taps.weights(), index(taps.first - rows.begin) * step);
                for lane in (0..run.len).step_by(V::LANES) {
                    let first = column(simd, &of_rows, rows, left + lane);
                    let mut value = first;
                    if weights.len() > 1 {
                        value = simd.mul(simd.splat(weights[0]), first);
                        for (k, weight) in weights.iter().enumerate().skip(1) {
                            let next = column(simd, &of_rows, rows, left + k * step + lane);
                            value = simd.mul_add(simd.splat(*weight), next, value);
                        }
                    }
                    simd.write(&mut out[lane..], value);
                }
            }
        }
        match run.len {
            1 => all(scalar, table, &rows, Run { len: 1, ..run }, out, out_step),
            len if len.is_multiple_of(V::LANES) => all(simd, table, &rows, run, out, out_step),
            _ => all(scalar, table, &rows, run, out, out_step),
        }
    }
}

/// Gradient of resampling, from `[gy]`: rows are summed first, in order, then columns, in order.
pub(crate) fn backward<T: Lane>(
    isa: Isa,
    [vertical, horizontal]: [Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let gy = &inputs[0];
    for_bands(output, region, 4, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            band.row(y).fill(T::ZERO);
        }
        for (rows, part) in tiles(band.rows(), horizontal.touched(cols), COLUMNS.min(PIECE / lanes)) {
            let table = table::<T>(horizontal, part);
            let table = &table[..extent(part)];
            for y in rows.begin()..rows.end() {
                let mut sums = [T::ZERO; PIECE];
                let sums = &mut sums[..extent(part) * lanes];
                let touched = vertical.touched(Interval::new(y, y + 1));
                for oy in touched.begin()..touched.end() {
                    let weight = Taps::<T>::of(vertical, oy).weight(y);
                    read([gy], place, oy, part, |skip, [values]| {
                        add_scaled(isa, weight, values, &mut sums[skip..skip + values.len()]);
                    });
                }
                share(isa, table, cols.begin(), sums, band.row(y), lanes);
            }
        }
    });
}

per_isa! {
    /// `sum[i] += weight·x[i]`.
    fn add_scaled<T: Element>(weight: T, x: &[T], sum: &mut [T]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum = fma::<T, FUSED>(weight, *x, *sum);
        }
    }
}

per_simd! {
    /// Adds each pixel of `sums` to the pixels of the row that it read; `begin` is the first column of the row.
    fn share<T: Lane, V: Simd>(
        simd, scalar, table: &[Taps<T>], begin: i64, sums: &[T], row: &mut [T], lanes: usize
    ) {
        #[inline(always)]
        fn give<T: Element, V: Simd<E = T>>(simd: V, weight: T, values: &[T], row: &mut [T], column: i64) {
            let lanes = values.len();
            let Ok(column) = usize::try_from(column) else { return };
            let Some(pixel) = row.get_mut(column * lanes..(column + 1) * lanes) else { return };
            let weight = simd.splat(weight);
            for lane in (0..lanes).step_by(V::LANES) {
                let to = &mut pixel[lane..];
                simd.write(to, simd.mul_add(weight, simd.read(&values[lane..]), simd.read(to)));
            }
        }
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>>(
            simd: V, table: &[Taps<T>], begin: i64, sums: &[T], row: &mut [T], lanes: usize
        ) {
            for (taps, values) in table.iter().zip(sums.chunks_exact(lanes)) {
                for (weight, column) in taps.weights().iter().zip(taps.first - begin..) {
                    give(simd, *weight, values, row, column);
                }
            }
        }
        match lanes {
            1 => all(scalar, table, begin, sums, row, 1),
            _ if lanes.is_multiple_of(V::LANES) => all(simd, table, begin, sums, row, lanes),
            _ => all(scalar, table, begin, sums, row, lanes),
        }
    }
}
