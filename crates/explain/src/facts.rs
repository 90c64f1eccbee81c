//! What a plan says about a sweep and about each of its nodes.

use serde::Serialize;
use tiled_graph::program::{NodeKind, SinkRole, SourceRole};
use tiled_graph::{Action, Id, Plan, SweepNodeId, SweepPlan};
use tiled_kernel::Kernel;

/// How the values of a sweep are held, as it turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Holding {
    /// Whole tensors, one tile.
    Materialise,
    /// Windows of rows that slide down each tile.
    Slide,
    /// The whole region of every tile, overlaps computed again.
    Recompute,
}

impl Holding {
    pub(super) fn of(sweep: &SweepPlan) -> Self {
        let tiles = sweep.grid.len() as u64;
        match (sweep.steps > tiles, tiles) {
            (true, _) => Self::Slide,
            (false, 0 | 1) => Self::Materialise,
            (false, _) => Self::Recompute,
        }
    }
}

/// What a plan says about a node of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Facts {
    /// The name; the writing of a kept value has the suffix `.store`.
    pub(super) name: String,
    /// `load`, `compute`, `reduce` or `write`.
    pub(super) does: &'static str,
    /// The kernel, the reduction, or what is read or written.
    pub(super) kernel: String,
    /// The names of the operands.
    pub(super) inputs: Vec<String>,
    /// The shape, NCHW; of a reduction or a sink that of its domain.
    pub(super) shape: [u64; 4],
    /// The rows of storage of the window; zero where there is none.
    pub(super) ring_rows: i64,
    /// The columns of the widest window.
    pub(super) window_cols: i64,
    /// The bytes of the widest window of one lane.
    pub(super) window_bytes: u64,
    /// The storage that the window lies in.
    pub(super) slot: Option<usize>,
    /// The elements computed, over all tiles, for one of the tensor: above one for overlaps.
    pub(super) times: f64,
    /// The arithmetic, over all tiles.
    pub(super) flops: f64,
}

impl Facts {
    /// Those of all nodes of a sweep.
    pub(super) fn all(plan: &Plan, sweep: &SweepPlan) -> Vec<Self> {
        let [[rows, _], [cols, widest]] = [&sweep.rows, &sweep.cols].map(|parts| {
            parts.extents().unwrap_or_else(|error| panic!("an explanation: {error}")) // as its texts do
        });
        let nodes = sweep.nodes.ids();
        nodes.map(|node| Self::of(plan, sweep, node, [rows[node], cols[node]], widest[node])).collect()
    }

    /// Those of a node with so many rows and columns over all tiles, and the most columns in one.
    fn of(plan: &Plan, sweep: &SweepPlan, id: SweepNodeId, [rows, cols]: [i64; 2], widest: i64) -> Self {
        let sweep_node = &sweep.nodes[id];
        let node = &plan.program.nodes[sweep_node.node];
        let [height, width] = node.extents;
        let computed = rows as f64 * cols as f64;
        let channels = (node.batch * node.channels) as f64;
        let per_element = match (&sweep_node.action, &node.kind) {
            (Action::Compute, NodeKind::Compute(kernel)) => kernel.flops_per_element(),
            (Action::Reduce(reduction), _) => {
                plan.program.reductions[*reduction].reduction.flops_per_element()
            }
            _ => 0.0,
        };
        let has_window = sweep.has_window(id) && sweep.rings[id] > 0;
        Self {
            name: name(plan, sweep, id),
            does: match sweep_node.action {
                Action::Load(_) => "load",
                Action::Compute => "compute",
                Action::Reduce(_) => "reduce",
                Action::Write(_) => "write",
            },
            kernel: kernel(plan, sweep, id),
            inputs: sweep_node.operands.iter().map(|operand| name(plan, sweep, *operand)).collect(),
            shape: [node.batch as u64, node.channels as u64, height.unsigned_abs(), width.unsigned_abs()],
            ring_rows: sweep.rings[id],
            window_cols: if has_window { widest } else { 0 },
            window_bytes: if has_window { sweep.window_bytes(plan, id, widest) } else { 0 },
            slot: sweep.slots[id].map(Id::index),
            times: if height * width > 0 { computed / (height as f64 * width as f64) } else { 0.0 },
            flops: per_element * channels * computed,
        }
    }

    /// Whether it belongs to the backward pass.
    pub(super) fn is_gradient(&self) -> bool {
        self.name.contains(".grad")
    }
}

/// The name of a node in a sweep.
pub(super) fn name(plan: &Plan, sweep: &SweepPlan, node: SweepNodeId) -> String {
    let sweep_node = &sweep.nodes[node];
    let node = &plan.program.nodes[sweep_node.node];
    match sweep_node.action {
        Action::Write(_) if !node.is_terminal() => format!("{}.store", node.name),
        _ => node.name.clone(),
    }
}

/// The rows that a step advances by, of the tallest node and at most all of them.
pub(super) fn band_rows(plan: &Plan, sweep: &SweepPlan) -> i64 {
    let extents = sweep.nodes.iter().map(|node| plan.program.nodes[node.node].extents[0]);
    sweep.band.min(extents.max().unwrap_or(0))
}

/// The kernel with the activation that follows it, the reduction, or what is read or written.
fn kernel(plan: &Plan, sweep: &SweepPlan, node: SweepNodeId) -> String {
    let sweep_node = &sweep.nodes[node];
    let text = match (&sweep_node.action, &plan.program.nodes[sweep_node.node].kind) {
        (Action::Load(SourceRole::Input(_)), _) => "input",
        (Action::Load(SourceRole::Target), _) => "target",
        (Action::Load(SourceRole::GradOutput(_)), _) => "grad_output",
        (Action::Load(SourceRole::Pixel(_)), _) => "pixel",
        (Action::Load(SourceRole::Store(_)) | Action::Write(SinkRole::Store(_)), _) => "store",
        (Action::Write(SinkRole::Output(_)), _) => "output",
        (Action::Write(SinkRole::GradInput(_)), _) => "grad_input",
        (Action::Reduce(reduction), _) => plan.program.reductions[*reduction].reduction.name(),
        (Action::Compute, NodeKind::Compute(kernel)) => return computed(kernel),
        (Action::Compute, _) => "compute",
    };
    text.to_owned()
}

fn computed(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Activation(activation) => activation.name().to_owned(),
        Kernel::ActivationBackward(activation) => format!("{}_backward", activation.name()),
        Kernel::ChannelAffine { activation: Some(activation) } => {
            format!("{}+{}", kernel.name(), activation.name())
        }
        Kernel::Conv2d { epilogue, .. } | Kernel::Conv2dBackwardInput { epilogue, .. } => {
            let mut text = kernel.name().to_owned();
            for (follows, what) in [(epilogue.affine, "+affine"), (epilogue.sum, "+add")] {
                text.push_str(if follows { what } else { "" });
            }
            if let Some(activation) = epilogue.activation {
                text.push('+');
                text.push_str(activation.name());
            }
            if let Some(activation) = epilogue.mask {
                text.push('+');
                text.push_str(activation.name());
                text.push_str("_backward");
            }
            text
        }
        _ => kernel.name().to_owned(),
    }
}
