//! Average pooling.

use tiled_geometry::{Interval, Region};
use tiled_kernel::Pool;
use tiled_tensor::{Element, PartMut, View};

use super::super::band::{Band, extent, for_bands, index, span};
use super::super::function::{Binary, Sum};
use super::super::gather::Place;
use super::super::runs::{Pixels, Run, runs};
use super::super::stamp::per_isa;
use super::{Fold, Give, Loops, PIECE, ROWS, backward, clipped, fold, fold_row, inside, pieces, whole};
use crate::Isa;
use crate::vector::{Lane, Simd};

/// `x/d` in place of what was held.
#[derive(Clone, Copy)]
struct Share<T> {
    divisor: T,
}

impl Fold for Sum {
    #[inline(always)]
    fn fold<S: Simd>(self, simd: S, held: S::V, x: S::V) -> S::V {
        simd.add(held, x)
    }
}

impl<T: Lane> Binary<T> for Share<T> {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, _held: T, x: T) -> T {
        x / self.divisor
    }
}

/// The divisors of an output row.
#[derive(Clone, Copy)]
struct Divisors<'a> {
    pool: &'a Pool,
    rows: i64,
}

impl<'a> Divisors<'a> {
    fn new(pool: &'a Pool, oy: i64) -> Self {
        Self { pool, rows: Self::along(pool, 0, oy) }
    }

    fn along(pool: &Pool, axis: usize, o: i64) -> i64 {
        let (window, extent) = (pool.windows[axis], pool.input[axis]);
        let counted = if pool.counts_padding {
            Interval::new(-window.padding(), extent + pool.padding_after[axis])
        } else {
            Interval::whole(extent)
        };
        window.taps_inside(o, counted).len()
    }

    /// The divisor of output `ox`.
    fn of<T: Lane>(self, ox: i64) -> T {
        #[expect(clippy::cast_precision_loss, reason = "windows have far fewer than 2^53 taps")]
        let divisor = (self.rows * Self::along(self.pool, 1, ox)) as f64;
        T::from_f64(divisor)
    }

    /// Runs of outputs with one divisor, in order.
    fn pieces<T: Lane>(self, cols: Interval) -> impl Iterator<Item = (Interval, T)> {
        let mut begin = cols.begin();
        std::iter::from_fn(move || {
            if begin >= cols.end() {
                return None;
            }
            let count = Self::along(self.pool, 1, begin);
            let mut end = begin + 1;
            // the middle is one run: past the first full window, look for the last one
            let inside = self.pool.windows[1].computable(Interval::whole(self.pool.input[1]));
            if inside.contains(begin) {
                end = inside.end().min(cols.end());
            }
            while end < cols.end() && Self::along(self.pool, 1, end) == count {
                end += 1;
            }
            let piece = Interval::new(begin, end);
            begin = end;
            Some((piece, self.of(piece.begin())))
        })
    }
}

/// Mean over the window of `[x]`.
pub(crate) fn average<T: Lane>(
    isa: Isa,
    pool: &Pool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, 4, |band| {
        for oy in band.rows().begin()..band.rows().end() {
            fold_row(isa, (Sum, T::ZERO), pool, x, band, oy);
            let (cols, lanes) = (band.cols(), band.lanes());
            let row = band.row(oy);
            for (piece, divisor) in Divisors::new(pool, oy).pieces(cols) {
                let from = index(piece.begin() - cols.begin()) * lanes;
                divide(isa, divisor, &mut row[from..from + extent(piece) * lanes]);
            }
        }
    });
}

per_isa! {
    /// `x[i] /= divisor`.
    fn divide<T: Element>(divisor: T, x: &mut [T]) {
        for x in x {
            *x = *x / divisor;
        }
    }
}

/// From `[gy]`: each `gy`, divided by its divisor, goes to its whole window.
pub(crate) fn average_backward<T: Lane>(
    isa: Isa,
    pool: &Pool,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let gradient = Gradient { isa, pool, gy: &inputs[0] };
    for_bands(output, region, 4, |band| backward(pool, inputs, band, &gradient));
}

/// The gradient of the mean.
struct Gradient<'a, 'v, T> {
    isa: Isa,
    pool: &'a Pool,
    gy: &'a View<'v, T>,
}

impl<T: Lane> Give<T> for Gradient<'_, '_, T> {
    fn whole(&self, loops: Loops<'_>, place: Place, oy: i64, cols: Interval, rows: [&mut [T]; ROWS]) {
        let gy = span(self.gy, [place.n, place.first / place.lanes], oy, cols);
        // windows whose columns lie in the image count all of them
        let divisor = Divisors::new(self.pool, oy).of(cols.begin());
        if loops.is_whole(oy) {
            whole::spread(self.isa, loops.shape(), divisor, gy, rows);
        } else {
            inside::spread(self.isa, loops.along(), divisor, gy, rows);
        }
    }

    fn clipped(
        &self,
        loops: Loops<'_>,
        place: Place,
        oy: i64,
        cols: Interval,
        begin: i64,
        mut rows: [&mut [T]; ROWS],
    ) {
        for (piece, divisor) in Divisors::new(self.pool, oy).pieces(cols) {
            let gy = span(self.gy, [place.n, place.first / place.lanes], oy, piece);
            let rows = rows.each_mut().map(|row| &mut **row);
            let shift = loops.needed(piece).begin() - begin;
            clipped::spread(self.isa, loops.clip(oy, piece), divisor, gy, shift, rows);
        }
    }

    fn by_taps(&self, band: &mut Band<'_, T>, oy: i64, cols: Interval) {
        for run in runs(self.gy.layout(), Place::of(band)) {
            for piece in pieces(cols, run.len) {
                spread(self.isa, self.pool, self.gy, band, oy, piece, run);
            }
        }
    }
}

/// Adds the shares of the outputs `cols` of row `oy` to their windows.
fn spread<T: Lane>(
    isa: Isa,
    pool: &Pool,
    gy: &View<'_, T>,
    band: &mut Band<'_, T>,
    oy: i64,
    cols: Interval,
    run: Run,
) {
    let [vertical, horizontal] = pool.windows;
    let (n, lanes, begin) = (band.n(), band.lanes(), band.cols().begin());
    let stride = index(horizontal.stride());
    let rows = vertical.taps_inside(oy, Interval::whole(pool.input[0]));
    let mut shares = [T::ZERO; PIECE];
    for (piece, divisor) in Divisors::new(pool, oy).pieces(cols) {
        let pixels = Pixels::of(gy, n, run, [oy, piece.begin()], 1);
        let shares = &mut shares[index(piece.begin() - cols.begin()) * run.len..];
        fold(isa, Share { divisor }, extent(piece), run.len, pixels, shares, run.len);
    }
    for ty in rows.begin()..rows.end() {
        let y = vertical.input(oy, ty);
        if !band.rows().contains(y) {
            continue;
        }
        // a later tap of one input belongs to an earlier window
        for tx in (0..horizontal.kernel()).rev() {
            let part = horizontal.outputs_inside(tx, band.cols()).intersect(cols);
            if part.is_empty() {
                continue;
            }
            let pixels = Pixels::new(&shares[index(part.begin() - cols.begin()) * run.len..], run.len);
            let to = index(horizontal.input(part.begin(), tx) - begin) * lanes + run.to;
            let row = &mut band.row(y)[to..];
            fold(isa, Sum, extent(part), run.len, pixels, row, stride * lanes);
        }
    }
}
