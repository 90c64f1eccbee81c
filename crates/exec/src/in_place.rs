//! Which nodes read and write the tensors of the caller where they lie, without windows of their own.
//!
//! A window is worth its copy where it regroups channels for kernels that read them in blocks, and where it holds
//! little of a tensor that is elsewhere. A kernel that takes plain NCHW as well, or few channels that no window would
//! regroup, needs neither where the tensor lies in memory. The bits are the same; the plan's windows of such nodes stay untouched.

use tiled_graph::program::NodeKind;
use tiled_graph::{Action, Plan, SweepPlan};
use tiled_tensor::{Element, Layout, OutOfMemory, View, collected};

use crate::executor::Io;
use crate::{Sink, Source};

/// The tensors in memory of a sweep, by the places of its nodes.
pub(crate) struct InPlace<'a, T: Element> {
    sources: Vec<Option<View<'a, T>>>,
    sinks: Vec<Option<&'a dyn Sink<T>>>,
}

impl<'a, T: Element> InPlace<'a, T> {
    /// What is read and written in place in a sweep.
    pub(crate) fn new(plan: &Plan, sweep: &SweepPlan, io: &Io<'a, T>) -> Result<Self, OutOfMemory> {
        let find = Find { plan, sweep, io };
        let places = 0..sweep.sweep.nodes.len();
        Ok(Self {
            sources: collected(places.clone().map(|place| find.source(place)))?,
            sinks: collected(places.map(|place| find.sink(place)))?,
        })
    }

    /// The tensors that nodes stand for and that their consumers read.
    pub(crate) fn sources(&self) -> &[Option<View<'a, T>>] {
        &self.sources
    }

    /// That of a node.
    pub(crate) fn source(&self, place: usize) -> Option<View<'a, T>> {
        self.sources[place]
    }

    /// The sink that a node may write to itself.
    pub(crate) fn sink(&self, place: usize) -> Option<&'a dyn Sink<T>> {
        self.sinks[place]
    }
}

struct Find<'f, 'a, T: Element> {
    plan: &'f Plan,
    sweep: &'f SweepPlan,
    io: &'f Io<'a, T>,
}

impl<'a, T: Element> Find<'_, 'a, T> {
    fn source(&self, place: usize) -> Option<View<'a, T>> {
        let node = &self.sweep.sweep.nodes[place];
        let Action::Load(role) = node.action else { return None };
        let source: &'a dyn Source<T> = self.io.source(role)?;
        let all = node.consumers.iter().all(|&(consumer, input)| self.reads_planes(consumer, input));
        if !all {
            return None;
        }
        let layout = Layout::nchw(source.shape()).ok()?;
        Some(View::new(source.in_memory()?, layout))
    }

    fn reads_planes(&self, place: usize, input: usize) -> bool {
        let node = &self.sweep.sweep.nodes[place];
        let is_read = matches!(node.action, Action::Compute | Action::Reduce(_));
        is_read && self.plan.support[node.node].is_some_and(|support| support.reads_planes[input])
    }

    /// A node that only a sink takes.
    fn sink(&self, place: usize) -> Option<&'a dyn Sink<T>> {
        let node = &self.sweep.sweep.nodes[place];
        let (Action::Compute, &[(consumer, _)]) = (node.action, node.consumers.as_slice()) else {
            return None;
        };
        let computed = &self.plan.program.nodes[node.node];
        let (NodeKind::Compute(kernel), Action::Write(role)) =
            (&computed.kind, self.sweep.sweep.nodes[consumer].action)
        else {
            return None;
        };
        // cells of a coarser grain would be computed by several tiles
        let is_disjoint = kernel.grain() == 1;
        let writes_planes = self.plan.support[node.node].is_some_and(|support| support.writes_planes);
        self.io.sink(role).filter(|_| is_disjoint && writes_planes)
    }
}
