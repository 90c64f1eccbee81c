//! What each row or column of tiles of a grid needs, held once for all that are alike.
//!
//! Away from the borders two parts of one length need the same rows of every node, moved along: all that differs is how
//! far. So a grid of thousands of parts is a few demands, and what a border cuts.

use std::collections::BTreeMap;
use std::ops::Range;

use tiled_geometry::{Grid, Interval};
use tiled_tensor::{OutOfMemory, collected, copied, filled, push, with_room};

use crate::demand::Demand;
use crate::flow::Flow;
use crate::rate;

/// The demands of all rows or all columns of tiles of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    demands: Vec<Demand>,
    /// By how far each node moves in a turn.
    turn: Vec<i64>,
    /// Of each part: the demand that it has, and how many turns further on.
    parts: Vec<(usize, i64)>,
}

/// What one row or column of tiles needs.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    demand: &'a Demand,
    turn: &'a [i64],
    turns: i64,
}

/// Up to as many parts are shared out evenly, and each has a demand of its own. More are cut at the same rows of every
/// node, so that they are alike.
const FEW: usize = 16;

/// The most parts in a turn; where there are more, each has a demand of its own.
const MOST_CLASSES: usize = 64;

impl Parts {
    /// The demands of the parts of a grid over the anchor of a program, whose rate this is; `None` where more than `most` of
    /// them differ.
    pub(crate) fn new(
        flow: &Flow<'_>,
        grid: &Grid<2>,
        axis: usize,
        anchor: rate::Rate,
        most: usize,
    ) -> Result<Option<Self>, OutOfMemory> {
        let count = grid.counts()[axis];
        let cutter = Cutter::new(flow, grid, axis, anchor)?;
        let turn = if cutter.is_exact { cutter.turn()? } else { None };
        let mut parts = Self {
            demands: Vec::new(),
            turn: turn.as_ref().map_or_else(|| filled(flow.len(), 0), |(_, turn)| copied(turn))?,
            parts: with_room(count)?,
        };
        let alone = match &turn {
            None => 0..0,
            Some((length, turn)) => cutter.alike(cutter.alone(count)?, *length, turn)?,
        };
        let mut classes: BTreeMap<[i64; 2], (usize, i64)> = BTreeMap::new();
        for part in 0..count {
            let known = turn.as_ref().filter(|_| alone.contains(&part)).map(|(length, _)| {
                let tile = cutter.bounds(part);
                ([tile.len(), tile.begin() % length], tile.begin() / length)
            });
            let class = known.and_then(|(class, turns)| Some((classes.get(&class)?, turns)));
            if let Some((&(demand, first), turns)) = class {
                parts.parts.push((demand, turns - first));
                continue;
            }
            let demand = cutter.demand(part)?;
            if let Some((class, turns)) = known.filter(|_| cutter.repeats(&demand, &parts.turn)) {
                classes.insert(class, (parts.demands.len(), turns));
            }
            if parts.demands.len() == most {
                return Ok(None);
            }
            parts.parts.push((parts.demands.len(), 0));
            push(&mut parts.demands, demand)?;
        }
        Ok(Some(parts))
    }

    /// The number of parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What one of them needs.
    ///
    /// # Panics
    /// Where there is no part of this number.
    #[must_use]
    pub fn part(&self, number: usize) -> Part<'_> {
        let (demand, turns) = self.parts[number];
        Part { demand: &self.demands[demand], turn: &self.turn, turns }
    }

    /// What each of them needs, in order.
    pub fn iter(&self) -> impl Iterator<Item = Part<'_>> {
        (0..self.len()).map(|number| self.part(number))
    }

    /// The number of demands that differ.
    pub(crate) fn demands(&self) -> usize {
        self.demands.len()
    }

    /// The demands that differ, each with the parts that have it.
    pub(crate) fn classes(&self) -> Result<impl Iterator<Item = (&Demand, i64)>, OutOfMemory> {
        let mut counts = filled(self.demands.len(), 0)?;
        for (demand, _) in &self.parts {
            counts[*demand] += 1;
        }
        Ok(self.demands.iter().zip(counts))
    }

    /// The coordinates of each node in all parts together, and the most in one.
    pub(crate) fn extents(&self) -> Result<(Vec<i64>, Vec<i64>), OutOfMemory> {
        let nodes = self.turn.len();
        let (mut sums, mut widest) = (filled(nodes, 0)?, filled(nodes, 0)?);
        for (demand, count) in self.classes()? {
            for ((sum, most), interval) in sums.iter_mut().zip(&mut widest).zip(demand.intervals()) {
                *sum += interval.len() * count;
                *most = interval.len().max(*most);
            }
        }
        Ok((sums, widest))
    }
}

impl Part<'_> {
    /// The coordinates of a node, by its place in the sweep.
    ///
    /// # Panics
    /// Where the place is not in the sweep.
    #[must_use]
    pub fn interval(&self, place: usize) -> Interval {
        let interval = self.demand.interval(place);
        let moved = self.turns * self.turn[place];
        Interval::new(interval.begin() + moved, interval.end() + moved)
    }
}

/// Cuts the domains of terminals at the bounds of a grid.
struct Cutter<'f, 'a> {
    flow: &'f Flow<'a>,
    grid: &'f Grid<2>,
    axis: usize,
    /// Of each terminal: its coordinates for one of the anchor's, where they keep that ratio.
    ratios: Vec<Option<[i64; 2]>>,
    is_exact: bool,
}

impl<'f, 'a> Cutter<'f, 'a> {
    fn new(
        flow: &'f Flow<'a>,
        grid: &'f Grid<2>,
        axis: usize,
        anchor: rate::Rate,
    ) -> Result<Self, OutOfMemory> {
        let ratio = |node: &crate::flow::FlowNode| node.rate.to(anchor);
        let ratios: Vec<Option<[i64; 2]>> = collected(flow.nodes.iter().map(ratio))?;
        // what keeps no ratio to the anchor is one pixel, which the last part has
        let is_exact = grid.counts()[axis] > FEW
            && flow
                .nodes
                .iter()
                .zip(&ratios)
                .all(|(node, ratio)| !node.is_terminal || ratio.is_some() || node.extent <= 1);
        Ok(Self { flow, grid, axis, ratios, is_exact })
    }

    fn bounds(&self, part: usize) -> Interval {
        let tile = if self.axis == 0 { [part, 0] } else { [0, part] };
        self.grid.tile(tile).axis(self.axis)
    }

    /// What a terminal owns: even shares, or where there are many parts those that its ratio to the anchor gives.
    fn share(&self, place: usize, extent: i64, part: usize) -> Interval {
        let Some([per, of]) = self.ratios[place].filter(|_| self.is_exact) else {
            return self.grid.share(self.axis, part, extent);
        };
        let cut = |bound: i64| {
            let exact = i128::from(bound) * i128::from(per) / i128::from(of);
            i64::try_from(exact).unwrap_or(i64::MAX).min(extent)
        };
        let bounds = self.bounds(part);
        let is_last = part + 1 == self.grid.counts()[self.axis];
        Interval::new(cut(bounds.begin()), if is_last { extent } else { cut(bounds.end()) })
    }

    fn demand(&self, part: usize) -> Result<Demand, OutOfMemory> {
        Demand::of_flow(self.flow, |place, extent| self.share(place, extent, part))
    }

    /// The coordinates of the anchor after which every node is where it was, moved by whole coordinates, and by how many.
    fn turn(&self) -> Result<Option<(i64, Vec<i64>)>, OutOfMemory> {
        let Some(length) = self.length_of_turn() else { return Ok(None) };
        let mut turn = with_room(self.ratios.len())?;
        for ratio in &self.ratios {
            let moved = ratio.map_or(0, |[per, of]| i128::from(length) * i128::from(per) / i128::from(of));
            let Ok(moved) = i64::try_from(moved) else { return Ok(None) };
            turn.push(moved);
        }
        Ok(Some((length, turn)))
    }

    fn length_of_turn(&self) -> Option<i64> {
        let mut length = 1_i64;
        for (node, ratio) in self.flow.nodes.iter().zip(&self.ratios) {
            let Some([per, of]) = *ratio else { continue };
            let of = rate::product([of, 1], [node.grain, rate::gcd(per, node.grain)])?[0];
            length = length.checked_mul(of / rate::gcd(length, of))?;
            if length > self.grid.extents()[self.axis] {
                return None;
            }
        }
        Some(length)
    }

    /// The parts that no border cuts anywhere. The first ones are cut before, the last ones behind.
    fn alone(&self, count: usize) -> Result<Range<usize>, OutOfMemory> {
        let free = |part: usize| Ok::<_, OutOfMemory>(self.free(&self.demand(part)?, part));
        let first = partition(0, count - 1, |part| Ok(!free(part)?[0]))?;
        Ok(first..partition(first, count - 1, |part| Ok(free(part)?[1]))?)
    }

    /// Of parts that follow one another, those up to the first that is not what an earlier one of its class is, moved.
    ///
    /// Bounds of intervals grow with the part, so where the last part of a class is cut by no border, none before it is.
    fn alike(&self, parts: Range<usize>, length: i64, turn: &[i64]) -> Result<Range<usize>, OutOfMemory> {
        let class = |part: usize| {
            let tile = self.bounds(part);
            [tile.len(), tile.begin() % length]
        };
        let is_alike = |part: usize| {
            let own = class(part);
            let Some(first) = (parts.start..part).find(|first| class(*first) == own) else { return Ok(true) };
            let turns = (self.bounds(part).begin() - self.bounds(first).begin()) / length;
            let (first, last) = (self.demand(first)?, self.demand(part)?);
            let first = Part { demand: &first, turn, turns };
            Ok((0..turn.len()).all(|place| first.interval(place) == last.interval(place)))
        };
        // classes take turns, so the last of each is among the parts of one turn up to the last part
        let of_one_turn = |part: usize| {
            let begin = self.bounds(part).begin() - length;
            (parts.start..part + 1).rev().take_while(move |earlier| self.bounds(*earlier).begin() > begin)
        };
        if parts.is_empty() || of_one_turn(parts.end - 1).count() > MOST_CLASSES {
            return Ok(0..0);
        }
        let are_alike = |part: usize| {
            for part in of_one_turn(part) {
                if !is_alike(part)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        Ok(parts.start..partition(parts.start, parts.end, are_alike)?)
    }

    /// Whether a demand meets no border before and none behind.
    fn free(&self, demand: &Demand, part: usize) -> [bool; 2] {
        let mut free = [true, true];
        for (place, node) in self.flow.nodes.iter().enumerate() {
            let wanted = demand.interval(place);
            if wanted.is_empty() {
                continue;
            }
            if node.is_terminal {
                let end = self.ratios[place]
                    .map(|[per, of]| i128::from(self.bounds(part).end()) * i128::from(per) / i128::from(of));
                free[1] &= end.is_some_and(|end| end <= i128::from(node.extent));
            }
            free[1] &= node.grain == 1 || wanted.end() + node.grain <= node.extent;
            for link in self.flow.links(place) {
                link.reach.walk(wanted, |stage, wanted| {
                    free[0] &= wanted.is_empty() || stage.free[0] <= wanted.begin();
                    free[1] &= wanted.is_empty() || wanted.end() <= stage.free[1];
                });
            }
        }
        free
    }

    /// Whether all that a demand holds moves on by whole turns.
    fn repeats(&self, demand: &Demand, turn: &[i64]) -> bool {
        self.flow.nodes.iter().enumerate().filter(|(place, _)| !demand.interval(*place).is_empty()).all(
            |(place, node)| {
                turn[place] % node.grain == 0
                    && self.flow.links(place).iter().all(|link| {
                        let operand = link.operand as usize;
                        match link.reach.shifted(turn[place]) {
                            None => false,
                            Some(shift) => shift.unwrap_or(0) == turn[operand],
                        }
                    })
            },
        )
    }
}

/// The first number of `from..to` that `is_before` no longer holds for, `to` where it holds for all.
fn partition(
    from: usize,
    to: usize,
    is_before: impl Fn(usize) -> Result<bool, OutOfMemory>,
) -> Result<usize, OutOfMemory> {
    let (mut low, mut high) = (from, to.max(from));
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
