//! What a plan is made of: a lowered program with the values that it keeps, cut into sweeps, and what it takes whatever
//! the tiling.

use tiled_geometry::{Interval, Region};
use tiled_kernel::{Backend, Support, Work};
use tiled_tensor::{Element, Layout, OutOfMemory, collected, with_room};

use super::binding::{Binding, Given, bindings, computed_into};
use super::chunks::{Alignment, Chunked};
use super::partials::{self, Gathered};
use super::release::{Release, parameters_bytes, releases};
use super::stores::{self, StoredWhole};
use super::{Chunks, Memory, PlanError, PlanOptions};
use crate::cuts::cut_after;
use crate::demand::Demand;
use crate::flow::Flow;
use crate::index::IndexVec;
use crate::program::{Finaliser, NodeId, Program, SinkRole, SourceRole, Store, StoreId};
use crate::sweep::{Action, Sweep, SweepNode, SweepNodeId};

/// A lowered program, and what its nodes are to the backend.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) program: Program,
    pub(super) blocks: IndexVec<NodeId, usize>,
    /// What the time of each node depends on.
    pub(super) facts: IndexVec<NodeId, NodeFacts>,
    /// The parameters that a run lets go of.
    pub(super) releases: Vec<Release>,
    /// Bytes that depend neither on the tiling nor on what is kept, and those of one thread's scratch.
    memory: Memory,
    scratch_bytes: u64,
    /// Where the sums of each reduction lie.
    pub(super) partials: Gathered,
}

/// What the time of a node depends on beside rows and columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeFacts {
    /// The images times channels.
    pub(super) planes: f64,
    /// The arithmetic of a pixel of all of them.
    pub(super) flops: f64,
    /// The weights that each call reads anew.
    pub(super) weights: f64,
    /// What it does, and how the backend carries that out; `None` of sources and sinks.
    pub(super) work: Option<(Work, Support)>,
}

/// A lowered program with the values that it keeps.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) program: Program,
    /// The nodes whose values are kept, each with its store.
    pub(super) nodes: Vec<(NodeId, StoreId)>,
    /// Bytes that depend neither on the tiling nor on which values share memory.
    memory: Memory,
    /// Those of one lane's partial sums.
    pub(super) partial_bytes: u64,
    /// Those of one thread's scratch.
    pub(super) scratch_bytes: u64,
    pub(super) in_files: bool,
    /// The elements of each store.
    store_elements: IndexVec<StoreId, usize>,
    /// The arithmetic of computing every needed element of every node once.
    pub(super) untiled_flops: f64,
}

/// The same, cut into sweeps.
#[derive(Debug)]
pub(super) struct Prepared<'p> {
    pub(super) lowered: &'p Lowered,
    pub(super) kept: &'p Kept,
    pub(super) sweeps: Vec<Sweep>,
    /// Where the values lie that are kept whole.
    pub(super) stores: StoredWhole,
    /// Bytes that do not depend on the tiling.
    pub(super) memory: Memory,
    /// The rows and columns of each sweep.
    pub(super) flows: Vec<[Flow; 2]>,
    /// The nodes of all sweeps together.
    pub(super) nodes: usize,
    /// The bytes that the sources and sinks of a sweep may hold for a lane.
    pub(super) transfer_bytes: u64,
    /// The sources of each sweep that are read in chunks.
    pub(super) chunked: Vec<Vec<Chunked>>,
    /// Where the values of each sweep lie.
    pub(super) bindings: Vec<IndexVec<SweepNodeId, Binding>>,
    /// What the windows of each sweep depend on beside rows and columns.
    pub(super) windows: Vec<IndexVec<SweepNodeId, Window>>,
    /// What the time of each sweep depends on beside rows and columns.
    pub(super) readings: Vec<Readings>,
}

/// What the nodes of a sweep read, in a row.
#[derive(Debug)]
pub(super) struct Readings {
    pub(super) nodes: IndexVec<SweepNodeId, Reading>,
    /// The operands of one node after another, in the order of its edges.
    pub(super) operands: Vec<SweepNodeId>,
}

/// What a node of a sweep reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The node of the program.
    pub(super) node: NodeId,
    /// Its part of the operands ends here, where the next one's begins.
    pub(super) end: u32,
    /// Whether it moves rows between windows and what lies outside, and computes nothing.
    pub(super) moves: bool,
    /// Whether it does nothing at all, because others read or write where these rows lie.
    pub(super) is_idle: bool,
    /// Whether it does nothing where one lane runs at a time: what it would copy is computed where it stays.
    pub(super) is_idle_alone: bool,
    pub(super) is_terminal: bool,
}

/// What the size of a node's window depends on beside rows and columns; no channels where it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    batch: usize,
    channels: usize,
    block: usize,
}

impl Lowered {
    pub(super) fn new<T: Element>(
        program: Program,
        backend: &dyn Backend<T>,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let blocks = collected(program.nodes.iter().map(|node| backend.block(node.channels)))?.into();
        let mut facts = with_room(program.nodes.len())?;
        for id in program.nodes.ids() {
            facts.push(NodeFacts::of(&program, id, backend)?);
        }
        let supports = || facts.iter().filter_map(NodeFacts::support);
        let scratch_bytes = supports().map(|support| support.workspace_bytes as u64).max().unwrap_or(0);
        let facts = IndexVec::from(facts);
        let partials = gathered(&program, &facts)?;
        // a device packs into memory of its own, all at once
        let lets_go = options.releases_parameters && !backend.transfers_beside();
        let releases = if lets_go { releases(&program, packed_bytes(&facts))? } else { Vec::new() };
        let memory = fixed_memory::<T>(&program, &facts, &releases, backend, options.resident_bytes)?;
        Ok(Self { blocks, facts, releases, memory, scratch_bytes, partials, program })
    }

    /// The same, where a sweep ends with a node; `None` where nothing of its level follows it.
    pub(super) fn cut_after(&self, cut: NodeId) -> Result<Option<Self>, OutOfMemory> {
        let mut program = self.program.try_clone()?;
        if !cut_after(&mut program, cut)? {
            return Ok(None);
        }
        let (blocks, facts) = (self.blocks.copied()?, self.facts.copied()?);
        let releases = collected(self.releases.iter().cloned())?;
        // what is gathered behind the cut is gathered in a later sweep than what lies before it
        let partials = gathered(&program, &facts)?;
        Ok(Some(Self { program, blocks, facts, releases, partials, ..*self }))
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
        for id in nodes {
            let node = &program.nodes[*id];
            let [height, width] = node.extents.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX));
            let store = Store { name: node.name.clone(), shape: [node.batch, node.channels, height, width] };
            kept.push((*id, program.stores.push(store)?));
        }
        let store_elements = stores::sizes(&program, backend)?;
        let mut memory = self.memory;
        if !in_files {
            // of those that share memory, the largest is there
            memory.stores_bytes = bytes_of::<T>(store_elements.iter().copied().max().unwrap_or(0))?;
        }
        let untiled_flops = flops_once(&program, &self.facts, nodes)?;
        Ok(Kept {
            program,
            nodes: kept,
            memory,
            partial_bytes: self.partials.1.iter().map(|bytes| *bytes as u64).fold(0, u64::saturating_add),
            scratch_bytes: self.scratch_bytes,
            in_files,
            store_elements,
            untiled_flops,
        })
    }
}

impl Kept {
    /// What every tiling takes at least, before it is known which values share memory.
    pub(super) fn least_bytes(&self) -> u64 {
        self.with_one_lane(&self.memory)
    }

    fn with_one_lane(&self, memory: &Memory) -> u64 {
        memory.total_bytes().saturating_add(self.partial_bytes).saturating_add(self.scratch_bytes)
    }
}

impl<'p> Prepared<'p> {
    /// Cuts a program into sweeps; `None` where these would have more than `most` nodes.
    pub(super) fn new<T: Element>(
        lowered: &'p Lowered,
        kept: &'p Kept,
        options: &PlanOptions,
        most: usize,
    ) -> Result<Option<Self>, PlanError> {
        let program = &kept.program;
        let Some(sweeps) = crate::sweep::sweeps_within(program, &kept.nodes, most)? else { return Ok(None) };
        let stores = stores::assign(&sweeps, &kept.store_elements)?;
        let mut memory = kept.memory;
        if !kept.in_files {
            let elements = stores.1.iter().try_fold(0_usize, |sum, elements| sum.checked_add(*elements));
            memory.stores_bytes = bytes_of::<T>(elements.ok_or(PlanError::TooLarge)?)?;
        }
        let mut flows = with_room(sweeps.len())?;
        for sweep in &sweeps {
            flows.push([Flow::new(program, sweep, 0)?, Flow::new(program, sweep, 1)?]);
        }
        let nodes = sweeps.iter().map(|sweep| sweep.len()).sum();
        let mut bound = with_room(sweeps.len())?;
        let (mut windows, mut readings) = (with_room(sweeps.len())?, with_room(sweeps.len())?);
        let given = Given {
            program: &lowered.program,
            support: &|node| lowered.facts[node].support(),
            stores_in_files: kept.in_files,
            in_memory: options.in_memory,
        };
        for sweep in &sweeps {
            let bindings = bindings(&given, sweep)?;
            let nodes = sweep.iter().zip(&bindings);
            let of_nodes = collected(nodes.map(|(node, binding)| Window::of(lowered, node, *binding)))?;
            windows.push(of_nodes.into());
            readings.push(Readings::of(sweep, &bindings, kept.in_files)?);
            bound.push(bindings);
        }
        let mut chunked = with_room(sweeps.len())?;
        for (readings, sweep) in readings.iter().zip(&sweeps) {
            chunked.push(chunked_sources(program, options, readings, sweep)?);
        }
        let converts = |(reading, node): &(&Reading, &SweepNode)| {
            reading.moves
                && !reading.is_idle
                && !options.in_memory.holds(node.action, program)
                && chunks_of(program, options, node.action).is_none()
        };
        let transfers = readings.iter().zip(&sweeps).map(|(readings, sweep): (&Readings, _)| {
            readings.nodes.iter().zip(sweep).filter(converts).count() as u64
        });
        let transfer_bytes = transfers.max().unwrap_or(0).saturating_mul(options.transfer_bytes);
        Ok(Some(Self {
            lowered,
            kept,
            sweeps,
            stores,
            memory,
            flows,
            nodes,
            transfer_bytes,
            chunked,
            bindings: bound,
            windows,
            readings,
        }))
    }

    /// The value kept whole that a node is computed into in a plan with so many lanes in flight, if it is. One that runs alone computes what is
    /// kept where it stays; several would write a tensor that others read.
    pub(super) fn computed_into(&self, sweep: usize, node: SweepNodeId, in_flight: usize) -> Option<StoreId> {
        let is_window = self.bindings[sweep][node] == Binding::Window;
        let nodes = &self.sweeps[sweep];
        (in_flight == 1 && !self.kept.in_files && is_window)
            .then(|| computed_into(nodes, &nodes[node]))
            .flatten()
    }

    /// Where the values of a sweep lie in such a plan.
    pub(super) fn bindings_of(
        &self,
        sweep: usize,
        in_flight: usize,
    ) -> Result<IndexVec<SweepNodeId, Binding>, OutOfMemory> {
        let mut bindings = self.bindings[sweep].copied()?;
        for (node, binding) in self.sweeps[sweep].ids().zip(&mut bindings) {
            if let Some(store) = self.computed_into(sweep, node, in_flight) {
                *binding = Binding::Store(store);
            }
        }
        Ok(bindings)
    }

    /// What every tiling takes.
    pub(super) fn least_bytes(&self) -> u64 {
        self.kept.with_one_lane(&self.memory)
    }

    /// Where tiles are best cut along an axis for the source of the largest chunks, if any.
    pub(super) fn alignment(&self, axis: usize) -> Result<Option<Alignment>, OutOfMemory> {
        let all = self.chunked.iter().enumerate();
        let all = all.flat_map(|(sweep, sources)| sources.iter().map(move |source| (sweep, source)));
        let Some((sweep, source)) = all.max_by_key(|(_, source)| source.slot_bytes) else { return Ok(None) };
        let program = self.program();
        let whole = program.anchor[axis];
        let extent = program.nodes[self.sweeps[sweep][source.node].node].extents[axis];
        if whole == 0 || extent == 0 {
            return Ok(None);
        }
        let scaled = |bound: i64, to: i64| {
            i64::try_from(i128::from(bound) * i128::from(to) / i128::from(whole)).unwrap_or(i64::MAX)
        };
        // what one coordinate in the middle needs
        let middle = |extent: i64| {
            let begin = scaled(whole / 2, extent);
            Interval::new(begin, scaled(whole / 2 + 1, extent).max(begin + 1).min(extent.max(begin)))
        };
        let demand = Demand::of_flow(&self.flows[sweep][axis], |_, extent| middle(extent))?;
        let needed = demand.interval(source.node);
        let chunk = source.chunks.shape()[axis];
        Ok((!needed.is_empty()).then(|| Alignment::new(chunk, extent, middle(extent), needed)))
    }

    pub(super) fn program(&self) -> &'p Program {
        &self.kept.program
    }

    /// The arithmetic of so many rows and columns of a node of a sweep.
    pub(super) fn node_flops(&self, sweep: usize, node: SweepNodeId, rows: i64, cols: i64) -> f64 {
        let node = &self.sweeps[sweep][node];
        if matches!(node.action, Action::Compute | Action::Reduce(_)) {
            self.lowered.facts[node.node].flops(rows, cols)
        } else {
            0.0
        }
    }
}

/// The chunks that what a node loads is read in, if any.
fn chunks_of(program: &Program, options: &PlanOptions, action: Action) -> Option<(SourceRole, Chunks)> {
    let Action::Load(role) = action else { return None };
    // class numbers are counted before the run, in another order
    if options.in_memory.holds(action, program)
        || (role == SourceRole::Target && program.target_classes().is_some())
    {
        return None;
    }
    options.chunks.iter().find(|(of, _)| *of == role).copied()
}

/// The sources of a sweep that are read in chunks.
fn chunked_sources(
    program: &Program,
    options: &PlanOptions,
    readings: &Readings,
    sweep: &Sweep,
) -> Result<Vec<Chunked>, PlanError> {
    let of = |(reading, node): (&Reading, &SweepNode)| {
        if reading.is_idle { None } else { chunks_of(program, options, node.action) }
    };
    let mut sources = with_room(readings.nodes.iter().zip(sweep).filter_map(of).count())?;
    for ((id, reading), node) in readings.nodes.entries().zip(sweep) {
        if let Some((role, chunks)) = of((reading, node)) {
            sources.push(Chunked::new(id, role, chunks, &program.nodes[node.node])?);
        }
    }
    Ok(sources)
}

impl Window {
    fn of(lowered: &Lowered, node: &SweepNode, binding: Binding) -> Self {
        if binding != Binding::Window {
            return Self { batch: 0, channels: 0, block: 1 };
        }
        let of = &lowered.program.nodes[node.node];
        Self { batch: of.batch, channels: of.channels, block: lowered.blocks[node.node] }
    }

    /// Its elements, where it stores so many rows, each at most so wide.
    pub(super) fn elements(self, ring: i64, widest: i64) -> Result<usize, PlanError> {
        let Self { batch, channels, block } = self;
        let ring = usize::try_from(ring).unwrap_or(usize::MAX);
        let layout = Layout::new(batch, channels, block, Region::whole([1, widest]), ring)?;
        // a cache line of slack keeps neighbouring windows of lanes apart
        Ok(layout.len().next_multiple_of(16))
    }
}

impl Readings {
    fn of(
        sweep: &Sweep,
        bindings: &IndexVec<SweepNodeId, Binding>,
        in_files: bool,
    ) -> Result<Self, OutOfMemory> {
        let index = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let mut operands = with_room(sweep.iter().map(|node| node.operands.len()).sum())?;
        let mut nodes = with_room(sweep.len())?;
        for (node, binding) in sweep.iter().zip(bindings) {
            let is_idle = match node.action {
                Action::Write(_) => matches!(bindings[node.operands[0]], Binding::Sink(_)),
                _ => matches!(binding, Binding::Source(_) | Binding::Store(_) | Binding::Pixel(_)),
            };
            let is_idle_alone = is_idle
                || match node.action {
                    Action::Write(SinkRole::Store(_)) if !in_files => {
                        computed_into(sweep, &sweep[node.operands[0]]).is_some()
                    }
                    _ => false,
                };
            operands.extend_from_slice(&node.operands);
            nodes.push(Reading {
                node: node.node,
                end: index(operands.len()),
                moves: matches!(node.action, Action::Load(_) | Action::Write(_)),
                is_idle,
                is_idle_alone,
                is_terminal: node.is_terminal(),
            });
        }
        Ok(Self { nodes: nodes.into(), operands })
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate of arithmetic")]
impl NodeFacts {
    fn of<T: Element>(program: &Program, id: NodeId, backend: &dyn Backend<T>) -> Result<Self, PlanError> {
        let node = &program.nodes[id];
        let work = supported(program, id, backend)?;
        let planes = (node.batch * node.channels) as f64;
        Ok(Self {
            planes,
            flops: work.map_or(0.0, |(work, _)| work.flops_per_element()) * planes,
            weights: work.map_or(0, |(work, _)| work.weights()) as f64,
            work,
        })
    }

    /// How the backend carries the node out; `None` of sources and sinks.
    pub(super) fn support(&self) -> Option<&Support> {
        self.work.as_ref().map(|(_, support)| support)
    }

    /// The arithmetic of so many rows and columns.
    fn flops(&self, rows: i64, cols: i64) -> f64 {
        self.flops * rows as f64 * cols as f64
    }
}

/// The arithmetic of every node once, over the smallest region that covers all that anybody wants of it.
fn flops_once(
    program: &Program,
    facts: &IndexVec<NodeId, NodeFacts>,
    kept: &[NodeId],
) -> Result<f64, OutOfMemory> {
    let mut wanted = IndexVec::filled(program.nodes.len(), [Interval::EMPTY; 2])?;
    for id in kept {
        wanted[*id] = program.nodes[*id].extents.map(Interval::whole);
    }
    let mut flops = 0.0;
    for (id, node) in program.nodes.entries().rev() {
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
        flops += facts[id].flops(own[0].len(), own[1].len());
    }
    Ok(flops)
}

/// What a node does and how the backend carries it out; `None` of sources and sinks.
fn supported<T: Element>(
    program: &Program,
    id: NodeId,
    backend: &dyn Backend<T>,
) -> Result<Option<(Work, Support)>, PlanError> {
    let Some(work) = program.work(id) else { return Ok(None) };
    match program.support(id, backend) {
        Some(support) => Ok(Some((work, support))),
        None => Err(PlanError::Unsupported {
            name: program.nodes[id].name.clone(),
            work: work.name(),
            backend: backend.name(),
        }),
    }
}

/// Where the sums of each reduction lie.
fn gathered(program: &Program, facts: &IndexVec<NodeId, NodeFacts>) -> Result<Gathered, OutOfMemory> {
    let bytes = program
        .reductions
        .iter()
        .map(|reduction| facts[reduction.node].support().map_or(0, |support| support.partial_bytes));
    partials::assign(program, &collected(bytes)?.into())
}

/// The bytes of each node's packed parameters.
fn packed_bytes(facts: &IndexVec<NodeId, NodeFacts>) -> impl Fn(NodeId) -> u64 + '_ {
    |node| match facts[node].work {
        Some((Work::Map(_), support)) => support.packed_bytes as u64,
        _ => 0,
    }
}

fn bytes_of<T>(elements: usize) -> Result<u64, PlanError> {
    (elements as u64).checked_mul(size_of::<T>() as u64).ok_or(PlanError::TooLarge)
}

fn fixed_memory<T: Element>(
    program: &Program,
    facts: &IndexVec<NodeId, NodeFacts>,
    releases: &[Release],
    backend: &dyn Backend<T>,
    resident_bytes: u64,
) -> Result<Memory, PlanError> {
    let bytes = bytes_of::<T>;
    let mut memory = Memory { resident_bytes, ..Memory::default() };
    let elements = program.params.iter().try_fold(0_usize, |sum, elements| sum.checked_add(*elements));
    bytes(elements.ok_or(PlanError::TooLarge)?)?;
    let stamps = program.nodes.iter().map(|node| (program.stamp_len(&node.params) * size_of::<u64>()) as u64);
    let [held, most] = parameters_bytes(program, releases, packed_bytes(facts), size_of::<T>() as u64)?;
    memory.parameters_bytes = held.saturating_add(stamps.sum());
    memory.before_sweeps_bytes = most - held;
    let gradients: usize = program.param_grads.iter().map(|param| program.params[*param]).sum();
    // a share of a sum has room of its own while it is added
    let shares = program.finalisers.iter().filter_map(|(_, finaliser)| match finaliser {
        Finaliser::SharedGrad { param, .. } => Some(program.params[*param]),
        _ => None,
    });
    memory.gradients_bytes = bytes(gradients + shares.max().unwrap_or(0))?;
    // in the blocks of a window
    let pixel = |[batch, channels]: &[usize; 2]| batch * channels.next_multiple_of(backend.block(*channels));
    let pixels: usize = program.pixels.iter().map(pixel).sum();
    // running statistics move after the last sweep
    let moving = program.finalisers.iter().filter_map(|(_, finaliser)| match finaliser {
        Finaliser::NormTrain { norm, running: Some(_), .. } => Some(2 * program.derived[norm.mean]),
        _ => None,
    });
    let moments: usize = moving.sum();
    memory.reductions_bytes =
        bytes(program.derived.iter().sum::<usize>() + pixels)?.saturating_add(bytes_of::<f64>(moments)?);
    Ok(memory)
}
