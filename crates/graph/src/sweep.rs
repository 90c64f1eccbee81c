//! One pass over the image: the part of a program that runs between two reductions.

use crate::program::{NodeId, NodeKind, Program, SinkRole, SourceRole};

/// What a node of a sweep does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads rows from a source.
    Load(SourceRole),
    /// Computes rows.
    Compute,
    /// Takes rows into the reduction at this place of [`Program::reductions`].
    Reduce(usize),
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
    /// Its operands: places in [`Sweep::nodes`], in the order of the program node's edges.
    pub operands: Vec<usize>,
    /// The nodes that read it: place, and which of their operands it is.
    pub consumers: Vec<(usize, usize)>,
}

impl SweepNode {
    /// Whether it ends a flow of data.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self.action, Action::Reduce(_) | Action::Write(_))
    }
}

/// The nodes that one pass over the image runs, in topological order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Sweep {
    /// The nodes.
    pub nodes: Vec<SweepNode>,
}

/// Cuts a program into sweeps. Nodes in `kept` (with the place of their store) are written whole by the first
/// sweep that needs them, and read by later ones; everything else that a later sweep needs is computed again.
///
/// # Panics
/// Where `kept` names a node that the program does not have.
#[must_use]
pub fn sweeps(program: &Program, kept: &[(NodeId, usize)]) -> Vec<Sweep> {
    sweeps_within(program, kept, usize::MAX).expect("invariant: there is no bound")
}

/// The same; `None` where they would have more than `most` nodes together.
pub(crate) fn sweeps_within(program: &Program, kept: &[(NodeId, usize)], most: usize) -> Option<Vec<Sweep>> {
    let mut levels: Vec<Vec<NodeId>> = vec![Vec::new(); program.sweeps()];
    for (id, node) in program.nodes.iter().enumerate().filter(|(_, node)| node.is_terminal()) {
        levels[node.level].push(id);
    }
    let mut cutter = Cutter {
        program,
        stores: vec![None; program.nodes.len()],
        is_written: vec![false; program.nodes.len()],
        seen: vec![usize::MAX; program.nodes.len()],
        places: vec![usize::MAX; program.nodes.len()],
    };
    for (node, store) in kept {
        cutter.stores[*node] = Some(*store);
    }
    let mut sweeps = Vec::new();
    let mut left = most;
    for (level, terminals) in levels.into_iter().enumerate().filter(|(_, terminals)| !terminals.is_empty()) {
        let ids = cutter.needed(level, terminals, left)?;
        let sweep = cutter.sweep(&ids);
        left = left.checked_sub(sweep.nodes.len())?;
        sweeps.push(sweep);
    }
    Some(sweeps)
}

/// The nodes whose values more than one sweep computes when nothing is kept: what is worth keeping.
#[must_use]
pub(crate) fn shared_between_sweeps(program: &Program) -> Vec<NodeId> {
    let needed = needed_by(program);
    let is_shared = |id: &NodeId| {
        program.nodes[*id].kernel().is_some() && needed[*id].is_some_and(|[first, last]| first < last)
    };
    (0..needed.len()).filter(is_shared).collect()
}

/// About how many nodes all sweeps have together where nothing is kept.
pub(crate) fn nodes_of_sweeps(program: &Program) -> usize {
    let sweeps = needed_by(program).into_iter().flatten().map(|[first, last]| last - first + 1);
    sweeps.fold(0, usize::saturating_add)
}

/// Of the levels that need a node, the first and the last.
fn needed_by(program: &Program) -> Vec<Option<[usize; 2]>> {
    let mut needed: Vec<Option<[usize; 2]>> = vec![None; program.nodes.len()];
    for (id, node) in program.nodes.iter().enumerate().rev() {
        if node.is_terminal() {
            needed[id] = Some([node.level; 2]);
        }
        let Some([first, last]) = needed[id] else { continue };
        for edge in &node.operands {
            let operand = &mut needed[edge.node];
            *operand = Some(operand.map_or([first, last], |[a, b]| [a.min(first), b.max(last)]));
        }
    }
    needed
}

/// Cuts one sweep after another off a program.
struct Cutter<'p> {
    program: &'p Program,
    /// Where each node is kept, if it is.
    stores: Vec<Option<usize>>,
    /// Whether a sweep has written it there.
    is_written: Vec<bool>,
    /// The last level that needed each node.
    seen: Vec<usize>,
    /// The place of each node in the sweep at hand.
    places: Vec<usize>,
}

impl Cutter<'_> {
    /// The nodes that these terminals need, in order; `None` where there are more than `most`.
    fn needed(&mut self, level: usize, terminals: Vec<NodeId>, most: usize) -> Option<Vec<NodeId>> {
        let mut ids = terminals;
        for id in &ids {
            self.seen[*id] = level;
        }
        let mut next = 0;
        while let Some(&id) = ids.get(next) {
            next += 1;
            if next > most {
                return None;
            }
            if self.is_written[id] {
                continue; // it is read
            }
            for edge in &self.program.nodes[id].operands {
                if self.seen[edge.node] != level {
                    self.seen[edge.node] = level;
                    ids.push(edge.node);
                }
            }
        }
        ids.sort_unstable();
        Some(ids)
    }

    fn sweep(&mut self, ids: &[NodeId]) -> Sweep {
        let mut sweep = Sweep::default();
        for &id in ids {
            let node = &self.program.nodes[id];
            let store = self.stores[id];
            if let Some(store) = store.filter(|_| self.is_written[id]) {
                self.places[id] = sweep.push(id, Action::Load(SourceRole::Store(store)), Vec::new());
                continue;
            }
            let action = match &node.kind {
                NodeKind::Source(role) => Action::Load(*role),
                NodeKind::Compute(_) => Action::Compute,
                NodeKind::Reduce(place) => Action::Reduce(*place),
                NodeKind::Sink(role) => Action::Write(*role),
            };
            let operands = node.operands.iter().map(|edge| self.places[edge.node]).collect();
            let place = sweep.push(id, action, operands);
            self.places[id] = place;
            if let Some(store) = store {
                sweep.push(id, Action::Write(SinkRole::Store(store)), vec![place]);
                self.is_written[id] = true;
            }
        }
        sweep
    }
}

impl Sweep {
    fn push(&mut self, node: NodeId, action: Action, operands: Vec<usize>) -> usize {
        let place = self.nodes.len();
        for (which, operand) in operands.iter().enumerate() {
            self.nodes[*operand].consumers.push((place, which));
        }
        self.nodes.push(SweepNode { node, action, operands, consumers: Vec::new() });
        place
    }
}
