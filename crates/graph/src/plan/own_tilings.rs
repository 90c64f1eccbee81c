//! A tiling for each sweep, and sweeps cut in two for its sake.
//!
//! Early layers pass a lot and read few weights: threads that share their calls take what they read from each other's caches, and bands high
//! enough for the weights of deep layers leave the caches. So they run in strips, one lane for each thread, where that is faster, and deep layers, whose calls
//! have enough to do for all threads, in whole rows. What lies between is kept whole: the smallest values that all paths go through.
//!
//! Only where no bits depend on tilings: sums with roundings are planned alike for all sweeps.

use tiled_geometry::Grid;
use tiled_kernel::Backend;
use tiled_tensor::{Element, copied, push, refusable};

use super::build::{Lowered, Prepared};
use super::lanes::{Share, has_ordered_sums};
use super::measure::{Candidate, Measure, OfSweep, Walked};
use super::price::price_of;
use super::unmeasured::Unmeasured;
use super::{Hold, Plan, PlanError, PlanOptions};
use crate::cuts::places;
use crate::program::NodeId;
use crate::schedule::Bands;

/// The search for tilings of single sweeps.
pub(super) struct OwnTilings<'o, T> {
    pub(super) backend: &'o dyn Backend<T>,
    pub(super) options: &'o PlanOptions,
    pub(super) is_cancelled: &'o dyn Fn() -> bool,
    /// The most nodes of all sweeps.
    pub(super) most_nodes: usize,
    /// The calls that may be walked and the intervals that may be found for each program.
    pub(super) walks: (u64, usize),
    /// Whether the budget leaves little room beside what was found.
    pub(super) is_tight: bool,
    /// The tiling of all sweeps that was found.
    pub(super) common: Candidate,
    /// The price to be below.
    pub(super) price: f64,
    /// The best plan, where it is better than that of the common tiling.
    pub(super) plan: Option<Plan>,
}

impl<T: Element> OwnTilings<'_, T> {
    /// Whether sweeps of a program may have tilings of their own, on such a backend.
    pub(super) fn are_worth_a_search(
        prepared: &Prepared<'_>,
        options: &PlanOptions,
        backend: &dyn Backend<T>,
    ) -> bool {
        let program = prepared.program();
        let is_free = options.hold == Hold::Auto && options.lanes.is_none();
        // a device has the same queues in all sweeps
        is_free
            && !backend.transfers_beside()
            && !has_ordered_sums(program)
            && program.second_half.is_none()
            && prepared.chunked.iter().all(Vec::is_empty)
            && prepared.nodes <= MOST_NODES
    }

    /// The best plan, if it is better than that of the common tiling.
    pub(super) fn search(
        mut self,
        lowered: &Lowered,
        kept: &[NodeId],
        prepared: &Prepared<'_>,
    ) -> Result<Option<Plan>, PlanError> {
        self.look(prepared)?;
        let mut best: Option<(Lowered, Vec<NodeId>)> = None;
        for _ in 0..MOST_CUTS {
            let mut better = None;
            let (lowered, kept) = best.as_ref().map_or((lowered, kept), |(lowered, kept)| (lowered, kept));
            let mut cuts = places(&lowered.program)?;
            for node in kept.iter().filter(|node| lowered.program.nodes[**node].extents != [1, 1]) {
                if !cuts.contains(node) && cuts.len() < MOST_PLACES {
                    push(&mut cuts, *node)?;
                }
            }
            for cut in cuts {
                let Some(lowered) = lowered.cut_after(cut)? else { continue };
                let mut kept = copied(kept)?;
                if !kept.contains(&cut) {
                    push(&mut kept, cut)?;
                }
                let whole = lowered.keep(&kept, self.backend, false)?;
                let prepared = Prepared::new::<T>(&lowered, &whole, self.options, self.most_nodes)?;
                if let Some(prepared) = prepared
                    && self.look(&prepared)?
                {
                    better = Some((lowered, kept));
                }
            }
            if better.is_none() {
                break;
            }
            best = better;
        }
        Ok(self.plan)
    }

    /// Looks for the best tiling of each sweep, and takes them where they are better together than what was found; whether they are.
    fn look(&mut self, prepared: &Prepared<'_>) -> Result<bool, PlanError> {
        let walked = Walked::nothing(self.walks.0, self.walks.1);
        let mut measure = Measure::new(self.backend, prepared, self.options, self.is_cancelled, walked);
        let mut measured: Vec<(Candidate, Vec<OfSweep>)> = Vec::new();
        for (number, candidate) in self.candidates(prepared.program().anchor)?.into_iter().enumerate() {
            let sweeps = match measure.of_sweeps::<T>(self.backend, &candidate) {
                Ok(sweeps) => sweeps,
                // what was found has to be known by the same measure
                Err(Unmeasured::TooLong | Unmeasured::TooLarge(_)) if self.price.is_infinite() => {
                    return Ok(false);
                }
                Err(Unmeasured::TooLong | Unmeasured::TooLarge(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            if number == 0 && self.price.is_infinite() {
                // what was found, by the same measure
                let numbers = measure.numbers_of_sweeps(&[candidate.try_clone()?], &sweeps)?;
                self.price = price_of(prepared.program(), &numbers);
                if prepared.sweeps.len() == 1 {
                    return Ok(false);
                }
            }
            push(&mut measured, (candidate, sweeps))?;
        }
        // sums and buffers of several lanes may take what windows need
        let Share { threads, .. } = self.common.share;
        let is_better = self.take_best(&mut measure, &measured, threads)?;
        Ok(if self.is_tight && threads > 1 {
            self.take_best(&mut measure, &measured, 1)? || is_better
        } else {
            is_better
        })
    }

    /// Takes the best tiling of each sweep, of no more lanes, where they are better together than what was found; whether they are.
    fn take_best(
        &mut self,
        measure: &mut Measure<'_, '_>,
        measured: &[(Candidate, Vec<OfSweep>)],
        lanes: usize,
    ) -> Result<bool, PlanError> {
        let budget = self.options.memory_bytes;
        let most = Share { lanes, in_flight: lanes, threads: self.common.share.threads };
        let fixed = measure.bytes_beside_windows(most)?;
        let fits =
            |sweep: &OfSweep| budget.is_none_or(|budget| fixed.saturating_add(sweep.windows_bytes) <= budget);
        let (mut sweeps, mut tilings) = (Vec::new(), Vec::new());
        for index in 0..measure.prepared.sweeps.len() {
            let those = measured.iter().filter(|(tiling, _)| tiling.share.in_flight <= lanes);
            let those = those.map(|(tiling, sweeps)| (tiling, sweeps[index])).filter(|(_, of)| fits(of));
            // of equal ones the first
            let best = those.reduce(|best, other| if is_better(&other.1, &best.1) { other } else { best });
            let Some((tiling, of_sweep)) = best else { return Ok(false) };
            push(&mut sweeps, of_sweep)?;
            push(&mut tilings, tiling.try_clone()?)?;
        }
        let numbers = measure.numbers_of_sweeps(&tilings, &sweeps)?;
        let price = price_of(measure.prepared.program(), &numbers);
        if budget.is_some_and(|budget| numbers.memory.total_bytes() > budget) || price >= self.price {
            return Ok(false);
        }
        self.price = price;
        self.plan = Some(measure.plan::<T>(&tilings, &numbers)?);
        Ok(true)
    }

    /// What is tried for each sweep: the common tiling, strips for lanes of their own, and bands of whole rows whose calls are shared; where memory is
    /// tight, narrow strips and low bands too.
    fn candidates(&self, anchor: [i64; 2]) -> Result<Vec<Candidate>, PlanError> {
        let Share { threads, .. } = self.common.share;
        let lanes = i64::try_from(threads).unwrap_or(1);
        let mut all = vec![self.common.try_clone()?];
        let mut add = |counts: [i64; 2], rows: i64, least_rows: i64, lanes: usize| {
            let counts = [0, 1].map(|axis| counts[axis].clamp(1, anchor[axis].max(1)));
            let grid = refusable(|| Grid::from_counts(anchor, counts))?;
            let lanes = lanes.min(grid.len()).max(1);
            let share = Share { lanes, in_flight: lanes, threads };
            push(&mut all, Candidate { grid, bands: Bands { tall: 0, rows, least_rows }, share })?;
            Ok::<_, PlanError>(())
        };
        for rows in LANE_ROWS {
            for counts in [[1, lanes], [1, 2 * lanes], [1, 3 * lanes], [1, 4 * lanes], [lanes, 1], [lanes, 2]]
            {
                add(counts, rows, 1, threads)?;
            }
        }
        for rows in SHARED_ROWS {
            for least_rows in LEAST_ROWS {
                add([1, 1], rows, least_rows, 1)?;
            }
        }
        if self.is_tight {
            for rows in TIGHT_ROWS {
                for strips in TIGHT_STRIPS {
                    add([1, strips], rows, 1, 1)?;
                    add([1, strips], rows, 1, threads)?;
                }
            }
        }
        Ok(all)
    }
}

/// Whether a tiling of a sweep is better than another: in less time, or in half of the memory and no more than a hundredth longer.
fn is_better(one: &OfSweep, other: &OfSweep) -> bool {
    super::price::price(one.seconds.max(f64::MIN_POSITIVE), one.windows_bytes)
        < super::price::price(other.seconds.max(f64::MIN_POSITIVE), other.windows_bytes)
}

/// The rows of bands that are tried for lanes, and for threads that share calls, with the least of a call that reads weights.
const LANE_ROWS: [i64; 5] = [64, 32, 16, 8, 4];
const SHARED_ROWS: [i64; 4] = [128, 64, 32, 16];
const LEAST_ROWS: [i64; 3] = [1, 16, 32];

/// Those, and the strips, that are tried where memory is tight.
const TIGHT_ROWS: [i64; 5] = [16, 8, 6, 4, 2];
const TIGHT_STRIPS: [i64; 6] = [1, 2, 4, 6, 8, 12];

/// The most nodes of all sweeps of a program whose sweeps get tilings of their own.
const MOST_NODES: usize = 20_000;

/// The places that are tried for a cut, and the most cuts of a plan.
const MOST_PLACES: usize = 16;
const MOST_CUTS: usize = 3;

#[cfg(test)]
mod tests {
    use tiled_kernel::Reference;

    use crate::{Conv2d, Graph, GroupNorm, Objective, Op, Plan, PlanOptions, Planner, infer};

    /// Convolutions whose channels double, each with a norm whose statistics are those of the whole image.
    fn plan(memory_bytes: Option<u64>) -> Plan {
        let mut graph = Graph::new();
        let mut value = graph.add_input("x", 3).expect("new");
        for layer in 0..4 {
            let conv = Op::Conv2d(Conv2d::new(8 << layer, [3, 3]).padded([1, 1]));
            value = graph.add_node(&format!("conv{layer}"), conv, &[value]).expect("fits");
            let norm = Op::GroupNorm(GroupNorm::new(2));
            value = graph.add_node(&format!("norm{layer}"), norm, &[value]).expect("fits");
        }
        graph.set_outputs(&[value]).expect("known");
        let shapes = infer(&graph, 1, &[[512, 512]]).expect("shapes");
        let options = PlanOptions { memory_bytes, parallelism: 2, ..PlanOptions::default() };
        Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &Reference)
            .plan(&options)
            .expect("a plan")
    }

    #[test]
    fn sweeps_have_tilings_of_their_own_where_one_lane_is_all_that_fits() {
        let mut within = plan(None);
        while within.lanes() > 1 {
            within = plan(Some(within.peak_bytes() * 3 / 4));
        }
        let tilings: Vec<_> = within.sweeps.iter().map(|sweep| (sweep.grid.counts(), sweep.band)).collect();
        assert!(tilings.iter().any(|tiling| *tiling != tilings[0]), "{tilings:?}");
    }
}
