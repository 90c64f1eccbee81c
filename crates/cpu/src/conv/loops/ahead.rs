//! What is fetched from far caches while a strip is computed.

use tiled_geometry::Interval;

use super::super::class::{index, signed};
use super::super::problem::Path;
use super::super::source::{AHEAD_ROWS, Ahead, Source};
use super::{Call, Group, Units};
use crate::vector::Lane;

/// What the next strip of a call reads and no output before it has read: rows of the input.
#[derive(Clone, Copy)]
pub(super) struct Fresh<E> {
    /// Where the rows begin, of which there are as many as the stride has, at most two.
    rows: [*const E; 2],
    count: usize,
    /// The first input column of the next strip, counted from that of this one.
    shift: i64,
}

impl<T: Lane> Call<'_, T> {
    /// What the strip after these tiles of `row` reads first, where there is anything to fetch.
    pub(super) fn fresh(
        &self,
        units: &Units<'_, T>,
        [begin, end]: [usize; 2],
        row: usize,
        from: &Source<T>,
    ) -> Option<Fresh<T>> {
        let layout = self.input.layout();
        let [row_class, col_class] = &units.classes;
        let near = col_class.input_step <= 2 && row_class.input_step <= 2;
        let near = near && units.part.apart == 1;
        let fetches = self.problem.path == Path::Dense && layout.block() > 1 && near;
        if !fetches || !(1..=AHEAD_ROWS).contains(&from.rows) {
            return None;
        }
        let (next, row) = if end < units.cut.tiles { (end, row) } else { (0, row + 1) };
        let first = row_class.input(units.members[0].begin() + signed(row));
        let last = first + signed(row_class.taps - 1) * row_class.offset_step + 1;
        let rows = Interval::new(last - row_class.input_step, last).intersect(layout.rows());
        let start = |row: i64| {
            let row = index(row.rem_euclid(signed(from.ring)));
            from.start.wrapping_add(row * from.row_stride)
        };
        let [begin, next] = [begin, next].map(|tile| units.cut.begin(tile));
        (!rows.is_empty()).then(|| Fresh {
            rows: [start(rows.begin()), start(rows.end() - 1)],
            count: index(rows.len()),
            shift: (next - begin) * col_class.input_step,
        })
    }

    /// The part of it that the tiles of a group fetch while `item` of `items` is computed.
    pub(super) fn ahead(
        &self,
        units: &Units<'_, T>,
        fresh: &Fresh<T>,
        group: &Group,
        [item, items]: [usize; 2],
        kernel_rows: usize,
    ) -> [Ahead<T>; AHEAD_ROWS] {
        let layout = self.input.layout();
        let class = &units.classes[1];
        let col = (class.input(group.first) + fresh.shift).max(layout.cols().begin());
        let col = index(col - layout.cols().begin());
        let width = group.pixels * index(class.input_step);
        let pixels = fresh.count * width;
        let share = pixels.div_ceil(items * kernel_rows);
        std::array::from_fn(|kernel_row| {
            let begin = (item * kernel_rows + kernel_row) * share;
            if kernel_row >= kernel_rows || begin >= pixels {
                return Ahead::NOTHING;
            }
            // a part that ends in the next row is fetched as far as this one goes
            let (row, begin) = if begin < width { (0, begin) } else { (1, begin - width) };
            let start = fresh.rows[row].wrapping_add((col + begin) * layout.block());
            Ahead { start, pixels: share.min(width - begin) }
        })
    }
}
