//! What a plan is made of: a lowered program with the values that it keeps, cut into sweeps, and what it takes whatever
//! the tiling.

use tiled_geometry::{Interval, Region};
use tiled_kernel::{Backend, Costs, ExactSum, Extremum, Kernel, Reduction};
use tiled_tensor::{Element, Layout, OutOfMemory, collected, filled, make_room, with_room};

use super::{Memory, PlanError};
use crate::flow::Flow;
use crate::program::{NodeId, NodeKind, Program, ProgramNode, Store};
use crate::sweep::{Action, Sweep};

/// The bytes that a source or sink may hold for each lane while it converts elements.
pub(super) const TRANSFER_BYTES: u64 = 256 << 10;

/// A lowered program, and what its nodes are to the backend.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) program: Program,
    pub(super) blocks: Vec<usize>,
    pub(super) costs: Costs,
    /// The share of the peak that the kernel or the reduction of each node reaches; none where bytes count.
    pub(super) shares: Vec<Option<f64>>,
    /// Bytes that depend neither on the tiling nor on what is kept, those of one lane's partial sums, and those of one
    /// thread's scratch.
    memory: Memory,
    partial_bytes: u64,
    scratch_bytes: u64,
}

/// A lowered program with the values that it keeps.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) program: Program,
    /// The nodes whose values are kept, each with the place of its store.
    pub(super) nodes: Vec<(NodeId, usize)>,
    /// Bytes that do not depend on the tiling.
    pub(super) memory: Memory,
    /// Those of one lane's partial sums.
    pub(super) partial_bytes: u64,
    /// Those of one thread's scratch.
    pub(super) scratch_bytes: u64,
    pub(super) in_files: bool,
    /// The arithmetic of computing every needed element of every node once.
    pub(super) untiled_flops: f64,
}

/// The same, cut into sweeps.
#[derive(Debug)]
pub(super) struct Prepared<'p> {
    pub(super) lowered: &'p Lowered,
    pub(super) kept: &'p Kept,
    pub(super) sweeps: Vec<Sweep>,
    /// The rows and columns of each sweep.
    pub(super) flows: Vec<[Flow<'p>; 2]>,
    /// The nodes of all sweeps together.
    pub(super) nodes: usize,
}

impl Lowered {
    pub(super) fn new<T: Element>(
        program: Program,
        backend: &dyn Backend<T>,
        resident_bytes: u64,
    ) -> Result<Self, PlanError> {
        let blocks = collected(program.nodes.iter().map(|node| backend.block(node.channels)))?;
        let (memory, partial_bytes) = fixed_memory(&program, backend, resident_bytes)?;
        let scratch_elements =
            program.nodes.iter().filter_map(ProgramNode::kernel).map(|kernel| backend.scratch_len(kernel));
        let scratch_bytes = (scratch_elements.max().unwrap_or(0) * size_of::<T>()) as u64;
        let shares = collected(program.nodes.iter().map(|node| share_of_peak(&program, node, backend)))?;
        Ok(Self { blocks, costs: backend.costs(), shares, memory, partial_bytes, scratch_bytes, program })
    }

    /// Keeps the values of these nodes whole, in memory or in files.
    pub(super) fn keep<T: Element>(
        &self,
        nodes: &[NodeId],
        backend: &dyn Backend<T>,
        in_files: bool,
    ) -> Result<Kept, PlanError> {
        let mut program = self.program.try_clone()?;
        let mut kept = with_room(nodes.len())?;
        make_room(&mut program.stores, nodes.len())?;
        for id in nodes {
            let node = &program.nodes[*id];
            let [height, width] = node.extents.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX));
            let store = Store { name: node.name.clone(), shape: [node.batch, node.channels, height, width] };
            kept.push((*id, program.stores.len()));
            program.stores.push(store);
        }
        let mut memory = self.memory;
        if !in_files {
            memory.stores_bytes = stores_bytes(&program, backend)?;
        }
        let untiled_flops = flops_once(&program, nodes)?;
        Ok(Kept {
            program,
            nodes: kept,
            memory,
            partial_bytes: self.partial_bytes,
            scratch_bytes: self.scratch_bytes,
            in_files,
            untiled_flops,
        })
    }
}

impl Kept {
    /// What every tiling takes.
    pub(super) fn least_bytes(&self) -> u64 {
        self.memory.total_bytes().saturating_add(self.partial_bytes).saturating_add(self.scratch_bytes)
    }
}

impl<'p> Prepared<'p> {
    /// Cuts a program into sweeps; `None` where these would have more than `most` nodes.
    pub(super) fn new(
        lowered: &'p Lowered,
        kept: &'p Kept,
        most: usize,
    ) -> Result<Option<Self>, OutOfMemory> {
        let program = &kept.program;
        let Some(sweeps) = crate::sweep::sweeps_within(program, &kept.nodes, most)? else { return Ok(None) };
        let mut flows = with_room(sweeps.len())?;
        for sweep in &sweeps {
            flows.push([Flow::new(program, sweep, 0)?, Flow::new(program, sweep, 1)?]);
        }
        let nodes = sweeps.iter().map(|sweep| sweep.nodes.len()).sum();
        Ok(Some(Self { lowered, kept, sweeps, flows, nodes }))
    }

    pub(super) fn program(&self) -> &'p Program {
        &self.kept.program
    }

    /// The elements of a node's window.
    pub(super) fn window_elements(
        &self,
        sweep: usize,
        place: usize,
        ring: i64,
        widest: i64,
    ) -> Result<usize, PlanError> {
        let node = &self.sweeps[sweep].nodes[place];
        if ring == 0 || !matches!(node.action, Action::Load(_) | Action::Compute) {
            return Ok(0);
        }
        let of = &self.program().nodes[node.node];
        let ring = usize::try_from(ring).unwrap_or(usize::MAX);
        let block = self.lowered.blocks[node.node];
        let layout = Layout::new(of.batch, of.channels, block, Region::whole([1, widest]), ring)?;
        // a cache line of slack keeps neighbouring windows of lanes apart
        Ok(layout.len().next_multiple_of(16))
    }

    /// The arithmetic of so many rows and columns of a node of a sweep.
    pub(super) fn node_flops(&self, sweep: usize, place: usize, rows: i64, cols: i64) -> f64 {
        let node = &self.sweeps[sweep].nodes[place];
        if matches!(node.action, Action::Compute | Action::Reduce(_)) {
            node_flops(self.program(), node.node, rows, cols)
        } else {
            0.0
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate of arithmetic")]
fn node_flops(program: &Program, id: NodeId, rows: i64, cols: i64) -> f64 {
    let node = &program.nodes[id];
    let per_element = match &node.kind {
        NodeKind::Compute(kernel) => kernel.flops_per_element(),
        NodeKind::Reduce(place) => program.reductions[*place].reduction.flops_per_element(),
        _ => 0.0,
    };
    per_element * (node.batch * node.channels) as f64 * rows as f64 * cols as f64
}

/// The arithmetic of every node once, over the smallest region that covers all that anybody wants of it.
fn flops_once(program: &Program, kept: &[NodeId]) -> Result<f64, OutOfMemory> {
    let mut wanted = filled(program.nodes.len(), [Interval::EMPTY; 2])?;
    for id in kept {
        wanted[*id] = program.nodes[*id].extents.map(Interval::whole);
    }
    let mut flops = 0.0;
    for (id, node) in program.nodes.iter().enumerate().rev() {
        if node.is_terminal() {
            wanted[id] = node.extents.map(Interval::whole);
        }
        let own = [0, 1].map(|axis| node.computed(axis, wanted[id][axis]));
        for edge in &node.operands {
            for (axis, own) in own.into_iter().enumerate() {
                let operand = &mut wanted[edge.node][axis];
                *operand = operand.hull(edge.needed(axis, own));
            }
        }
        flops += node_flops(program, id, own[0].len(), own[1].len());
    }
    Ok(flops)
}

/// The share of the peak where arithmetic bounds a node.
fn share_of_peak<T: Element>(program: &Program, node: &ProgramNode, backend: &dyn Backend<T>) -> Option<f64> {
    match &node.kind {
        NodeKind::Compute(
            kernel @ (Kernel::Conv2d { .. }
            | Kernel::Conv2dWinograd { .. }
            | Kernel::ConvThen { .. }
            | Kernel::Conv2dBackwardInput { .. }),
        ) => Some(backend.share_of_peak(kernel)),
        NodeKind::Reduce(place) => match &program.reductions[*place].reduction {
            reduction @ Reduction::ConvWeight(_) => Some(backend.reduce_share_of_peak(reduction)),
            _ => None,
        },
        _ => None,
    }
}

fn bytes_of<T>(elements: usize) -> Result<u64, PlanError> {
    (elements as u64).checked_mul(size_of::<T>() as u64).ok_or(PlanError::TooLarge)
}

fn fixed_memory<T: Element>(
    program: &Program,
    backend: &dyn Backend<T>,
    resident_bytes: u64,
) -> Result<(Memory, u64), PlanError> {
    let bytes = bytes_of::<T>;
    let mut memory = Memory { resident_bytes, ..Memory::default() };
    memory.parameters_bytes = bytes(program.params.iter().sum())?;
    for node in &program.nodes {
        if let NodeKind::Compute(kernel) = &node.kind
            && !node.params.is_empty()
        {
            memory.parameters_bytes += bytes(backend.packed_len(kernel, &program.param_lens(&node.params)))?;
            memory.parameters_bytes += (program.stamp_len(&node.params) * size_of::<u64>()) as u64;
        }
    }
    memory.gradients_bytes = bytes(program.param_grads.iter().map(|param| program.params[*param]).sum())?;
    let pixels: usize = program.pixels.iter().map(|[batch, channels]| batch * channels).sum();
    memory.reductions_bytes = bytes(program.derived.iter().sum::<usize>() + pixels)?;
    let mut partial_bytes = 0;
    for reduction in &program.reductions {
        let node = &program.nodes[reduction.node];
        partial_bytes += match reduction.reduction {
            Reduction::ConvWeight(_) => bytes(backend.partial_len(&reduction.reduction))?,
            Reduction::ImageMax => (node.batch * node.channels * size_of::<Extremum<T>>()) as u64,
            exact => (exact.slots(node.batch, node.channels) * size_of::<ExactSum>()) as u64,
        };
    }
    Ok((memory, partial_bytes))
}

/// The bytes of all values that are kept whole: a sweep writes every one of them.
fn stores_bytes<T: Element>(program: &Program, backend: &dyn Backend<T>) -> Result<u64, PlanError> {
    program.stores.iter().try_fold(0_u64, |sum, store| {
        let [batch, channels, height, width] = store.shape;
        let extents = [height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let layout = Layout::new(batch, channels, backend.block(channels), Region::whole(extents), height);
        let bytes = bytes_of::<T>(layout.map_err(|_| PlanError::TooLarge)?.len())?;
        sum.checked_add(bytes).ok_or(PlanError::TooLarge)
    })
}
