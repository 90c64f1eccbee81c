//! The predicted time of a sweep.
//!
//! ```text
//! time = (Σ flops / (peak · share) + Σ bytes / bandwidth + Σ spilled bytes / spilled) · imbalance / cores
//!        + calls · overhead
//! ```
//!
//! Convolutions are bound by arithmetic, and slower where the cache of their core does not hold the windows that they
//! read; everything else is bound by the bytes that it touches. Where the last cache does not hold the windows of all lanes, what a layer writes comes back from memory. The figures are the backend's
//! ([`Costs`](tiled_kernel::Costs)).

use super::SweepPlan;
use super::build::Prepared;
use crate::demand::Demand;
use crate::sweep::Action;

/// The predicted time of a sweep with this many lanes on this many cores, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn predict(
    prepared: &Prepared,
    plan: &SweepPlan,
    lanes: usize,
    parallelism: usize,
    element: usize,
) -> f64 {
    let costs = &prepared.costs;
    let windows: f64 = plan.slot_elements.iter().map(|elements| (elements * element) as f64).sum();
    let spilled = costs.spilled_share(windows * lanes as f64);
    let work: f64 =
        (0..plan.sweep.nodes.len()).map(|place| node_seconds(prepared, plan, place, element, spilled)).sum();
    let (cores, calls) = (parallelism.max(1) as f64, plan.calls as f64);
    if lanes < parallelism {
        return work / cores + calls * costs.shared_call;
    }
    // the lane with the most tiles ends last; the others help it with its convolutions alone
    let most = plan.grid.len().div_ceil(lanes) * lanes;
    let imbalance = f64::midpoint(1.0, most as f64 / plan.grid.len() as f64);
    work * imbalance / cores + calls * costs.call / cores
}

#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn node_seconds(prepared: &Prepared, plan: &SweepPlan, place: usize, element: usize, spilled: f64) -> f64 {
    let sum = |demands: &[Demand]| demands.iter().map(|demand| demand.interval(place).len()).sum::<i64>();
    let (rows, cols) = (sum(&plan.rows), sum(&plan.cols));
    let costs = &prepared.costs;
    let node = &plan.sweep.nodes[place];
    let program_node = &prepared.program.nodes[node.node];
    let planes = (program_node.batch * program_node.channels) as f64;
    let bytes = planes * rows as f64 * cols as f64 * element as f64;
    // written once and read again by each consumer
    let spilling = if node.is_terminal() { 0.0 } else { 2.0 * bytes * spilled / costs.spilled };
    if matches!(node.action, Action::Load(_) | Action::Write(_)) {
        let runs = planes * rows as f64 * plan.cols.len() as f64;
        return bytes / costs.transfer + runs * costs.run + spilling;
    }
    if let Some(share) = prepared.shares[node.node] {
        let flops = prepared.node_flops(&plan.sweep, place, rows, cols);
        let read: usize = node
            .operands
            .iter()
            .filter_map(|operand| plan.slots[*operand])
            .map(|slot| plan.slot_elements[slot] * element)
            .sum();
        return flops / (costs.flops * share) * costs.slowdown(read as f64) + spilling;
    }
    let touched = if node.is_terminal() { 1.0 } else { 1.0 + node.operands.len() as f64 };
    touched * bytes / costs.bytes + spilling
}
