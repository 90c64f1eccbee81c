//! Kernels that move elements: concatenation, slices of the channels, padding and crops.

use tiled_geometry::{Interval, Padding, Region};
use tiled_tensor::{Element, PartMut, View};

use super::band::{for_bands, index, span};
use super::gather::{Place, read};
use super::stamp::per_isa;
use crate::Isa;

/// A region of a window into another one of the same blocks, which need not be as high or wide.
pub(crate) fn copy<T: Element>(from: &View<'_, T>, to: PartMut<'_, T>, region: Region<2>) {
    assert_eq!(from.layout().block(), to.layout().block(), "windows with blocks of one size");
    for_bands(to, region, 1, |band| {
        let (place, cols) = ([band.n(), band.first_channel() / band.lanes()], band.cols());
        for y in band.rows().begin()..band.rows().end() {
            band.row(y).copy_from_slice(span(from, place, y, cols));
        }
    });
}

/// The inputs one after another along the channels.
pub(crate) fn concat<T: Element>(inputs: &[View<'_, T>], output: PartMut<'_, T>, region: Region<2>) {
    for_bands(output, region, 1, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        let (first, end) = (band.first_channel(), band.first_channel() + band.real_lanes());
        for y in band.rows().begin()..band.rows().end() {
            let row = band.row(y);
            let mut begin = 0;
            for input in inputs {
                let channels = begin..begin + input.layout().channels();
                begin = channels.end;
                if channels.end <= first || end <= channels.start {
                    continue;
                }
                let aligned = channels.start <= first && (first - channels.start) % lanes == 0;
                if aligned && input.layout().block() == lanes && end <= channels.end {
                    row.copy_from_slice(span(input, [n, (first - channels.start) / lanes], y, cols));
                } else {
                    let lane = channels.start.saturating_sub(first);
                    let from = first.saturating_sub(channels.start);
                    copy_lanes(input, n, from, [lane, lanes], y, cols, row);
                }
            }
        }
    });
}

/// The channels `begin ..` of `[x]`, as many as the output has.
pub(crate) fn slice<T: Element>(
    begin: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    for_bands(output, region, 1, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        let first = begin + band.first_channel();
        for y in band.rows().begin()..band.rows().end() {
            let row = band.row(y);
            if first.is_multiple_of(lanes) && x.layout().block() == lanes {
                row.copy_from_slice(span(x, [n, first / lanes], y, cols));
            } else {
                copy_lanes(x, n, first, [0, lanes], y, cols, row);
            }
        }
    });
}

/// Gradient of a slice: the channels `begin ..` are those of `[gy]`, the others zero.
pub(crate) fn slice_backward<T: Element>(
    begin: usize,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let gy = &inputs[0];
    let end = begin + gy.layout().channels();
    for_bands(output, region, 1, |band| {
        let (n, lanes, cols) = (band.n(), band.lanes(), band.cols());
        let first = band.first_channel();
        for y in band.rows().begin()..band.rows().end() {
            let row = band.row(y);
            row.fill(T::ZERO);
            if first < end && begin < first + lanes {
                let lane = begin.saturating_sub(first);
                copy_lanes(gy, n, first.saturating_sub(begin), [lane, lanes], y, cols, row);
            }
        }
    });
}

/// Writes the channels `from ..` of `x` to the lanes `lane .. lanes` of a row, as many as there are.
fn copy_lanes<T: Element>(
    x: &View<'_, T>,
    n: usize,
    from: usize,
    [lane, lanes]: [usize; 2],
    y: i64,
    cols: Interval,
    row: &mut [T],
) {
    let block = x.layout().block();
    let end = x.layout().channels().min(from + lanes - lane);
    let mut channel = from;
    while channel < end {
        // lanes that lie side by side in both are copied together
        let run = (block - channel % block).min(end - channel);
        let pixels = span(x, [n, channel / block], y, cols);
        let to = row[lane + channel - from..].chunks_mut(lanes);
        let source = pixels[channel % block..].chunks(block);
        if run == 1 {
            to.zip(source).for_each(|(to, source)| to[0] = source[0]);
        } else {
            to.zip(source).for_each(|(to, source)| to[..run].copy_from_slice(&source[..run]));
        }
        channel += run;
    }
}

/// Reflect, replicate or circular padding of `[x]`.
pub(crate) fn pad<T: Element>(
    padding: &[Padding; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let x = &inputs[0];
    let [vertical, horizontal] = padding;
    for_bands(output, region, 1, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        let [left, core, right] = pieces(*horizontal, cols);
        let shown = Interval::new(core.begin() - horizontal.before(), core.end() - horizontal.before());
        for y in band.rows().begin()..band.rows().end() {
            let from = vertical.source(y);
            let row = band.row(y);
            read([x], place, from, shown, |skip, [values]| {
                let at = index(core.begin() - cols.begin()) * lanes + skip;
                row[at..at + values.len()].copy_from_slice(values);
            });
            for col in (left.begin()..left.end()).chain(right.begin()..right.end()) {
                let source = horizontal.source(col);
                let at = index(col - cols.begin()) * lanes;
                read([x], place, from, Interval::new(source, source + 1), |_, [values]| {
                    row[at..at + lanes].copy_from_slice(values);
                });
            }
        }
    });
}

/// `[x]` moved by `before` rows and columns, and `value` where it does not reach.
pub(crate) fn pad_constant<T: Element>(
    before: [i64; 2],
    extents: [i64; 2],
    value: f64,
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let (x, value) = (&inputs[0], T::from_f64(value));
    let [height, width] = extents.map(Interval::whole);
    for_bands(output, region, 1, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        let shown = Interval::new(cols.begin() - before[1], cols.end() - before[1]).intersect(width);
        for y in band.rows().begin()..band.rows().end() {
            let (row, from) = (band.row(y), y - before[0]);
            if shown.is_empty() || !height.contains(from) {
                row.fill(value);
                continue;
            }
            let start = index(shown.begin() + before[1] - cols.begin()) * lanes;
            let end = index(shown.end() + before[1] - cols.begin()) * lanes;
            row[..start].fill(value);
            row[end..].fill(value);
            read([x], place, from, shown, |skip, [values]| {
                row[start + skip..start + skip + values.len()].copy_from_slice(values);
            });
        }
    });
}

/// Gradient of padding, from `[gy]`: each input sums, in row-major order, what showed it.
pub(crate) fn pad_backward<T: Element>(
    isa: Isa,
    padding: &[Padding; 2],
    inputs: &[View<'_, T>],
    output: PartMut<'_, T>,
    region: Region<2>,
) {
    let gy = &inputs[0];
    let [vertical, horizontal] = padding;
    for_bands(output, region, 2, |band| {
        let (place, lanes, cols) = (Place::of(band), band.lanes(), band.cols());
        let [left, _, right] = pieces(*horizontal, horizontal.touched(cols));
        let core = Interval::new(cols.begin() + horizontal.before(), cols.end() + horizontal.before());
        for y in band.rows().begin()..band.rows().end() {
            let row = band.row(y);
            row.fill(T::ZERO);
            let showing = vertical.touched(Interval::new(y, y + 1));
            for from in (showing.begin()..showing.end()).filter(|from| vertical.source(*from) == y) {
                let folded = |side: Interval, row: &mut [T]| {
                    for col in (side.begin()..side.end()).filter(|col| cols.contains(horizontal.source(*col)))
                    {
                        let at = index(horizontal.source(col) - cols.begin()) * lanes;
                        read([gy], place, from, Interval::new(col, col + 1), |_, [values]| {
                            accumulate(isa, values, &mut row[at..at + lanes]);
                        });
                    }
                };
                folded(left, row);
                read([gy], place, from, core, |skip, [values]| {
                    accumulate(isa, values, &mut row[skip..skip + values.len()]);
                });
                folded(right, row);
            }
        }
    });
}

per_isa! {
    /// `sum[i] += x[i]`.
    fn accumulate<T: Element>(x: &[T], sum: &mut [T]) {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += *x;
        }
    }
}

/// The parts of `cols` before, inside and after the tensor that was padded.
fn pieces(padding: Padding, cols: Interval) -> [Interval; 3] {
    let (begin, end) = (padding.before(), padding.before() + padding.input());
    [
        Interval::new(cols.begin(), cols.end().min(begin)),
        cols.intersect(Interval::new(begin, end)),
        Interval::new(cols.begin().max(end), cols.end()),
    ]
}
