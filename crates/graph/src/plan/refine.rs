//! Bands beside those of the plan that was found: between those that were tried, with more rows for each call that reads weights, and of
//! whole rows.

use tiled_geometry::Grid;
use tiled_kernel::Backend;
use tiled_tensor::{Element, refusable};

use super::lanes::{cores, shares_to_try};
use super::measure::{Candidate, Measure, Numbers};
use super::price::price_of;
use super::tilings::WHOLE;
use super::unmeasured::Unmeasured;
use super::{Hold, Plan, PlanError, PlanOptions};
use crate::schedule::{Bands, least_rows};
use crate::sweep::Action;

/// The search for bands beside those of a plan.
pub(super) struct Refinement<'r, 'm, 'p, T> {
    pub(super) backend: &'r dyn Backend<T>,
    pub(super) measure: Measure<'m, 'p>,
    pub(super) budget: Option<u64>,
    pub(super) best: Candidate,
    /// The price of the best.
    pub(super) price: f64,
    /// What the best takes; `None` while that is the plan that was found.
    pub(super) numbers: Option<Numbers>,
}

impl<T: Element> Refinement<'_, '_, '_, T> {
    /// The best bands, with their plan if they are better than those of the plan that was found.
    pub(super) fn search(mut self, found: &Plan) -> Result<(Candidate, Option<Plan>), PlanError> {
        if self.best.bands.rows != WHOLE {
            self.neighbours()?;
            if has_low_calls(found) {
                self.more_rows()?;
            }
        }
        let PlanOptions { hold, lanes, .. } = *self.measure.options;
        let may_share = hold != Hold::Recompute && lanes.is_none_or(|lanes| lanes == 1);
        if may_share && calls_with_weights(found).next().is_some() {
            self.whole_rows()?;
        }
        let Self { backend, mut measure, budget, best, numbers, .. } = self;
        let mut plan = None;
        if let Some(numbers) = numbers {
            plan = Some(measure.planned::<T>(backend, best.try_clone()?, &numbers, budget)?);
        }
        Ok((best, plan))
    }

    /// Bands half a step beside a power of two.
    fn neighbours(&mut self) -> Result<(), PlanError> {
        let Bands { rows, .. } = self.best.bands;
        for rows in [rows / 2 * 3, rows / 4 * 3].into_iter().filter(|rows| *rows > 0) {
            if self.is_better(|best| Bands { rows, ..best })? {
                break;
            }
        }
        Ok(())
    }

    /// More rows for each call that reads weights, as long as that is better.
    fn more_rows(&mut self) -> Result<(), PlanError> {
        for least_rows in LEAST_ROWS {
            if !self.is_better(|best| Bands { least_rows, ..best })? {
                break;
            }
        }
        Ok(())
    }

    /// Bands of whole rows whose calls have rows enough for the weights that they read, and are shared by all threads.
    fn whole_rows(&mut self) -> Result<(), PlanError> {
        let options = self.measure.options;
        let cores = cores(self.measure.prepared.program(), options, self.backend);
        let extents = self.best.grid.extents();
        for [rows, least_rows] in WHOLE_ROWS {
            for share in shares_to_try(1, options, cores) {
                let grid = refusable(|| Grid::from_counts(extents, [1, 1]))?;
                self.takes(Candidate { grid, bands: Bands { tall: 0, rows, least_rows }, share })?;
            }
        }
        Ok(())
    }

    /// Whether the best is better in other bands, which are then the best.
    fn is_better(&mut self, other: impl FnOnce(Bands) -> Bands) -> Result<bool, PlanError> {
        let Candidate { grid, bands, share } = &self.best;
        let grid = refusable(|| grid.try_clone())?;
        self.takes(Candidate { grid, bands: other(*bands), share: *share })
    }

    /// Takes a candidate that fits and is better than all before; whether it is.
    fn takes(&mut self, candidate: Candidate) -> Result<bool, PlanError> {
        let Candidate { grid, bands, share } = &candidate;
        let numbers = match self.measure.numbers::<T>(self.backend, grid, *bands, &[*share], self.budget) {
            Ok(numbers) => numbers[0],
            Err(Unmeasured::TooLong | Unmeasured::TooLarge(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let price = price_of(self.measure.prepared.program(), &numbers);
        if self.budget.is_some_and(|budget| numbers.memory.total_bytes() > budget) || price >= self.price {
            return Ok(false);
        }
        (self.best, self.price, self.numbers) = (candidate, price, Some(numbers));
        Ok(true)
    }
}

/// The least rows that are tried, each where the one before was better.
const LEAST_ROWS: [i64; 4] = [2, 4, 8, 16];

/// The rows of bands of whole rows that are tried, and the least of a call that reads weights.
const WHOLE_ROWS: [[i64; 2]; 4] = [[64, 32], [64, 16], [32, 32], [32, 16]];

/// Whether a plan has calls that read weights for fewer rows than are worth it, of values that have more.
fn has_low_calls(plan: &Plan) -> bool {
    let tallest = plan.program.nodes.iter().map(|node| node.extents[0]).max().unwrap_or(1).max(1);
    calls_with_weights(plan).any(|(band, [height, width])| {
        let rows = i128::from(band) * i128::from(height) / i128::from(tallest);
        height > 1 && rows < i128::from(least_rows(LEAST_ROWS[LEAST_ROWS.len() - 1], width))
    })
}

/// The bands of the sweeps in which something reads weights, and the rows and columns of what it computes.
fn calls_with_weights(plan: &Plan) -> impl Iterator<Item = (i64, [i64; 2])> {
    plan.sweeps.iter().flat_map(|sweep| {
        let computed = sweep.nodes.iter().filter(|node| node.action == Action::Compute);
        let reading = computed
            .filter(|node| plan.program.work(node.node).is_some_and(|work| work.weights() > 0))
            .map(|node| plan.program.nodes[node.node].extents);
        reading.map(|extents| (sweep.band, extents))
    })
}
