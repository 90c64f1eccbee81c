//! Adaptive pooling and its gradients.
//!
//! A network has each as two calls, along the columns and along the rows, so that parts of an image are read row by row. A sum
//! is in `f64`, in row-major order: parts may be as large as the image.

use tiled_geometry::{Interval, Region, Resize};
use tiled_tensor::{Element, PartMut, View};

use super::band::{Band, extent, for_bands, index};
use super::gather::Place;
use super::runs::{Pixels, Run, for_pixels, runs};
use super::stamp::per_isa;
use super::unmasked::Unmasked;
use crate::Isa;
use crate::vector::{Lane, wins};

/// Lanes that are treated at a time.
const LANES: usize = 16;

/// Mean over a part of `[x]`.
pub(crate) fn average<T: Lane>(
    isa: Isa,
    parts: &[Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    over_parts(parts, &inputs[0], output, region, |x, n, run, part, out| {
        let mut sums = [0.0; LANES];
        for y in part.rows().begin()..part.rows().end() {
            let pixels = Pixels::of(x, n, run, [y, part.cols().begin()], 1);
            add(isa, extent(part.cols()), pixels, &mut sums[..run.len]);
        }
        let size = elements(part);
        for (out, sum) in out.iter_mut().zip(&sums[..run.len]) {
            *out = T::from_f64(sum / size);
        }
    });
}

per_isa! {
    /// `sums[lane] += x[i][lane]` over `count` pixels.
    fn add<T: Element>(count: usize, pixels: Pixels<'_, T>, sums: &mut [f64]) {
        for_pixels!(count, sums.len(), |i, len| {
            let from = i * pixels.step();
            for (sum, x) in sums[..len].iter_mut().zip(&pixels.values()[from..from + len]) {
                *sum += x.to_f64();
            }
        });
    }
}

/// Maximum over a part of `[x]`.
pub(crate) fn maximum<T: Lane>(
    isa: Isa,
    parts: &[Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    over_parts(parts, &inputs[0], output, region, |x, n, run, part, out| {
        let out = &mut out[..run.len];
        out.fill(T::NEG_INFINITY);
        for y in part.rows().begin()..part.rows().end() {
            let pixels = Pixels::of(x, n, run, [y, part.cols().begin()], 1);
            raise(isa, extent(part.cols()), pixels, out);
        }
    });
}

per_isa! {
    /// `held[lane] = max(held[lane], x[i][lane])` over `count` pixels.
    fn raise<T: Element>(count: usize, pixels: Pixels<'_, T>, held: &mut [T]) {
        let unmasked = Unmasked::new();
        for_pixels!(count, held.len(), |i, len| {
            let from = i * pixels.step();
            for (held, x) in held[..len].iter_mut().zip(&pixels.values()[from..from + len]) {
                *held = unmasked.value(if wins(*x, *held) { *x } else { *held });
            }
        });
    }
}

/// Calls `work(x, n, run, part, out)` for the part of each output and at most [`LANES`] of its lanes.
fn over_parts<T: Lane>(
    parts: &[Resize; 2],
    x: &View<'_, T>,
    output: PartMut<'_, T>,
    region: Region<2>,
    work: impl Fn(&View<'_, T>, usize, Run, Region<2>, &mut [T]) + Sync,
) {
    let shrinks = parts.map(|part| part.input().div_euclid(part.output()) + 1);
    let weight = shrinks.into_iter().map(index).product();
    for_bands(output, region, weight, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            let rows = parts[0].needed(Interval::new(y, y + 1));
            let row = band.row(y);
            for run in runs(x.layout(), place).flat_map(narrow) {
                for (pixel, ox) in row.chunks_exact_mut(lanes).zip(cols.begin()..) {
                    let part = Region::new([rows, parts[1].needed(Interval::new(ox, ox + 1))]);
                    work(x, place.n, run, part, &mut pixel[run.to..]);
                }
            }
        }
    });
}

/// A run in runs of at most [`LANES`] lanes.
fn narrow(run: Run) -> impl Iterator<Item = Run> {
    (0..run.len).step_by(LANES).map(move |lane| Run {
        from: run.from + lane,
        to: run.to + lane,
        len: LANES.min(run.len - lane),
        ..run
    })
}

/// From `[gy]`: each `gy`, divided by the elements of its part, goes to all of it.
pub(crate) fn average_backward<T: Lane>(
    parts: &[Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let gy = &inputs[0];
    for_bands(output, region, 8, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        for y in band.rows().begin()..band.rows().end() {
            let rows = parts[0].touched(Interval::new(y, y + 1));
            let row = band.row(y);
            for run in runs(gy.layout(), place).flat_map(narrow) {
                for (pixel, x) in row.chunks_exact_mut(lanes).zip(cols.begin()..) {
                    let outputs = Region::new([rows, parts[1].touched(Interval::new(x, x + 1))]);
                    let mut sums = [0.0; LANES];
                    for_each(outputs, |at| {
                        let size = elements(needed(parts, at));
                        let shares = &Pixels::of(gy, place.n, run, at, 1).values()[..run.len];
                        for (sum, share) in sums.iter_mut().zip(shares) {
                            *sum += share.to_f64() / size;
                        }
                    });
                    for (out, sum) in pixel[run.to..].iter_mut().zip(&sums[..run.len]) {
                        *out = T::from_f64(*sum);
                    }
                }
            }
        }
    });
}

/// From `[gy, x]`: each `gy` goes to the first maximum of its part.
pub(crate) fn maximum_backward<T: Lane>(
    isa: Isa,
    parts: &[Resize; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (gy, x) = (&inputs[0], &inputs[1]);
    for_bands(output, region, 16, |band| {
        let place = Place::of(band);
        let (rows, cols) = (band.rows(), band.cols());
        for y in rows.begin()..rows.end() {
            band.row(y).fill(T::ZERO);
        }
        for run in runs(x.layout(), place).flat_map(narrow) {
            for_each(Region::new([parts[0].touched(rows), parts[1].touched(cols)]), |at| {
                let part = needed(parts, at);
                let mut best = Best::<T> { values: [T::NEG_INFINITY; LANES], places: [None; LANES] };
                for y in part.rows().begin()..part.rows().end() {
                    let pixels = Pixels::of(x, place.n, run, [y, part.cols().begin()], 1);
                    find(isa, extent(part.cols()), pixels, run.len, y, &mut best);
                }
                give(gy, band, place, run, at, part.cols().begin(), &best.places);
            });
        }
    });
}

/// The first maximum of each lane: its row, and its column counted from that of the part.
struct Best<T> {
    values: [T; LANES],
    places: [Option<(i64, usize)>; LANES],
}

per_isa! {
    /// Takes `count` pixels of a row in.
    fn find<T: Element>(count: usize, pixels: Pixels<'_, T>, lanes: usize, y: i64, best: &mut Best<T>) {
        for i in 0..count {
            let from = i * pixels.step();
            for (lane, x) in pixels.values()[from..from + lanes].iter().enumerate() {
                if best.places[lane].is_none() || wins(*x, best.values[lane]) {
                    (best.values[lane], best.places[lane]) = (*x, Some((y, i)));
                }
            }
        }
    }
}

/// Adds the gradient of an output to the places of its maxima that lie in the band.
fn give<T: Lane>(
    gy: &View<'_, T>,
    band: &mut Band<'_, T>,
    place: Place,
    run: Run,
    [oy, ox]: [i64; 2],
    begin: i64,
    places: &[Option<(i64, usize)>; LANES],
) {
    let (cols, lanes) = (band.cols(), band.lanes());
    let channels = band.channels();
    for (lane, found) in places[..run.len].iter().enumerate() {
        let (Some((y, column)), channel) = (*found, place.first + run.to + lane) else { continue };
        let x = begin + super::band::signed(column);
        if channel < channels && band.rows().contains(y) && cols.contains(x) {
            let share = gy.get(place.n, channel, oy, ox);
            let to = index(x - cols.begin()) * lanes + run.to + lane;
            band.row(y)[to] += share;
        }
    }
}

/// The part that an output is of.
fn needed(parts: &[Resize; 2], [y, x]: [i64; 2]) -> Region<2> {
    Region::new([parts[0].needed(Interval::new(y, y + 1)), parts[1].needed(Interval::new(x, x + 1))])
}

/// Calls `f` with the row and column of each pixel of a region, in row-major order.
fn for_each(region: Region<2>, mut f: impl FnMut([i64; 2])) {
    for y in region.rows().begin()..region.rows().end() {
        for x in region.cols().begin()..region.cols().end() {
            f([y, x]);
        }
    }
}

/// How many elements a part has.
#[expect(clippy::cast_precision_loss, reason = "a window has far fewer than 2^53 elements")]
fn elements(part: Region<2>) -> f64 {
    (part.rows().len() * part.cols().len()) as f64
}
