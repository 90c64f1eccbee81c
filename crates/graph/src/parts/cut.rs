//! Cuts the domains of terminals at the bounds of a grid, and finds the parts that are alike.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use tiled_geometry::{Grid, Interval};
use tiled_tensor::{OutOfMemory, collected, with_room};

use super::part::Part;
use crate::demand::Demand;
use crate::flow::{Flow, FlowNode};
use crate::index::IndexVec;
use crate::program::Rate;
use crate::rate;
use crate::sweep::SweepNodeId;

/// Where one axis of a grid is cut: the same for all sweeps.
#[derive(Debug)]
pub(crate) struct Cuts<'g> {
    grid: &'g Grid<2>,
    axis: usize,
    /// The rate of the node that the grid is over.
    anchor: Rate,
    /// The classes of the parts for the turn that was asked for last: those of sweeps in a row are mostly the same.
    classes: Option<Rc<Classes>>,
}

/// Which parts may be alike: those of one length, whole turns from one another.
#[derive(Debug)]
pub(super) struct Classes {
    /// The coordinates of the anchor in a turn.
    length: i64,
    /// The class of each part.
    of: Vec<u32>,
    pub(super) count: usize,
}

/// A stretch of the anchor after which every node is where it was, moved by whole coordinates.
pub(super) struct Turn {
    /// By how many each node has moved.
    pub(super) moved: IndexVec<SweepNodeId, i64>,
    pub(super) classes: Rc<Classes>,
}

/// Up to as many parts are shared out evenly, and each has a demand of its own. More are cut at the same rows of every
/// node, so that they are alike.
const FEW: usize = 16;

/// The most parts in a turn; where there are more, each has a demand of its own.
const MOST_CLASSES: usize = 64;

/// The demands that are found in one walk over the edges.
const AT_ONCE: usize = 4;

impl<'g> Cuts<'g> {
    pub(crate) const fn new(grid: &'g Grid<2>, axis: usize, anchor: Rate) -> Self {
        Self { grid, axis, anchor, classes: None }
    }

    pub(super) fn count(&self) -> usize {
        self.grid.counts()[self.axis]
    }

    fn bounds(&self, part: usize) -> Interval {
        let tile = if self.axis == 0 { [part, 0] } else { [0, part] };
        self.grid.tile(tile).axis(self.axis)
    }

    fn classes(&mut self, length: i64) -> Result<Rc<Classes>, OutOfMemory> {
        if let Some(classes) = self.classes.as_ref().filter(|classes| classes.length == length) {
            return Ok(classes.clone());
        }
        let mut numbers: BTreeMap<[i64; 2], u32> = BTreeMap::new();
        let mut of = with_room(self.count())?;
        for part in 0..self.count() {
            let tile = self.bounds(part);
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            of.push(*numbers.entry([tile.len(), tile.begin() % length]).or_insert(next));
        }
        let classes = Rc::new(Classes { length, of, count: numbers.len() });
        self.classes = Some(classes.clone());
        Ok(classes)
    }
}

/// Cuts the domains of the terminals of a sweep.
pub(super) struct Cutter<'f, 'g> {
    flow: &'f Flow,
    cuts: &'f mut Cuts<'g>,
    /// Of each rate of the sweep: its coordinates for one of the anchor's, where they keep that ratio. None where parts
    /// are few.
    ratios: Vec<Option<[i64; 2]>>,
    is_exact: bool,
}

impl<'f, 'g> Cutter<'f, 'g> {
    pub(super) fn new(flow: &'f Flow, cuts: &'f mut Cuts<'g>) -> Result<Self, OutOfMemory> {
        if cuts.count() <= FEW {
            return Ok(Self { flow, cuts, ratios: Vec::new(), is_exact: false });
        }
        let ratios: Vec<Option<[i64; 2]>> = collected(flow.rates.iter().map(|rate| rate.to(cuts.anchor)))?;
        // what keeps no ratio to the anchor is one pixel, which the last part has
        let keeps = |node: &FlowNode| ratios[node.rate as usize].is_some() || node.extent <= 1;
        let is_exact = flow.nodes.iter().all(|node| !node.is_terminal || keeps(node));
        Ok(Self { flow, cuts, ratios, is_exact })
    }

    /// What a terminal owns: even shares, or where there are many parts those that its ratio to the anchor gives.
    fn share(&self, terminal: SweepNodeId, extent: i64, part: usize) -> Interval {
        let ratio = if self.is_exact { self.ratio(terminal) } else { None };
        let Some([per, of]) = ratio else {
            return self.cuts.grid.share(self.cuts.axis, part, extent);
        };
        let cut = |bound: i64| {
            let exact = i128::from(bound) * i128::from(per) / i128::from(of);
            i64::try_from(exact).unwrap_or(i64::MAX).min(extent)
        };
        let bounds = self.cuts.bounds(part);
        let is_last = part + 1 == self.cuts.count();
        Interval::new(cut(bounds.begin()), if is_last { extent } else { cut(bounds.end()) })
    }

    fn ratio(&self, node: SweepNodeId) -> Option<[i64; 2]> {
        self.ratios[self.flow.nodes[node].rate as usize]
    }

    /// The turn of the sweep, where it has one.
    pub(super) fn turn(&mut self) -> Result<Option<Turn>, OutOfMemory> {
        let Some(length) = self.length_of_turn().filter(|_| self.is_exact) else { return Ok(None) };
        let moved = |ratio: &Option<[i64; 2]>| match ratio {
            Some([per, of]) => i64::try_from(i128::from(length) * i128::from(*per) / i128::from(*of)).ok(),
            None => Some(0),
        };
        let mut of_rates = with_room(self.ratios.len())?;
        for ratio in &self.ratios {
            let Some(moved) = moved(ratio) else { return Ok(None) };
            of_rates.push(moved);
        }
        let moved = collected(self.flow.nodes.iter().map(|node| of_rates[node.rate as usize]))?;
        Ok(Some(Turn { moved: moved.into(), classes: self.cuts.classes(length)? }))
    }

    /// The coordinates of the anchor in a turn.
    fn length_of_turn(&self) -> Option<i64> {
        let mut length = 1_i64;
        let mut last = None;
        for node in &self.flow.nodes {
            let Some([per, of]) = self.ratios.get(node.rate as usize).copied().flatten() else { continue };
            if last == Some((node.rate, node.grain)) {
                continue;
            }
            last = Some((node.rate, node.grain));
            let of = rate::product([of, 1], [node.grain, rate::gcd(per, node.grain)])?[0];
            length = length.checked_mul(of / rate::gcd(length, of))?;
            if length > self.cuts.grid.extents()[self.cuts.axis] {
                return None;
            }
        }
        Some(length)
    }

    /// Whether a demand meets no border on a side. Mostly it is the first nodes that do, which need the most. Where a terminal has ended
    /// before a part, its border lies before the part: it owns nothing there, and yet is no moved one of what it owned.
    fn is_free(&self, side: Side, demand: &Demand, part: usize) -> bool {
        self.flow.nodes.entries().zip(demand.intervals()).all(|((id, node), wanted)| {
            let end = if node.is_terminal && side == Side::After { self.end(id, part) } else { None };
            if end.is_some_and(|end| end > i128::from(node.extent)) {
                return false;
            }
            wanted.is_empty()
                || (side == Side::Before || self.ends_within(id, node, *wanted))
                    && self.flow.links(id).iter().all(|link| link.reach.free(*wanted)[side as usize])
        })
    }

    /// Where a part of a terminal would end if the image went on, where it keeps a ratio to the anchor.
    fn end(&self, terminal: SweepNodeId, part: usize) -> Option<i128> {
        let end = i128::from(self.cuts.bounds(part).end());
        self.ratio(terminal).map(|[per, of]| end * i128::from(per) / i128::from(of))
    }

    /// Whether the last cell of a node ends before the image does; that of a terminal which keeps no ratio does not.
    fn ends_within(&self, id: SweepNodeId, node: &FlowNode, wanted: Interval) -> bool {
        let keeps = !node.is_terminal || self.ratio(id).is_some();
        keeps && (node.grain == 1 || wanted.end() + node.grain <= node.extent)
    }
}

/// A side of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// The demands of parts as they are found, a few in one walk over the edges.
pub(super) struct DemandFinder<'c, 'f, 'g> {
    cutter: &'c Cutter<'f, 'g>,
    turn: Option<&'c Turn>,
    demands: BTreeMap<usize, Demand>,
    /// Whether what each node asks for moves on by whole turns.
    moves: Vec<bool>,
}

impl<'c, 'f, 'g> DemandFinder<'c, 'f, 'g> {
    pub(super) fn new(cutter: &'c Cutter<'f, 'g>, turn: Option<&'c Turn>) -> Result<Self, OutOfMemory> {
        let moves = turn.map_or(Ok(Vec::new()), |turn| moves(cutter.flow, &turn.moved))?;
        Ok(Self { cutter, turn, demands: BTreeMap::new(), moves })
    }

    /// The class of a part, and the turns before it.
    pub(super) fn class(&self, part: usize) -> Option<(usize, i64)> {
        let classes = &self.turn?.classes;
        Some((classes.of[part] as usize, self.cutter.cuts.bounds(part).begin() / classes.length))
    }

    /// What a part needs; it is not asked for again.
    pub(super) fn take(&mut self, part: usize) -> Result<Demand, OutOfMemory> {
        self.look(part..part + AT_ONCE, part)?;
        Ok(self.demands.remove(&part).expect("invariant: it was made and not taken"))
    }

    /// Whether all that a demand holds moves on by whole turns.
    pub(super) fn repeats(&self, demand: &Demand) -> bool {
        let mut nodes = self.moves.iter().zip(demand.intervals());
        nodes.all(|(moves, interval)| *moves || interval.is_empty())
    }

    /// Makes sure of the demands of a few parts, where the first or the last of them is not there.
    fn make(&mut self, parts: Range<usize>) -> Result<(), OutOfMemory> {
        let count = self.cutter.cuts.count();
        let mut missing = [0; AT_ONCE];
        let mut len = 0;
        for part in parts.start..parts.end.min(count) {
            if !self.demands.contains_key(&part) {
                missing[len] = part;
                len += 1;
            }
        }
        match len {
            0 => Ok(()),
            1 => self.find::<1>([missing[0]]),
            2 => self.find::<2>([missing[0], missing[1]]),
            3 => self.find::<AT_ONCE>([missing[0], missing[1], missing[2], missing[2]]),
            _ => self.find::<AT_ONCE>(missing),
        }
    }

    fn find<const N: usize>(&mut self, parts: [usize; N]) -> Result<(), OutOfMemory> {
        let cutter = self.cutter;
        let share = |terminal, extent: i64, number: usize| cutter.share(terminal, extent, parts[number]);
        let demands = Demand::of_shares::<N>(cutter.flow, share)?;
        self.demands.extend(parts.into_iter().zip(demands));
        Ok(())
    }

    /// The parts that no border cuts anywhere, so that those of one class are one another's, moved. Fewer or none where more
    /// than `most` others have a demand of their own.
    ///
    /// Bounds of intervals grow with the part. So where the parts of one turn, which between them hold rows of every node,
    /// meet no border before, none behind them does; and where those of the last turn are what the first ones of their classes
    /// are, moved, none before them is cut.
    pub(super) fn alike(&mut self, most: usize) -> Result<Range<usize>, OutOfMemory> {
        let Some(turn) = self.turn else { return Ok(0..0) };
        let last = self.cutter.cuts.count() - 1; // it has what is left over
        let Some(first) = self.first(last, turn.classes.length, most)? else { return Ok(0..0) };
        let (mut begin, mut end) = (last, last);
        while begin > first && end - begin < MOST_CLASSES && last - end <= most {
            begin -= 1;
            self.look(begin + 1 - AT_ONCE.min(begin + 1)..begin + 1, begin)?;
            if !self.cutter.is_free(Side::After, &self.demands[&begin], begin)
                || !self.is_alike(turn, first, begin)?
            {
                end = begin;
            } else if self.reaches(begin, end, turn.classes.length) {
                return Ok(first..end);
            }
        }
        Ok(0..0)
    }

    /// The first part from which on no border before is met.
    fn first(&mut self, last: usize, length: i64, most: usize) -> Result<Option<usize>, OutOfMemory> {
        let (mut first, mut end) = (0, 0);
        while end < last && end - first < MOST_CLASSES && first <= most {
            self.look(end..end + AT_ONCE, end)?;
            let is_free = self.cutter.is_free(Side::Before, &self.demands[&end], end);
            end += 1;
            if !is_free {
                first = end;
            } else if self.reaches(first, end, length) {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    /// Makes sure of the demand of a part, and of others beside it where it is not there.
    fn look(&mut self, parts: Range<usize>, part: usize) -> Result<(), OutOfMemory> {
        if self.demands.contains_key(&part) { Ok(()) } else { self.make(parts) }
    }

    /// Whether so many parts make up a turn.
    fn reaches(&self, first: usize, end: usize, length: i64) -> bool {
        let cuts = &self.cutter.cuts;
        cuts.bounds(end - 1).end() - cuts.bounds(first).begin() >= length
    }

    /// Whether a part is what the first one of its class is, moved.
    fn is_alike(&mut self, turn: &Turn, from: usize, part: usize) -> Result<bool, OutOfMemory> {
        let Classes { length, of, .. } = &*turn.classes;
        let Some(first) = (from..part).find(|first| of[*first] == of[part]) else { return Ok(true) };
        self.look(first..(first + AT_ONCE).min(part), first)?;
        let begin = |part| self.cutter.cuts.bounds(part).begin();
        let turns = (begin(part) - begin(first)) / length;
        let moved = Part { demand: &self.demands[&first], turn: &turn.moved, turns };
        let intervals = self.demands[&part].intervals();
        Ok(intervals.entries().all(|(id, own)| moved.interval(id) == *own))
    }
}

/// Whether what each node asks for moves on by whole turns.
fn moves(flow: &Flow, turn: &IndexVec<SweepNodeId, i64>) -> Result<Vec<bool>, OutOfMemory> {
    let mut moves = with_room(flow.len())?;
    for (id, node) in flow.nodes.entries() {
        let moves_on = turn[id] % node.grain == 0
            && flow.links(id).iter().all(|link| match link.reach.shifted(turn[id]) {
                None => false,
                Some(shift) => shift.unwrap_or(0) == turn[link.operand],
            });
        moves.push(moves_on);
    }
    Ok(moves)
}

#[cfg(test)]
mod tests;
