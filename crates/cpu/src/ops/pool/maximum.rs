//! Maximum pooling.

use tiled_geometry::{Interval, Region};
use tiled_kernel::Pool;
use tiled_tensor::{Element, View, ViewMut};

use super::super::band::{Band, extent, for_bands, index, signed};
use super::super::elementwise::Binary;
use super::super::gather::Place;
use super::super::runs::{Pixels, Run, each, runs};
use super::super::stamp::per_isa;
use super::{PIECE, fold_row, outputs, tap, taps};
use crate::Isa;

/// The larger; the first where neither is, NaN over every number.
#[derive(Clone, Copy)]
struct Larger;

impl<T: Element> Binary<T> for Larger {
    #[inline(always)]
    fn apply<const FUSED: bool>(self, held: T, x: T) -> T {
        if wins(x, held) { x } else { held }
    }
}

/// Whether `x` takes the place of the maximum held so far.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "not a number is not less or equal: it wins")]
pub(crate) fn wins<T: Element>(x: T, held: T) -> bool {
    !(x <= held) & !held.is_nan()
}

/// Maximum over the window of `[x]`.
pub(crate) fn maximum<T: Element>(
    isa: Isa,
    pool: &Pool,
    inputs: &[View<'_, T>],
    output: ViewMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, 4, |band| {
        for oy in band.rows().begin()..band.rows().end() {
            band.row(oy).fill(T::NEG_INFINITY);
            fold_row(isa, Larger, pool, x, band, oy);
        }
    });
}

/// From `[gy, x]`: each `gy` goes to the first maximum of its window.
pub(crate) fn maximum_backward<T: Element>(
    isa: Isa,
    pool: &Pool,
    inputs: &[View<'_, T>],
    output: ViewMut<'_, T>,
    region: Region<2>,
) {
    let (gy, x) = (&inputs[0], &inputs[1]);
    let [vertical, horizontal] = pool.windows;
    for_bands(output, region, 8, |band| {
        for y in band.rows().begin()..band.rows().end() {
            band.row(y).fill(T::ZERO);
        }
        let place = Place::of(band);
        let rows = vertical.touched(band.rows()).intersect(Interval::whole(pool.output[0]));
        let cols = horizontal.touched(band.cols()).intersect(Interval::whole(pool.output[1]));
        for oy in rows.begin()..rows.end() {
            for run in runs(x.layout(), place) {
                let step = signed(PIECE / run.len);
                let mut begin = cols.begin();
                while begin < cols.end() {
                    let part = Interval::new(begin, (begin + step).min(cols.end()));
                    scatter(isa, pool, [gy, x], band, oy, part, run);
                    begin = part.end();
                }
            }
        }
    });
}

/// Adds the gradients of the outputs `cols` of row `oy` where they belong.
fn scatter<T: Element>(
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
    let rows = taps(vertical, oy, pool.input[0]);
    let mut held = [T::NEG_INFINITY; PIECE];
    let mut codes = [0_u64; PIECE];
    for (ox, codes) in (cols.begin()..cols.end()).zip(codes.chunks_mut(run.len)) {
        codes.fill(code(kernel, rows.begin(), taps(horizontal, ox, pool.input[1]).begin()));
    }
    for ty in rows.begin()..rows.end() {
        let y = tap(vertical, oy, ty);
        for tx in 0..kernel {
            let part = outputs(horizontal, tx, Interval::whole(pool.input[1])).intersect(cols);
            if part.is_empty() {
                continue;
            }
            let pixels = Pixels::of(x, place.n, run, [y, tap(horizontal, part.begin(), tx)], stride);
            let from = index(part.begin() - cols.begin()) * run.len;
            let (held, codes) = (&mut held[from..], &mut codes[from..]);
            find(isa, code(kernel, ty, tx), extent(part), run.len, pixels, held, codes);
        }
    }
    for ty in rows.begin()..rows.end() {
        let y = tap(vertical, oy, ty);
        if !band.rows().contains(y) {
            continue;
        }
        // a later tap of one input belongs to an earlier window
        for tx in (0..kernel).rev() {
            let part = outputs(horizontal, tx, band.cols()).intersect(cols);
            for gy_run in runs(gy.layout(), Place { first: place.first + run.to, lanes: run.len, ..place }) {
                if part.is_empty() {
                    continue;
                }
                let pixels = Pixels::of(gy, place.n, gy_run, [oy, part.begin()], 1);
                let from = index(part.begin() - cols.begin()) * run.len + gy_run.to;
                let codes = Codes { values: &codes[from..], step: run.len, wanted: code(kernel, ty, tx) };
                let to = index(tap(horizontal, part.begin(), tx) - begin) * lanes + run.to + gy_run.to;
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
        each(count, len, [x.step(), len, 0], |[from, to, _]| {
            if wins(values[from], held[to]) {
                held[to] = values[from];
                codes[to] = code;
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
        each(count, len, [gy.step(), out_step, codes.step], |[from, to, code]| {
            out[to] += if codes.values[code] == codes.wanted { values[from] } else { T::ZERO };
        });
    }
}
