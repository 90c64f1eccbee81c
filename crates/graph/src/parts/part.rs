//! What one part of a grid needs.

use tiled_geometry::Interval;

use crate::demand::Demand;
use crate::index::IndexVec;
use crate::sweep::SweepNodeId;

/// What one row or column of tiles needs.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub(super) demand: &'a Demand,
    pub(super) turn: &'a IndexVec<SweepNodeId, i64>,
    pub(super) turns: i64,
}

impl Part<'_> {
    /// The coordinates of a node.
    ///
    /// # Panics
    /// Where the sweep does not have it.
    #[must_use]
    pub fn interval(&self, node: SweepNodeId) -> Interval {
        let interval = self.demand.interval(node);
        let moved = self.turns * self.turn[node];
        Interval::new(interval.begin() + moved, interval.end() + moved)
    }
}
