//! Convolutions of one tap over rows that lie side by side, as over one long row.
//!
//! A pixel reads that pixel alone, wherever rows end. Tiles are then as wide in narrow images as in others, and what is done once for
//! a row, and the weights that are read once for it, count for many.

use tiled_geometry::{Interval, Region};
use tiled_tensor::{Layout, View};

use super::super::class::signed;
use super::super::tail::Tail;
use super::Call;
use crate::vector::Lane;

impl<'a, T: Lane> Call<'a, T> {
    /// Calls `run` with calls that make up this one, in as few long rows as rings allow; with this one, where that joins few rows.
    pub(super) fn for_long_rows(&self, mut run: impl FnMut(&Call<'_, T>)) {
        let (rows, cols) = (self.region.rows(), self.region.cols());
        let others = [self.tail.sum, self.tail.mask];
        let layouts = || {
            let others = others.iter().flatten().map(View::layout);
            [self.input.layout(), self.output.layout()].into_iter().chain(others)
        };
        let end = |y: i64| {
            let in_order = layouts().map(|layout| layout.rows_in_order(y)).min().unwrap_or(1);
            rows.end().min(y + signed(in_order))
        };
        let are_whole = !rows.is_empty() && layouts().all(|layout| layout.cols() == cols);
        if !self.problem.reads_one_pixel() || !are_whole {
            return run(self);
        }
        let ends = std::iter::successors(Some(rows.begin()), |y| (*y < rows.end()).then(|| end(*y)));
        if signed(2 * (ends.count() - 1)) > rows.len() {
            return run(self);
        }
        let mut y = rows.begin();
        while y < rows.end() {
            let joined = Interval::new(y, end(y));
            self.long_row(joined, &mut run);
            y = joined.end();
        }
    }

    /// Calls `run` with a call of some rows, which lie side by side, as one.
    fn long_row(&self, rows: Interval, run: &mut impl FnMut(&Call<'_, T>)) {
        let pixels = rows.len() * self.region.cols().len();
        let problem = self.problem.in_one_row(pixels);
        let row = |layout: &Layout| layout.in_one_row(rows.begin());
        let view = |view: View<'a, T>| View::new(view.data(), row(view.layout()));
        run(&Call {
            problem: &problem,
            tail: Tail { sum: self.tail.sum.map(view), mask: self.tail.mask.map(view), ..self.tail },
            input: view(self.input),
            output: self.output.with_layout(row(self.output.layout())),
            region: Region::whole([1, pixels]),
            ..*self
        });
    }
}
