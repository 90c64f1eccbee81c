//! The steps of a plan, one after another, as the executor takes them.

use std::cell::Cell;

use serde::Serialize;
use tiled_geometry::{Interval, Region};
use tiled_graph::{Action, IndexVec, Plan, SweepNodeId, SweepPlan};

use super::facts::name;

/// One step of a tile: a band of its rows, or all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    /// The number of the step in its sweep.
    step: u64,
    /// The tile's row and column.
    tile: [usize; 2],
    /// The nodes of which the step computes rows, in topological order.
    nodes: Vec<StepNode>,
}

/// What a step does of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct StepNode {
    name: String,
    /// The region loaded, computed, reduced or written.
    region: [i64; 4],
    inputs: Vec<StepInput>,
    /// What the window holds afterwards; a reduction or a sink has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Held>,
}

/// What a region needs of an operand.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct StepInput {
    name: String,
    /// The region read, inside the image.
    region: [i64; 4],
    /// The region before clipping to the image.
    unclipped: [i64; 4],
    /// What clipping removed: top, bottom, left, right.
    padding: [i64; 4],
}

/// The rows that a window holds after a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Held {
    rows: [i64; 2],
    ring: i64,
}

/// The rows of one node that a step computes, and the first row that is still held after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) rows: Interval,
    pub(super) low: i64,
}

/// Why a walk over steps ends early.
enum Stop<E> {
    Enough,
    Failed(E),
}

/// Visits the first `limit` steps of a sweep in order.
pub(super) fn visit<E>(
    plan: &Plan,
    sweep: &SweepPlan,
    limit: u64,
    mut visitor: impl FnMut(&Step) -> Result<(), E>,
) -> Result<(), E> {
    let mut number = 0;
    let [rows, cols] = sweep.grid.counts();
    for tile in (0..rows).flat_map(|row| (0..cols).map(move |col| [row, col])) {
        let walked = visit_bands(sweep, tile[0], |bands| {
            if number == limit {
                return Err(Stop::Enough);
            }
            visitor(&describe(plan, sweep, tile, number, bands)).map_err(Stop::Failed)?;
            number += 1;
            Ok(())
        });
        match walked {
            Ok(()) => {}
            Err(Stop::Enough) => break,
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Visits the steps of a row of tiles: for each node the band computed, if any.
pub(super) fn visit_bands<E>(
    sweep: &SweepPlan,
    row: usize,
    mut visitor: impl FnMut(&IndexVec<SweepNodeId, Option<Band>>) -> Result<(), E>,
) -> Result<(), E> {
    let schedule = sweep.schedule(row).unwrap_or_else(|error| panic!("a schedule: {error}"));
    let steps = schedule.steps();
    let mut bands = IndexVec::from(vec![None; sweep.nodes.len()]);
    let mut visited = 0;
    let done = Cell::new(0);
    schedule.run(
        |call| {
            // calls behind the last step belong to it
            while visited < done.get() && visited + 1 < steps {
                visitor(&bands)?;
                bands.fill(None);
                visited += 1;
            }
            let band: &mut Option<Band> = &mut bands[call.node];
            let rows = band.map_or(call.rows, |band| band.rows.hull(call.rows));
            *band = Some(Band { rows, low: call.low });
            Ok(())
        },
        || {
            done.set(done.get() + 1);
            Ok(())
        },
    )?;
    for _ in visited..steps {
        visitor(&bands)?;
        bands.fill(None);
    }
    Ok(())
}

fn describe(
    plan: &Plan,
    sweep: &SweepPlan,
    tile: [usize; 2],
    step: u64,
    bands: &IndexVec<SweepNodeId, Option<Band>>,
) -> Step {
    let nodes = bands.entries().filter_map(|(id, band)| Some((id, (*band)?)));
    let nodes = nodes.map(|(id, band)| node(plan, sweep, tile, id, band)).collect();
    Step { step, tile, nodes }
}

fn node(plan: &Plan, sweep: &SweepPlan, tile: [usize; 2], id: SweepNodeId, band: Band) -> StepNode {
    let region = Region::from_rows_cols(band.rows, sweep.region(id, tile).cols());
    let operands = sweep.nodes[id].operands.len();
    StepNode {
        name: name(plan, sweep, id),
        region: corners(region),
        inputs: (0..operands).map(|which| input(plan, sweep, id, which, region)).collect(),
        window: sweep
            .has_window(id)
            .then(|| Held { rows: [band.low, band.rows.end()], ring: sweep.rings[id] }),
    }
}

fn input(plan: &Plan, sweep: &SweepPlan, id: SweepNodeId, which: usize, wanted: Region<2>) -> StepInput {
    let node = &sweep.nodes[id];
    let program_node = &plan.program.nodes[node.node];
    let operand = node.operands[which];
    let extents = plan.program.nodes[sweep.nodes[operand].node].extents;
    let unclipped = match node.action {
        // what a sweep keeps is written as it is
        Action::Write(_) if !program_node.is_terminal() => wanted,
        _ => {
            let edge = &program_node.operands[which];
            Region::new([0, 1].map(|axis| edge.needed_unclipped(axis, wanted.axis(axis))))
        }
    };
    let image = Region::whole(extents);
    let [(top, bottom), (left, right)] = unclipped.excess(image);
    StepInput {
        name: name(plan, sweep, operand),
        region: corners(unclipped.intersect(image)),
        unclipped: corners(unclipped),
        padding: [top, bottom, left, right],
    }
}

fn corners(region: Region<2>) -> [i64; 4] {
    let (rows, cols) = (region.rows(), region.cols());
    [rows.begin(), rows.end(), cols.begin(), cols.end()]
}
