//! The predicted time of a sweep.
//!
//! `time = (Σ flops / rate + Σ bytes / bandwidth) · spill / cores + calls · overhead`. Convolutions are bound by
//! arithmetic, everything else by the bytes that it touches; `spill` grows with the windows of a lane, because
//! what a layer writes must be read back from a farther cache. The constants are medians measured on one core
//! of a current server CPU with AVX-512; only their ratios steer the planner.

use tiled_kernel::{Kernel, Reduction};

use super::SweepPlan;
use super::build::Prepared;
use crate::demand::Demand;
use crate::program::NodeKind;
use crate::sweep::Action;

/// Multiply-adds of a convolution with many channels, in flop/s of one core, f32.
const CONV_RATE: f64 = 190e9;
/// The same with fewer than eight input channels per group, where vectors are not filled.
const NARROW_CONV_RATE: f64 = 70e9;
/// The gradient with respect to weights.
const WEIGHT_RATE: f64 = 140e9;
/// Bytes touched by everything else, per second of one core.
const BYTE_RATE: f64 = 24e9;
/// What a call costs beside its work, in seconds.
const CALL_SECONDS: f64 = 1.5e-6;
/// What a call costs whose work several threads share, in seconds.
const SHARED_CALL_SECONDS: f64 = 12e-6;
/// The windows of a lane up to a size in bytes, and how much longer the work takes with them.
const SPILL: [(f64, f64); 4] = [(1.0e6, 1.0), (4.0e6, 1.03), (16.0e6, 1.08), (64.0e6, 1.15)];
const SPILL_FAR: f64 = 1.3;

/// The predicted time of a sweep with this many lanes on this many cores, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn predict(
    prepared: &Prepared,
    plan: &SweepPlan,
    lanes: usize,
    parallelism: usize,
    element: usize,
) -> f64 {
    let windows: f64 = plan.slot_elements.iter().map(|elements| (elements * element) as f64).sum();
    let spill = SPILL.iter().find(|(size, _)| windows <= *size).map_or(SPILL_FAR, |(_, factor)| *factor);
    let work: f64 =
        (0..plan.sweep.nodes.len()).map(|place| node_seconds(prepared, plan, place, element)).sum();
    let cores = parallelism.max(1);
    let calls = plan.calls as f64;
    let overhead =
        if lanes >= cores { calls * CALL_SECONDS / cores as f64 } else { calls * SHARED_CALL_SECONDS };
    work * spill / cores as f64 + overhead
}

#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn node_seconds(prepared: &Prepared, plan: &SweepPlan, place: usize, element: usize) -> f64 {
    let sum = |demands: &[Demand]| demands.iter().map(|demand| demand.interval(place).len()).sum::<i64>();
    let (rows, cols) = (sum(&plan.rows), sum(&plan.cols));
    let node = &plan.sweep.nodes[place];
    let program_node = &prepared.program.nodes[node.node];
    let narrow = |conv: &tiled_kernel::Conv| {
        if conv.in_channels / conv.groups < 8 { NARROW_CONV_RATE } else { CONV_RATE }
    };
    let rate = match (&node.action, &program_node.kind) {
        (Action::Compute, NodeKind::Compute(Kernel::Conv2d { conv, .. })) => Some(narrow(conv)),
        (Action::Compute, NodeKind::Compute(Kernel::Conv2dBackwardInput { conv, .. })) => {
            Some(if conv.out_channels / conv.groups < 8 { NARROW_CONV_RATE } else { CONV_RATE })
        }
        (Action::Reduce(reduction), _) => match prepared.program.reductions[*reduction].reduction {
            Reduction::ConvWeight(_) => Some(WEIGHT_RATE),
            _ => None,
        },
        _ => None,
    };
    if let Some(rate) = rate {
        let slowdown = element as f64 / 4.0;
        return prepared.node_flops(&plan.sweep, place, rows, cols) * slowdown / rate;
    }
    let touched = if node.is_terminal() { 1.0 } else { 1.0 + node.operands.len() as f64 };
    let elements = (program_node.batch * program_node.channels) as f64 * rows as f64 * cols as f64;
    touched * elements * element as f64 / BYTE_RATE
}
