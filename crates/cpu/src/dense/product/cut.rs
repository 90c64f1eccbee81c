//! How a product is cut into units that threads share.

use std::ops::Range;

use super::tile::{self, VECTORS};
use crate::vector::Simd;

/// The bytes of a row of the columns of a unit.
const COLS_BYTES: usize = 1024;

/// The rows of a unit that has so many columns; where they are fewer, rows are more.
const ROWS: usize = 224;

/// Units that each thread finds at least, if tiles are enough.
const UNITS_OF_A_THREAD: usize = 4;

/// How a product is cut into units.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Rows and columns of C.
    extents: [usize; 2],
    /// Rows of a tile.
    height: usize,
    /// Columns of a unit.
    width: usize,
    /// Units of rows and of columns.
    counts: [usize; 2],
    /// Whether units that follow each other have the same columns, else the same rows.
    down: bool,
}

impl Cut {
    pub(super) fn new<S: Simd>([m, n, _]: [usize; 3], threads: usize, down: bool) -> Self {
        let (tiles, panels) = (m.div_ceil(tile::rows::<S>()), n.div_ceil(VECTORS * S::LANES));
        let most_panels = COLS_BYTES / (VECTORS * S::LANES * size_of::<S::E>());
        let of_panels = panels.div_ceil(panels.div_ceil(most_panels).max(1)).max(1);
        let most = (ROWS * most_panels / of_panels / tile::rows::<S>()).max(1);
        let col_units = panels.div_ceil(of_panels).max(1);
        let wanted = if threads == 1 { 1 } else { (UNITS_OF_A_THREAD * threads).div_ceil(col_units) };
        let row_units = tiles.div_ceil(most).max(wanted.min(tiles)).max(1);
        let width = of_panels * VECTORS * S::LANES;
        Self { extents: [m, n], height: tile::rows::<S>(), width, counts: [row_units, col_units], down }
    }

    pub(super) const fn units(&self) -> usize {
        self.counts[0] * self.counts[1]
    }

    /// The rows and columns of a unit: rows are shared out by tiles, evenly, or the last units would be small ones.
    pub(super) fn unit(&self, index: usize) -> [Range<usize>; 2] {
        let [m, n] = self.extents;
        let [rows, cols] = self.counts;
        let [row, col] = if self.down { [index % rows, index / rows] } else { [index / cols, index % cols] };
        let tiles = m.div_ceil(self.height);
        let first = |unit: usize| (tiles * unit / self.counts[0] * self.height).min(m);
        [first(row)..first(row + 1), col * self.width..((col + 1) * self.width).min(n)]
    }

    /// The most rows and columns of a unit.
    pub(super) fn most(&self) -> [usize; 2] {
        let [m, n] = self.extents;
        let tiles = m.div_ceil(self.height).div_ceil(self.counts[0]);
        [(tiles * self.height).min(m), self.width.min(n)]
    }

    /// Whether a thread meets the same columns with one tile of rows or two, each a unit: they are not worth packing.
    pub(super) fn is_low(&self, threads: usize) -> bool {
        let tiles = self.extents[0].div_ceil(self.height);
        tiles <= self.counts[0] && tiles <= 2 * threads
    }
}
