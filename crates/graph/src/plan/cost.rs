//! The predicted time of a sweep.
//!
//! ```text
//! time = Σ seconds of each node's work · imbalance / cores + calls · overhead
//! ```
//!
//! What work and calls take is for the backend to say ([`Backend::seconds`]).

use tiled_kernel::{Backend, Load, Task};
use tiled_tensor::Element;

use super::build::Prepared;
use super::lanes::Share;
use super::measure::SweepFigures;
use crate::sweep::Action;

/// The predicted time of a sweep whose tiles are shared out like this, in seconds: that of its work, and that which threads
/// take beside it to meet in calls that they share.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn predict<T: Element>(
    backend: &dyn Backend<T>,
    prepared: &Prepared<'_>,
    figures: &SweepFigures<'_>,
    share: Share,
) -> [f64; 2] {
    let Share { lanes, in_flight, threads } = share;
    let element = size_of::<T>();
    let windows: f64 = figures.slot_elements.iter().map(|elements| (elements * element) as f64).sum();
    let cores = threads as f64;
    let facts = Facts {
        element: element as f64,
        windows_bytes: windows * in_flight as f64,
        // each of the threads that share a call reads the weights
        readers: if in_flight < threads { cores } else { 1.0 },
    };
    let nodes = 0..prepared.sweeps[figures.sweep].nodes.len();
    let seconds = |place| {
        let (task, load) = node_load(prepared, figures, place, &facts);
        backend.seconds(task, &load)
    };
    let work: f64 = nodes.map(seconds).sum();
    let calls = Load { calls: figures.calls as f64, ..Load::default() };
    if in_flight < threads {
        return [work / cores, backend.seconds(Task::SharedCall, &calls)];
    }
    // who runs the most tiles ends last; the others help with its convolutions alone
    let most = figures.tiles.div_ceil(lanes) * lanes.div_ceil(in_flight) * in_flight;
    let imbalance = f64::midpoint(1.0, most as f64 / figures.tiles as f64);
    [work * imbalance / cores + backend.seconds(Task::Call, &calls) / cores, 0.0]
}

/// What the nodes of a sweep have in common.
struct Facts {
    /// The bytes of an element.
    element: f64,
    /// The bytes of the windows of all lanes in flight.
    windows_bytes: f64,
    /// The threads that read the weights of a call.
    readers: f64,
}

/// What a node does in a sweep, and how much of it there is.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn node_load<'p>(
    prepared: &Prepared<'p>,
    figures: &SweepFigures<'_>,
    place: usize,
    facts: &Facts,
) -> (Task<'p>, Load) {
    let (rows, cols) = (figures.rows[place], figures.cols[place]);
    let node = &prepared.sweeps[figures.sweep].nodes[place];
    let program_node = &prepared.program().nodes[node.node];
    let planes = (program_node.batch * program_node.channels) as f64;
    let bytes = planes * rows as f64 * cols as f64 * facts.element;
    let size = |slot: u32| figures.slot_elements[slot as usize] as f64 * facts.element;
    let mut load = Load {
        bytes,
        read_bytes: node.operands.iter().filter_map(|operand| figures.slots[*operand]).map(size).sum(),
        written_bytes: figures.slots[place].map_or(0.0, size),
        // written once and read again by each consumer
        passed_bytes: if node.is_terminal() { 0.0 } else { 2.0 * bytes },
        windows_bytes: facts.windows_bytes,
        ..Load::default()
    };
    let task = match &prepared.lowered.work[node.node] {
        Some((work, support)) if matches!(node.action, Action::Compute | Action::Reduce(_)) => {
            load.flops = prepared.node_flops(figures.sweep, place, rows, cols);
            load.calls = figures.bands[place] as f64 * figures.strips as f64;
            load.weights_bytes = facts.readers * work.weights() as f64 * facts.element;
            load.values = if node.is_terminal() { 1.0 } else { 1.0 + node.operands.len() as f64 };
            Task::Work(work, support)
        }
        _ => {
            // whole rows follow one another in memory: a run for each band
            let strips = figures.strips as f64;
            let runs = if figures.strips > 1 { rows as f64 * strips } else { figures.steps as f64 };
            load.runs = planes * runs;
            Task::Transfer
        }
    };
    (task, load)
}
