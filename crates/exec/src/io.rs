//! What a run reads and writes.

use std::ops::Range;

use tiled_graph::program::{SinkRole, SourceRole};
use tiled_graph::{Action, Binding, Plan, SweepNode, SweepPlan};
use tiled_tensor::{DeviceTensor, Element, Layout, View, push, with_room};

use crate::error::refused;
use crate::store::Stores;
use crate::{Chunked, DeviceSink, ExecError, Sink, Source};

/// The tensors that a run reads and writes, in the order of the network.
pub struct Io<'a, T: Element> {
    /// The inputs.
    pub inputs: Vec<&'a dyn Source<T>>,
    /// The target of the loss.
    pub target: Option<&'a dyn Source<T>>,
    /// The gradients with respect to the outputs, where the caller gives them.
    pub grad_outputs: Vec<&'a dyn Source<T>>,
    /// Where the outputs go.
    pub outputs: Vec<&'a dyn Sink<T>>,
    /// Where the gradients with respect to the inputs go, one for each of `Program::input_grads`.
    pub grad_inputs: Vec<&'a dyn Sink<T>>,
}

impl<T: Element> Default for Io<'_, T> {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            target: None,
            grad_outputs: Vec::new(),
            outputs: Vec::new(),
            grad_inputs: Vec::new(),
        }
    }
}

impl<T: Element> std::fmt::Debug for Io<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io")
            .field("inputs", &self.inputs.len())
            .field("target", &self.target.is_some())
            .field("grad_outputs", &self.grad_outputs.len())
            .field("outputs", &self.outputs.len())
            .field("grad_inputs", &self.grad_inputs.len())
            .finish()
    }
}

impl<'a, T: Element> Io<'a, T> {
    pub(crate) fn source(&self, role: SourceRole) -> Option<&'a dyn Source<T>> {
        match role {
            SourceRole::Input(input) => self.inputs.get(input).copied(),
            SourceRole::Target => self.target,
            SourceRole::GradOutput(output) => self.grad_outputs.get(output).copied(),
            SourceRole::Store(_) | SourceRole::Pixel(_) => None,
        }
    }

    pub(crate) fn sink(&self, role: SinkRole) -> Option<&'a dyn Sink<T>> {
        match role {
            SinkRole::Output(output) => self.outputs.get(output).copied(),
            SinkRole::GradInput(gradient) => self.grad_inputs.get(gradient).copied(),
            SinkRole::Store(_) => None,
        }
    }

    /// The same with another target, for as long as that lives.
    pub(crate) fn with_target<'b>(&self, target: &'b dyn Source<T>) -> Io<'b, T>
    where
        'a: 'b,
    {
        Io {
            inputs: self.inputs.clone(),
            target: Some(target),
            grad_outputs: self.grad_outputs.clone(),
            outputs: self.outputs.clone(),
            grad_inputs: self.grad_inputs.clone(),
        }
    }
}

/// The tensors of the caller and values of one pixel that the nodes of a sweep stand for, where kernels read them.
pub(crate) fn adopted<'a, T: Element>(
    sweep: &SweepPlan,
    io: &Io<'a, T>,
    stores: &'a Stores<T>,
) -> Result<Vec<Option<View<'a, T>>>, ExecError> {
    let mut views = with_room(sweep.bindings.len()).map_err(refused("the tensors of a sweep"))?;
    for binding in &sweep.bindings {
        views.push(match binding {
            Binding::Source(role) => io.source(*role).and_then(in_memory),
            Binding::Pixel(pixel) => Some(stores.pixel(*pixel)),
            _ => None,
        });
    }
    Ok(views)
}

/// A tensor that lies in memory as NCHW without gaps.
fn in_memory<T: Element>(source: &dyn Source<T>) -> Option<View<'_, T>> {
    Some(View::new(source.in_memory()?, Layout::nchw(source.shape()).ok()?))
}

/// The tensors in the memory of a device that these sweeps read and write, each once, and the names of their nodes.
pub(crate) fn on_device<'p, T: Element>(
    plan: &'p Plan,
    sweeps: Range<usize>,
    io: &Io<'_, T>,
) -> Result<(Vec<DeviceTensor<T>>, Vec<&'p str>), ExecError> {
    let (mut tensors, mut names) = (Vec::new(), Vec::new());
    for node in plan.sweeps[sweeps].iter().flat_map(|sweep| &sweep.nodes) {
        let tensor = match node.action {
            Action::Load(role) => io.source(role).and_then(|source| source.on_device()),
            Action::Write(role) => io.sink(role).and_then(|sink| sink.on_device()).map(DeviceSink::tensor),
            Action::Compute | Action::Reduce(_) => None,
        };
        if let Some(tensor) = tensor.filter(|tensor| !tensors.contains(*tensor)) {
            let pushed = push(&mut tensors, *tensor);
            pushed
                .and_then(|()| push(&mut names, plan.program.nodes[node.node].name.as_str()))
                .map_err(refused("the tensors of a run"))?;
        }
    }
    Ok((tensors, names))
}

/// Everything that can be wrong with what the caller gave for these sweeps, before any work.
pub(crate) fn check<T: Element>(plan: &Plan, sweeps: Range<usize>, io: &Io<'_, T>) -> Result<(), ExecError> {
    let program = &plan.program;
    let nodes = || plan.sweeps[sweeps.clone()].iter().flat_map(|sweep| &sweep.nodes);
    for node in nodes() {
        let got = match node.action {
            Action::Load(SourceRole::Store(_) | SourceRole::Pixel(_))
            | Action::Write(SinkRole::Store(_))
            | Action::Compute
            | Action::Reduce(_) => continue,
            Action::Load(role) => io.source(role).map(Source::shape),
            Action::Write(role) => io.sink(role).map(Sink::shape),
        };
        let node = &program.nodes[node.node];
        let [height, width] = node.extents.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX));
        let expected = [node.batch, node.channels, height, width];
        let name = || node.name.clone();
        let got = got.ok_or_else(|| ExecError::Missing { name: name() })?;
        if got != expected {
            return Err(ExecError::Shape { name: name(), expected, got });
        }
    }
    for sweep in &plan.sweeps[sweeps.clone()] {
        for cache in &sweep.chunks {
            let got = io.source(cache.role).and_then(|source| source.chunked()).map(Chunked::chunks);
            if got != Some(cache.chunks) {
                let name = program.nodes[sweep.nodes[cache.node].node].name.clone();
                return Err(ExecError::Chunks { name, expected: cache.chunks, got });
            }
        }
    }
    let is_chunked = |node: &&SweepNode| {
        let mut caches = plan.sweeps[sweeps.clone()].iter().flat_map(|sweep| &sweep.chunks);
        caches.any(|cache| node.action == Action::Load(cache.role))
    };
    for node in nodes().filter(|node| !is_chunked(node)) {
        let ends = match node.action {
            Action::Load(role) => io.source(role).map(|end| (in_memory(end).is_some(), end.transfer_bytes())),
            Action::Write(role) => io.sink(role).map(|end| (end.in_memory().is_some(), end.transfer_bytes())),
            Action::Compute | Action::Reduce(_) => None,
        };
        let Some((lies_in_memory, got)) = ends else { continue };
        let (name, expected) = (|| program.nodes[node.node].name.clone(), plan.transfer_bytes);
        if plan.in_memory.holds(node.action, program) {
            if !lies_in_memory {
                return Err(ExecError::NotInMemory { name: name() });
            }
        } else if got > expected {
            return Err(ExecError::Transfer { name: name(), expected, got });
        }
    }
    Ok(())
}
