//! The search for a plan: the least predicted time within the budget, where a plan that takes twice the
//! memory of another has to be one percent faster, and one that keeps less and computes more an eighth. Plans that keep less are
//! searched until one takes no more than half of the budget.
//!
//! Small networks are searched whole. Of large ones a few tilings far apart are measured, and then the neighbours of
//! the best, until none is better: first towards fewer bytes where nothing fits, then towards less time. The work is
//! bounded by counts, so that the same plan comes out on every machine. What is measured while nothing fits does not depend on
//! the budget, and so neither does the smallest budget that is named.

use std::marker::PhantomData;
use std::rc::Rc;

use tiled_kernel::Backend;
use tiled_tensor::{Element, collected, push};

use super::bound::least_seconds;
use super::build::{Kept, Lowered, Prepared};
use super::explorer::{Explorer, Found, Known};
use super::lanes::cores;
use super::measure::{Candidate, Measure, Walked};
use super::own_tilings::OwnTilings;
use super::price::price;
use super::refine::Refinement;
use super::tilings::WHOLE;
use super::wave_search::Waves;
use super::waves::works_in_waves;
use super::{Hold, Plan, PlanError, PlanOptions, Tiling};
use crate::program::{NodeId, ProgramNode};

/// What is kept whole, and where.
#[derive(Clone, Debug)]
pub(super) struct Choice<'c> {
    pub(super) lowered: &'c Lowered,
    pub(super) kept: Rc<Vec<NodeId>>,
    pub(super) in_files: bool,
}

impl Choice<'_> {
    /// The elements of the values that are kept.
    fn kept_elements(&self) -> u64 {
        let nodes = self.kept.iter().map(|node| &self.lowered.program.nodes[*node]);
        let planes = |node: &ProgramNode| (node.batch as u64).saturating_mul(node.channels as u64);
        let extent = |extent: i64| u64::try_from(extent).unwrap_or(0);
        nodes.fold(0, |sum: u64, node| {
            let pixels = node.extents.into_iter().map(extent).fold(1, u64::saturating_mul);
            sum.saturating_add(planes(node).saturating_mul(pixels))
        })
    }
}

/// The search over choices.
pub(super) struct Search<'s, T> {
    pub(super) backend: &'s dyn Backend<T>,
    pub(super) options: &'s PlanOptions,
    is_cancelled: &'s dyn Fn() -> bool,
    effort: Effort,
    best: Option<Best<'s>>,
    smallest: u64,
    /// Why a candidate has no numbers at all, where no other had.
    too_large: Option<PlanError>,
    /// What was searched and promises the most of a longer search.
    closest: Option<Tried<'s>>,
    /// Choices that cannot fit whatever the tiling, with the bytes that they take at least.
    beyond: Vec<(u64, Choice<'s>)>,
    element: PhantomData<T>,
}

/// The best plan, with what it was chosen by.
struct Best<'c> {
    price: f64,
    plan: Plan,
    /// What it was measured to take, on as many cores as all plans are measured for.
    bytes: u64,
    choice: Choice<'c>,
    candidate: Candidate,
}

/// A choice that was searched and does not fit, and how to go on from there.
struct Tried<'c> {
    choice: Choice<'c>,
    /// Halfway from the fewest bytes that were found to those that it takes at least: a longer search may find as few.
    promised: u64,
    walked: Walked,
    known: Known,
    left: usize,
}

/// The work that goes into one choice.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// The nodes of all sweeps, beyond which a choice is left out.
    nodes: usize,
    /// The calls that may be walked.
    calls: u64,
    /// The intervals of parts that may be found.
    intervals: usize,
    /// The candidates times nodes that may be measured.
    measured: usize,
}

impl Effort {
    /// The work of a choice, one of so many.
    fn of(choices: usize) -> Self {
        // of a few, not all are searched: what is kept in most of them alone is more than there is, or more than another takes
        let share = if choices <= FEW_CHOICES { choices.clamp(1, 4) } else { choices.min(16) };
        Self {
            nodes: 3_000_000,
            calls: 8_000_000 / share as u64,
            intervals: 30_000_000,
            measured: 4_000_000 / share,
        }
    }
}

impl<'s, T: Element> Search<'s, T> {
    pub(super) fn new(
        backend: &'s dyn Backend<T>,
        options: &'s PlanOptions,
        is_cancelled: &'s dyn Fn() -> bool,
        choices: usize,
    ) -> Self {
        Self {
            backend,
            options,
            is_cancelled,
            effort: Effort::of(choices),
            best: None,
            smallest: u64::MAX,
            too_large: None,
            closest: None,
            beyond: Vec::new(),
            element: PhantomData,
        }
    }

    pub(super) const fn has_plan(&self) -> bool {
        self.best.is_some()
    }

    /// What the best plan keeps, the nodes of all its sweeps, and what it was chosen by.
    pub(super) fn best_choice(&self) -> Option<(Choice<'s>, usize, f64)> {
        let Best { choice, plan, price, .. } = self.best.as_ref()?;
        let nodes = plan.sweeps.iter().map(|sweep| sweep.nodes.len()).sum();
        Some((choice.clone(), nodes, *price))
    }

    /// Whether a plan was found that no choice which keeps less is likely to beat: it takes no more than half of the memory that there is for the run, or has the
    /// tiling that was asked for, which is walked however long that takes.
    pub(super) fn has_room(&self) -> bool {
        let resident = self.options.resident_bytes;
        let has_room = |bytes: u64, budget: u64| {
            bytes.saturating_sub(resident).saturating_mul(2) <= budget.saturating_sub(resident)
        };
        let is_asked_for = self.options.tiling != Tiling::Auto;
        let budget = self.options.memory_bytes;
        self.best
            .as_ref()
            .is_some_and(|best| is_asked_for || budget.is_none_or(|budget| has_room(best.bytes, budget)))
    }

    /// Whether cutting the network into segments could hardly be faster than what was found.
    pub(super) fn is_comfortable(&self) -> bool {
        self.best.as_ref().is_some_and(|best| best.plan.redundant_flops <= 0.02 * best.plan.flops)
    }

    /// Searches the tilings of a choice.
    pub(super) fn try_choice(&mut self, choice: Choice<'s>) -> Result<(), PlanError> {
        self.check()?;
        let budget = self.options.memory_bytes;
        let fits = |least: u64| budget.is_none_or(|budget| least <= budget);
        let kept = choice.lowered.keep(&choice.kept, self.backend, choice.in_files)?;
        let mut least = kept.least_bytes();
        if fits(least) {
            let Some(prepared) = self.prepared(choice.lowered, &kept)? else { return Ok(()) };
            least = prepared.least_bytes();
            if fits(least) {
                return self.explore(choice, &prepared, budget);
            }
        }
        Ok(push(&mut self.beyond, (least, choice))?)
    }

    /// The sweeps of a choice; `None` where they have too many nodes.
    pub(super) fn prepared<'p>(
        &self,
        lowered: &'p Lowered,
        kept: &'p Kept,
    ) -> Result<Option<Prepared<'p>>, PlanError> {
        Prepared::new::<T>(lowered, kept, self.options, self.effort.nodes)
    }

    /// The best plan; where none fits, the smallest budget that would do.
    pub(super) fn finish(mut self) -> Result<Plan, PlanError> {
        if self.best.is_some() {
            return self.refined();
        }
        let beyond = std::mem::take(&mut self.beyond);
        // the indices keep those of as many bytes in their order, where a stable sort would take memory unasked
        let mut order = collected((0..beyond.len()).map(|index| (beyond[index].0, index)))?;
        order.sort_unstable();
        for (least, index) in order {
            let choice = beyond[index].1.clone();
            if least >= self.smallest {
                break;
            }
            let kept = choice.lowered.keep(&choice.kept, self.backend, choice.in_files)?;
            if let Some(prepared) = self.prepared(choice.lowered, &kept)? {
                self.explore(choice, &prepared, Some(0))?;
            }
        }
        // what promises the most is searched further, and may fit then
        if let Some(closest) = self.closest.take() {
            self.explore_further(closest)?;
            if self.best.is_some() {
                return self.refined();
            }
        }
        match (self.too_large, self.smallest) {
            (Some(error), u64::MAX) => Err(error),
            (_, smallest) => {
                let budget = self.options.memory_bytes.unwrap_or(0);
                Err(PlanError::BudgetTooSmall { budget, smallest })
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        if (self.is_cancelled)() { Err(PlanError::Cancelled) } else { Ok(()) }
    }

    fn explore(
        &mut self,
        choice: Choice<'s>,
        prepared: &Prepared<'_>,
        budget: Option<u64>,
    ) -> Result<(), PlanError> {
        if self.is_beaten(&choice, prepared)? {
            return Ok(());
        }
        let (calls, intervals) = match self.options.tiling {
            Tiling::Auto => (self.effort.calls, self.effort.intervals),
            // what was asked for is planned, however long that takes
            _ => (u64::MAX, usize::MAX),
        };
        let measure = Measure::new(
            self.backend,
            prepared,
            self.options,
            self.is_cancelled,
            Walked::nothing(calls, intervals),
        );
        let mut explorer = Explorer::<T>::new(self.backend, measure, budget)?;
        explorer.left = (self.effort.measured / prepared.nodes.max(1)).max(LEAST_MEASURED);
        let explored = explorer.explore();
        self.take(&choice, &mut explorer, explored)?;
        if self.best.is_some() {
            self.closest = None; // nothing is searched further
            return Ok(());
        }
        let promised = explorer.smallest.midpoint(prepared.least_bytes());
        let is_found = explorer.smallest < u64::MAX;
        if is_found && self.closest.as_ref().is_none_or(|closest| promised < closest.promised) {
            let Explorer { known, left, measure, .. } = explorer;
            self.closest = Some(Tried { choice, promised, walked: measure.into_walked(), known, left });
        }
        Ok(())
    }

    /// Whether there is a plan that is better than any tiling of a choice.
    fn is_beaten(&self, choice: &Choice<'_>, prepared: &Prepared<'_>) -> Result<bool, PlanError> {
        let Some(price_to_beat) = self.price_to_beat(choice) else { return Ok(false) };
        let cores = cores(prepared.program(), self.options, self.backend);
        let seconds = least_seconds(self.backend, prepared, cores)?;
        // logarithms are not quite rounded
        Ok(price(seconds, prepared.least_bytes()) > price_to_beat + 1e-9)
    }

    /// What a tiling of a choice has to cost less than; nothing where there is no plan yet.
    fn price_to_beat(&self, choice: &Choice<'_>) -> Option<f64> {
        let best = self.best.as_ref()?;
        Some(if self.keeps_less(choice) { best.price - COMPUTED_AGAIN } else { best.price })
    }

    /// Goes on with a choice that was searched.
    fn explore_further(&mut self, tried: Tried<'s>) -> Result<(), PlanError> {
        let Tried { choice, walked, known, left, .. } = tried;
        let kept = choice.lowered.keep(&choice.kept, self.backend, choice.in_files)?;
        let Some(prepared) = self.prepared(choice.lowered, &kept)? else { return Ok(()) };
        let measure = Measure::new(self.backend, &prepared, self.options, self.is_cancelled, walked);
        let mut explorer = Explorer::<T>::new(self.backend, measure, self.options.memory_bytes)?;
        (explorer.known, explorer.left) = (known, left);
        let explored = explorer.further();
        self.take(&choice, &mut explorer, explored)
    }

    /// Takes what was found in the tilings of a choice.
    fn take(
        &mut self,
        choice: &Choice<'s>,
        explorer: &mut Explorer<'_, '_, T>,
        explored: Result<(), PlanError>,
    ) -> Result<(), PlanError> {
        self.smallest = self.smallest.min(explorer.smallest);
        self.too_large = self.too_large.take().or(explorer.too_large.take());
        explored?;
        let Some(found) = explorer.best.take() else { return Ok(()) };
        if self.price_to_beat(choice).is_none_or(|price| found.price < price) {
            let (grid, bands) = explorer.tiling(found.at)?;
            let Found { price, numbers, .. } = found;
            let candidate = Candidate { grid, bands, share: numbers.share };
            let (copy, budget) = (candidate.try_clone()?, explorer.budget);
            let bytes = numbers.memory.total_bytes();
            let plan = explorer.measure.planned::<T>(self.backend, copy, &numbers, budget)?;
            self.best = Some(Best { price, plan, bytes, choice: choice.clone(), candidate });
        }
        Ok(())
    }

    /// Whether a choice keeps less than the best one, and cuts the network into the same segments.
    fn keeps_less(&self, choice: &Choice<'_>) -> bool {
        self.best.as_ref().is_some_and(|best| {
            let is_same = std::ptr::eq(choice.lowered, best.choice.lowered);
            is_same && choice.kept_elements() < best.choice.kept_elements()
        })
    }

    /// The best plan, or one of other bands that is better.
    fn refined(mut self) -> Result<Plan, PlanError> {
        let Best { price, plan, choice, candidate: best, .. } =
            self.best.take().expect("invariant: a plan was found");
        let PlanOptions { tiling, hold, band, least_rows, memory_bytes: budget, .. } = *self.options;
        let in_waves = works_in_waves(self.backend);
        let is_whole = hold == Hold::Materialise || (in_waves && best.bands.rows == WHOLE);
        if (tiling, band, least_rows) != (Tiling::Auto, None, None) || is_whole {
            return Ok(plan);
        }
        let Choice { lowered, kept: kept_nodes, in_files } = choice;
        let kept = lowered.keep(&kept_nodes, self.backend, in_files)?;
        let Some(prepared) = self.prepared(lowered, &kept)? else { return Ok(plan) };
        let walked = Walked::nothing(self.effort.calls, self.effort.intervals);
        let measure = Measure::new(self.backend, &prepared, self.options, self.is_cancelled, walked);
        if in_waves && best.grid.counts()[0] == 1 {
            let better =
                Waves { backend: self.backend, measure, budget, price }.search(&best.grid, best.share)?;
            return Ok(better.unwrap_or(plan));
        }
        let refinement = Refinement { backend: self.backend, measure, budget, best, price, numbers: None };
        let (best, better) = refinement.search(&plan)?;
        let plan = better.unwrap_or(plan);
        let is_worth_it = OwnTilings::<T>::are_worth_a_search(&prepared, self.options, self.backend);
        if in_files || plan.stays_on_caller() || !is_worth_it {
            return Ok(plan);
        }
        let is_tight =
            budget.is_some_and(|budget| plan.peak_bytes().saturating_mul(4) > budget.saturating_mul(3));
        let own = OwnTilings {
            backend: self.backend,
            options: self.options,
            is_cancelled: self.is_cancelled,
            most_nodes: self.effort.nodes,
            walks: (self.effort.calls, self.effort.intervals),
            is_tight,
            common: best,
            price: f64::INFINITY,
            plan: None,
        };
        Ok(own.search(lowered, &kept_nodes, &prepared)?.unwrap_or(plan))
    }
}

/// How much less a plan has to cost that keeps fewer values and computes them again, as a logarithm of time: an eighth. The model takes such
/// plans for up to a tenth faster than they are (`efficientnet_b0` at 2048²: 4 % faster, and they take 8 % longer; a training step 2 and 11).
const COMPUTED_AGAIN: f64 = 0.134;

/// So many choices share the work of four.
const FEW_CHOICES: usize = 8;

/// The candidates that are measured of the largest networks, without those that are known to take too long to walk: these cost
/// nothing.
const LEAST_MEASURED: usize = 6;
