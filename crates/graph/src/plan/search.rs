//! The search for a plan: the least predicted time within the budget, where a plan that takes twice the
//! memory of another has to be one percent faster.
//!
//! Small networks are searched whole. Of large ones a few tilings far apart are measured, and then the neighbours of
//! the best, until none is better: first towards fewer bytes where nothing fits, then towards less time. The work is
//! bounded by counts, so that the same plan comes out on every machine. What is measured while nothing fits does not depend on
//! the budget, and so neither does the smallest budget that is named.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use tiled_geometry::Grid;
use tiled_kernel::Backend;
use tiled_tensor::{Element, collected, push, refusable};

use super::bound::least_seconds;
use super::build::{Kept, Lowered, Prepared};
use super::chunks::Alignment;
use super::lanes::{Share, cores, has_ordered_sums, shares_to_try};
use super::measure::{Measure, Numbers, Unmeasured, Walked};
use super::tilings::{Counts, WHOLE, shapes_to_try};
use super::{Hold, Plan, PlanError, PlanOptions, Tiling, stays_on_caller};
use crate::program::{NodeId, Program};
use crate::schedule::Bands;
use crate::sweep::Action;

/// What is kept whole, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'c> {
    pub(super) lowered: &'c Lowered,
    pub(super) kept: &'c [NodeId],
    pub(super) in_files: bool,
}

/// The search over choices.
pub(super) struct Search<'s, T> {
    backend: &'s dyn Backend<T>,
    options: &'s PlanOptions,
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
    choice: Choice<'c>,
    grid: Grid<2>,
    bands: Bands,
    share: Share,
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

    /// Whether cutting the network into segments could hardly be faster than what was found.
    pub(super) fn is_comfortable(&self) -> bool {
        self.best.as_ref().is_some_and(|best| best.plan.redundant_flops <= 0.02 * best.plan.flops)
    }

    /// Searches the tilings of a choice.
    pub(super) fn try_choice(&mut self, choice: Choice<'s>) -> Result<(), PlanError> {
        self.check()?;
        let kept = choice.lowered.keep(choice.kept, self.backend, choice.in_files)?;
        let least = kept.least_bytes();
        if self.options.memory_bytes.is_some_and(|budget| least > budget) {
            return Ok(push(&mut self.beyond, (least, choice))?);
        }
        self.explore(choice, &kept, self.options.memory_bytes)
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
            let choice = beyond[index].1;
            if least >= self.smallest {
                break;
            }
            let kept = choice.lowered.keep(choice.kept, self.backend, choice.in_files)?;
            self.explore(choice, &kept, Some(0))?;
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

    fn check(&self) -> Result<(), PlanError> {
        if (self.is_cancelled)() { Err(PlanError::Cancelled) } else { Ok(()) }
    }

    fn explore(&mut self, choice: Choice<'s>, kept: &Kept, budget: Option<u64>) -> Result<(), PlanError> {
        let Some(prepared) = Prepared::new(choice.lowered, kept, self.options, self.effort.nodes)? else {
            return Ok(());
        };
        if self.is_beaten(&prepared)? {
            return Ok(());
        }
        let (calls, intervals) = match self.options.tiling {
            Tiling::Auto => (self.effort.calls, self.effort.intervals),
            // what was asked for is planned, however long that takes
            _ => (u64::MAX, usize::MAX),
        };
        let measure =
            Measure::new(&prepared, self.options, self.is_cancelled, Walked::nothing(calls, intervals));
        let mut explorer = Explorer::<T>::new(self.backend, measure, budget)?;
        explorer.left = (self.effort.measured / prepared.nodes.max(1)).max(LEAST_MEASURED);
        let explored = explorer.explore();
        self.take(choice, &mut explorer, explored)?;
        let promised = explorer.smallest.midpoint(kept.least_bytes());
        let is_found = explorer.smallest < u64::MAX;
        if is_found && self.closest.as_ref().is_none_or(|closest| promised < closest.promised) {
            let Explorer { known, left, measure, .. } = explorer;
            self.closest = Some(Tried { choice, promised, walked: measure.into_walked(), known, left });
        }
        Ok(())
    }

    /// Whether there is a plan that is better than any tiling of a choice.
    fn is_beaten(&self, prepared: &Prepared<'_>) -> Result<bool, PlanError> {
        let Some(best) = &self.best else { return Ok(false) };
        let cores = cores(prepared.program(), self.options, self.backend);
        let seconds = least_seconds(self.backend, prepared, cores)?;
        // logarithms are not quite rounded
        Ok(price(seconds, prepared.kept.least_bytes()) > best.price + 1e-9)
    }

    /// Goes on with a choice that was searched.
    fn explore_further(&mut self, tried: Tried<'s>) -> Result<(), PlanError> {
        let Tried { choice, walked, known, left, .. } = tried;
        let kept = choice.lowered.keep(choice.kept, self.backend, choice.in_files)?;
        let Some(prepared) = Prepared::new(choice.lowered, &kept, self.options, self.effort.nodes)? else {
            return Ok(());
        };
        let measure = Measure::new(&prepared, self.options, self.is_cancelled, walked);
        let mut explorer = Explorer::<T>::new(self.backend, measure, self.options.memory_bytes)?;
        (explorer.known, explorer.left) = (known, left);
        let explored = explorer.further();
        self.take(choice, &mut explorer, explored)
    }

    /// Takes what was found in the tilings of a choice.
    fn take(
        &mut self,
        choice: Choice<'s>,
        explorer: &mut Explorer<'_, '_, T>,
        explored: Result<(), PlanError>,
    ) -> Result<(), PlanError> {
        self.smallest = self.smallest.min(explorer.smallest);
        self.too_large = self.too_large.take().or(explorer.too_large.take());
        explored?;
        let Some(found) = explorer.best.take() else { return Ok(()) };
        if self.best.as_ref().is_none_or(|best| found.price < best.price) {
            let (grid, bands) = explorer.tiling(found.at)?;
            let Found { price, numbers, .. } = found;
            let plan = planned(self.backend, &mut explorer.measure, &grid, bands, &numbers, explorer.budget)?;
            self.best = Some(Best { price, plan, choice, grid, bands, share: numbers.share });
        }
        Ok(())
    }

    /// The best plan, or the same in bands between those that were tried, or with more rows for each call that reads weights, where
    /// that is better.
    fn refined(mut self) -> Result<Plan, PlanError> {
        let best = self.best.take().expect("invariant: a plan was found");
        let PlanOptions { tiling, band, least_rows, memory_bytes, .. } = *self.options;
        if (tiling, band, least_rows) != (Tiling::Auto, None, None) || best.bands.rows == WHOLE {
            return Ok(best.plan);
        }
        let Choice { lowered, kept, in_files } = best.choice;
        let kept = lowered.keep(kept, self.backend, in_files)?;
        let Some(prepared) = Prepared::new(lowered, &kept, self.options, self.effort.nodes)? else {
            return Ok(best.plan);
        };
        let walked = Walked::nothing(self.effort.calls, self.effort.intervals);
        let mut measure = Measure::new(&prepared, self.options, self.is_cancelled, walked);
        let mut better: Option<(f64, Bands, Numbers)> = None;
        // takes bands that are better than the best so far, and says whether they are
        let mut improve = |bands: Bands, better: &mut Option<(f64, Bands, Numbers)>| {
            let numbers =
                match measure.numbers::<T>(self.backend, &best.grid, bands, &[best.share], memory_bytes) {
                    Ok(numbers) => numbers[0],
                    Err(Unmeasured::TooLong | Unmeasured::TooLarge(_)) => return Ok(false),
                    Err(error) => return Err(PlanError::from(error)),
                };
            let takes = numbers.memory.total_bytes();
            let price = price_of(prepared.program(), &numbers);
            let before = better.as_ref().map_or(best.price, |(price, ..)| *price);
            if memory_bytes.is_some_and(|budget| takes > budget) || price >= before {
                return Ok(false);
            }
            *better = Some((price, bands, numbers));
            Ok(true)
        };
        let rows = best.bands.rows;
        // neighbours of a power of two, half a step away
        for rows in [rows / 2 * 3, rows / 4 * 3].into_iter().filter(|rows| *rows > 0) {
            if improve(Bands { rows, ..best.bands }, &mut better)? {
                break;
            }
        }
        if has_low_calls(&best.plan) {
            for least_rows in LEAST_ROWS {
                let bands = better.as_ref().map_or(best.bands, |(_, bands, _)| *bands);
                if !improve(Bands { least_rows, ..bands }, &mut better)? {
                    break;
                }
            }
        }
        let Some((_, bands, numbers)) = better else { return Ok(best.plan) };
        planned(self.backend, &mut measure, &best.grid, bands, &numbers, memory_bytes)
    }
}

/// The least rows that are tried, each where the one before was better.
const LEAST_ROWS: [i64; 4] = [2, 4, 8, 16];

/// Whether a plan has calls that read weights for fewer rows than are worth it, of values that have more.
fn has_low_calls(plan: &Plan) -> bool {
    let tallest = plan.program.nodes.iter().map(|node| node.extents[0]).max().unwrap_or(1).max(1);
    plan.sweeps.iter().any(|sweep| {
        sweep.nodes.iter().filter(|node| node.action == Action::Compute).any(|node| {
            let reads_weights = plan.program.work(node.node).is_some_and(|work| work.weights() > 0);
            let height = plan.program.nodes[node.node].extents[0];
            let rows = i128::from(sweep.band) * i128::from(height) / i128::from(tallest);
            reads_weights && height > 1 && rows < i128::from(LEAST_ROWS[LEAST_ROWS.len() - 1])
        })
    })
}

/// The plan of a candidate, on the threads that there are.
fn planned<T: Element>(
    backend: &dyn Backend<T>,
    measure: &mut Measure<'_, '_>,
    grid: &Grid<2>,
    bands: Bands,
    numbers: &Numbers,
    budget: Option<u64>,
) -> Result<Plan, PlanError> {
    let numbers = measure.on_threads::<T>(backend, grid, bands, numbers, budget)?;
    Ok(measure.plan::<T>(grid, bands, &numbers)?)
}

/// What may be measured and walked where a choice is searched further.
const MORE_MEASURED: usize = 1_500_000;
const MORE_CALLS: u64 = 2_000_000;

/// So many choices share the work of four.
const FEW_CHOICES: usize = 8;

/// The candidates that are measured of the largest networks, without those that are known to take too long to walk: these cost
/// nothing.
const LEAST_MEASURED: usize = 6;

/// Where fewer may be measured, each line of tilings is first looked at in fewer places.
const FEW_MEASURED: usize = 22;

impl From<Unmeasured> for PlanError {
    fn from(unmeasured: Unmeasured) -> Self {
        match unmeasured {
            Unmeasured::Cancelled => Self::Cancelled,
            Unmeasured::TooLarge(error) => error,
            Unmeasured::TooLong => Self::TooLarge,
            Unmeasured::Refused(error) => error.into(),
        }
    }
}

/// The time that a candidate is judged by. A run of little to do stays on the caller's thread, which then does the work of all, one
/// lane after another; where sums depend on lanes, these are the same wherever the plan is made.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn seconds(program: &Program, numbers: &Numbers) -> f64 {
    let shared = numbers.seconds - numbers.meeting_seconds;
    if stays_on_caller(shared) && !has_ordered_sums(program) {
        shared * numbers.share.threads as f64
    } else {
        numbers.seconds
    }
}

/// What plans are compared by: their time, where twice the memory has to be worth one percent of it.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn price(seconds: f64, peak_bytes: u64) -> f64 {
    seconds.ln() + 0.01 * (peak_bytes.max(1) as f64).log2()
}

/// What a candidate is compared by: chunks that are read again count before time. A hundredth more reads is as bad as three times the time.
fn price_of(program: &Program, numbers: &Numbers) -> f64 {
    price(seconds(program, numbers), numbers.memory.total_bytes()) + 100.0 * numbers.chunk_reads.ln()
}

/// A tiling and a band, by their indices.
type At = [usize; 2];

/// The bytes and, where it fits, the price of what was measured; `None` where it has no numbers.
type Known = BTreeMap<At, Option<(u64, Option<f64>)>>;

#[derive(Clone, Copy, Debug)]
struct Found {
    price: f64,
    at: At,
    numbers: Numbers,
}

/// The search over the tilings of one choice.
struct Explorer<'e, 'p, T> {
    backend: &'e dyn Backend<T>,
    measure: Measure<'e, 'p>,
    options: &'e PlanOptions,
    budget: Option<u64>,
    anchor: [i64; 2],
    /// Where rows and columns are best cut for sources that are read in chunks.
    alignments: [Option<Alignment>; 2],
    shapes: Vec<(Counts, Vec<i64>)>,
    known: Known,
    best: Option<Found>,
    smallest: u64,
    too_large: Option<PlanError>,
    /// The candidates that may still be measured.
    left: usize,
}

impl<'e, 'p, T: Element> Explorer<'e, 'p, T> {
    /// A search that has measured nothing yet, and may not.
    fn new(
        backend: &'e dyn Backend<T>,
        measure: Measure<'e, 'p>,
        budget: Option<u64>,
    ) -> Result<Self, PlanError> {
        let program = measure.prepared.program();
        let prepared = measure.prepared;
        Ok(Self {
            alignments: [prepared.alignment(0)?, prepared.alignment(1)?],
            shapes: shapes_to_try(program, measure.options, backend)?,
            options: measure.options,
            budget,
            anchor: program.anchor,
            known: BTreeMap::new(),
            best: None,
            smallest: u64::MAX,
            too_large: None,
            left: 0,
            backend,
            measure,
        })
    }

    fn explore(&mut self) -> Result<(), PlanError> {
        if self.candidates() <= self.left || self.options.tiling != Tiling::Auto {
            return self.all();
        }
        let pieces = if self.left < FEW_MEASURED { [2, 2] } else { [3, 3] };
        self.lines(pieces)?;
        if self.best.is_none() { Ok(()) } else { self.further() }
    }

    /// Searches on where something fits or comes closest: more is worth while.
    fn further(&mut self) -> Result<(), PlanError> {
        let rest = self.candidates() - self.known.len();
        if rest == 0 {
            return Ok(()); // all were measured
        }
        self.left += MORE_MEASURED / self.measure.prepared.nodes.max(1);
        self.measure.walk_more(MORE_CALLS);
        if rest <= self.left { self.all() } else { self.lines([6, 5]) }
    }

    fn candidates(&self) -> usize {
        self.shapes.iter().map(|(_, bands)| bands.len()).sum()
    }

    /// Looks for the best tiling of as many parts, for each number of parts.
    fn lines(&mut self, pieces: [usize; 2]) -> Result<(), PlanError> {
        // these differ in their strips alone
        let mut lines: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (shape, (counts, _)) in self.shapes.iter().enumerate() {
            let rows = match counts {
                Counts::Of([rows, cols]) if rows != cols || *rows == 1 => *rows,
                _ => 0,
            };
            push(lines.entry(rows).or_default(), shape)?;
        }
        for line in lines.values() {
            self.line(line, pieces)?;
        }
        Ok(())
    }

    /// Measures every tiling and band.
    fn all(&mut self) -> Result<(), PlanError> {
        // windows that slide over whole rows compute nothing twice: strips only where those do not fit
        let whole_rows_first = (self.options.hold, self.options.tiling) == (Hold::Slide, Tiling::Auto);
        for shape in 0..self.shapes.len() {
            if whole_rows_first && self.best.is_some() {
                break;
            }
            for band in 0..self.shapes[shape].1.len() {
                self.look([shape, band])?;
            }
        }
        Ok(())
    }

    /// Looks for the best of a line of tilings, from few strips to many.
    fn line(&mut self, line: &[usize], [strips, pieces]: [usize; 2]) -> Result<(), PlanError> {
        let Some(last) = line.len().checked_sub(1) else { return Ok(()) };
        let bands = self.shapes[line[0]].1.len();
        let at = |[strip, band]: At| [line[strip], band];
        let mut start: Option<(Rank, At)> = None;
        let mut coarse = Vec::new();
        // tall bands first, which take the least to walk
        for band in 0..=pieces {
            for strip in 0..=strips {
                coarse.push([strip * last / strips, band * (bands - 1) / pieces]);
            }
        }
        for point in coarse {
            let rank = self.rank(at(point))?;
            if start.is_none_or(|(best, _)| rank < best) {
                start = Some((rank, point));
            }
        }
        let Some((mut rank, mut point)) = start else { return Ok(()) };
        // strips first: they cost nothing to walk; then bands; then both
        loop {
            let before = point;
            for directions in
                [&[[1, 0], [-1, 0]][..], &[[0, 1], [0, -1]], &[[1, 1], [1, -1], [-1, 1], [-1, -1]]]
            {
                for direction in directions {
                    while let Some(next) = step(point, *direction, [last, bands - 1]) {
                        let next_rank = self.rank(at(next))?;
                        if next_rank >= rank {
                            break;
                        }
                        (rank, point) = (next_rank, next);
                    }
                }
            }
            if point == before {
                return Ok(());
            }
        }
    }

    /// How good a candidate is: the price where it fits, else its bytes.
    fn rank(&mut self, at: At) -> Result<Rank, PlanError> {
        self.look(at)?;
        Ok(match self.known.get(&at) {
            Some(Some((_, Some(price)))) => Rank::Fits(*price),
            Some(Some((bytes, None))) => Rank::Takes(*bytes),
            _ => Rank::Unknown,
        })
    }

    /// Measures a candidate, unless that was done.
    fn look(&mut self, at: At) -> Result<(), PlanError> {
        if self.known.contains_key(&at) {
            return Ok(());
        }
        let (grid, bands) = self.tiling(at)?;
        if self.measure.takes_too_long(&grid, bands) {
            self.known.insert(at, None);
            return Ok(()); // nothing is measured
        }
        if self.options.tiling == Tiling::Auto {
            let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
            self.left = left;
        }
        let cores = cores(self.measure.prepared.program(), self.options, self.backend);
        let shares = shares_to_try(grid.len(), self.options, cores);
        let numbers = match self.measure.numbers::<T>(self.backend, &grid, bands, &shares, self.budget) {
            Ok(numbers) => numbers,
            Err(error @ (Unmeasured::Cancelled | Unmeasured::Refused(_))) => return Err(error.into()),
            Err(Unmeasured::TooLong) => {
                self.known.insert(at, None);
                return Ok(());
            }
            Err(Unmeasured::TooLarge(error)) => {
                self.too_large = Some(error);
                self.known.insert(at, None);
                return Ok(());
            }
        };
        let mut bytes = u64::MAX;
        let mut cheapest: Option<f64> = None;
        for numbers in numbers {
            let takes = numbers.memory.total_bytes();
            bytes = bytes.min(takes);
            self.smallest = self.smallest.min(takes);
            if self.budget.is_some_and(|budget| takes > budget) {
                continue;
            }
            let price = price_of(self.measure.prepared.program(), &numbers);
            cheapest = Some(cheapest.map_or(price, |cheapest| cheapest.min(price)));
            if self.best.is_none_or(|best| price < best.price) {
                self.best = Some(Found { price, at, numbers });
            }
        }
        self.known.insert(at, Some((bytes, cheapest)));
        Ok(())
    }

    fn grid(&self, counts: [i64; 2]) -> Result<Grid<2>, PlanError> {
        let even = refusable(|| Grid::from_counts(self.anchor, counts))?;
        if self.alignments.iter().all(Option::is_none) {
            return Ok(even);
        }
        Ok(aligned(&even, self.alignments)?.unwrap_or(even))
    }

    fn tiling(&self, [shape, band]: At) -> Result<(Grid<2>, Bands), PlanError> {
        let (counts, bands) = &self.shapes[shape];
        let grid = match counts {
            Counts::Given(grid) => refusable(|| grid.try_clone())?,
            Counts::Of(counts) => self.grid(*counts)?,
        };
        let least_rows = self.options.least_rows.unwrap_or(1).max(1);
        Ok((grid, Bands { rows: bands[band], least_rows }))
    }
}

/// Parts along each axis, as even as integers allow but for cuts that are moved to where few chunks lie on both sides.
fn aligned(even: &Grid<2>, alignments: [Option<Alignment>; 2]) -> Result<Option<Grid<2>>, PlanError> {
    let mut bounds = [Vec::new(), Vec::new()];
    let mut is_moved = false;
    for (axis, bounds) in bounds.iter_mut().enumerate() {
        let (whole, count) = (even.extents()[axis], even.counts()[axis]);
        let moved = match alignments[axis] {
            Some(alignment) => alignment.bounds(whole, i64::try_from(count).unwrap_or(i64::MAX))?,
            None => None,
        };
        is_moved |= moved.is_some();
        *bounds = match moved {
            Some(moved) => moved,
            None => {
                let part = |part| if axis == 0 { even.tile([part, 0]) } else { even.tile([0, part]) };
                let begins = (0..count).map(|number| part(number).axis(axis).begin());
                collected(begins.chain([whole]))?
            }
        };
    }
    Ok(if is_moved { Some(Grid::from_bounds(even.extents(), bounds)?) } else { None })
}

/// What candidates are compared by.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Rank {
    Fits(f64),
    Takes(u64),
    Unknown,
}

fn step(point: At, direction: [i64; 2], last: At) -> Option<At> {
    let along = |axis: usize| {
        let next = point[axis].checked_add_signed(isize::try_from(direction[axis]).ok()?)?;
        (next <= last[axis]).then_some(next)
    };
    Some([along(0)?, along(1)?])
}
