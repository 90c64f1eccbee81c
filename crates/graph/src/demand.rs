//! Which region of every node a tile needs.

use tiled_geometry::{Grid, Interval};
use tiled_tensor::{OutOfMemory, collected};

use crate::flow::{Bounds, Flow};
use crate::index::IndexVec;
use crate::program::{Edge, Program};
use crate::sweep::{Action, Sweep, SweepNodeId};

/// Along one axis: the coordinates of every node of a sweep that one row or column of tiles needs.
///
/// Everything is separable by axis, so the region of a node for tile (r, c) is `rows[r] × cols[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    intervals: IndexVec<SweepNodeId, Interval>,
}

impl Demand {
    /// Walks the edges of a sweep backward from its terminals. A terminal `t`, with domain extent `e` along
    /// `axis`, owns `share(t, e)`; every other node needs the hull of what its consumers need, in whole cells of its
    /// kernel's grain.
    ///
    /// # Panics
    /// Where `axis` is neither 0 (rows) nor 1 (columns), or memory is refused.
    #[must_use]
    pub fn new(
        program: &Program,
        sweep: &Sweep,
        axis: usize,
        share: impl FnMut(SweepNodeId, i64) -> Interval,
    ) -> Self {
        let made = Flow::new(program, sweep, axis).and_then(|flow| Self::of_flow(&flow, share));
        made.unwrap_or_else(|error| panic!("what a tile needs: {error}"))
    }

    /// The same over a sweep that was made ready.
    pub(crate) fn of_flow(
        flow: &Flow,
        mut share: impl FnMut(SweepNodeId, i64) -> Interval,
    ) -> Result<Self, OutOfMemory> {
        let [demand] = Self::of_shares(flow, |terminal, extent, _| share(terminal, extent))?;
        Ok(demand)
    }

    /// Those of several shares, whose number is the last that `share` is given, in one walk over the edges.
    pub(crate) fn of_shares<const N: usize>(
        flow: &Flow,
        mut share: impl FnMut(SweepNodeId, i64, usize) -> Interval,
    ) -> Result<[Self; N], OutOfMemory> {
        let mut bounds = IndexVec::filled(flow.len(), Bounds::<N>::EMPTY)?;
        for (id, node) in flow.nodes.entries().rev() {
            if node.is_terminal {
                for number in 0..N {
                    bounds[id].set(number, share(id, node.extent, number));
                }
            }
            if node.grain != 1 {
                for number in 0..N {
                    let computed = node.computed(bounds[id].interval(number));
                    bounds[id].set(number, computed);
                }
            }
            let wanted = bounds[id];
            for link in flow.links(id) {
                bounds[link.operand].take_in(&link.reach, &wanted);
            }
        }
        let mut demands = [const { Self { intervals: IndexVec::new() } }; N];
        for (number, demand) in demands.iter_mut().enumerate() {
            let intervals = bounds.iter().map(|bounds| bounds.interval(number));
            demand.intervals = collected(intervals)?.into();
        }
        Ok(demands)
    }

    /// The demand of one row or column of tiles of a grid over the program's anchor; terminals of other extents
    /// own the same share of theirs.
    ///
    /// # Panics
    /// Where `part` is not below the grid's count along `axis`, or memory is refused.
    #[must_use]
    pub fn of_part(program: &Program, sweep: &Sweep, grid: &Grid<2>, axis: usize, part: usize) -> Self {
        Self::new(program, sweep, axis, |_, extent| grid.share(axis, part, extent))
    }

    /// The coordinates of a node.
    ///
    /// # Panics
    /// Where the sweep does not have it.
    #[must_use]
    pub fn interval(&self, node: SweepNodeId) -> Interval {
        self.intervals[node]
    }

    pub(crate) const fn intervals(&self) -> &IndexVec<SweepNodeId, Interval> {
        &self.intervals
    }
}

/// The coordinates of operand `which` that `wanted` of a node of a sweep needs, clipped to the image.
///
/// # Panics
/// Where the sweep has no such node, or that no such operand.
#[must_use]
pub fn needed(
    program: &Program,
    sweep: &Sweep,
    node: SweepNodeId,
    which: usize,
    axis: usize,
    wanted: Interval,
) -> Interval {
    match edge(program, sweep, node, which) {
        Some(edge) => edge.needed(axis, wanted),
        None => wanted,
    }
}

/// The edge of the program behind an operand; `None` for the identity of a store that a sweep writes.
fn edge<'a>(program: &'a Program, sweep: &Sweep, node: SweepNodeId, which: usize) -> Option<&'a Edge> {
    let node = &sweep[node];
    let program_node = &program.nodes[node.node];
    match node.action {
        Action::Write(_) if !program_node.is_terminal() => None,
        _ => Some(&program_node.operands[which]),
    }
}
