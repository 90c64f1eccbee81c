//! Input rows in the blocking of the output.

use tiled_geometry::Interval;
use tiled_tensor::{Element, Layout, View};

use super::band::{Band, are_side_by_side, extent, index, signed, span};

/// Elements of a piece of a row whose blocking is not the output's.
const PIECE: usize = 1024;

/// A channel block of the output, by its channels.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The image of the batch.
    pub(crate) n: usize,
    /// The channel of lane 0.
    pub(crate) first: usize,
    /// The channels of a block.
    pub(crate) lanes: usize,
}

impl Place {
    /// The block that a band is of.
    pub(crate) const fn of<T: Element>(band: &Band<'_, T>) -> Self {
        Self { n: band.n(), first: band.first_channel(), lanes: band.lanes() }
    }
}

/// Calls `work` on pieces of row `y` of `inputs` and of the output that together make up the row.
///
/// A piece is the whole row where all inputs are blocked as the output is; otherwise elements are regrouped
/// into pieces on the stack. `work` must treat elements alone, by lane.
pub(crate) fn zip_row<T: Element, const N: usize>(
    inputs: [&View<'_, T>; N],
    band: &mut Band<'_, T>,
    y: i64,
    mut work: impl FnMut([&[T]; N], &mut [T]),
) {
    let (place, cols) = (Place::of(band), band.cols());
    let row = band.row(y);
    read(inputs, place, y, cols, |skip, values| {
        let len = values.first().map_or(0, |values| values.len());
        work(values, &mut row[skip..skip + len]);
    });
}

/// The same of all rows of a band; of all at once where they lie side by side in the inputs and in the output: what is done once for a piece counts
/// in narrow rows.
pub(crate) fn zip_rows<T: Element, const N: usize>(
    inputs: [&View<'_, T>; N],
    band: &mut Band<'_, T>,
    mut work: impl FnMut([&[T]; N], &mut [T]),
) {
    let (place, rows, cols) = (Place::of(band), band.rows(), band.cols());
    if let Some(values) = joined(inputs, place, rows, cols)
        && let Some(out) = band.joined()
    {
        return work(values, out);
    }
    for y in rows.begin()..rows.end() {
        zip_row(inputs, band, y, &mut work);
    }
}

/// Calls `work(skip, values)` on pieces of row `y`, columns `cols` of the inputs, in the blocking of `place`.
///
/// `skip` is the distance of a piece from the first of `cols`, in elements. One piece where all blocks agree.
pub(crate) fn read<T: Element, const N: usize>(
    inputs: [&View<'_, T>; N],
    place: Place,
    y: i64,
    cols: Interval,
    mut work: impl FnMut(usize, [&[T]; N]),
) {
    let Place { n, first, lanes } = place;
    if cols.is_empty() {
        return;
    }
    let fits = |input: &View<'_, T>| input.layout().block() == lanes;
    if inputs.iter().all(|input| fits(input)) {
        return work(0, inputs.map(|input| span(input, [n, first / lanes], y, cols)));
    }
    let step = signed(PIECE / lanes);
    let mut buffers = [[T::ZERO; PIECE]; N];
    let mut begin = cols.begin();
    while begin < cols.end() {
        let part = Interval::new(begin, (begin + step).min(cols.end()));
        let mut values: [&[T]; N] = [&[]; N];
        for ((input, buffer), values) in inputs.iter().zip(&mut buffers).zip(&mut values) {
            *values = if fits(input) {
                span(input, [n, first / lanes], y, part)
            } else {
                let buffer = &mut buffer[..extent(part) * lanes];
                regroup(input, place, y, part, buffer);
                buffer
            };
        }
        work(index(begin - cols.begin()) * lanes, values);
        begin = part.end();
    }
}

/// Calls `work(values)` on pieces of some rows as [`read`] does for each; on all at once where they lie side by side in all inputs: what is
/// done once for a piece counts in narrow rows.
pub(crate) fn read_rows<T: Element, const N: usize>(
    inputs: [&View<'_, T>; N],
    place: Place,
    rows: Interval,
    cols: Interval,
    mut work: impl FnMut([&[T]; N]),
) {
    if let Some(values) = joined(inputs, place, rows, cols) {
        return work(values);
    }
    for y in rows.begin()..rows.end() {
        read(inputs, place, y, cols, |_, values| work(values));
    }
}

/// Some rows of all inputs, where they lie side by side in each and in the blocking of `place`.
fn joined<'a, T: Element, const N: usize>(
    inputs: [&View<'a, T>; N],
    place: Place,
    rows: Interval,
    cols: Interval,
) -> Option<[&'a [T]; N]> {
    let Place { n, first, lanes } = place;
    let fits = |layout: &Layout| layout.block() == lanes && layout.rows().contains_interval(rows);
    let is_joined =
        |input: &View<'_, T>| fits(input.layout()) && are_side_by_side(input.layout(), rows, cols);
    inputs.iter().all(|input| is_joined(input)).then(|| {
        inputs.map(|input| {
            let layout = input.layout();
            let begin = layout.row_offset(n, first / lanes, rows.begin());
            &input.data()[begin..begin + extent(rows) * layout.row_stride()]
        })
    })
}

/// Writes the channels `first ..` of image `n` at row `y`, columns `cols`, to `to`, `lanes` channels a pixel.
///
/// Lanes past the last channel of `view` are left as they are.
fn regroup<T: Element>(
    view: &View<'_, T>,
    Place { n, first, lanes }: Place,
    y: i64,
    cols: Interval,
    to: &mut [T],
) {
    let block = view.layout().block();
    let end = view.layout().channels().min(first + lanes);
    for channel in first..end {
        let from = span(view, [n, channel / block], y, cols);
        let from = from[channel % block..].iter().step_by(block);
        for (to, from) in to[channel - first..].iter_mut().step_by(lanes).zip(from) {
            *to = *from;
        }
    }
}
