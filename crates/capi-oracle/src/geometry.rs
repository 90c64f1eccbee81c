//! Windows, regions and grids.

use tiled_capi::*;

use super::State;

impl State<'_> {
    fn window(&mut self) -> tiled_window {
        let bytes = &mut self.bytes;
        let [kernel, stride, dilation] = [0; 3].map(|_: i32| bytes.number());
        tiled_window { kernel, stride, dilation, padding: bytes.number().wrapping_sub(1) }
    }

    fn interval(&mut self) -> tiled_interval {
        let begin = self.bytes.number().wrapping_sub(3);
        let end = if self.bytes.once_in(8) {
            self.bytes.number()
        } else {
            begin.wrapping_add(self.bytes.from(0, 9))
        };
        tiled_interval { begin, end }
    }

    fn region(&mut self) -> tiled_region {
        tiled_region { rows: self.interval(), cols: self.interval() }
    }

    /// A place for a result, or none.
    fn place<T>(&mut self, value: &mut T) -> *mut T {
        if self.bytes.once_in(32) { self.null() } else { value }
    }

    pub(super) fn geometry(&mut self) {
        let windows = [self.window(), self.window()];
        let (interval, region, other) = (self.interval(), self.region(), self.region());
        let (mut found, mut found_region, mut both) = (interval, region, windows[0]);
        let (mut count, mut excess) = (7_i64, [7_i64; 4]);
        let [height, width] = [0; 2].map(|_: i32| self.bytes.number());
        let kind = self.bytes.below(9);
        let first = if self.bytes.once_in(32) { self.null() } else { windows.as_ptr().cast_mut() };
        // the one that is used has a flaw where it is NULL, so only one is made
        let status = match kind {
            0..=2 => {
                let place = self.place(&mut found);
                // SAFETY: pointers are NULL or to live values
                self.judged(|| unsafe {
                    match kind {
                        0 => tiled_window_receptive(first, interval, place),
                        1 => tiled_window_touched(first, interval, place),
                        _ => tiled_window_computable(first, interval, place),
                    }
                })
            }
            3 => {
                let place = self.place(&mut both);
                // SAFETY: as above
                self.judged(|| unsafe { tiled_window_then(first, &raw const windows[1], place) })
            }
            4 => {
                let (place, after, ceil) =
                    (self.place(&mut count), self.bytes.from(0, 4), self.bytes.below(2));
                // SAFETY: as above
                self.judged(|| unsafe { tiled_window_outputs(first, height, after, i32::from(ceil), place) })
            }
            5 | 6 => {
                let place = self.place(&mut found_region);
                // SAFETY: as above, and there are two windows
                self.judged(|| unsafe {
                    match kind {
                        5 => tiled_region_receptive(first, region, height, width, place),
                        _ => tiled_region_touched(first, region, height, width, place),
                    }
                })
            }
            _ if first.is_null() => {
                self.flaws = super::Flaws::default(); // these two take no window
                return;
            }
            7 => {
                let place = self.place(&mut found_region);
                // SAFETY: as above
                self.judged(|| unsafe { tiled_region_intersect(region, other, place) })
            }
            _ => {
                let place = if self.bytes.once_in(32) { self.null() } else { excess.as_mut_ptr() };
                // SAFETY: as above
                self.judged(|| unsafe { tiled_region_excess(region, other, place) })
            }
        };
        if status != TILED_STATUS_OK {
            let same = (found == interval, found_region == region, both == windows[0]);
            assert_eq!(same, (true, true, true), "a call that failed wrote");
            assert_eq!((count, excess), (7, [7; 4]), "a call that failed wrote");
        } else if kind == 0 && interval.begin < interval.end {
            assert!(found.begin < found.end, "outputs read nothing");
        }
    }

    pub(super) fn grids(&mut self) {
        let [height, width, a, b] = [0; 4].map(|_: i32| self.bytes.number());
        let nothing = tiled_interval { begin: 9, end: -9 };
        let (mut counts, mut tile) = ([-7_i64; 2], tiled_region { rows: nothing, cols: nothing });
        match self.bytes.below(5) {
            // SAFETY: the place for the handle is NULL or live
            0 => self.keep(None, |out| unsafe { tiled_grid_new(height, width, a, b, out) }),
            // SAFETY: as above
            1 => self.keep(None, |out| unsafe { tiled_grid_new_from_counts(height, width, a, b, out) }),
            2 => {
                let grid = self.handle::<tiled_grid>();
                // SAFETY: as above
                self.keep(None, |out| unsafe { tiled_grid_rescale(grid, height, width, out) });
            }
            3 => {
                let grid = self.handle::<tiled_grid>();
                // SAFETY: there is room for two numbers
                let status = self.judged(|| unsafe { tiled_grid_counts(grid, counts.as_mut_ptr()) });
                assert_eq!(status != TILED_STATUS_OK, counts == [-7; 2], "{counts:?} tiles");
            }
            _ => {
                let (grid, row, col) = (self.handle::<tiled_grid>(), a.wrapping_sub(1), b.wrapping_sub(1));
                // SAFETY: there is room for the region
                let status = self.judged(|| unsafe { tiled_grid_tile(grid, row, col, &raw mut tile) });
                let is_untouched = tile.rows == nothing && tile.cols == nothing;
                assert_eq!(status != TILED_STATUS_OK, is_untouched, "{tile:?} for tile {row}, {col}");
            }
        }
    }
}
