//! Pooling, forward and backward.
//!
//! Forward, a row of the output is made at a time. Backward, the rows of the output gradient are taken in order,
//! and each adds to the rows of the input gradient that its windows touch, so that every element sums its windows
//! in row-major order wherever the region begins. Each has four kinds of loops, which give the same bits:
//! [`whole`] for the usual windows inside the image, [`inside`] for others whose columns lie inside, [`clipped`] at the
//! ends of rows, and loops over taps, here and in [`maximum`] and [`average`], for windows of other blocks, very large
//! kernels, and what is left of planes.

mod average;
mod clipped;
mod inside;
mod maximum;
mod whole;

pub(crate) use average::{average, average_backward};
pub(crate) use maximum::{maximum, maximum_backward};

use tiled_geometry::Interval;
use tiled_kernel::Pool;
use tiled_tensor::{Element, View};

use super::band::{Band, extent, index, signed, span};
use super::function::Binary;
use super::gather::Place;
use super::runs::{Pixels, for_pixels, runs};
use super::stamp::per_isa;
use super::unmasked::Unmasked;
use crate::Isa;
use crate::vector::{Lane, Scalar, Simd};
use clipped::Clip;
use inside::Along;
use whole::Shape;

/// Elements of the output gradient that loops over taps treat at a time.
const PIECE: usize = 1024;

/// The most rows of a window of [`whole`] or [`clipped`], and of a gradient of [`inside`].
const ROWS: usize = 8;

/// The most rows inside the image of a window of [`inside`].
const MOST_ROWS: usize = 32;

/// Outputs of one lane that are worth a loop over taps.
const LONG: i64 = 16;

/// Takes the next tap of a window in.
trait Fold: Copy + Sync {
    /// What was held and `x`, for a vector.
    fn fold<S: Simd>(self, simd: S, held: S::V, x: S::V) -> S::V;
}

/// A fold as a function of two elements.
#[derive(Clone, Copy)]
struct Scalars<F>(F);

impl<T: Lane, F: Fold> Binary<T> for Scalars<F> {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, held: T, x: T) -> T {
        let [value] = self.0.fold(Scalar::<T, FUSED>::EVERYWHERE, [held], [x]);
        value
    }
}

per_isa! {
    /// `out = f(out, x)` for `count` pixels of `len` lanes.
    fn fold<T: Element, F: Binary<T>>(f: F, count: usize, len: usize, x: Pixels<'_, T>, out: &mut [T], out_step: usize) {
        let (values, unmasked) = (x.values(), Unmasked::new());
        if x.step() == len && out_step == len {
            for (out, x) in out.iter_mut().zip(values).take(count * len) {
                *out = unmasked.value(f.apply::<FUSED>(*out, *x));
            }
        } else {
            for_pixels!(count, len, |i, len| {
                let out = &mut out[i * out_step..][..len];
                for (out, x) in out.iter_mut().zip(&values[i * x.step()..][..len]) {
                    *out = unmasked.value(f.apply::<FUSED>(*out, *x));
                }
            });
        }
    }
}

/// The loops that a row of outputs may take.
#[derive(Clone, Copy)]
struct Loops<'a> {
    pool: &'a Pool,
    lanes: usize,
    /// Whether all windows are blocked as the output.
    is_alike: bool,
    /// Whether, as well, the kernel has few rows.
    is_blocked: bool,
}

impl<'a> Loops<'a> {
    fn new<T: Lane>(pool: &'a Pool, views: &[View<'_, T>], lanes: usize) -> Self {
        let is_alike = views.iter().all(|view| view.layout().block() == lanes);
        let is_blocked = is_alike && pool.windows[0].kernel() <= signed(ROWS);
        Self { pool, lanes, is_alike, is_blocked }
    }

    fn shape(self) -> Shape {
        let window = self.pool.windows[1];
        Shape { kernel: index(window.kernel()), stride: index(window.stride()), lanes: self.lanes }
    }

    fn along(self) -> Along {
        Along::of(self.pool.windows[1], self.lanes)
    }

    /// Whether outputs of row `oy` inside the image have unrolled loops.
    fn is_whole(self, oy: i64) -> bool {
        let [vertical, horizontal] = self.pool.windows;
        let is_square = vertical.kernel() == horizontal.kernel() && vertical.stride() == horizontal.stride();
        let is_dense = vertical.dilation() == 1 && horizontal.dilation() == 1;
        let is_inside =
            vertical.taps_inside(oy, Interval::whole(self.pool.input[0])).len() == vertical.kernel();
        self.is_blocked && is_square && is_dense && is_inside && self.shape().is_unrolled()
    }

    /// Whether outputs of row `oy` whose columns lie inside the image have loops of [`inside`].
    fn is_inside(self, oy: i64) -> bool {
        let [vertical, horizontal] = self.pool.windows;
        let taps = vertical.taps_inside(oy, Interval::whole(self.pool.input[0]));
        let is_few = (1..=signed(MOST_ROWS)).contains(&taps.len());
        self.is_alike && is_few && (self.lanes > 1 || horizontal.stride() == 1)
    }

    /// Whether the gradients of such outputs have loops of [`inside`] as well.
    fn gives_inside(self, oy: i64) -> bool {
        self.is_inside(oy) && self.is_blocked && self.lanes > 1 && self.pool.windows[0].dilation() == 1
    }

    /// The input columns that the outputs `cols` read.
    fn needed(self, cols: Interval) -> Interval {
        self.pool.windows[1].receptive(cols).intersect(Interval::whole(self.pool.input[1]))
    }

    /// Where the windows of the outputs `cols` of row `oy` lie in the columns that they need.
    fn clip(self, oy: i64, cols: Interval) -> Clip {
        let [vertical, horizontal] = self.pool.windows;
        let (needed, taps) =
            (self.needed(cols), vertical.taps_inside(oy, Interval::whole(self.pool.input[0])));
        Clip {
            window: horizontal,
            first: cols.begin(),
            columns: needed,
            lanes: self.lanes,
            taps: [index(taps.begin()), index(taps.end())],
        }
    }

    /// The input rows that the outputs `cols` of row `oy` read, one for each tap; empty outside the image.
    fn rows<'v, T: Lane>(self, x: &View<'v, T>, place: Place, oy: i64, cols: Interval) -> [&'v [T]; ROWS] {
        self.rows_from(0, x, place, oy, cols)
    }

    /// The same from a tap on.
    fn rows_from<'v, T: Lane, const N: usize>(
        self,
        first: i64,
        x: &View<'v, T>,
        place: Place,
        oy: i64,
        cols: Interval,
    ) -> [&'v [T]; N] {
        let vertical = self.pool.windows[0];
        let (needed, taps) =
            (self.needed(cols), vertical.taps_inside(oy, Interval::whole(self.pool.input[0])));
        std::array::from_fn(|row| {
            let ty = first + signed(row);
            if taps.contains(ty) && !needed.is_empty() {
                span(x, [place.n, place.first / place.lanes], vertical.input(oy, ty), needed)
            } else {
                &[]
            }
        })
    }
}

/// Folds every tap of the windows of row `oy` into the row, in row-major order, beginning with `zero`.
fn fold_row<T: Lane, F: Fold>(
    isa: Isa,
    (f, zero): (F, T),
    pool: &Pool,
    x: &View<'_, T>,
    band: &mut Band<'_, T>,
    oy: i64,
) {
    let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
    let loops = Loops::new(pool, &[*x], lanes);
    let row = band.row(oy);
    let at = |x: i64| index(x - cols.begin()) * lanes;
    let mut borders = [cols, Interval::EMPTY];
    let (is_whole, [vertical, horizontal]) = (loops.is_whole(oy), pool.windows);
    if is_whole || loops.is_inside(oy) {
        let whole = horizontal.computable(Interval::whole(pool.input[1])).intersect(cols);
        if !whole.is_empty() {
            let out = &mut row[at(whole.begin())..at(whole.end())];
            if is_whole {
                whole::forward(isa, (f, zero), loops.shape(), loops.rows(x, place, oy, whole), out);
            } else {
                let taps = vertical.taps_inside(oy, Interval::whole(pool.input[0]));
                let rows: [&[T]; MOST_ROWS] = loops.rows_from(taps.begin(), x, place, oy, whole);
                inside::forward(isa, f, zero, loops.along(), &rows[..extent(taps)], out);
            }
            borders = [Interval::new(cols.begin(), whole.begin()), Interval::new(whole.end(), cols.end())];
        }
    }
    for part in borders.into_iter().filter(|part| !part.is_empty()) {
        let out = &mut row[at(part.begin())..at(part.end())];
        if loops.is_blocked && (lanes > 1 || part.len() < LONG) {
            let rows = loops.rows(x, place, oy, part);
            clipped::forward(isa, f, zero, loops.clip(oy, part), rows, out);
        } else {
            out.fill(zero);
            fold_taps(isa, f, pool, x, place, [oy, part.begin()], out);
        }
    }
}

/// Folds one tap after another into the outputs from `[oy, ox]` on.
fn fold_taps<T: Lane, F: Fold>(
    isa: Isa,
    f: F,
    pool: &Pool,
    x: &View<'_, T>,
    place: Place,
    [oy, ox]: [i64; 2],
    out: &mut [T],
) {
    let [vertical, horizontal] = pool.windows;
    let cols = Interval::new(ox, ox + signed(out.len() / place.lanes));
    let rows = vertical.taps_inside(oy, Interval::whole(pool.input[0]));
    for ty in rows.begin()..rows.end() {
        let y = vertical.input(oy, ty);
        for tx in 0..horizontal.kernel() {
            let part = horizontal.outputs_inside(tx, Interval::whole(pool.input[1])).intersect(cols);
            if part.is_empty() {
                continue;
            }
            let from = [y, horizontal.input(part.begin(), tx)];
            let to = index(part.begin() - ox) * place.lanes;
            for run in runs(x.layout(), place) {
                let pixels = Pixels::of(x, place.n, run, from, index(horizontal.stride()));
                fold(isa, Scalars(f), extent(part), run.len, pixels, &mut out[to + run.to..], place.lanes);
            }
        }
    }
}

/// What a row of the output gradient gives to the rows that its windows touch.
trait Give<T: Lane> {
    /// Outputs whose columns lie in the image, by [`whole`] or [`inside`]; `rows` are the part that the windows cover.
    fn whole(&self, loops: Loops<'_>, place: Place, oy: i64, cols: Interval, rows: [&mut [T]; ROWS]);
    /// Outputs at the border of the image or of the band, by [`clipped`]; `begin` is the first column of `rows`.
    fn clipped(
        &self,
        loops: Loops<'_>,
        place: Place,
        oy: i64,
        cols: Interval,
        begin: i64,
        rows: [&mut [T]; ROWS],
    );
    /// Any outputs, tap by tap.
    fn by_taps(&self, band: &mut Band<'_, T>, oy: i64, cols: Interval);
}

/// Walks the rows of the output gradient whose windows touch a band of the input gradient, in order.
fn backward<T: Lane>(pool: &Pool, views: &[View<'_, T>], band: &mut Band<'_, T>, give: &impl Give<T>) {
    let [vertical, horizontal] = pool.windows;
    let (place, rows, cols, lanes) = (Place::of(band), band.rows(), band.cols(), band.lanes());
    let loops = Loops::new(pool, views, lanes);
    let outputs = vertical.touched(rows).intersect(Interval::whole(pool.output[0]));
    let touched = horizontal.touched(cols).intersect(Interval::whole(pool.output[1]));
    let inside = horizontal.computable(cols.intersect(Interval::whole(pool.input[1]))).intersect(touched);
    let mut zeroed = rows.begin();
    for oy in outputs.begin()..outputs.end() {
        let reached = vertical.receptive(Interval::new(oy, oy + 1));
        let is_whole = loops.is_whole(oy);
        let whole = if is_whole || loops.gives_inside(oy) { inside } else { Interval::EMPTY };
        let covered = horizontal.receptive(whole);
        let covered = [covered.begin(), covered.end()].map(|x| index((x - cols.begin()).max(0)) * lanes);
        // usual windows that do not overlap write what they cover
        let is_written = is_whole && !whole.is_empty() && horizontal.stride() == horizontal.kernel();
        while zeroed < reached.end().min(rows.end()) {
            let row = band.row(zeroed);
            if is_written && reached.contains(zeroed) {
                row[..covered[0]].fill(T::ZERO);
                row[covered[1]..].fill(T::ZERO);
            } else {
                row.fill(T::ZERO);
            }
            zeroed += 1;
        }
        if whole.is_empty() {
            give_part(loops, give, band, oy, touched);
            continue;
        }
        // from left to right, the order of sums
        give_part(loops, give, band, oy, Interval::new(touched.begin(), whole.begin()));
        let window =
            band.adjacent(reached).map(|row| row.get_mut(covered[0]..covered[1]).unwrap_or_default());
        give.whole(loops, place, oy, whole, window);
        give_part(loops, give, band, oy, Interval::new(whole.end(), touched.end()));
    }
    while zeroed < rows.end() {
        band.row(zeroed).fill(T::ZERO);
        zeroed += 1;
    }
}

/// Gives the outputs `cols` of row `oy`, which need not lie in the image or the band.
fn give_part<T: Lane>(
    loops: Loops<'_>,
    give: &impl Give<T>,
    band: &mut Band<'_, T>,
    oy: i64,
    cols: Interval,
) {
    let vertical = loops.pool.windows[0];
    let (place, begin) = (Place::of(band), band.cols().begin());
    if cols.is_empty() {
        return;
    }
    if loops.is_blocked && vertical.dilation() == 1 && (loops.lanes > 1 || cols.len() < LONG) {
        let rows = band.adjacent(vertical.receptive(Interval::new(oy, oy + 1)));
        give.clipped(loops, place, oy, cols, begin, rows);
    } else {
        give.by_taps(band, oy, cols);
    }
}

/// Pieces of `cols` of so many columns that `lanes` of each fill at most [`PIECE`] elements.
fn pieces(cols: Interval, lanes: usize) -> impl Iterator<Item = Interval> {
    let step = PIECE / lanes;
    (cols.begin()..cols.end())
        .step_by(step)
        .map(move |begin| Interval::new(begin, (begin + signed(step)).min(cols.end())))
}
