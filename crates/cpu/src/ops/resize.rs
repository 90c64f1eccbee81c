//! Resampling and its gradient.

use tiled_geometry::{Interval, Region, Resize, ResizeMode};
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

/// The inputs that an output reads, with their weights; one input where `low == high`.
#[derive(Clone, Copy, Debug)]
struct Taps<T> {
    low: i64,
    high: i64,
    weights: [T; 2],
}

impl<T: Lane> Taps<T> {
    const NONE: Self = Self { low: 0, high: 0, weights: [T::ONE, T::ZERO] };

    fn new(resize: Resize, o: i64) -> Self {
        let (low, high) = resize.taps(o);
        if low == high || resize.mode() == ResizeMode::Nearest {
            return Self { low, high: low, weights: [T::ONE, T::ZERO] };
        }
        let (numerator, denominator) = resize.source(o);
        #[expect(clippy::cast_precision_loss, reason = "the products of extents up to 2^30 round once")]
        let after = T::from_f64((numerator % denominator) as f64 / denominator as f64);
        Self { low, high, weights: [T::ONE - after, after] }
    }

    /// The taps of the outputs `cols`, relative to column `origin` of the input.
    fn table(resize: Resize, cols: Interval, origin: i64) -> [Self; COLUMNS] {
        let mut table = [Self::NONE; COLUMNS];
        for (o, taps) in (cols.begin()..cols.end()).zip(&mut table) {
            let Self { low, high, weights } = Self::new(resize, o);
            *taps = Self { low: low - origin, high: high - origin, weights };
        }
        table
    }

    /// The weight that the output gives input `i`.
    fn weight(&self, i: i64) -> T {
        if self.low == i {
            self.weights[0]
        } else if self.high == i {
            self.weights[1]
        } else {
            T::ZERO
        }
    }
}

/// The two rows that an output row reads, and their weights; one row where there is one.
#[derive(Clone, Copy)]
struct Rows<'a, T> {
    low: Pixels<'a, T>,
    high: Option<Pixels<'a, T>>,
    weights: [T; 2],
}

/// Resampling of `[x]`.
pub(crate) fn forward<T: Lane>(
    isa: Isa,
    [vertical, horizontal]: [Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, 2, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for (rows, part) in tiles(band.rows(), cols, COLUMNS) {
            let needed = horizontal.needed(part);
            let table = Taps::table(horizontal, part, needed.begin());
            let table = &table[..extent(part)];
            for y in rows.begin()..rows.end() {
                let taps = Taps::<T>::new(vertical, y);
                let to = index(part.begin() - cols.begin()) * lanes;
                let row = &mut band.row(y)[to..];
                for run in runs(x.layout(), place) {
                    let at = |y| Pixels::of(x, place.n, run, [y, needed.begin()], 1);
                    let rows = Rows {
                        low: at(taps.low),
                        high: (taps.high != taps.low).then(|| at(taps.high)),
                        weights: taps.weights,
                    };
                    interpolate(isa, table, rows, run, &mut row[run.to..], lanes);
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
    /// Rows are mixed first, then columns; `(1 − λ)·low + λ·high`.
    fn interpolate<T: Lane, V: Simd>(
        simd, scalar, table: &[Taps<T>], rows: Rows<'_, T>, run: Run, out: &mut [T], out_step: usize
    ) {
        #[inline(always)]
        fn column<T: Element, V: Simd<E = T>>(simd: V, [a, b]: [V::V; 2], rows: Rows<'_, T>, at: usize) -> V::V {
            let low = simd.read(&rows.low.values()[at..]);
            match rows.high {
                None => low,
                Some(high) => simd.mul_add(b, simd.read(&high.values()[at..]), simd.mul(a, low)),
            }
        }
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>>(
            simd: V, table: &[Taps<T>], rows: Rows<'_, T>, run: Run, out: &mut [T], out_step: usize
        ) {
            let step = rows.low.step();
            let [a, b] = rows.weights.map(|weight| simd.splat(weight));
            for (taps, out) in table.iter().zip(out.chunks_mut(out_step)) {
                let [c, d] = taps.weights.map(|weight| simd.splat(weight));
                let (left, right) = (index(taps.low) * step, index(taps.high) * step);
                for lane in (0..run.len).step_by(V::LANES) {
                    let before = column(simd, [a, b], rows, left + lane);
                    let value = if left == right {
                        before
                    } else {
                        let after = column(simd, [a, b], rows, right + lane);
                        simd.mul_add(d, after, simd.mul(c, before))
                    };
                    simd.write(&mut out[lane..], value);
                }
            }
        }
        match run.len {
            1 => all(scalar, table, rows, Run { len: 1, ..run }, out, out_step),
            len if len.is_multiple_of(V::LANES) => all(simd, table, rows, run, out, out_step),
            _ => all(scalar, table, rows, run, out, out_step),
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
            let table = Taps::<T>::table(horizontal, part, cols.begin());
            let table = &table[..extent(part)];
            for y in rows.begin()..rows.end() {
                let mut sums = [T::ZERO; PIECE];
                let sums = &mut sums[..extent(part) * lanes];
                let touched = vertical.touched(Interval::new(y, y + 1));
                for oy in touched.begin()..touched.end() {
                    let weight = Taps::<T>::new(vertical, oy).weight(y);
                    read([gy], place, oy, part, |skip, [values]| {
                        add_scaled(isa, weight, values, &mut sums[skip..skip + values.len()]);
                    });
                }
                share(isa, table, sums, band.row(y), lanes);
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
    /// Adds each pixel of `sums` to the pixels of the row that it read.
    fn share<T: Lane, V: Simd>(simd, scalar, table: &[Taps<T>], sums: &[T], row: &mut [T], lanes: usize) {
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
        fn all<T: Element, V: Simd<E = T>>(simd: V, table: &[Taps<T>], sums: &[T], row: &mut [T], lanes: usize) {
            for (taps, values) in table.iter().zip(sums.chunks_exact(lanes)) {
                give(simd, taps.weights[0], values, row, taps.low);
                if taps.high != taps.low {
                    give(simd, taps.weights[1], values, row, taps.high);
                }
            }
        }
        match lanes {
            1 => all(scalar, table, sums, row, 1),
            _ if lanes.is_multiple_of(V::LANES) => all(simd, table, sums, row, lanes),
            _ => all(scalar, table, sums, row, lanes),
        }
    }
}
