//! What a plan takes of a GPU, call by call.

use std::convert::Infallible;

use tiled_cuda::{CudaBackend, pinned_regions};
use tiled_graph::{Action, Plan, SweepNodeId, SweepPlan};
use tiled_tensor::OutOfMemory;

/// What a plan takes of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceFigures {
    /// The calls of kernels.
    pub calls: u64,
    /// Of the seconds that convolutions and their gradients are predicted to take, the share that is lost to waves that are not full: to multiprocessors
    /// that have nothing to do, to tiles of kernels that are ragged, and to tiles that are smaller than the best for a layer's channels.
    pub lost_to_waves: f64,
    /// The bytes of the one allocation on the device, and of the vectors of a sweep beside it.
    pub device_bytes: u64,
    /// The bytes of pinned memory of the host, through which regions pass.
    pub pinned_bytes: u64,
    /// What the driver is taken to keep on the device beside them.
    pub driver_bytes: u64,
}

impl DeviceFigures {
    pub(super) fn new(cuda: &CudaBackend, plan: &Plan) -> Result<Self, OutOfMemory> {
        let mut walked = Walked::default();
        for sweep in &plan.sweeps {
            walked.sweep(cuda, plan, sweep)?;
        }
        let Walked { calls, seconds, full_seconds, sent_bytes, fetched_bytes } = walked;
        let lost_to_waves = if seconds > 0.0 { 1.0 - full_seconds / seconds } else { 0.0 };
        let [sent, fetched] = pinned_regions();
        let between_sweeps = packed(plan).chain(partials(plan)).max().unwrap_or(0);
        let queues = plan.in_flight() as u64;
        Ok(Self {
            calls,
            lost_to_waves,
            device_bytes: device_bytes(plan),
            pinned_bytes: queues * (sent * sent_bytes + fetched * fetched_bytes) + between_sweeps,
            driver_bytes: cuda.facts().driver_bytes,
        })
    }
}

/// What the calls so far take.
#[derive(Debug, Default)]
struct Walked {
    calls: u64,
    seconds: f64,
    full_seconds: f64,
    /// The largest region that a source fills, and that a sink takes.
    sent_bytes: u64,
    fetched_bytes: u64,
}

impl Walked {
    fn sweep(&mut self, cuda: &CudaBackend, plan: &Plan, sweep: &SweepPlan) -> Result<(), OutOfMemory> {
        let [rows, cols] = sweep.grid.counts();
        for row in 0..rows {
            // columns of tiles have the calls of their row, each over columns of its own
            let walked = sweep.schedule(row)?.run(
                |call| {
                    for col in 0..cols {
                        let region = sweep.region(call.node, [row, col]);
                        let pixels = call.rows.len().unsigned_abs() * region.cols().len().unsigned_abs();
                        self.call(cuda, plan, sweep, call.node, pixels);
                    }
                    Ok::<(), Infallible>(())
                },
                || Ok(()),
            );
            let Ok(()) = walked;
        }
        Ok(())
    }

    fn call(&mut self, cuda: &CudaBackend, plan: &Plan, sweep: &SweepPlan, node: SweepNodeId, pixels: u64) {
        let action = sweep.nodes[node].action;
        let id = sweep.nodes[node].node;
        if pixels == 0 {
            return;
        }
        match action {
            Action::Load(_) => self.sent_bytes = self.sent_bytes.max(region_bytes(plan, sweep, node, pixels)),
            Action::Write(_) => {
                let operand = sweep.nodes[node].operands[0];
                self.fetched_bytes = self.fetched_bytes.max(region_bytes(plan, sweep, operand, pixels));
            }
            Action::Compute | Action::Reduce(_) => {
                self.calls += 1;
                let Some(work) = plan.program.work(id) else { return };
                let images = plan.program.nodes[id].batch as u64;
                if let Some(waves) = cuda.waves(&work, plan.dtype, images * pixels) {
                    self.seconds += waves.seconds;
                    self.full_seconds += waves.full_seconds;
                }
            }
        }
    }
}

/// The bytes of so many pixels of a node's window by themselves.
fn region_bytes(plan: &Plan, sweep: &SweepPlan, node: SweepNodeId, pixels: u64) -> u64 {
    let id = sweep.nodes[node].node;
    let of = &plan.program.nodes[id];
    let channels = of.channels.next_multiple_of(plan.blocks[id]);
    (of.batch * channels * plan.dtype.size_bytes()) as u64 * pixels
}

/// The bytes of the parameters of each node.
fn packed(plan: &Plan) -> impl Iterator<Item = u64> {
    plan.program.nodes.entries().filter_map(|(id, node)| {
        let is_packed = !node.params.is_empty() && node.extrema().is_none();
        plan.support[id].as_ref().filter(|_| is_packed).map(|support| support.packed_bytes as u64)
    })
}

/// The bytes of each sum of each lane.
fn partials(plan: &Plan) -> impl Iterator<Item = u64> {
    let of_a_lane = plan.partial_bytes.iter().map(|bytes| *bytes as u64);
    of_a_lane.flat_map(|bytes| std::iter::repeat_n(bytes, plan.lanes()))
}

fn device_bytes(plan: &Plan) -> u64 {
    let element = plan.dtype.size_bytes() as u64;
    let scratch = plan.support.iter().flatten().map(|support| support.workspace_bytes as u64).max();
    let window_elements = plan.window_elements().div_ceil(plan.in_flight());
    let of_a_queue = [window_elements as u64 * element, scratch.unwrap_or(0)];
    let vectors = plan.program.derived.iter().map(|len| *len as u64 * element);
    let stores = if plan.stores_in_files { 0 } else { plan.memory.stores_bytes };
    let parts = packed(plan).chain(partials(plan)).chain(vectors);
    let parts =
        parts.chain(of_a_queue.into_iter().flat_map(|bytes| std::iter::repeat_n(bytes, plan.in_flight())));
    let alignment = tiled_cuda::ALIGNMENT_BYTES as u64;
    // each of the values kept whole begins at a multiple too
    let padding = plan.program.stores.len() as u64 * alignment;
    parts.map(|bytes| bytes.next_multiple_of(alignment)).sum::<u64>() + stores + padding
}
