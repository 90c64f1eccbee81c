//! The search over the tilings and bands of one choice.

use std::collections::BTreeMap;

use tiled_geometry::Grid;
use tiled_kernel::Backend;
use tiled_tensor::{Element, collected, push, refusable};

use super::chunks::Alignment;
use super::lanes::{cores, shares_to_try};
use super::measure::{Measure, Numbers};
use super::price::price_of;
use super::tilings::{Counts, shapes_to_try};
use super::unmeasured::Unmeasured;
use super::{Hold, PlanError, PlanOptions, Tiling};
use crate::schedule::Bands;

/// A tiling and a band, by their indices.
pub(super) type At = [usize; 2];

/// The bytes and, where it fits, the price of what was measured; `None` where it has no numbers.
pub(super) type Known = BTreeMap<At, Option<(u64, Option<f64>)>>;

/// The best candidate so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) price: f64,
    pub(super) at: At,
    pub(super) numbers: Numbers,
}

/// The search over the tilings of one choice.
pub(super) struct Explorer<'e, 'p, T> {
    backend: &'e dyn Backend<T>,
    pub(super) measure: Measure<'e, 'p>,
    options: &'e PlanOptions,
    pub(super) budget: Option<u64>,
    anchor: [i64; 2],
    /// Where rows and columns are best cut for sources that are read in chunks.
    alignments: [Option<Alignment>; 2],
    shapes: Vec<(Counts, Vec<i64>)>,
    pub(super) known: Known,
    pub(super) best: Option<Found>,
    pub(super) smallest: u64,
    pub(super) too_large: Option<PlanError>,
    /// The candidates that may still be measured.
    pub(super) left: usize,
}

impl<'e, 'p, T: Element> Explorer<'e, 'p, T> {
    /// A search that has measured nothing yet, and may not.
    pub(super) fn new(
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

    pub(super) fn explore(&mut self) -> Result<(), PlanError> {
        if self.candidates() <= self.left || self.options.tiling != Tiling::Auto {
            return self.all();
        }
        let pieces = if self.left < FEW_MEASURED { [2, 2] } else { [3, 3] };
        self.lines(pieces)?;
        if self.best.is_none() { Ok(()) } else { self.further() }
    }

    /// Searches on where something fits or comes closest: more is worth while.
    pub(super) fn further(&mut self) -> Result<(), PlanError> {
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

    pub(super) fn tiling(&self, [shape, band]: At) -> Result<(Grid<2>, Bands), PlanError> {
        let (counts, bands) = &self.shapes[shape];
        let grid = match counts {
            Counts::Given(grid) => refusable(|| grid.try_clone())?,
            Counts::Of(counts) => self.grid(*counts)?,
        };
        let least_rows = self.options.least_rows.unwrap_or(1).max(1);
        Ok((grid, Bands { tall: 0, rows: bands[band], least_rows }))
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

/// What may be measured and walked where a choice is searched further.
const MORE_MEASURED: usize = 1_500_000;
const MORE_CALLS: u64 = 2_000_000;

/// Where fewer may be measured, each line of tilings is first looked at in fewer places.
const FEW_MEASURED: usize = 22;
