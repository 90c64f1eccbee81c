//! Which region of every node a tile needs.

use tiled_geometry::{Grid, Interval};

use crate::program::{Edge, Program};
use crate::sweep::{Action, Sweep};

/// Along one axis: the coordinates of every node of a sweep that one row or column of tiles needs.
///
/// Everything is separable by axis, so the region of a node for tile (r, c) is `rows[r] × cols[c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    intervals: Vec<Interval>,
}

impl Demand {
    /// Walks the edges of a sweep backward from its terminals. Terminal number `i`, with domain extent `e` along
    /// `axis`, owns `share(i, e)`; every other node needs the hull of what its consumers need, in whole cells of its
    /// kernel's grain.
    ///
    /// # Panics
    /// Where `axis` is neither 0 (rows) nor 1 (columns).
    #[must_use]
    pub fn new(
        program: &Program,
        sweep: &Sweep,
        axis: usize,
        mut share: impl FnMut(usize, i64) -> Interval,
    ) -> Self {
        let mut intervals = vec![Interval::EMPTY; sweep.nodes.len()];
        for place in (0..sweep.nodes.len()).rev() {
            let node = &sweep.nodes[place];
            if node.is_terminal() {
                intervals[place] = share(place, program.nodes[node.node].extents[axis]);
            }
            if node.action == Action::Compute {
                intervals[place] = program.nodes[node.node].computed(axis, intervals[place]);
            }
            for (which, operand) in node.operands.iter().enumerate() {
                let needed = needed(program, sweep, place, which, axis, intervals[place]);
                intervals[*operand] = intervals[*operand].hull(needed);
            }
        }
        Self { intervals }
    }

    /// The demand of one row or column of tiles of a grid over the program's anchor; terminals of other extents
    /// own the same share of theirs.
    ///
    /// # Panics
    /// Where `part` is not below the grid's count along `axis`.
    #[must_use]
    pub fn of_part(program: &Program, sweep: &Sweep, grid: &Grid<2>, axis: usize, part: usize) -> Self {
        Self::new(program, sweep, axis, |_, extent| grid.share(axis, part, extent))
    }

    /// The coordinates of a node, by its place in the sweep.
    ///
    /// # Panics
    /// Where the place is not in the sweep.
    #[must_use]
    pub fn interval(&self, place: usize) -> Interval {
        self.intervals[place]
    }
}

/// The coordinates of operand `which` that `wanted` of a node of a sweep needs, clipped to the image.
///
/// # Panics
/// Where `place` or `which` is out of range.
#[must_use]
pub fn needed(
    program: &Program,
    sweep: &Sweep,
    place: usize,
    which: usize,
    axis: usize,
    wanted: Interval,
) -> Interval {
    match edge(program, sweep, place, which) {
        Some(edge) => edge.needed(axis, wanted),
        None => wanted,
    }
}

/// The edge of the program behind an operand; `None` for the identity of a store that a sweep writes.
fn edge<'a>(program: &'a Program, sweep: &Sweep, place: usize, which: usize) -> Option<&'a Edge> {
    let node = &sweep.nodes[place];
    let program_node = &program.nodes[node.node];
    match node.action {
        Action::Write(_) if !program_node.is_terminal() => None,
        _ => Some(&program_node.operands[which]),
    }
}
