//! Steps and strips whose calls fill the waves of a device, beside those of a plan.

use tiled_geometry::{Grid, div_ceil};
use tiled_kernel::Backend;
use tiled_tensor::{Element, refusable};

use super::lanes::Share;
use super::measure::{Candidate, Measure, Numbers};
use super::price::price_of;
use super::unmeasured::Unmeasured;
use super::waves::heavy_nodes;
use super::{Plan, PlanError};
use crate::schedule::Bands;

/// The search for heights and strips beside those of a plan.
pub(super) struct Waves<'w, 'm, 'p, T> {
    pub(super) backend: &'w dyn Backend<T>,
    pub(super) measure: Measure<'m, 'p>,
    pub(super) budget: Option<u64>,
    /// The price to be below.
    pub(super) price: f64,
}

/// A candidate that fits and is better than all before.
struct Better {
    grid: Grid<2>,
    bands: Bands,
    numbers: Numbers,
}

impl<T: Element> Waves<'_, '_, '_, T> {
    /// The plan of the best height and strips, if it is better than the one that is there.
    pub(super) fn search(mut self, grid: &Grid<2>, share: Share) -> Result<Option<Plan>, PlanError> {
        let mut ratio = 1;
        for sweep in 0..self.measure.prepared.sweeps.len() {
            let levels = heavy_nodes::<T>(self.measure.prepared, sweep)?;
            let tallest = self.measure.prepared.flows[sweep][0].nodes.iter().map(|node| node.extent).max();
            if let (Some((lowest, _)), Some(tallest)) = (levels.first_key_value(), tallest) {
                ratio = ratio.max(div_ceil(tallest, (*lowest).max(1)));
            }
        }
        let extents = grid.extents();
        let start = i64::try_from(grid.counts()[1]).unwrap_or(1);
        let mut found: Option<Better> = None;
        self.heights(extents, start, ratio, share, &mut found)?;
        for direction in [1, -1] {
            let mut strips = start + direction;
            while strips >= 1 && strips <= extents[1] {
                if !self.heights(extents, strips, ratio, share, &mut found)? {
                    break;
                }
                strips += direction;
            }
        }
        let Some(Better { grid, bands, numbers }) = found else { return Ok(None) };
        let candidate = Candidate { grid, bands, share: numbers.share };
        Ok(Some(self.measure.planned::<T>(self.backend, candidate, &numbers, self.budget)?))
    }

    /// Tries the heights in so many strips; whether one is better than all before.
    fn heights(
        &mut self,
        extents: [i64; 2],
        strips: i64,
        ratio: i64,
        share: Share,
        found: &mut Option<Better>,
    ) -> Result<bool, PlanError> {
        let grid = refusable(|| Grid::from_counts(extents, [1, strips]))?;
        let mut is_better = false;
        let mut too_large = 0;
        for rows in LOWEST_ROWS {
            let bands = Bands { tall: rows.saturating_mul(ratio), least_rows: 1, rows: 1 };
            let numbers = match self.measure.numbers::<T>(self.backend, &grid, bands, &[share], self.budget) {
                Ok(numbers) => numbers[0],
                Err(Unmeasured::TooLong | Unmeasured::TooLarge(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            if self.budget.is_some_and(|budget| numbers.memory.total_bytes() > budget) {
                // rows that do not go into one another may take more than the next height does
                too_large += 1;
                if too_large == 3 {
                    break;
                }
                continue;
            }
            let price = price_of(self.measure.prepared.program(), &numbers);
            if price < self.price {
                self.price = price;
                is_better = true;
                *found = Some(Better { grid: refusable(|| grid.try_clone())?, bands, numbers });
            }
        }
        Ok(is_better)
    }
}

/// The rows of the lowest convolution that are tried as a height.
const LOWEST_ROWS: [i64; 24] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64, 96];
