//! Where the value of each node of a sweep lies.
//!
//! A window is worth its copy where it regroups channels for kernels that read them in blocks, and where it holds
//! little of a tensor that is elsewhere. A kernel that takes plain NCHW as well, or few channels that no window would
//! regroup, needs neither where the caller's tensor lies in memory. A value that is kept whole for later sweeps is computed where it stays,
//! as long as a lane has the tensor to itself. The bits are the same.

use tiled_kernel::Support;
use tiled_tensor::{OutOfMemory, with_room};

use crate::index::IndexVec;
use crate::program::{NodeId, NodeKind, PixelId, Program, SinkRole, SourceRole, StoreId};
use crate::sweep::{Action, Sweep, SweepNode, SweepNodeId};

/// The tensors of the caller that lie in memory, in the order NCHW without gaps: kernels may read and write them there. What a run
/// is then given has to lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each kind of tensor, by name")]
pub struct InMemory {
    /// All inputs.
    pub inputs: bool,
    /// The target of the loss.
    pub target: bool,
    /// The gradients of all outputs.
    pub grad_outputs: bool,
    /// All outputs.
    pub outputs: bool,
    /// The gradients of all inputs.
    pub grad_inputs: bool,
}

impl InMemory {
    /// Every tensor.
    pub const ALL: Self =
        Self { inputs: true, target: true, grad_outputs: true, outputs: true, grad_inputs: true };

    /// Whether what a node reads or writes is a tensor of the caller that lies in memory.
    #[must_use]
    pub const fn holds(self, action: Action, program: &Program) -> bool {
        match action {
            Action::Load(role) => self.holds_source(role, program),
            Action::Write(role) => self.holds_sink(role),
            Action::Compute | Action::Reduce(_) => false,
        }
    }

    const fn holds_source(self, role: SourceRole, program: &Program) -> bool {
        match role {
            SourceRole::Input(_) => self.inputs,
            // ignored class numbers are replaced on their way into a window
            SourceRole::Target => self.target && program.ignore_index.is_none(),
            SourceRole::GradOutput(_) => self.grad_outputs,
            SourceRole::Store(_) | SourceRole::Pixel(_) => false,
        }
    }

    const fn holds_sink(self, role: SinkRole) -> bool {
        match role {
            SinkRole::Output(_) => self.outputs,
            SinkRole::GradInput(_) => self.grad_inputs,
            SinkRole::Store(_) => false,
        }
    }
}

/// Where the value of a node of a sweep lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// In a window of a lane.
    Window,
    /// In a value kept whole in memory, where kernels read it; of a node that computes, where its kernel writes it.
    Store(StoreId),
    /// In a value of one pixel, where kernels read it.
    Pixel(PixelId),
    /// In a tensor of the caller, where kernels read it.
    Source(SourceRole),
    /// In a tensor of the caller, where the kernel writes it.
    Sink(SinkRole),
    /// It has none: a reduction or a sink.
    None,
}

/// What bindings depend on beside a sweep.
pub(super) struct Given<'g> {
    pub(super) program: &'g Program,
    /// How the backend carries out each node; `None` of sources and sinks.
    pub(super) support: &'g dyn Fn(NodeId) -> Option<&'g Support>,
    pub(super) stores_in_files: bool,
    pub(super) in_memory: InMemory,
}

/// The bindings of a sweep's nodes.
pub(super) fn bindings(
    given: &Given<'_>,
    sweep: &Sweep,
) -> Result<IndexVec<SweepNodeId, Binding>, OutOfMemory> {
    let Given { program, stores_in_files, in_memory, .. } = *given;
    let mut bindings = with_room(sweep.len())?;
    for node in sweep {
        bindings.push(match node.action {
            Action::Load(role)
                if in_memory.holds_source(role, program) && is_read_in_place(given, sweep, node) =>
            {
                Binding::Source(role)
            }
            // its blocks are those of a window
            Action::Load(SourceRole::Store(store)) if !stores_in_files && is_read_by_kernels(sweep, node) => {
                Binding::Store(store)
            }
            Action::Load(SourceRole::Pixel(pixel)) if is_read_by_kernels(sweep, node) => {
                Binding::Pixel(pixel)
            }
            Action::Compute => match written_in_place(given, sweep, node) {
                Some(role) if in_memory.holds_sink(role) => Binding::Sink(role),
                _ => Binding::Window,
            },
            Action::Load(_) => Binding::Window,
            Action::Reduce(_) | Action::Write(_) => Binding::None,
        });
    }
    Ok(bindings.into())
}

fn is_read_by_kernels(sweep: &Sweep, node: &SweepNode) -> bool {
    let consumers = node.consumers.iter().map(|&(consumer, _)| sweep[consumer].action);
    consumers.into_iter().all(|action| matches!(action, Action::Compute | Action::Reduce(_)))
}

/// The value kept whole that a node may be computed into, without a window, where no other lane runs at the time: who else reads it are
/// kernels.
pub(super) fn computed_into(sweep: &Sweep, node: &SweepNode) -> Option<StoreId> {
    if node.action != Action::Compute {
        return None;
    }
    let mut store = None;
    for &(consumer, _) in &node.consumers {
        match sweep[consumer].action {
            Action::Compute | Action::Reduce(_) => {}
            Action::Write(SinkRole::Store(id)) if store.is_none() => store = Some(id),
            Action::Write(_) | Action::Load(_) => return None,
        }
    }
    store
}

/// Whether all that read a node take planes.
fn is_read_in_place(given: &Given<'_>, sweep: &Sweep, node: &SweepNode) -> bool {
    node.consumers.iter().all(|&(consumer, input)| {
        let consumer = &sweep[consumer];
        let reads = matches!(consumer.action, Action::Compute | Action::Reduce(_));
        reads && (given.support)(consumer.node).is_some_and(|support| support.reads_planes[input])
    })
}

/// The sink that alone takes what a node computes, where it may be written there.
fn written_in_place(given: &Given<'_>, sweep: &Sweep, node: &SweepNode) -> Option<SinkRole> {
    let &[(consumer, _)] = node.consumers.as_slice() else { return None };
    let Action::Write(role) = sweep[consumer].action else { return None };
    let NodeKind::Compute(kernel) = &given.program.nodes[node.node].kind else { return None };
    // cells of a coarser grain would be computed by several tiles
    let is_disjoint = kernel.grain() == 1;
    let writes = (given.support)(node.node).is_some_and(|support| support.writes_planes);
    (is_disjoint && writes).then_some(role)
}
