//! What a tiling takes, as numbers: bytes and seconds of a candidate, without building the plan.
//!
//! Rows are walked once for each height of tiles and band, columns once for each width, and a candidate is the two together. The
//! work that may go into the candidates of one program is bounded by counts, never by a clock, so that the same plan
//! comes out on every machine.

use std::collections::BTreeMap;
use std::rc::Rc;

use tiled_geometry::{Grid, Interval};
use tiled_kernel::Backend;
use tiled_tensor::{Element, OutOfMemory, collected, push, refusable, with_room};

use super::build::Prepared;
use super::chunks::ChunkUses;
use super::cost::{self, SweepFigures, Width};
use super::lanes::Share;
use super::options::host_threads;
use super::rows::Rows;
use super::slots::{Stored, most_bytes, window_bytes};
use super::unmeasured::Unmeasured;
use super::waves::{bands_in_waves, works_in_waves};
use super::{Memory, PlanError, PlanOptions};
use crate::index::IndexVec;
use crate::parts::{Cuts, Parts};
use crate::program::Rate;
use crate::schedule::repeat::Stop;
use crate::schedule::{Band, Bands, bands_of};
use crate::sweep::SweepNodeId;

/// A tiling with bands, and how its tiles are shared out.
pub(super) struct Candidate {
    pub(super) grid: Grid<2>,
    pub(super) bands: Bands,
    pub(super) share: Share,
}

impl Candidate {
    /// A copy.
    pub(super) fn try_clone(&self) -> Result<Self, PlanError> {
        Ok(Self { grid: refusable(|| self.grid.try_clone())?, ..*self })
    }
}

/// What one sweep takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfSweep {
    /// The bytes of the windows of all lanes in flight.
    pub(super) windows_bytes: u64,
    pub(super) seconds: f64,
    pub(super) meeting_seconds: f64,
}

/// The numbers of a candidate whose tiles are shared out like this.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) share: Share,
    pub(super) memory: Memory,
    pub(super) seconds: f64,
    pub(super) meeting_seconds: f64,
    /// The reads of chunks, for one of each chunk that a sweep needs.
    pub(super) chunk_reads: f64,
}

/// What the parts of one axis of a sweep need.
#[derive(Debug)]
struct Axis {
    /// The coordinates of each node in all parts together.
    sums: IndexVec<SweepNodeId, i64>,
    /// The most in one part.
    widest: IndexVec<SweepNodeId, i64>,
    /// The chunks that each part needs of each source that is read in chunks.
    chunks: Vec<Vec<Interval>>,
    /// The widths of the parts, of columns where calls work in waves.
    widths: Vec<Width>,
}

/// Measures the candidates of one program.
pub(super) struct Measure<'m, 'p> {
    pub(super) prepared: &'m Prepared<'p>,
    pub(super) options: &'m PlanOptions,
    is_cancelled: &'m dyn Fn() -> bool,
    /// Whether a call has the whole device, so that the widths of strips matter one by one.
    in_waves: bool,
    /// Whether the host goes ahead of a device.
    is_ahead: bool,
    walked: Walked,
}

/// What was walked of a program, and how much more may be.
#[derive(Debug)]
pub(super) struct Walked {
    /// The calls that may still be walked.
    calls_left: u64,
    /// The intervals that may still be found.
    intervals_left: usize,
    heights: BTreeMap<usize, Rc<Vec<Parts>>>,
    rows: BTreeMap<(usize, BandsKey), Option<Rc<Vec<Rows>>>>,
    /// The bands of the nodes of each sweep, where calls are cut to fill waves.
    bands: BTreeMap<BandsKey, Rc<OwnBands>>,
    axes: BTreeMap<(usize, usize), Option<Rc<Vec<Axis>>>>,
}

/// Bands, and the strips that they are for where calls are cut to fill waves.
type BandsKey = (Bands, usize);

/// The bands of the nodes of each sweep.
type OwnBands = Vec<IndexVec<SweepNodeId, Band>>;

impl Walked {
    /// Nothing yet, where so many calls may be walked and so many intervals found.
    pub(super) const fn nothing(calls: u64, intervals: usize) -> Self {
        Self {
            calls_left: calls,
            intervals_left: intervals,
            heights: BTreeMap::new(),
            rows: BTreeMap::new(),
            bands: BTreeMap::new(),
            axes: BTreeMap::new(),
        }
    }
}

impl<'m, 'p> Measure<'m, 'p> {
    pub(super) fn new<T: Element>(
        backend: &dyn Backend<T>,
        prepared: &'m Prepared<'p>,
        options: &'m PlanOptions,
        is_cancelled: &'m dyn Fn() -> bool,
        walked: Walked,
    ) -> Self {
        let in_waves = works_in_waves(backend);
        Self { prepared, options, is_cancelled, in_waves, is_ahead: backend.transfers_beside(), walked }
    }

    /// What was walked, for another time.
    pub(super) fn into_walked(self) -> Walked {
        self.walked
    }

    /// Lets more calls be walked; what took too many may be tried again.
    pub(super) fn walk_more(&mut self, calls: u64) {
        self.walked.calls_left = self.walked.calls_left.saturating_add(calls);
        self.walked.rows.retain(|_, rows| rows.is_some());
    }

    /// The numbers of a tiling for each way to share it out. The time is that of tilings within the budget alone.
    pub(super) fn numbers<T: Element>(
        &mut self,
        backend: &dyn Backend<T>,
        grid: &Grid<2>,
        bands: Bands,
        shares: &[Share],
        budget: Option<u64>,
    ) -> Result<Vec<Numbers>, Unmeasured> {
        if bands.tall > 0 {
            self.cut_to_waves(backend, grid, bands)?;
        }
        let stored = self.stored(grid, bands, usize::MAX)?;
        let windows = most_bytes::<T>(&stored)?;
        let mut memory = with_room(shares.len())?;
        let mut reads = with_room(shares.len())?;
        for share in shares {
            let chunks = self.chunks(grid, *share)?;
            let bytes = self.memory(windows, *share, &chunks, budget)?;
            reads.push(chunks.reads_for_one(bytes.chunks_bytes));
            memory.push(bytes);
        }
        let fits = |memory: &Memory| budget.is_none_or(|budget| memory.total_bytes() <= budget);
        let mut seconds = vec![[0.0; 2]; shares.len()];
        if memory.iter().any(fits) {
            let prepared = self.prepared;
            self.visit(grid, bands, &stored, |figures| {
                for ((share, seconds), memory) in shares.iter().zip(&mut seconds).zip(&memory) {
                    if fits(memory) {
                        let [work, meetings] = cost::predict(backend, prepared, figures, *share);
                        *seconds = [seconds[0] + work, seconds[1] + meetings];
                    }
                }
            })?;
        }
        let numbers = shares.iter().zip(memory).zip(reads).zip(seconds);
        let numbers = numbers.map(|(((share, memory), chunk_reads), [work, meetings])| Numbers {
            share: *share,
            memory,
            seconds: work + meetings,
            meeting_seconds: meetings,
            chunk_reads,
        });
        Ok(numbers.collect())
    }

    /// What each sweep takes in a tiling, shared out like this.
    pub(super) fn of_sweeps<T: Element>(
        &mut self,
        backend: &dyn Backend<T>,
        Candidate { grid, bands, share }: &Candidate,
    ) -> Result<Vec<OfSweep>, Unmeasured> {
        let prepared = self.prepared;
        let stored = self.stored(grid, *bands, share.in_flight)?;
        let mut all = with_room(stored.len())?;
        for (_, slot_elements) in &stored {
            let of_lane = window_bytes::<T>(slot_elements)?;
            let windows_bytes = of_lane.checked_mul(share.in_flight as u64).ok_or(PlanError::TooLarge)?;
            all.push(OfSweep { windows_bytes, seconds: 0.0, meeting_seconds: 0.0 });
        }
        self.visit(grid, *bands, &stored, |figures| {
            let sweep: &mut OfSweep = &mut all[figures.sweep];
            #[expect(clippy::cast_precision_loss, reason = "a model of time")]
            let figures = SweepFigures { held_bytes: sweep.windows_bytes as f64, ..*figures };
            let [work, meetings] = cost::predict(backend, prepared, &figures, *share);
            (sweep.seconds, sweep.meeting_seconds) = (work + meetings, meetings);
        })?;
        Ok(all)
    }

    /// The numbers of a plan whose sweeps have tilings of their own, and take so much. None of them reads chunks.
    pub(super) fn numbers_of_sweeps(
        &self,
        tilings: &[Candidate],
        sweeps: &[OfSweep],
    ) -> Result<Numbers, PlanError> {
        let most =
            |of: fn(&Share) -> usize| tilings.iter().map(|tiling| of(&tiling.share)).max().unwrap_or(1);
        let share = Share {
            lanes: most(|share| share.lanes),
            in_flight: most(|share| share.in_flight),
            threads: most(|share| share.threads),
        };
        let mut memory = self.memory(0, share, &ChunkUses::default(), None)?;
        memory.windows_bytes = sweeps.iter().map(|sweep| sweep.windows_bytes).max().unwrap_or(0);
        let sum = |of: fn(&OfSweep) -> f64| sweeps.iter().map(of).sum();
        Ok(Numbers {
            share,
            memory,
            seconds: sum(|sweep| sweep.seconds),
            meeting_seconds: sum(|sweep| sweep.meeting_seconds),
            chunk_reads: 1.0,
        })
    }

    /// The bytes of a run that shares tiles out like this beside its windows. None of its sweeps reads chunks.
    pub(super) fn bytes_beside_windows(&self, share: Share) -> Result<u64, PlanError> {
        let memory = self.memory(0, share, &ChunkUses::default(), None)?;
        Ok(Memory { before_sweeps_bytes: 0, ..memory }.total_bytes())
    }

    /// The memory of a run with windows of so many bytes a lane, where chunks are kept if the budget holds them.
    pub(super) fn memory(
        &self,
        windows: u64,
        share: Share,
        chunks: &ChunkUses,
        budget: Option<u64>,
    ) -> Result<Memory, PlanError> {
        let times = |bytes: u64, count: usize| bytes.checked_mul(count as u64).ok_or(PlanError::TooLarge);
        let Share { lanes, in_flight, threads } = share;
        let kept = self.prepared.kept;
        let mut memory = self.prepared.memory;
        memory.windows_bytes = times(windows, in_flight)?;
        memory.reductions_bytes += times(kept.partial_bytes, lanes)?;
        // where the host goes ahead of a device, all its threads read and write what goes to and fro
        let transfers = if self.is_ahead { host_threads(self.options) } else { in_flight };
        memory.transfer_bytes = times(self.prepared.transfer_bytes, transfers)?;
        memory.scratch_bytes = times(kept.scratch_bytes, threads)?;
        let left = budget.map_or(u64::MAX, |budget| budget.saturating_sub(memory.total_bytes()));
        memory.chunks_bytes = chunks.bytes(left)?;
        Ok(memory)
    }

    /// What the chunks of the sources take in each sweep.
    pub(super) fn chunks(&mut self, grid: &Grid<2>, share: Share) -> Result<ChunkUses, Unmeasured> {
        let prepared = self.prepared;
        if prepared.chunked.iter().all(Vec::is_empty) {
            return Ok(ChunkUses::default());
        }
        let axes = [self.axis(grid, 0)?, self.axis(grid, 1)?];
        let ranges = |sweep: usize, source: usize| {
            [0, 1].map(|axis: usize| axes[axis][sweep].chunks[source].as_slice())
        };
        Ok(ChunkUses::of(&prepared.chunked, ranges, share)?)
    }

    /// Where the windows of each sweep lie, with so many lanes in flight: candidates are counted as if there were several.
    pub(super) fn stored(
        &mut self,
        grid: &Grid<2>,
        bands: Bands,
        in_flight: usize,
    ) -> Result<Vec<Stored>, Unmeasured> {
        let mut all = with_room(self.prepared.sweeps.len())?;
        for sweep in 0..self.prepared.sweeps.len() {
            all.push(self.stored_of(sweep, grid, bands, in_flight)?);
        }
        Ok(all)
    }

    /// Where the windows of a sweep lie, with so many lanes in flight.
    pub(super) fn stored_of(
        &mut self,
        sweep: usize,
        grid: &Grid<2>,
        bands: Bands,
        in_flight: usize,
    ) -> Result<Stored, Unmeasured> {
        if (self.is_cancelled)() {
            return Err(Unmeasured::Cancelled);
        }
        // those of rows that took too long to walk are not asked for
        let rows = self.rows(grid, bands)?;
        let widths = self.axis(grid, 1)?;
        let (rows, width) = (&rows[sweep], &widths[sweep]);
        let mut sizes = with_room(rows.rings.len())?;
        for ((node, ring), widest) in rows.rings.entries().zip(&width.widest) {
            let elements = match *ring {
                0 => Ok(0),
                _ if self.prepared.computed_into(sweep, node, in_flight).is_some() => Ok(0),
                ring => self.prepared.windows[sweep][node].elements(ring, *widest),
            };
            sizes.push(elements?);
        }
        Ok(rows.spans.assign(&sizes)?)
    }

    /// Visits the sweeps with all that their cost depends on.
    fn visit(
        &mut self,
        grid: &Grid<2>,
        bands: Bands,
        stored: &[Stored],
        mut visitor: impl FnMut(&SweepFigures<'_>),
    ) -> Result<(), Unmeasured> {
        (0..stored.len())
            .try_for_each(|sweep| self.visit_sweep(sweep, grid, bands, &stored[sweep], &mut visitor))
    }

    /// Visits a sweep.
    pub(super) fn visit_sweep(
        &mut self,
        sweep: usize,
        grid: &Grid<2>,
        bands: Bands,
        (slots, slot_elements): &Stored,
        visitor: &mut impl FnMut(&SweepFigures<'_>),
    ) -> Result<(), Unmeasured> {
        if (self.is_cancelled)() {
            return Err(Unmeasured::Cancelled);
        }
        let heights = self.axis(grid, 0)?;
        let widths = self.axis(grid, 1)?;
        let rows = self.rows(grid, bands)?;
        let [parts, strips] = grid.counts();
        let rows = &rows[sweep];
        visitor(&SweepFigures {
            sweep,
            tiles: parts * strips,
            strips,
            steps: rows.steps * strips as u64,
            calls: rows.calls * strips as u64,
            rows: &heights[sweep].sums,
            cols: &widths[sweep].sums,
            widths: &widths[sweep].widths,
            bands: &rows.bands,
            slots,
            slot_elements,
            held_bytes: 0.0,
        });
        Ok(())
    }

    /// What the parts of one axis need in each sweep.
    fn axis(&mut self, grid: &Grid<2>, axis: usize) -> Result<Rc<Vec<Axis>>, Unmeasured> {
        let key = (axis, grid.counts()[axis]);
        if let Some(known) = self.walked.axes.get(&key) {
            return known.clone().ok_or(Unmeasured::TooLong);
        }
        let mut axes = with_room(self.prepared.flows.len())?;
        let chunked = &self.prepared.chunked;
        let by_width = self.in_waves && axis == 1;
        let mut take = |parts: &Parts| {
            let [sums, widest] = parts.extents()?;
            let sources = &chunked[axes.len()];
            let mut chunks = with_room(sources.len())?;
            for source in sources {
                chunks.push(source.ranges(axis, parts)?);
            }
            let mut widths = Vec::new();
            if by_width && parts.demands() <= MOST_WIDTHS {
                for (demand, strips) in parts.classes()? {
                    let cols = collected(demand.intervals().iter().map(|cols| cols.len()))?.into();
                    push(&mut widths, Width { strips, cols })?;
                }
            } else if by_width {
                let strips = i64::try_from(parts.len()).unwrap_or(i64::MAX).max(1);
                let cols = collected(sums.iter().map(|cols| cols / strips))?.into();
                push(&mut widths, Width { strips, cols })?;
            }
            axes.push(Axis { sums, widest, chunks, widths });
            Ok::<_, OutOfMemory>(())
        };
        let found = if axis == 0 {
            self.heights(grid).and_then(|heights| Ok(heights.iter().try_for_each(take)?))
        } else {
            self.parts(grid, axis, |parts| take(&parts))
        };
        let found = match found {
            Ok(()) => Some(Rc::new(axes)),
            Err(Unmeasured::TooLong) => None,
            Err(error) => return Err(error),
        };
        self.walked.axes.insert(key, found.clone());
        found.ok_or(Unmeasured::TooLong)
    }

    fn heights(&mut self, grid: &Grid<2>) -> Result<Rc<Vec<Parts>>, Unmeasured> {
        if let Some(known) = self.walked.heights.get(&grid.counts()[0]) {
            return Ok(known.clone());
        }
        let mut parts = with_room(self.prepared.flows.len())?;
        self.parts(grid, 0, |of_sweep| {
            parts.push(of_sweep);
            Ok(())
        })?;
        let parts = Rc::new(parts);
        self.walked.heights.insert(grid.counts()[0], parts.clone());
        Ok(parts)
    }

    /// The parts of one axis, sweep by sweep.
    fn parts(
        &mut self,
        grid: &Grid<2>,
        axis: usize,
        mut taker: impl FnMut(Parts) -> Result<(), OutOfMemory>,
    ) -> Result<(), Unmeasured> {
        let mut cuts = Cuts::new(grid, axis, anchor(self.prepared, axis));
        // half of what is left, as with calls
        let mut left = if self.walked.intervals_left == usize::MAX {
            usize::MAX
        } else {
            self.walked.intervals_left / 2
        };
        self.walked.intervals_left -= if left == usize::MAX { 0 } else { left };
        for flow in &self.prepared.flows {
            if (self.is_cancelled)() {
                return Err(Unmeasured::Cancelled);
            }
            let nodes = flow[axis].len().max(1);
            let parts = Parts::new(&flow[axis], &mut cuts, left / nodes)?;
            let parts = parts.ok_or(Unmeasured::TooLong)?;
            left = left.saturating_sub(parts.demands() * nodes);
            taker(parts)?;
        }
        self.walked.intervals_left = self.walked.intervals_left.saturating_add(left);
        Ok(())
    }

    /// Cuts the calls of all nodes so that they fill waves, unless that was done.
    fn cut_to_waves<T: Element>(
        &mut self,
        backend: &dyn Backend<T>,
        grid: &Grid<2>,
        bands: Bands,
    ) -> Result<(), Unmeasured> {
        let key = bands_key(grid, bands);
        if self.walked.bands.contains_key(&key) {
            return Ok(());
        }
        let axes = self.axis(grid, 1)?;
        let mut all = with_room(axes.len())?;
        for (sweep, axis) in axes.iter().enumerate() {
            all.push(bands_in_waves(backend, self.prepared, sweep, &axis.widths, bands.tall)?);
        }
        self.walked.bands.insert(key, Rc::new(all));
        Ok(())
    }

    /// The bands of all nodes; those that are cut to fill waves have been.
    pub(super) fn own_bands(&self, grid: &Grid<2>, bands: Bands) -> Result<Rc<OwnBands>, OutOfMemory> {
        if bands.tall > 0 {
            return Ok(self.walked.bands[&bands_key(grid, bands)].clone());
        }
        let flows = &self.prepared.flows;
        let mut all = with_room(flows.len())?;
        for [flow, _] in flows {
            all.push(bands_of(flow, bands)?);
        }
        Ok(Rc::new(all))
    }

    /// Whether a walk of the rows of these tiles is known to take too long.
    pub(super) fn takes_too_long(&self, grid: &Grid<2>, bands: Bands) -> bool {
        let of = bands_key(grid, bands);
        let key = (grid.counts()[0], of);
        if let Some(known) = self.walked.rows.get(&key) {
            return known.is_none();
        }
        // lower bands take more calls than one that took too many
        let tallest = (Bands { rows: i64::MAX, ..bands }, of.1);
        let mut lower = self.walked.rows.range(key..=(key.0, tallest));
        lower.any(|(_, rows)| rows.is_none())
    }

    /// Walks the rows of the tiles of all sweeps.
    pub(super) fn rows(&mut self, grid: &Grid<2>, bands: Bands) -> Result<Rc<Vec<Rows>>, Unmeasured> {
        let of = bands_key(grid, bands);
        let key = (grid.counts()[0], of);
        if let Some(known) = self.walked.rows.get(&key) {
            return known.clone().ok_or(Unmeasured::TooLong);
        }
        if self.takes_too_long(grid, bands) {
            return Err(Unmeasured::TooLong);
        }
        let heights = self.heights(grid)?;
        let own_bands = self.own_bands(grid, bands)?;
        // half of what is left, so that one walk that is given up leaves enough for others
        let unlimited = self.walked.calls_left == u64::MAX;
        let given = if unlimited { u64::MAX } else { self.walked.calls_left / 2 };
        let mut calls = given;
        let walked = Rows::walk(&self.prepared.flows, &heights, &own_bands, &mut calls, self.is_cancelled);
        self.walked.calls_left -= given;
        match walked {
            Ok(all) => {
                let all = Rc::new(all);
                self.walked.calls_left += calls;
                self.walked.rows.insert(key, Some(all.clone()));
                Ok(all)
            }
            Err(Stop::Cancelled) => Err(Unmeasured::Cancelled),
            Err(Stop::Refused(error)) => Err(error.into()),
            Err(Stop::TooLong) => {
                self.walked.rows.insert(key, None);
                Err(Unmeasured::TooLong)
            }
        }
    }
}

/// Bands that are cut to fill waves are those of strips of one width; others are for all.
fn bands_key(grid: &Grid<2>, bands: Bands) -> BandsKey {
    (bands, if bands.tall > 0 { grid.counts()[1] } else { 0 })
}

/// Strips of more widths than this count as wide as one another.
const MOST_WIDTHS: usize = 16;

/// The rate of the node that tiles are given in.
pub(super) fn anchor(prepared: &Prepared<'_>, axis: usize) -> Rate {
    match prepared.program().anchor_node {
        Some(node) => prepared.program().rate(node, axis),
        None => Rate { group: None, per: 1, of: 1 },
    }
}
