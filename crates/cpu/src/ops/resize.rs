//! Resampling and its gradient.

use tiled_geometry::{Filter, Interval, Region, Resize};
use tiled_kernel::Taps;
use tiled_tensor::{Element, PartMut, View};

use super::band::{extent, for_bands, index, signed};
use super::gather::{Place, read};
use super::math::fma;
use super::runs::{Pixels, runs};
use super::stamp::{per_isa, per_simd};
use crate::Isa;
use crate::vector::{self, Lane, MAX_LANES, Simd};

/// Columns whose taps are worked out at a time.
const COLUMNS: usize = 128;

/// Rows that share the taps worked out, few enough that they stay in the second cache.
const ROWS: usize = 16;

/// The same of planes, whose rows are as many times shorter.
const fn rows_at_once(lanes: usize) -> usize {
    if lanes == 1 { ROWS * MAX_LANES } else { ROWS }
}

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
    /// The column that they begin with, and the lanes of each.
    begin: i64,
    lanes: usize,
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
    let are_planes = output.layout().block() == 1;
    // portable code takes one element at a time, see `per_simd`
    let vector = if isa == Isa::Portable { 1 } else { vector::lanes::<T>(isa) };
    let columns = |part| Columns::<T, N>::of(horizontal, part, are_planes.then_some(vector));
    // worked out once for all blocks and rows, as long as they are few
    let mut all = parts(region.cols(), COLUMNS);
    let listed: [Option<Columns<T, N>>; LISTED] = std::array::from_fn(|_| all.next().map(columns));
    for_bands(output, region, N, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        let mut mixed = [T::ZERO; MIXED * MAX_LANES];
        for rows in parts(band.rows(), rows_at_once(lanes)) {
            for (at, part) in parts(cols, COLUMNS).enumerate() {
                let made;
                let columns = if let Some(Some(listed)) = listed.get(at) {
                    listed
                } else {
                    made = columns(part);
                    &made
                };
                let begin = columns.needed.begin();
                for y in rows.begin()..rows.end() {
                    let taps = Taps::of(vertical, y);
                    let to = index(part.begin() - cols.begin()) * lanes;
                    let row = &mut band.row(y)[to..];
                    for run in runs(x.layout(), place) {
                        let pixels = std::array::from_fn(|k| {
                            let k = if k < taps.weights().len() { k } else { 0 };
                            Pixels::of(x, place.n, run, [taps.first + signed(k), begin], 1)
                        });
                        let rows = Rows { pixels, taps, begin, lanes: run.len };
                        if columns.picks.is_some() {
                            let row = &mut row[..extent(part)];
                            interpolate_plane::<T, N>(isa, columns, rows, &mut mixed, row);
                        } else {
                            interpolate::<T, N>(isa, columns, rows, &mut mixed, &mut row[run.to..], lanes);
                        }
                    }
                }
            }
        }
    });
}

/// The most parts of columns that are worked out once for a call.
const LISTED: usize = 8;

/// What a part of the columns of the output reads.
struct Columns<T, const N: usize> {
    table: [Taps<T>; COLUMNS],
    len: usize,
    needed: Interval,
    /// Whether outputs read more columns, counted for each of them, than there are: then these are mixed once for all.
    are_shared: bool,
    picks: Option<Picks<T, N>>,
}

impl<T: Element, const N: usize> Columns<T, N> {
    /// That of the columns `part`; of planes with what is picked into a vector of so many lanes.
    fn of(horizontal: Resize, part: Interval, lanes: Option<usize>) -> Self {
        let (table, len, needed) = (table(horizontal, part), extent(part), horizontal.needed(part));
        let picks = lanes.and_then(|lanes| Picks::of(&table[..len], needed, lanes));
        let read: usize = table[..len].iter().map(|taps| taps.weights().len()).sum();
        Self { table, len, needed, are_shared: extent(needed) <= read, picks }
    }

    #[inline(always)]
    fn table(&self) -> &[Taps<T>] {
        &self.table[..self.len]
    }
}

/// Tiles of at most so many rows and columns, from left to right, then down.
fn tiles(
    [rows, cols]: [Interval; 2],
    [height, width]: [usize; 2],
) -> impl Iterator<Item = (Interval, Interval)> {
    parts(rows, height).flat_map(move |rows| parts(cols, width).map(move |cols| (rows, cols)))
}

/// Consecutive parts of at most `len` coordinates.
fn parts(whole: Interval, len: usize) -> impl Iterator<Item = Interval> {
    (0..extent(whole).div_ceil(len)).map(move |i| {
        let begin = whole.begin() + signed(i * len);
        Interval::new(begin, (begin + signed(len)).min(whole.end()))
    })
}

/// The mix of the rows' values at `at`, in order.
#[inline(always)]
fn column<T: Element, V: Simd<E = T>, const N: usize>(
    simd: V,
    weights: &[V::V; N],
    rows: &Rows<'_, T, N>,
    at: usize,
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

/// The most columns that a part of the output reads, if they are mixed once for all of its columns.
const MIXED: usize = COLUMNS + MAX_LANES;

/// What neighbouring outputs of a plane, a vector of them at a time, pick from a vector of mixed columns: an enlarged row reads fewer columns than it
/// has.
struct Picks<T, const N: usize> {
    /// Where the vector of columns of each vector of outputs begins, at the place of its first output.
    bases: [usize; COLUMNS],
    /// The column of each tap after that one, and its weight.
    lanes: [[u8; MIXED]; N],
    weights: [[T; MIXED]; N],
    /// The most taps of an output, and the outputs of fewer: each of them is computed by itself.
    taps: usize,
    few: [usize; COLUMNS],
    fews: usize,
}

impl<T: Element, const N: usize> Picks<T, N> {
    /// Those of outputs that read the columns `needed`; nothing where a vector of so many lanes does not hold what as many outputs read.
    fn of(table: &[Taps<T>], needed: Interval, lanes: usize) -> Option<Self> {
        if extent(needed) > COLUMNS {
            return None;
        }
        let mut picks = Self {
            bases: [0; COLUMNS],
            lanes: [[0; MIXED]; N],
            weights: [[T::ZERO; MIXED]; N],
            taps: table.iter().map(|taps| taps.weights().len()).max()?,
            few: [0; COLUMNS],
            fews: 0,
        };
        for (vector, outputs) in table.chunks(lanes).enumerate() {
            let base = outputs.iter().map(|taps| taps.first).min()?;
            picks.bases[vector * lanes] = index(base - needed.begin());
            for (at, taps) in (vector * lanes..).zip(outputs) {
                let (first, count) = (index(taps.first - base), taps.weights().len());
                if first + count > lanes {
                    return None;
                }
                for (k, weight) in taps.weights().iter().enumerate() {
                    picks.lanes[k][at] = u8::try_from(first + k).ok()?;
                    picks.weights[k][at] = *weight;
                }
                if count < picks.taps {
                    picks.few[picks.fews] = at;
                    picks.fews += 1;
                }
            }
        }
        Some(picks)
    }
}

per_simd! {
    /// [`interpolate`] of a row of a plane, whose pixels lie side by side.
    fn interpolate_plane<T: Lane, V: Simd; const N: usize>(
        simd,
        scalar,
        columns: &Columns<T, N>,
        rows: Rows<'_, T, N>,
        mixed: &mut [T],
        out: &mut [T],
    ) {
        let Some(picks) = &columns.picks else { return };
        let (count, step) = (extent(columns.needed), rows.pixels[0].step());
        let mut at = 0;
        if step == 1 {
            let weights = of_rows(simd, &rows);
            while at + V::LANES <= count {
                simd.write(&mut mixed[at..], column(simd, &weights, &rows, at));
                at += V::LANES;
            }
        }
        let weights = of_rows(scalar, &rows);
        for at in at..count {
            scalar.write(&mut mixed[at..], column(scalar, &weights, &rows, at * step));
        }
        for at in (0..out.len()).step_by(V::LANES) {
            let mixed = simd.read(&mixed[picks.bases[at]..]);
            let pick = |k: usize| {
                let lanes = std::array::from_fn(|l| picks.lanes[k][at + l]);
                simd.permute(mixed, simd.index(&lanes))
            };
            let mut value = pick(0);
            if picks.taps > 1 {
                value = simd.mul(simd.read(&picks.weights[0][at..]), value);
                for k in 1..N {
                    if k < picks.taps {
                        value = simd.mul_add(simd.read(&picks.weights[k][at..]), pick(k), value);
                    }
                }
            }
            match out.get_mut(at..at + V::LANES) {
                Some(out) => simd.write(out, value),
                None => {
                    let mut last = [T::ZERO; MAX_LANES];
                    simd.write(&mut last, value);
                    let out = &mut out[at..];
                    out.copy_from_slice(&last[..out.len()]);
                }
            }
        }
        for &at in &picks.few[..picks.fews] {
            let taps = &columns.table[at];
            let mixed = &mixed[index(taps.first - rows.begin)..];
            scalar.write(&mut out[at..], row(scalar, taps, |k| scalar.read(&mixed[k..])));
        }
    }
}

/// The weights of the rows.
#[inline(always)]
fn of_rows<T: Element, V: Simd<E = T>, const N: usize>(simd: V, rows: &Rows<'_, T, N>) -> [V::V; N] {
    let weights = rows.taps.weights();
    std::array::from_fn(|k| simd.splat(weights.get(k).copied().unwrap_or(T::ZERO)))
}

/// The mix of an output's columns, in order.
#[inline(always)]
fn row<T: Element, V: Simd<E = T>>(simd: V, taps: &Taps<T>, column: impl Fn(usize) -> V::V) -> V::V {
    let weights = taps.weights();
    let first = column(0);
    if weights.len() == 1 {
        return first;
    }
    let mut value = simd.mul(simd.splat(weights[0]), first);
    for (k, weight) in weights.iter().enumerate().skip(1) {
        value = simd.mul_add(simd.splat(*weight), column(k), value);
    }
    value
}

per_simd! {
    /// Rows are mixed first, then columns, in order. Where outputs share columns, each is mixed once for all that read it.
    fn interpolate<T: Lane, V: Simd; const N: usize>(
        simd,
        scalar,
        columns: &Columns<T, N>,
        rows: Rows<'_, T, N>,
        mixed: &mut [T],
        out: &mut [T],
        out_step: usize,
    ) {
        #[inline(always)]
        fn all<T: Element, V: Simd<E = T>, const N: usize>(
            simd: V,
            columns: &Columns<T, N>,
            rows: &Rows<'_, T, N>,
            len: usize,
            mixed: &mut [T],
            out: &mut [T],
            out_step: usize,
        ) {
            let (step, count, weights) = (rows.pixels[0].step(), extent(columns.needed), of_rows(simd, rows));
            let outputs = columns.table().iter().zip(out.chunks_mut(out_step));
            if !columns.are_shared || count * len > mixed.len() {
                for (taps, out) in outputs {
                    let left = index(taps.first - rows.begin) * step;
                    for lane in (0..len).step_by(V::LANES) {
                        let column = |k: usize| column(simd, &weights, rows, left + k * step + lane);
                        simd.write(&mut out[lane..], row(simd, taps, column));
                    }
                }
                return;
            }
            for at in 0..count {
                for lane in (0..len).step_by(V::LANES) {
                    simd.write(&mut mixed[at * len + lane..], column(simd, &weights, rows, at * step + lane));
                }
            }
            for (taps, out) in outputs {
                let mixed = &mixed[index(taps.first - rows.begin) * len..];
                for lane in (0..len).step_by(V::LANES) {
                    simd.write(&mut out[lane..], row(simd, taps, |k| simd.read(&mixed[k * len + lane..])));
                }
            }
        }
        match rows.lanes {
            1 => all(scalar, columns, &rows, 1, mixed, out, out_step),
            len if len == V::LANES => all(simd, columns, &rows, V::LANES, mixed, out, out_step),
            len if len.is_multiple_of(V::LANES) => all(simd, columns, &rows, len, mixed, out, out_step),
            len => all(scalar, columns, &rows, len, mixed, out, out_step),
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
        let areas = [band.rows(), horizontal.touched(cols)];
        for (rows, part) in tiles(areas, [rows_at_once(lanes), COLUMNS.min(PIECE / lanes)]) {
            let table = table::<T>(horizontal, part);
            let table = &table[..extent(part)];
            let readers = (lanes == 1).then(|| Readers::of(table, horizontal.needed(part))).flatten();
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
                if let Some(readers) = &readers {
                    readers.give(isa, cols.begin(), sums, band.row(y));
                } else {
                    share(isa, table, cols.begin(), sums, band.row(y), lanes);
                }
            }
        }
    });
}

/// The outputs that read each column of a plane, in order, and their weights: a column's sum then stays in a register, where outputs that add to it one
/// after another would wait for each other's stores.
struct Readers<T> {
    /// The first of the columns, and where the outputs of each begin: those of a column end where the next one's begin.
    first: i64,
    columns: usize,
    begins: [usize; 2 * COLUMNS + 2],
    outputs: [u8; CUBIC * COLUMNS],
    weights: [T; CUBIC * COLUMNS],
}

impl<T: Element> Readers<T> {
    /// Those of the outputs of a table, which read the columns `needed`, if these are few.
    fn of(table: &[Taps<T>], needed: Interval) -> Option<Self> {
        let columns = extent(needed);
        if columns > 2 * COLUMNS {
            return None;
        }
        let mut readers = Self {
            first: needed.begin(),
            columns,
            begins: [0; 2 * COLUMNS + 2],
            outputs: [0; CUBIC * COLUMNS],
            weights: [T::ZERO; CUBIC * COLUMNS],
        };
        let pairs = || {
            let of = |(output, taps): (u8, &Taps<T>)| {
                let (at, count) = (index(taps.first - needed.begin()), taps.weights().len());
                (at..at + count).zip(0..count).map(move |(column, tap)| (column, output, tap))
            };
            (0u8..).zip(table).flat_map(of)
        };
        // counted two places further on, which the places of outputs then move up by one
        for (column, ..) in pairs() {
            readers.begins[column + 2] += 1;
        }
        for column in 1..readers.begins.len() {
            readers.begins[column] += readers.begins[column - 1];
        }
        for (column, output, tap) in pairs() {
            let place = &mut readers.begins[column + 1];
            readers.outputs[*place] = output;
            readers.weights[*place] = table[usize::from(output)].weights()[tap];
            *place += 1;
        }
        Some(readers)
    }

    /// Adds `sums` of the outputs to the columns of a row that they read; `begin` is the first column of the row.
    fn give(&self, isa: Isa, begin: i64, sums: &[T], row: &mut [T]) {
        let skipped = index((begin - self.first).max(0));
        let at = index((self.first - begin).max(0));
        let Some(row) = row.get_mut(at..) else { return };
        let begins = self.begins.get(skipped..=self.columns).unwrap_or(&[]);
        add_read(isa, begins, &self.outputs, &self.weights, sums, row);
    }
}

per_isa! {
    /// `row[c] += weight·sum` of the outputs that read it; those of column c are from `begins[c]` to `begins[c + 1]`.
    fn add_read<T: Element>(begins: &[usize], outputs: &[u8], weights: &[T], sums: &[T], row: &mut [T]) {
        for (ends, to) in begins.windows(2).zip(row) {
            let pairs = outputs[ends[0]..ends[1]].iter().zip(&weights[ends[0]..ends[1]]);
            let mut sum = *to;
            for (output, weight) in pairs {
                sum = fma::<T, FUSED>(*weight, sums[usize::from(*output)], sum);
            }
            *to = sum;
        }
    }
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
