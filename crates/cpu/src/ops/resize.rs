//! Resampling and its gradient.

use tiled_geometry::{Interval, Region, Resize, ResizeMode};
use tiled_tensor::{Element, View, ViewMut};

use super::band::{extent, for_bands, index, signed};
use super::gather::{Place, read};
use super::runs::{Pixels, Run, runs};
use super::stamp::per_isa;
use crate::Isa;

/// Columns whose taps are worked out at a time.
const COLUMNS: usize = 128;

/// Elements of the output gradient that are treated at a time.
const PIECE: usize = 1024;

/// The inputs that an output reads, with their weights; one input where `low == high`.
#[derive(Clone, Copy, Debug)]
struct Taps<T> {
    low: i64,
    high: i64,
    weights: [T; 2],
}

impl<T: Element> Taps<T> {
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
pub(crate) fn forward<T: Element>(
    isa: Isa,
    [vertical, horizontal]: [Resize; 2],
    inputs: &[View<'_, T>],
    output: ViewMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, 2, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for part in parts(cols, COLUMNS) {
            let needed = horizontal.needed(part);
            let table = Taps::table(horizontal, part, needed.begin());
            let table = &table[..extent(part)];
            for y in band.rows().begin()..band.rows().end() {
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

/// Consecutive parts of at most `len` columns.
fn parts(cols: Interval, len: usize) -> impl Iterator<Item = Interval> {
    (0..extent(cols).div_ceil(len)).map(move |i| {
        let begin = cols.begin() + signed(i * len);
        Interval::new(begin, (begin + signed(len)).min(cols.end()))
    })
}

per_isa! {
    /// Rows are mixed first, then columns; `(1 − λ)·low + λ·high`.
    fn interpolate<T: Element>(table: &[Taps<T>], rows: Rows<'_, T>, run: Run, out: &mut [T], out_step: usize) {
        let mix = |[a, b]: [T; 2], [low, high]: [T; 2]| super::math::fma::<T, FUSED>(b, high, a * low);
        let (low, step) = (rows.low.values(), rows.low.step());
        for (i, taps) in table.iter().enumerate() {
            let (left, right) = (index(taps.low) * step, index(taps.high) * step);
            let out = &mut out[i * out_step..][..run.len];
            let (low_left, low_right) = (&low[left..][..run.len], &low[right..][..run.len]);
            match rows.high {
                None if left == right => out.copy_from_slice(low_left),
                None => {
                    for ((out, a), b) in out.iter_mut().zip(low_left).zip(low_right) {
                        *out = mix(taps.weights, [*a, *b]);
                    }
                }
                Some(high) => {
                    let high = high.values();
                    let (high_left, high_right) = (&high[left..][..run.len], &high[right..][..run.len]);
                    let columns = low_left.iter().zip(high_left).zip(low_right.iter().zip(high_right));
                    if left == right {
                        for (out, ((a, c), _)) in out.iter_mut().zip(columns) {
                            *out = mix(rows.weights, [*a, *c]);
                        }
                    } else {
                        for (out, ((a, c), (b, d))) in out.iter_mut().zip(columns) {
                            let (left, right) = (mix(rows.weights, [*a, *c]), mix(rows.weights, [*b, *d]));
                            *out = mix(taps.weights, [left, right]);
                        }
                    }
                }
            }
        }
    }
}

/// Gradient of resampling, from `[gy]`: rows are summed first, in order, then columns, in order.
pub(crate) fn backward<T: Element>(
    isa: Isa,
    [vertical, horizontal]: [Resize; 2],
    inputs: &[View<'_, T>],
    output: ViewMut<'_, T>,
    region: Region<2>,
) {
    let gy = &inputs[0];
    for_bands(output, region, 4, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            band.row(y).fill(T::ZERO);
        }
        for part in parts(horizontal.touched(cols), COLUMNS.min(PIECE / lanes)) {
            let table = Taps::<T>::table(horizontal, part, cols.begin());
            let table = &table[..extent(part)];
            for y in band.rows().begin()..band.rows().end() {
                let mut sums = [T::ZERO; PIECE];
                let sums = &mut sums[..extent(part) * lanes];
                let rows = vertical.touched(Interval::new(y, y + 1));
                for oy in rows.begin()..rows.end() {
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
            *sum = super::math::fma::<T, FUSED>(weight, *x, *sum);
        }
    }
}

per_isa! {
    /// Adds each pixel of `sums` to the pixels of the row that it read.
    fn share<T: Element>(table: &[Taps<T>], sums: &[T], row: &mut [T], lanes: usize) {
        let mut give = |column: i64, weight: T, values: &[T]| {
            let Ok(column) = usize::try_from(column) else { return };
            let Some(pixel) = row.get_mut(column * lanes..(column + 1) * lanes) else { return };
            for (to, value) in pixel.iter_mut().zip(values) {
                *to = super::math::fma::<T, FUSED>(weight, *value, *to);
            }
        };
        for (taps, values) in table.iter().zip(sums.chunks(lanes)) {
            give(taps.low, taps.weights[0], values);
            if taps.high != taps.low {
                give(taps.high, taps.weights[1], values);
            }
        }
    }
}
