//! The predicted time of a sweep.
//!
//! ```text
//! time = Σ seconds of each node's work · imbalance / cores + calls · overhead
//! ```
//!
//! Where transfers move beside the work ([`Backend::transfers_beside`]) the sum is the longest of three: work, what comes in, what goes out.
//!
//! Of a node whose calls are too short to be shared ([`WORTH_SHARING_AWAKE_SECONDS`]), one core does all the work while the others wait.
//!
//! What work and calls take is for the backend to say ([`Backend::seconds`]).

use tiled_kernel::{Backend, Load, Task, WORTH_SHARING_AWAKE_SECONDS};
use tiled_tensor::Element;

use super::binding::Binding;
use super::build::Prepared;
use super::lanes::Share;
use super::slots::SlotId;
use crate::index::IndexVec;
use crate::program::{SinkRole, SourceRole};
use crate::sweep::{Action, SweepNodeId};

/// Strips as wide as one another.
#[derive(Clone, Debug)]
pub(super) struct Width {
    pub(super) strips: i64,
    /// The columns of each node in one of them.
    pub(super) cols: IndexVec<SweepNodeId, i64>,
}

/// All that the cost of a sweep depends on but lanes.
#[derive(Debug)]
pub(super) struct SweepFigures<'f> {
    pub(super) sweep: usize,
    pub(super) tiles: usize,
    pub(super) strips: usize,
    pub(super) steps: u64,
    pub(super) calls: u64,
    pub(super) rows: &'f IndexVec<SweepNodeId, i64>,
    pub(super) cols: &'f IndexVec<SweepNodeId, i64>,
    /// The widths of the strips, where a call has them all to itself: how many strips there are of each, and the columns of the nodes in one.
    pub(super) widths: &'f [Width],
    pub(super) bands: &'f IndexVec<SweepNodeId, i64>,
    pub(super) slots: &'f IndexVec<SweepNodeId, Option<SlotId>>,
    pub(super) slot_elements: &'f IndexVec<SlotId, usize>,
    /// The bytes of all windows of all lanes in flight, where they are to count: each is written again and again, and comes from memory before
    /// where the last cache does not hold them all.
    pub(super) held_bytes: f64,
}

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
    let cores = threads as f64;
    let sharing = if in_flight < threads { cores } else { 1.0 };
    let work = work(backend, prepared, figures, in_flight as f64, sharing);
    let calls = Load { calls: figures.calls as f64, ..Load::default() };
    if in_flight < threads {
        return [work / cores, backend.seconds(Task::SharedCall, &calls)];
    }
    // who runs the most tiles ends last; the others help with its convolutions alone
    let most = figures.tiles.div_ceil(lanes) * lanes.div_ceil(in_flight) * in_flight;
    let apart = if in_flight > 1 { APART } else { 1.0 };
    let imbalance = f64::midpoint(1.0, most as f64 / figures.tiles as f64) * apart;
    [work * imbalance / cores + backend.seconds(Task::Call, &calls) / cores, 0.0]
}

/// How much longer as many tiles take on threads that run lanes of their own than on threads that share each call: no two cores are
/// equally fast, and nobody takes over from the slower one.
const APART: f64 = 1.03;

/// The time that the work of a sweep takes one core, where so many lanes run at a time and so many threads share each call.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn work<T: Element>(
    backend: &dyn Backend<T>,
    prepared: &Prepared<'_>,
    figures: &SweepFigures<'_>,
    in_flight: f64,
    sharing: f64,
) -> f64 {
    let common = Common { element: size_of::<T>() as f64, in_flight, sharing };
    let readings = &prepared.readings[figures.sweep];
    let mut begin = 0;
    let [mut all, mut work, mut loaded, mut written] = [0.0; 4];
    for (node, reading) in readings.nodes.entries() {
        let operands = &readings.operands[begin..reading.end as usize];
        begin = reading.end as usize;
        if reading.is_idle || (reading.is_idle_alone && in_flight <= 1.0) {
            continue;
        }
        let (task, load) = node_load(prepared, figures, node, operands, &common);
        let seconds = match task {
            Task::Work(..) if !figures.widths.is_empty() => in_strips(backend, figures, node, task, &load),
            _ => backend.seconds(task, &load),
        };
        // what they write and read goes from one's cache to another's, however little there is to compute
        let exchange = if sharing > 1.0 { backend.seconds(Task::Exchange, &load) } else { 0.0 };
        let seconds = seconds.max(exchange) + rewriting(backend, figures, node, &load, seconds);
        // one thread alone carries out what is not worth sharing
        let is_alone = sharing > 1.0 && seconds < load.calls * WORTH_SHARING_AWAKE_SECONDS;
        let seconds = if is_alone { sharing * seconds } else { seconds };
        all += seconds;
        match (task, prepared.sweeps[figures.sweep][node].action) {
            (Task::Transfer, Action::Load(_)) => loaded += seconds,
            (Task::Transfer, _) => written += seconds,
            _ => work += seconds,
        }
    }
    if backend.transfers_beside() { work.max(loaded).max(written) } else { all }
}

/// How long a core waits for the window of a node before it writes it: all of the time that memory takes where there is nothing to compute beside,
/// and less the more there is.
fn rewriting<T: Element>(
    backend: &dyn Backend<T>,
    figures: &SweepFigures<'_>,
    node: SweepNodeId,
    load: &Load,
    seconds: f64,
) -> f64 {
    if figures.held_bytes <= 0.0 || figures.slots[node].is_none() {
        return 0.0;
    }
    let load = Load { passed_bytes: load.bytes, windows_bytes: figures.held_bytes, ..Load::default() };
    let memory = backend.seconds(Task::Transfer, &load);
    if memory > 0.0 { memory * memory / (memory + seconds) } else { 0.0 }
}

/// The time that a node's work takes in all strips, each as wide as it is: in waves, a few more columns may take one more.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn in_strips<T: Element>(
    backend: &dyn Backend<T>,
    figures: &SweepFigures<'_>,
    node: SweepNodeId,
    task: Task<'_>,
    load: &Load,
) -> f64 {
    let all = figures.cols[node].max(1) as f64;
    let of_width = |Width { strips, cols }: &Width| {
        let share = *strips as f64 * cols[node] as f64 / all;
        let calls = figures.bands[node] as f64 * *strips as f64;
        let Load { bytes, flops, passed_bytes, .. } = *load;
        let [bytes, flops, passed_bytes] = [bytes, flops, passed_bytes].map(|amount| amount * share);
        backend.seconds(task, &Load { calls, bytes, flops, passed_bytes, ..*load })
    };
    figures.widths.iter().map(of_width).sum()
}

/// What the nodes of a sweep have in common.
struct Common {
    /// The bytes of an element.
    element: f64,
    /// The lanes in flight, each with windows of its own.
    in_flight: f64,
    /// The threads that share a call: each reads the weights.
    sharing: f64,
}

/// What a node does in a sweep, and how much of it there is.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn node_load<'p>(
    prepared: &Prepared<'p>,
    figures: &SweepFigures<'_>,
    node: SweepNodeId,
    operands: &[SweepNodeId],
    common: &Common,
) -> (Task<'p>, Load) {
    let Common { element, in_flight, sharing } = *common;
    let (rows, cols) = (figures.rows[node], figures.cols[node]);
    let reading = &prepared.readings[figures.sweep].nodes[node];
    let facts = &prepared.lowered.facts[reading.node];
    let bytes = facts.planes * rows as f64 * cols as f64 * element;
    let size = |slot: SlotId| figures.slot_elements[slot] as f64 * element;
    // a whole tensor is in no cache: its size counts
    let whole = |node: SweepNodeId| match prepared.bindings[figures.sweep][node] {
        Binding::Source(_) | Binding::Store(_) | Binding::Sink(_) => {
            whole_bytes(prepared, figures.sweep, node, element)
        }
        _ => 0.0,
    };
    let of = |lanes: f64, node: SweepNodeId| {
        figures.slots[node].map_or_else(|| whole(node), |slot| lanes * size(slot))
    };
    let read = |lanes: f64| -> f64 { operands.iter().map(|operand| of(lanes, *operand)).sum() };
    let mut load = Load {
        bytes,
        read_bytes: read(1.0),
        written_bytes: of(1.0, node),
        // written once and read again by each consumer
        passed_bytes: if reading.is_terminal { 0.0 } else { 2.0 * bytes },
        windows_bytes: read(in_flight) + of(in_flight, node),
        ..Load::default()
    };
    let task = match &facts.work {
        Some((work, support)) if !reading.moves => {
            load.flops = facts.flops * rows as f64 * cols as f64;
            load.calls = figures.bands[node] as f64 * figures.strips as f64;
            load.weights_bytes = sharing * facts.weights * element;
            load.values = if reading.is_terminal { 1.0 } else { 1.0 + operands.len() as f64 };
            Task::Work(work, support)
        }
        _ => {
            // whole rows follow one another in memory: a stretch for each band
            let strips = figures.strips as f64;
            let stretches = if figures.strips > 1 { rows as f64 * strips } else { figures.steps as f64 };
            load.stretches = facts.planes * stretches;
            match prepared.sweeps[figures.sweep][node].action {
                Action::Load(SourceRole::Store(_)) | Action::Write(SinkRole::Store(_))
                    if !prepared.kept.in_files =>
                {
                    Task::Keep
                }
                _ => Task::Transfer,
            }
        }
    };
    (task, load)
}

/// The bytes of the whole tensor of a node.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn whole_bytes(prepared: &Prepared<'_>, sweep: usize, node: SweepNodeId, element: f64) -> f64 {
    let node = prepared.readings[sweep].nodes[node].node;
    let [height, width] = prepared.lowered.program.nodes[node].extents;
    prepared.lowered.facts[node].planes * height as f64 * width as f64 * element
}
