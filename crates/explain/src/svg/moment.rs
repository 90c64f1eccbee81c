//! One typical step of a sweep: which rows each node computes then, and which it holds.

use tiled_geometry::{Interval, Region};
use tiled_graph::{IndexVec, Plan, SweepNodeId, SweepPlan};

use super::super::steps::visit_bands;

/// The steps around the middle among which the one that computes rows of the most nodes is typical: deep nodes of
/// a network that shrinks the image have rows only every so many steps.
const STEPS_TO_COMPARE: u64 = 64;

/// A step of a tile in the middle of a sweep.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// The tile's row and column.
    pub(super) tile: [usize; 2],
    /// The number of the step in its tile, and the steps of the tile.
    pub(super) step: u64,
    pub(super) steps: u64,
    states: IndexVec<SweepNodeId, State>,
}

/// The rows of one node at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The rows computed in this step; empty if none.
    pub(super) now: Interval,
    /// The rows held after it, among them those of this step.
    pub(super) held: Interval,
    /// The rows computed so far.
    pub(super) done: Interval,
    /// All that the tile needs of the node.
    pub(super) region: Region<2>,
    /// The tile's own share of the node: what it would need if nothing overlapped.
    pub(super) share: Region<2>,
}

impl Moment {
    pub(super) fn of(plan: &Plan, sweep: &SweepPlan) -> Self {
        let [rows, cols] = sweep.grid.counts();
        let tile = [rows / 2, cols / 2];
        let schedule = sweep.schedule(tile[0]);
        let steps = schedule.unwrap_or_else(|error| panic!("a schedule: {error}")).steps();
        let nodes = sweep.nodes.entries();
        let states: Vec<State> = nodes
            .map(|(id, node)| {
                let region = sweep.region(id, tile);
                let extents = plan.program.nodes[node.node].extents;
                let share = Region::new([0, 1].map(|axis| sweep.grid.share(axis, tile[axis], extents[axis])));
                let none = Interval::EMPTY;
                State { now: none, held: none, done: none, region, share }
            })
            .collect();
        let mut states = IndexVec::from(states);
        let mut busiest = (0, 0, states.clone());
        let mut step = 0;
        let visited = visit_bands(sweep, tile[0], |bands| {
            for (state, band) in states.iter_mut().zip(bands) {
                state.now = Interval::EMPTY;
                if let Some(band) = band {
                    state.now = band.rows;
                    state.held = Interval::new(band.low.min(band.rows.end()), band.rows.end());
                    state.done = state.done.hull(band.rows);
                }
            }
            let busy = bands.iter().flatten().count();
            if (steps / 2..steps / 2 + STEPS_TO_COMPARE).contains(&step) && busy > busiest.0 {
                busiest = (busy, step, states.clone());
            }
            step += 1;
            Ok::<(), std::convert::Infallible>(())
        });
        let Ok(()) = visited;
        let (_, step, states) = busiest;
        Self { tile, step, steps, states }
    }

    pub(super) fn state(&self, node: SweepNodeId) -> &State {
        &self.states[node]
    }
}
