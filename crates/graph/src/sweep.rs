//! One pass over the image: the part of a program that runs between two reductions, or cuts.

use tiled_tensor::{OutOfMemory, collected, copied, filled, push, with_room};

use crate::index::{Id, IndexVec, id};
use crate::program::{Edge, NodeId, NodeKind, Program, ReductionId, SinkRole, SourceRole, StoreId};

id! {
    /// A node of a [`Sweep`].
    SweepNodeId
}

/// What a node of a sweep does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads rows from a source.
    Load(SourceRole),
    /// Computes rows.
    Compute,
    /// Takes rows into a reduction.
    Reduce(ReductionId),
    /// Writes rows to a sink.
    Write(SinkRole),
}

/// A node as it takes part in a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepNode {
    /// The node of the program whose value, domain or kernel it has.
    pub node: NodeId,
    /// What it does.
    pub action: Action,
    /// Its operands, in the order of the program node's edges.
    pub operands: Vec<SweepNodeId>,
    /// The nodes that read it, and which of their operands it is.
    pub consumers: Vec<(SweepNodeId, usize)>,
}

impl SweepNode {
    /// Whether it ends a flow of data.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self.action, Action::Reduce(_) | Action::Write(_))
    }
}

/// The nodes that one pass over the image runs, in topological order.
pub type Sweep = IndexVec<SweepNodeId, SweepNode>;

/// Cuts a program into sweeps. Nodes in `kept` (each with its store) are written whole by the first
/// sweep that needs them, and read by later ones; everything else that a later sweep needs is computed again.
///
/// # Panics
/// Where `kept` names a node that the program does not have, or memory is refused.
#[must_use]
pub fn sweeps(program: &Program, kept: &[(NodeId, StoreId)]) -> Vec<Sweep> {
    let cut = sweeps_within(program, kept, usize::MAX).unwrap_or_else(|error| panic!("sweeps: {error}"));
    cut.expect("invariant: there is no bound")
}

/// The same; `None` where they would have more than `most` nodes together.
pub(crate) fn sweeps_within(
    program: &Program,
    kept: &[(NodeId, StoreId)],
    most: usize,
) -> Result<Option<Vec<Sweep>>, OutOfMemory> {
    let mut cutter = Cutter::new(program, kept.iter().copied())?;
    let mut sweeps = Vec::new();
    let mut left = most;
    for (level, terminals) in
        terminals(program)?.into_iter().enumerate().filter(|(_, terminals)| !terminals.is_empty())
    {
        let Some(ids) = cutter.needed(level, terminals, left)? else { return Ok(None) };
        let sweep = cutter.sweep(&ids)?;
        let Some(rest) = left.checked_sub(sweep.len()) else { return Ok(None) };
        left = rest;
        push(&mut sweeps, sweep)?;
    }
    Ok(Some(sweeps))
}

/// The terminals of each level, and the nodes that end one of its sweeps.
fn terminals(program: &Program) -> Result<Vec<Vec<NodeId>>, OutOfMemory> {
    let mut levels: Vec<Vec<NodeId>> = filled(program.sweeps(), Vec::new())?;
    for (id, node) in program.nodes.entries().filter(|(_, node)| node.is_terminal()) {
        push(&mut levels[node.level], id)?;
    }
    for id in &program.cuts {
        push(&mut levels[program.nodes[*id].level], *id)?;
    }
    Ok(levels)
}

/// The nodes whose values more than one sweep computes when nothing is kept: what is worth keeping.
pub(crate) fn shared_between_sweeps(program: &Program) -> Result<Vec<NodeId>, OutOfMemory> {
    let needed = needed_by(program)?;
    let is_shared = |id: &NodeId| {
        program.nodes[*id].kernel().is_some() && needed[*id].is_some_and(|[first, last]| first < last)
    };
    collected(needed.ids().filter(is_shared))
}

/// Those of some nodes that a later sweep reads where all of them are kept: nobody reads what is computed from others that are kept.
pub(crate) fn read_again(program: &Program, kept: Vec<NodeId>) -> Result<Vec<NodeId>, OutOfMemory> {
    let mut cutter = Cutter::new(program, kept.iter().map(|id| (*id, StoreId::new(0))))?;
    let mut is_read = IndexVec::filled(program.nodes.len(), false)?;
    for (level, terminals) in terminals(program)?.into_iter().enumerate() {
        let needed = cutter.needed(level, terminals, usize::MAX)?.expect("invariant: there is no bound");
        for id in needed.into_iter().filter(|id| cutter.stores[*id].is_some()) {
            is_read[id] |= cutter.is_written[id];
            cutter.is_written[id] = true;
        }
    }
    let mut kept = kept;
    kept.retain(|id| is_read[*id]);
    Ok(kept)
}

/// About how many nodes all sweeps have together where nothing is kept.
pub(crate) fn nodes_of_sweeps(program: &Program) -> Result<usize, OutOfMemory> {
    let sweeps = needed_by(program)?.into_iter().flatten().map(|[first, last]| last - first + 1);
    Ok(sweeps.fold(0, usize::saturating_add))
}

/// Of the levels that need a node, the first and the last.
fn needed_by(program: &Program) -> Result<IndexVec<NodeId, Option<[usize; 2]>>, OutOfMemory> {
    let mut needed: IndexVec<NodeId, Option<[usize; 2]>> = IndexVec::filled(program.nodes.len(), None)?;
    for (id, node) in program.nodes.entries().rev() {
        if node.is_terminal() {
            needed[id] = Some([node.level; 2]);
        }
        let Some([first, last]) = needed[id] else { continue };
        for edge in &node.operands {
            let operand = &mut needed[edge.node];
            *operand = Some(operand.map_or([first, last], |[a, b]| [a.min(first), b.max(last)]));
        }
    }
    Ok(needed)
}

/// Cuts one sweep after another off a program.
struct Cutter<'p> {
    program: &'p Program,
    /// Where each node is kept, if it is.
    stores: IndexVec<NodeId, Option<StoreId>>,
    /// Whether a sweep has written it there.
    is_written: IndexVec<NodeId, bool>,
    /// The last level that needed each node.
    seen: IndexVec<NodeId, usize>,
    /// Each node in the sweep at hand.
    numbers: IndexVec<NodeId, Option<SweepNodeId>>,
}

impl<'p> Cutter<'p> {
    fn new(program: &'p Program, kept: impl Iterator<Item = (NodeId, StoreId)>) -> Result<Self, OutOfMemory> {
        let count = program.nodes.len();
        let mut stores = IndexVec::filled(count, None)?;
        for (node, store) in kept {
            stores[node] = Some(store);
        }
        Ok(Self {
            program,
            stores,
            is_written: IndexVec::filled(count, false)?,
            seen: IndexVec::filled(count, usize::MAX)?,
            numbers: IndexVec::filled(count, None)?,
        })
    }

    /// The nodes that these terminals need, in order; `None` where there are more than `most`.
    fn needed(
        &mut self,
        level: usize,
        terminals: Vec<NodeId>,
        most: usize,
    ) -> Result<Option<Vec<NodeId>>, OutOfMemory> {
        let mut ids = terminals;
        for id in &ids {
            self.seen[*id] = level;
        }
        let mut next = 0;
        while let Some(&id) = ids.get(next) {
            next += 1;
            if next > most {
                return Ok(None);
            }
            if self.is_written[id] {
                continue; // it is read
            }
            for edge in &self.program.nodes[id].operands {
                if self.seen[edge.node] != level {
                    self.seen[edge.node] = level;
                    push(&mut ids, edge.node)?;
                }
            }
        }
        ids.sort_unstable();
        Ok(Some(ids))
    }

    fn sweep(&mut self, ids: &[NodeId]) -> Result<Sweep, OutOfMemory> {
        let mut sweep = Sweep::from(with_room(ids.len())?);
        for &id in ids {
            let node = &self.program.nodes[id];
            let store = self.stores[id];
            if let Some(store) = store.filter(|_| self.is_written[id]) {
                let load = sweep.add(id, Action::Load(SourceRole::Store(store)), Vec::new())?;
                self.numbers[id] = Some(load);
                continue;
            }
            let action = match &node.kind {
                NodeKind::Source(role) => Action::Load(*role),
                NodeKind::Compute(_) => Action::Compute,
                NodeKind::Reduce(reduction) => Action::Reduce(*reduction),
                NodeKind::Sink(role) => Action::Write(*role),
            };
            let operand = |edge: &Edge| self.numbers[edge.node].expect("invariant: operands come first");
            let operands = node.operands.iter().map(operand).collect();
            let number = sweep.add(id, action, operands)?;
            self.numbers[id] = Some(number);
            if let Some(store) = store {
                sweep.add(id, Action::Write(SinkRole::Store(store)), vec![number])?;
                self.is_written[id] = true;
            }
        }
        Ok(sweep)
    }
}

impl Sweep {
    /// A copy.
    ///
    /// # Errors
    /// Where memory is refused.
    pub fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut nodes = with_room(self.len())?;
        for SweepNode { node, action, operands, consumers } in self {
            let (operands, consumers) = (copied(operands)?, copied(consumers)?);
            nodes.push(SweepNode { node: *node, action: *action, operands, consumers });
        }
        Ok(nodes.into())
    }

    /// Appends a node, and makes it a consumer of its operands.
    fn add(
        &mut self,
        node: NodeId,
        action: Action,
        operands: Vec<SweepNodeId>,
    ) -> Result<SweepNodeId, OutOfMemory> {
        let id = SweepNodeId::new(self.len());
        for (which, operand) in operands.iter().enumerate() {
            push(&mut self[*operand].consumers, (id, which))?;
        }
        self.push(SweepNode { node, action, operands, consumers: Vec::new() })
    }
}
