//! The least time that any tiling of a choice takes.
//!
//! ```text
//! I(terminal) = its whole domain,   I(v) = the longest of needed(I(reader))      ⊆ what all tiles together compute of v
//! time >= Σ time(v, |I rows|, |I columns|) / cores    where nothing is far, nothing spills and every call is one
//! ```
//!
//! Each term of the model of time grows with rows, columns, calls and what caches do not hold, and so do rounded sums and
//! products of what is not negative: a choice whose bound is above the price of a plan has no better one.

use tiled_geometry::Interval;
use tiled_kernel::Backend;
use tiled_tensor::{Element, OutOfMemory, collected};

use super::build::Prepared;
use super::cost::{self, SweepFigures};
use crate::flow::Flow;
use crate::index::IndexVec;
use crate::sweep::SweepNodeId;

/// The least seconds that a run on so many cores takes, whatever the tiling.
pub(super) fn least_seconds<T: Element>(
    backend: &dyn Backend<T>,
    prepared: &Prepared<'_>,
    cores: usize,
) -> Result<f64, OutOfMemory> {
    let mut seconds = 0.0;
    for (sweep, flows) in prepared.flows.iter().enumerate() {
        let (rows, cols) = (least_extents(&flows[0])?, least_extents(&flows[1])?);
        let bands = collected(rows.iter().map(|rows| 1.min(*rows)))?.into();
        let figures = SweepFigures {
            sweep,
            tiles: 1,
            strips: 1,
            steps: 0,
            calls: 0,
            rows: &rows,
            cols: &cols,
            widths: &[],
            bands: &bands,
            slots: &IndexVec::filled(rows.len(), None)?,
            slot_elements: &IndexVec::new(),
            held_bytes: 0.0,
        };
        seconds += cost::work(backend, prepared, &figures, 0.0, 1.0) / cores as f64;
    }
    Ok(seconds)
}

/// So many coordinates of each node are computed at least, in all tiles together.
fn least_extents(flow: &Flow) -> Result<IndexVec<SweepNodeId, i64>, OutOfMemory> {
    let mut covered = IndexVec::filled(flow.len(), Interval::EMPTY)?;
    for (id, node) in flow.nodes.entries().rev() {
        if node.is_terminal {
            covered[id] = Interval::whole(node.extent);
        }
        for link in flow.links(id).iter().filter(|link| link.reach.leaves_no_gap()) {
            let needed = link.reach.needed(covered[id]);
            let operand = &mut covered[link.operand];
            if needed.len() > operand.len() {
                *operand = needed;
            }
        }
    }
    Ok(collected(covered.iter().map(|covered| covered.len()))?.into())
}
