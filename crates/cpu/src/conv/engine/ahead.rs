//! What is fetched from far caches while a strip is computed.

use tiled_geometry::Interval;
use tiled_tensor::Element;

use super::super::class::{index, signed};
use super::super::problem::Path;
use super::super::source::{AHEAD_ROWS, Ahead, Source};
use super::{Engine, Group, Units};

impl<T: Element> Engine<'_, T> {
    /// What the tiles of a group fetch for the next strip of the call while `item` of `items` is computed: their part of
    /// the rows that no output before reads.
    pub(super) fn ahead<E: Element>(
        &self,
        units: &Units<'_, T>,
        [strip, row]: [usize; 2],
        group: &Group,
        [item, items]: [usize; 2],
        from: &Source<E>,
    ) -> [Ahead<E>; AHEAD_ROWS] {
        let layout = self.input.layout();
        let near = units.classes[1].input_step <= 2;
        let fetches = self.problem.path == Path::Dense && layout.block() > 1 && near;
        if !fetches || !(1..=AHEAD_ROWS).contains(&from.rows) {
            return [Ahead::NOTHING; AHEAD_ROWS];
        }
        let [row_class, col_class] = &units.classes;
        let (next, row) = if strip + 1 < units.strips { (strip + 1, row) } else { (0, row + 1) };
        let first = row_class.input(units.members[0].begin() + signed(row));
        let end = first + signed(row_class.taps - 1) * row_class.offset_step + 1;
        let rows = Interval::new(end - row_class.input_step, end).intersect(layout.rows());
        let [from_strip, to_strip] =
            [strip, next].map(|strip| units.cut.begin(units.cut.tiles * strip / units.strips));
        let col = col_class.input(group.first + to_strip - from_strip).max(layout.cols().begin());
        let width = group.pixels * index(col_class.input_step);
        let (pixels, shares) = (index(rows.len()) * width, items * from.rows);
        std::array::from_fn(|kernel_row| {
            let share = item * from.rows + kernel_row;
            let [begin, end] = [share, share + 1].map(|share| pixels * share / shares);
            if kernel_row >= from.rows || begin == end {
                return Ahead::NOTHING;
            }
            let row = index((rows.begin() + signed(begin / width)).rem_euclid(signed(from.ring)));
            let col = index(col - layout.cols().begin()) + begin % width;
            let start = from.start.wrapping_add(row * from.row_stride + col * layout.block());
            // a part that ends in the next row is fetched as far as this one goes
            Ahead { start, pixels: (end - begin).min(width - begin % width) }
        })
    }
}
