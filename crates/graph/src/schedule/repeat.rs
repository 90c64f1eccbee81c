//! What a schedule takes, without walking every row: away from the borders it repeats.
//!
//! ```text
//! state     done(v), the rows that node v has computed, for every v
//! period    a stretch of steps after which done(v) has grown by Δ(v), with Δ(operand) = scale·Δ(reader) over every
//!           edge, Δ(v) a whole number of cells, and Δ(terminal) what its pace gives
//! law       every decision is a comparison of coordinates that moved together. So where no border of the image and
//!           no end of the tile is met, the next period makes the same calls, moved by Δ
//! ```
//!
//! So the walk finds a period, skips as many of them as end before the first border that one of them would meet, and
//! walks the rest: the rings, calls and spans are those of the whole walk, not an estimate. Where sizes are ragged there
//! is no period, and every row is walked.

use tiled_geometry::Interval;
use tiled_tensor::{OutOfMemory, collected};

use super::{Band, Call, Stream};
use crate::demand::Demand;
use crate::flow::Flow;
use crate::index::IndexVec;
use crate::sweep::SweepNodeId;

/// What the rows of a tile take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The most rows that each node's window holds; zero for terminals.
    pub(crate) rings: IndexVec<SweepNodeId, i64>,
    /// The first and the last call that each node takes part in.
    pub(crate) spans: IndexVec<SweepNodeId, Option<[u64; 2]>>,
    /// The calls.
    pub(crate) calls: u64,
    /// Those that were walked one by one.
    pub(crate) walked: u64,
    /// The steps.
    pub(crate) steps: u64,
}

/// Why a walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It would have taken more calls than it was given.
    TooLong,
    /// Nobody waits for it any more.
    Cancelled,
    /// Memory was refused.
    Refused(OutOfMemory),
}

impl From<OutOfMemory> for Stop {
    fn from(error: OutOfMemory) -> Self {
        Self::Refused(error)
    }
}

/// How a schedule is walked.
#[derive(Clone, Copy)]
pub(crate) struct Walker<'w> {
    /// The most calls that are walked one by one.
    pub(crate) most: u64,
    /// Whether periods are skipped.
    pub(crate) skips: bool,
    pub(crate) is_cancelled: &'w dyn Fn() -> bool,
}

/// How many calls go by between two looks at whether anybody still waits.
const POLL: u64 = 1 << 14;

impl Walk {
    /// Walks the schedule of a tile whose nodes need `rows`, in these bands.
    pub(crate) fn of(
        flow: &Flow,
        rows: &Demand,
        bands: &IndexVec<SweepNodeId, Band>,
        walker: Walker<'_>,
    ) -> Result<Self, Stop> {
        let mut stream = Stream::new(flow, rows.intervals().copied()?, bands)?;
        let count = flow.len();
        let mut walk = Self {
            rings: IndexVec::filled(count, 0)?,
            spans: IndexVec::new(),
            calls: 0,
            walked: 0,
            steps: stream.steps(),
        };
        let mut spans = IndexVec::filled(count, [u64::MAX, 0])?;
        let mut seen = Seen::new(flow, &stream, walker.skips)?;
        loop {
            let mut call = |call: Call| {
                let touch = |[first, last]: &mut [u64; 2]| {
                    *first = walk.calls.min(*first);
                    *last = walk.calls;
                };
                touch(&mut spans[call.node]);
                for link in flow.links(call.node) {
                    touch(&mut spans[link.operand]);
                }
                if !flow.nodes[call.node].is_terminal {
                    let ring = &mut walk.rings[call.node];
                    *ring = (*ring).max(call.rows.end() - call.low);
                }
                walk.calls += 1;
                walk.walked += 1;
                match walk.walked {
                    walked if walked > walker.most => Err(Stop::TooLong),
                    walked if walked % POLL == 0 && (walker.is_cancelled)() => Err(Stop::Cancelled),
                    _ => Ok(()),
                }
            };
            if !stream.step(flow, &mut call)? {
                stream.finish(flow, &mut call)?;
                let held = |[first, last]: [u64; 2]| (first <= last).then_some([first, last]);
                walk.spans = collected(spans.into_iter().map(held))?.into();
                return Ok(walk);
            }
            if let Some((periods, calls)) = seen.period(flow, &stream, walk.calls) {
                for (done, before) in stream.done.iter_mut().zip(&seen.done) {
                    *done += periods * (*done - before);
                }
                walk.calls += calls * periods.unsigned_abs();
                seen.is_over = true;
            }
        }
    }
}

/// A state of the schedule that later ones are compared with.
struct Seen {
    done: IndexVec<SweepNodeId, i64>,
    calls: u64,
    /// The states that have gone by since, and how many until a later one takes its place.
    since: u64,
    until: u64,
    /// Steps after which the coarsest node has moved by whole rows: only then may a state return.
    stride: i64,
    /// Whether there is nothing more to skip.
    is_over: bool,
}

impl Seen {
    fn new(flow: &Flow, stream: &Stream<'_>, skips: bool) -> Result<Self, OutOfMemory> {
        let stride = stream.driver.filter(|_| skips).and_then(|driver| stride(flow, stream, driver));
        Ok(Self {
            done: stream.done.copied()?,
            calls: 0,
            since: 0,
            until: 1,
            stride: stride.unwrap_or(1),
            is_over: stride.is_none(),
        })
    }

    /// The periods that can be skipped now and the calls of each, where the state has returned. The state that is compared
    /// with moves on at powers of two (Brent, "An improved Monte Carlo factorization algorithm", 1980).
    fn period(&mut self, flow: &Flow, stream: &Stream<'_>, calls: u64) -> Option<(i64, u64)> {
        let driver = stream.driver.filter(|_| !self.is_over)?;
        if (stream.done[driver] - stream.rows[driver].begin()) % self.stride != 0 {
            return None;
        }
        if let Some(periods) = self.returned(flow, stream) {
            if periods > 0 {
                return Some((periods, calls - self.calls));
            }
            self.is_over = true; // the end is too near
            return None;
        }
        self.since += 1;
        if self.since == self.until {
            self.done.clone_from(&stream.done);
            self.calls = calls;
            self.since = 0;
            self.until *= 2;
        }
        None
    }

    /// Where all nodes have moved together since the state that was seen and met no border: how often they can do so again.
    fn returned(&self, flow: &Flow, stream: &Stream<'_>) -> Option<i64> {
        let moved = |node: SweepNodeId| stream.done[node] - self.done[node];
        let driver = stream.driver?;
        let rest = |node: SweepNodeId| stream.rows[node].end() - stream.done[node];
        for (terminal, pace) in &stream.others {
            let at = |done: i64| pace.rows(done - stream.rows[driver].begin());
            let exact = i128::from(moved(driver)) * i128::from(pace.per);
            let is_still = moved(*terminal) == 0
                && (rest(*terminal) == 0 || pace.per <= 1 && at(stream.done[driver]) == 0);
            if !is_still && exact != i128::from(moved(*terminal)) * i128::from(pace.of) {
                return None;
            }
        }
        let mut periods = i64::MAX;
        for (id, node) in flow.nodes.entries().rev() {
            let (before, done, own) = (self.done[id], stream.done[id], stream.rows[id]);
            let shift = done - before;
            if shift == 0 && done == own.end() {
                continue; // it has all its rows and asks for nothing
            }
            if shift % node.grain != 0 || shift < 0 {
                return None;
            }
            // the farthest rows that it may ask for: its next band, and past the gap of a stride
            let ahead = stream.bands[id].largest() + node.grain + 1;
            periods = periods.min(times(own.end() - (done + ahead), shift)?);
            for link in flow.links(id) {
                let operand = link.operand;
                let expected = link.reach.shifted(shift)?;
                if expected.unwrap_or(0) != moved(operand) {
                    return None;
                }
                if expected.is_none() && stream.done[operand] != stream.rows[operand].end() {
                    return None;
                }
                let mut moves = shift;
                let mut limit = Some(i64::MAX);
                let widest = Interval::new(before, done + ahead + link.reach.gap());
                let reached = link.reach.walk(widest, |stage, wanted| {
                    if stage.free[0] > wanted.begin() || wanted.is_empty() {
                        limit = None;
                    }
                    let more = times(stage.free[1].saturating_sub(wanted.end()), moves);
                    limit = limit.zip(more).map(|(limit, more)| limit.min(more));
                    moves = match stage.scale {
                        Some([per, of]) => moves * per / of,
                        None => 0,
                    };
                });
                periods = periods.min(limit?);
                if expected.is_some() {
                    if reached.is_empty() {
                        return None;
                    }
                    periods = periods.min(times(stream.rows[operand].end() - reached.end(), moves)?);
                }
            }
        }
        (periods < i64::MAX).then_some(periods)
    }
}

/// How often something that is `room` away from a border may move by `shift`; `None` where it is past it.
const fn times(room: i64, shift: i64) -> Option<i64> {
    match (room, shift) {
        (..0, _) => None,
        (_, 0) => Some(i64::MAX),
        _ => Some(room / shift),
    }
}

/// The rows of the driver in which every node moves by whole rows and cells, where all keep a ratio to it.
fn stride(flow: &Flow, stream: &Stream<'_>, driver: SweepNodeId) -> Option<i64> {
    let measure = flow.rate(driver);
    let most = stream.rows[driver].len();
    let mut stride = 1_i64;
    let mut last = None;
    for (node, rows) in flow.nodes.iter().zip(&stream.rows) {
        if rows.len() <= 1 || last == Some((node.rate, node.grain)) {
            continue; // one pixel, which everybody reads, or as the one before
        }
        last = Some((node.rate, node.grain));
        let [per, of] = flow.rates[node.rate as usize].to(measure)?;
        let of = of.checked_mul(node.grain / crate::rate::gcd(per, node.grain))?;
        stride = stride.checked_mul(of / crate::rate::gcd(stride, of))?;
        if stride > most {
            return None;
        }
    }
    Some(stride)
}

#[cfg(test)]
pub(crate) mod tests;
