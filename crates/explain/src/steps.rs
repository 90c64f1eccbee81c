//! The steps of a plan, one after another, as the executor takes them.

use std::cell::Cell;

use serde::Serialize;
use tiled_geometry::{Interval, Region};
use tiled_graph::{Action, Plan, SweepPlan};

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
        let walked = visit_bands(plan, sweep, tile[0], |bands| {
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

/// Visits the steps of a row of tiles: for each node in its place, the band computed, if any.
pub(super) fn visit_bands<E>(
    plan: &Plan,
    sweep: &SweepPlan,
    row: usize,
    mut visitor: impl FnMut(&[Option<Band>]) -> Result<(), E>,
) -> Result<(), E> {
    let schedule = sweep.schedule(&plan.program, row).unwrap_or_else(|error| panic!("a schedule: {error}"));
    let steps = schedule.steps();
    let mut bands = vec![None; sweep.sweep.nodes.len()];
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
            let band: &mut Option<Band> = &mut bands[call.place];
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

fn describe(plan: &Plan, sweep: &SweepPlan, tile: [usize; 2], step: u64, bands: &[Option<Band>]) -> Step {
    let nodes = bands.iter().enumerate().filter_map(|(place, band)| Some((place, (*band)?)));
    let nodes = nodes.map(|(place, band)| node(plan, sweep, tile, place, band)).collect();
    Step { step, tile, nodes }
}

fn node(plan: &Plan, sweep: &SweepPlan, tile: [usize; 2], place: usize, band: Band) -> StepNode {
    let region = Region::from_rows_cols(band.rows, sweep.region(place, tile).cols());
    let operands = sweep.sweep.nodes[place].operands.len();
    StepNode {
        name: name(plan, sweep, place),
        region: corners(region),
        inputs: (0..operands).map(|which| input(plan, sweep, place, which, region)).collect(),
        window: sweep
            .has_window(place)
            .then(|| Held { rows: [band.low, band.rows.end()], ring: sweep.rings[place] }),
    }
}

fn input(plan: &Plan, sweep: &SweepPlan, place: usize, which: usize, wanted: Region<2>) -> StepInput {
    let node = &sweep.sweep.nodes[place];
    let program_node = &plan.program.nodes[node.node];
    let operand = node.operands[which];
    let extents = plan.program.nodes[sweep.sweep.nodes[operand].node].extents;
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
