//! What each row or column of tiles of a grid needs, held once for all that are alike.
//!
//! Away from the borders two parts of one length need the same rows of every node, moved along: all that differs is how
//! far. So a grid of thousands of parts is a few demands, and what a border cuts.

mod cut;
mod part;

use tiled_tensor::{OutOfMemory, filled, make_room, with_room};

use crate::demand::Demand;
use crate::flow::Flow;
use crate::index::IndexVec;
use crate::sweep::SweepNodeId;

pub(crate) use cut::Cuts;
use cut::{Cutter, DemandFinder};
pub use part::Part;

/// The demands of all rows or all columns of tiles of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    demands: Vec<Demand>,
    /// By how far each node moves in a turn.
    turn: IndexVec<SweepNodeId, i64>,
    /// Of each part: the demand that it has, and how many turns further on.
    parts: Vec<(usize, i64)>,
}

impl Parts {
    /// The demands of the parts of a grid; `None` where more than `most` of them differ.
    pub(crate) fn new(flow: &Flow, cuts: &mut Cuts<'_>, most: usize) -> Result<Option<Self>, OutOfMemory> {
        let count = cuts.count();
        let mut cutter = Cutter::new(flow, cuts)?;
        let turn = cutter.turn()?;
        let mut finder = DemandFinder::new(&cutter, turn.as_ref())?;
        let alike = finder.alike(most)?;
        let mut parts = Self { demands: Vec::new(), turn: IndexVec::new(), parts: with_room(count)? };
        let mut of_class = filled(turn.as_ref().map_or(0, |turn| turn.classes.count), None)?;
        for part in 0..count {
            let known = if alike.contains(&part) { finder.class(part) } else { None };
            if let Some((class, turns)) = known
                && let Some((demand, first)) = of_class[class]
            {
                parts.parts.push((demand, turns - first));
                continue;
            }
            let demand = finder.take(part)?;
            if let Some((class, turns)) = known.filter(|_| finder.repeats(&demand)) {
                of_class[class] = Some((parts.demands.len(), turns));
            }
            if parts.demands.len() == most {
                return Ok(None);
            }
            parts.parts.push((parts.demands.len(), 0));
            let next = parts.demands.len();
            if next == parts.demands.capacity() {
                make_room(&mut parts.demands, next.max(2).min(count - part))?;
            }
            parts.demands.push(demand);
        }
        parts.turn = match turn {
            Some(turn) => turn.moved,
            None => IndexVec::filled(flow.len(), 0)?,
        };
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
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn extents(&self) -> Result<[IndexVec<SweepNodeId, i64>; 2], OutOfMemory> {
        let nodes = self.turn.len();
        let (mut sums, mut widest) = (IndexVec::filled(nodes, 0)?, IndexVec::filled(nodes, 0)?);
        for (demand, count) in self.classes()? {
            for ((sum, most), interval) in sums.iter_mut().zip(&mut widest).zip(demand.intervals()) {
                let len = interval.end() - interval.begin();
                *sum += len * count;
                *most = len.max(*most);
            }
        }
        Ok([sums, widest])
    }
}
