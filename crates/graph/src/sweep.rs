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
#[must_use]
pub fn sweeps(program: &Program, kept: &[(NodeId, usize)]) -> Vec<Sweep> {
    let mut written: Vec<NodeId> = Vec::new();
    (0..program.sweeps())
        .map(|index| {
            let sweep = sweep(program, kept, &written, index);
            written.extend(sweep.nodes.iter().filter(|node| is_kept_by(node, kept)).map(|node| node.node));
            sweep
        })
        .filter(|sweep| sweep.nodes.iter().any(SweepNode::is_terminal))
        .collect()
}

/// The nodes whose values more than one sweep computes when nothing is kept: what is worth keeping.
#[must_use]
pub(crate) fn shared_between_sweeps(program: &Program) -> Vec<NodeId> {
    let mut times = vec![0_usize; program.nodes.len()];
    for sweep in sweeps(program, &[]) {
        for node in sweep.nodes.iter().filter(|node| node.action == Action::Compute) {
            times[node.node] += 1;
        }
    }
    (0..times.len()).filter(|node| times[*node] > 1).collect()
}

fn is_kept_by(node: &SweepNode, kept: &[(NodeId, usize)]) -> bool {
    match node.action {
        Action::Write(SinkRole::Store(store)) => kept.contains(&(node.node, store)),
        _ => false,
    }
}

fn sweep(program: &Program, kept: &[(NodeId, usize)], written: &[NodeId], index: usize) -> Sweep {
    let count = program.nodes.len();
    let mut needed = vec![false; count];
    for id in (0..count).rev() {
        let node = &program.nodes[id];
        needed[id] |= node.is_terminal() && node.level == index;
        if needed[id] && !written.contains(&id) {
            for edge in &node.operands {
                needed[edge.node] = true;
            }
        }
    }
    let mut places = vec![usize::MAX; count];
    let mut sweep = Sweep::default();
    for id in (0..count).filter(|id| needed[*id]) {
        let node = &program.nodes[id];
        let store = kept.iter().find(|(node, _)| *node == id).map(|(_, store)| *store);
        places[id] = match (store, &node.kind) {
            (Some(store), _) if written.contains(&id) => {
                sweep.push(id, Action::Load(SourceRole::Store(store)), Vec::new())
            }
            (_, kind) => {
                let action = match kind {
                    NodeKind::Source(role) => Action::Load(*role),
                    NodeKind::Compute(_) => Action::Compute,
                    NodeKind::Reduce(place) => Action::Reduce(*place),
                    NodeKind::Sink(role) => Action::Write(*role),
                };
                sweep.push(id, action, node.operands.iter().map(|edge| places[edge.node]).collect())
            }
        };
        if let Some(store) = store.filter(|_| !written.contains(&id)) {
            let place = places[id];
            sweep.push(id, Action::Write(SinkRole::Store(store)), vec![place]);
        }
    }
    sweep
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
