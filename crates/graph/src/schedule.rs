//! The order in which a tile's rows are computed: one schedule for whole tiles and for sliding windows.
//!
//! A tile is a *stream*: every node owns an interval of rows and computes it from the top in bands. One
//! terminal, the driver, is advanced band by band; a node is asked for rows only when a consumer wants them, a
//! band at a time, so that a step advances layer by layer. Reductions and sinks take rows as soon as their
//! operands have them. With a band as tall as the tile every node is computed in one call: a classic tile.
//!
//! Nothing is computed twice within a tile, and a node holds the rows from the first one that a consumer still
//! needs to the last one computed.
//!
//! Who asks whom is kept on a stack of its own, so that a network may be as deep as it likes. Away from the borders a
//! schedule repeats ([`repeat`]).

pub(crate) mod repeat;

use tiled_geometry::{Interval, MAX_COORDINATE};
use tiled_tensor::{OutOfMemory, collected, with_room};

use crate::flow::Flow;
use crate::index::IndexVec;
use crate::parts::Part;
use crate::program::Program;
use crate::sweep::{Sweep, SweepNodeId};

/// One call of a kernel: compute, load, write or reduce these rows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The node.
    pub node: SweepNodeId,
    /// The rows.
    pub rows: Interval,
    /// The first row of the node that its window must still hold after the call.
    pub low: i64,
}

/// The rows that the nodes of a tile advance by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bands {
    /// Where calls are cut to fill the waves of a device: the rows of the tallest node that they are cut from. None else.
    pub(crate) tall: i64,
    /// The fewest rows of a call that reads weights, where they are no longer than [`SHORT_ROW`], and as many fewer as they are longer: it reads all
    /// of the weights, however little it computes. Fewer only where the tile ends.
    pub(crate) least_rows: i64,
    /// Those of the tallest node.
    pub(crate) rows: i64,
}

/// The rows of a call of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Band {
    pub(crate) most: i64,
    /// Where a reader wants fewer, the rest is computed ahead.
    pub(crate) least: i64,
    /// The rows that a step takes it on by, where it is the driver.
    pub(crate) step: i64,
    /// Whether calls are to have as many rows as nearly as can be: a terminal that keeps pace with the driver waits for them, but where the
    /// tile ends.
    pub(crate) is_whole: bool,
}

impl Band {
    /// The rows of the next call where so many are wanted: a few more than a band are one call, not one and a short one.
    fn of(self, wanted: i64) -> i64 {
        if !self.is_whole {
            return self.most;
        }
        let calls = (wanted.saturating_add(self.most / 2) / self.most).max(1);
        tiled_geometry::div_ceil(wanted, calls)
    }

    /// The most rows of a call.
    pub(crate) const fn largest(self) -> i64 {
        if self.is_whole { self.most + self.most / 2 + 1 } else { self.most }
    }
}

/// What the schedules of all tiles of a sweep have in common.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    flow: Flow,
    bands: IndexVec<SweepNodeId, Band>,
}

/// Runs the rows of one tile in order.
#[derive(Clone, Debug)]
pub struct Schedule<'a> {
    flow: &'a Flow,
    stream: Stream<'a>,
}

/// How far each node of a tile has come.
#[derive(Clone, Debug)]
struct Stream<'b> {
    /// The rows that each node owns.
    rows: IndexVec<SweepNodeId, Interval>,
    bands: &'b IndexVec<SweepNodeId, Band>,
    done: IndexVec<SweepNodeId, i64>,
    driver: Option<SweepNodeId>,
    /// The other terminals, each with its rows for one of the driver's.
    others: Vec<(SweepNodeId, Pace)>,
    asking: Vec<Ask>,
}

/// How a terminal off the driver's path keeps up with it, so that nothing waits for it to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// Its rows …
    per: i64,
    /// … for so many of the driver's.
    of: i64,
}

/// A node that has been asked for rows.
#[derive(Clone, Copy, Debug)]
struct Ask {
    node: SweepNodeId,
    target: i64,
    /// The rows that it is about to compute.
    band: Interval,
    /// The next operand to ask.
    operand: usize,
}

impl Course {
    /// That of a sweep whose nodes have these bands.
    pub(crate) fn new(
        program: &Program,
        sweep: &Sweep,
        bands: IndexVec<SweepNodeId, Band>,
    ) -> Result<Self, OutOfMemory> {
        Ok(Self { flow: Flow::new(program, sweep, 0)?, bands })
    }

    /// The schedule of a tile whose nodes need `rows`.
    pub(crate) fn schedule(&self, rows: Part<'_>) -> Result<Schedule<'_>, OutOfMemory> {
        let rows = collected(self.flow.nodes.ids().map(|node| rows.interval(node)))?.into();
        Ok(Schedule { flow: &self.flow, stream: Stream::new(&self.flow, rows, &self.bands)? })
    }
}

impl Schedule<'_> {
    /// The number of steps: bands of the driver.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.stream.steps()
    }

    /// Carries out all calls in order, and `step` after each step.
    ///
    /// # Errors
    /// The first error of a call or a step, after which nothing more is called.
    pub fn run<E>(
        mut self,
        mut call: impl FnMut(Call) -> Result<(), E>,
        mut step: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let flow = self.flow;
        while self.stream.step(flow, &mut call)? {
            step()?;
        }
        self.stream.finish(flow, &mut call)
    }
}

impl<'b> Stream<'b> {
    fn new(
        flow: &Flow,
        rows: IndexVec<SweepNodeId, Interval>,
        bands: &'b IndexVec<SweepNodeId, Band>,
    ) -> Result<Self, OutOfMemory> {
        let done = collected(rows.iter().map(|rows| rows.begin()))?.into();
        let driver = driver(flow, &rows);
        let mut others = with_room(terminals(flow).count())?;
        if let Some(driver) = driver {
            let rest = terminals(flow).filter(|terminal| *terminal != driver);
            others.extend(rest.map(|terminal| (terminal, Pace::of(flow, &rows, terminal, driver))));
        }
        let asking = with_room(flow.depth)?;
        Ok(Self { rows, bands, done, driver, others, asking })
    }

    fn steps(&self) -> u64 {
        self.driver.map_or(0, |driver| {
            let bands = tiled_geometry::div_ceil(self.rows[driver].len(), self.bands[driver].step);
            bands.unsigned_abs().max(1)
        })
    }

    /// Advances the driver by a band, and the others with it; false where the driver has all its rows.
    fn step<E>(&mut self, flow: &Flow, call: &mut impl FnMut(Call) -> Result<(), E>) -> Result<bool, E> {
        let Some(driver) = self.driver else { return Ok(false) };
        let whole = self.rows[driver];
        if self.done[driver] >= whole.end() {
            return Ok(false);
        }
        let target = (self.done[driver] + self.bands[driver].step).min(whole.end());
        self.advance(flow, driver, target, call)?;
        for other in 0..self.others.len() {
            let (terminal, pace) = self.others[other];
            let mut target = self.rows[terminal].begin() + pace.rows(target - whole.begin());
            let Band { most, is_whole, .. } = self.bands[terminal];
            if is_whole {
                let done = self.done[terminal];
                target = done + (target - done).max(0) / most * most;
            }
            self.advance(flow, terminal, target, call)?;
        }
        Ok(true)
    }

    /// The rows of terminals that the driver's last step left.
    fn finish<E>(&mut self, flow: &Flow, call: &mut impl FnMut(Call) -> Result<(), E>) -> Result<(), E> {
        for other in 0..self.others.len() {
            let (terminal, _) = self.others[other];
            self.advance(flow, terminal, self.rows[terminal].end(), call)?;
        }
        Ok(())
    }

    /// Computes the rows of a node up to `target`, a band at a time, each with what it needs.
    fn advance<E>(
        &mut self,
        flow: &Flow,
        node: SweepNodeId,
        target: i64,
        call: &mut impl FnMut(Call) -> Result<(), E>,
    ) -> Result<(), E> {
        debug_assert!(self.asking.is_empty(), "invariant: a terminal is asked when nobody else is");
        self.ask(flow, node, target);
        'asked: while let Some(ask) = self.asking.last_mut() {
            let node = ask.node;
            let links = flow.links(node);
            if ask.operand == Ask::IDLE {
                let begin = self.done[node];
                if begin >= ask.target {
                    self.asking.pop();
                    continue;
                }
                let rows = self.bands[node].of(ask.target - begin);
                let band = Interval::new(begin, (begin + rows).min(ask.target));
                ask.band = flow.nodes[node].computed(band);
                ask.operand = 0;
            }
            let band = ask.band;
            while let Some(link) = links.get(ask.operand) {
                ask.operand += 1;
                let rows = link.reach.needed(band);
                if rows.end() > self.done[link.operand] && !rows.is_empty() {
                    self.ask(flow, link.operand, rows.end());
                    continue 'asked;
                }
            }
            ask.operand = Ask::IDLE;
            // else a terminal that took its rows as soon as an operand had them: it looks again
            if self.done[node] == band.begin() {
                self.emit(flow, node, band, call)?;
                // terminals take what is there
                for reader in flow.terminals_of(node) {
                    if let Some(terminal) = flow.terminal(reader) {
                        self.take_available(flow, terminal, call)?;
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn ask(&mut self, flow: &Flow, node: SweepNodeId, target: i64) {
        let begin = self.done[node];
        if target <= begin {
            return;
        }
        let wanted = Interval::new(begin, target.max(begin + self.bands[node].least));
        let target = flow.nodes[node].computed(wanted).end().min(self.rows[node].end());
        if begin < target {
            self.asking.push(Ask { node, target, band: Interval::EMPTY, operand: Ask::IDLE });
        }
    }

    #[inline]
    fn emit<E>(
        &mut self,
        flow: &Flow,
        node: SweepNodeId,
        rows: Interval,
        call: &mut impl FnMut(Call) -> Result<(), E>,
    ) -> Result<(), E> {
        // rows between the windows of a stride may serve nobody, but are computed all the same
        let low = self.low(flow, node).min(rows.begin());
        self.done[node] = rows.end();
        call(Call { node, rows, low })
    }

    /// Lets a terminal take whole bands (or its last rows) that its operands already hold.
    fn take_available<E>(
        &mut self,
        flow: &Flow,
        node: SweepNodeId,
        call: &mut impl FnMut(Call) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let begin = self.done[node];
            let band = Interval::new(begin, (begin + self.bands[node].most).min(self.rows[node].end()));
            let is_available = !band.is_empty()
                && flow.links(node).iter().all(|link| {
                    let rows = link.reach.needed(band);
                    rows.is_empty() || rows.end() <= self.done[link.operand]
                });
            if !is_available {
                return Ok(());
            }
            self.emit(flow, node, band, call)?;
        }
    }

    /// The first row that a consumer still needs; the rows done where none does.
    #[inline]
    fn low(&self, flow: &Flow, node: SweepNodeId) -> i64 {
        let mut low = i64::MAX;
        for (reader, reach) in flow.readers(node) {
            let rest = Interval::new(self.done[reader], self.rows[reader].end());
            let rows = reach.needed(rest);
            if !rows.is_empty() {
                low = low.min(rows.begin());
            }
        }
        low
    }
}

impl Ask {
    /// No operand is next: the band is not known.
    const IDLE: usize = usize::MAX;
}

impl Pace {
    /// The ratio that two terminals keep over the whole image; where they have none, that of the rows they own here.
    fn of(
        flow: &Flow,
        rows: &IndexVec<SweepNodeId, Interval>,
        terminal: SweepNodeId,
        driver: SweepNodeId,
    ) -> Self {
        let ratio = flow.rate(terminal).to(flow.rate(driver));
        let [per, of] = ratio.unwrap_or([rows[terminal].len(), rows[driver].len().max(1)]);
        Self { per, of }
    }

    /// Its rows for so many of the driver's.
    fn rows(self, driver: i64) -> i64 {
        let rows = i128::from(driver) * i128::from(self.per) / i128::from(self.of);
        i64::try_from(rows).unwrap_or(MAX_COORDINATE).min(MAX_COORDINATE)
    }
}

fn terminals(flow: &Flow) -> impl Iterator<Item = SweepNodeId> {
    flow.nodes.entries().filter(|(_, node)| node.is_terminal).map(|(id, _)| id)
}

/// The terminal of the most rows, the last one of several.
fn driver(flow: &Flow, rows: &IndexVec<SweepNodeId, Interval>) -> Option<SweepNodeId> {
    terminals(flow).max_by_key(|terminal| (rows[*terminal].end() - rows[*terminal].begin(), *terminal))
}

/// The pixels of a row that count as one where calls are to have rows enough for the weights that they read.
const SHORT_ROW: i64 = 64;

/// The fewest rows for a call that reads weights of a value whose rows are of this length, where so many short ones are enough. In strips a row of
/// a call is a part of one.
pub(crate) fn least_rows(of_short: i64, length: i64) -> i64 {
    let pixels = i128::from(of_short) * i128::from(SHORT_ROW);
    let rows = (pixels + i128::from(length.max(SHORT_ROW)) - 1) / i128::from(length.max(SHORT_ROW));
    i64::try_from(rows).unwrap_or(MAX_COORDINATE).clamp(1, MAX_COORDINATE)
}

/// The bands of each node: those of the tallest one have its rows, the others as many rows of theirs, but one at least; those of nodes
/// that read weights have the least rows too.
pub(crate) fn bands_of(flow: &Flow, bands: Bands) -> Result<IndexVec<SweepNodeId, Band>, OutOfMemory> {
    let tallest = flow.nodes.iter().map(|node| node.extent).max().unwrap_or(1).max(1);
    let scaled = |extent: i64| {
        let scaled = i128::from(bands.rows) * i128::from(extent) / i128::from(tallest);
        i64::try_from(scaled).unwrap_or(MAX_COORDINATE).clamp(1, MAX_COORDINATE)
    };
    // neighbours mostly have as many rows
    let mut last = (tallest, scaled(tallest));
    let bands = flow.nodes.iter().map(|node| {
        if node.extent != last.0 {
            last = (node.extent, scaled(node.extent));
        }
        let least = if node.reads_weights { least_rows(bands.least_rows, node.across) } else { 1 };
        let most = last.1.max(least);
        Band { most, least, step: most, is_whole: false }
    });
    Ok(collected(bands)?.into())
}

/// A number of calls that the schedule of a tile takes at least, which no period shortens: before the driver ends its first
/// band, every node computes what that needs.
pub(crate) fn least_calls(
    flow: &Flow,
    rows: &IndexVec<SweepNodeId, Interval>,
    bands: &IndexVec<SweepNodeId, Band>,
) -> Result<u64, OutOfMemory> {
    let Some(driver) = driver(flow, rows) else { return Ok(0) };
    let mut first = IndexVec::filled(flow.len(), Interval::EMPTY)?;
    let begin = rows[driver].begin();
    first[driver] = Interval::new(begin, begin + bands[driver].step).intersect(rows[driver]);
    let mut calls = 0;
    for (id, node) in flow.nodes.entries().rev() {
        let own = first[id];
        if own.is_empty() {
            continue;
        }
        let len = own.end() - own.begin();
        // a band that begins or ends within a cell is more than a band
        let most = bands[id].largest() + 2 * (node.grain - 1);
        calls += if len <= most { 1 } else { tiled_geometry::div_ceil(len, most).unsigned_abs() };
        for link in flow.links(id) {
            let operand = link.operand;
            let end = link.reach.needed(own).end().min(rows[operand].end());
            if end > rows[operand].begin() && end > first[operand].end() {
                first[operand] = Interval::new(rows[operand].begin(), end);
            }
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_count_as_many_short_ones() {
        for (length, rows) in
            [(1, 16), (32, 16), (64, 16), (65, 16), (128, 8), (1000, 2), (1024, 1), (i64::MAX, 1)]
        {
            assert_eq!(least_rows(16, length), rows, "rows of {length}");
        }
        assert_eq!([1, 0, -3].map(|least| least_rows(least, 1)), [1; 3]);
        assert_eq!(least_rows(i64::MAX, 1), MAX_COORDINATE);
    }
}
