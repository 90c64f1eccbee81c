//! Plans and executors that are kept for the calls that follow.

use std::sync::Arc;

use tiled_exec::{Executor, Source};
use tiled_graph::program::SourceRole;
use tiled_graph::{Chunks, Graph, Hold, Mode, Op, ParamKind, ParamSpec, Parameters, Plan};
use tiled_tensor::Element;

use crate::error::{Result, TapeError};

/// What is computed.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// One operator, of one input.
    Operator(Op),
    /// A network. Two are the same where they are one in memory.
    Network(Arc<Graph>),
}

impl PartialEq for What {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Operator(a), Self::Operator(b)) => a == b,
            (Self::Network(a), Self::Network(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl What {
    /// The network, where its first input has so many channels.
    pub(crate) fn graph(&self, operator: &'static str, channels: usize) -> Result<Arc<Graph>> {
        let failed = TapeError::network(operator);
        match self {
            Self::Network(graph) => Ok(Arc::clone(graph)),
            Self::Operator(op) => {
                let mut graph = Graph::new();
                let input = graph.add_input(INPUT, channels).map_err(failed)?;
                let output = graph.add_node(NODE, op.clone(), &[input]).map_err(failed)?;
                graph.set_outputs(&[output]).map_err(failed)?;
                Ok(Arc::new(graph))
            }
        }
    }
}

const INPUT: &str = "input";
const NODE: &str = "operator";

/// All that a plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) what: What,
    /// NCHW.
    pub(crate) inputs: Vec<[usize; 4]>,
    pub(crate) mode: Mode,
    /// Whose gradients are wanted: inputs, then the parameters that are trained. Nobody's where it is empty.
    pub(crate) wants: Vec<bool>,
    pub(crate) reads: Reads,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) hold: Hold,
    pub(crate) seed: u64,
}

/// How the inputs are read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reads {
    /// Whether every input lies in memory without gaps.
    pub(super) in_place: bool,
    /// The bytes that sources keep, and what one may take while it converts elements.
    pub(super) resident_bytes: u64,
    pub(super) transfer_bytes: u64,
    pub(super) chunks: Vec<(SourceRole, Chunks)>,
}

impl Reads {
    /// Of tensors: whether they lie without gaps.
    pub(crate) const fn tensors(in_place: bool) -> Self {
        Self { in_place, resident_bytes: 0, transfer_bytes: 0, chunks: Vec::new() }
    }

    /// Of sources of the caller.
    pub(crate) fn sources<T: Element>(sources: &[Arc<dyn Source<T>>]) -> Self {
        let chunks = |(at, source): (usize, &Arc<dyn Source<T>>)| {
            source.chunked().map(|chunked| (SourceRole::Input(at), chunked.chunks()))
        };
        Self {
            in_place: sources.iter().all(|source| source.in_memory().is_some()),
            resident_bytes: sources.iter().fold(0, |sum, source| sum.saturating_add(source.resident_bytes())),
            transfer_bytes: sources.iter().map(|source| source.transfer_bytes()).max().unwrap_or(0),
            chunks: sources.iter().enumerate().filter_map(chunks).collect(),
        }
    }
}

/// A call that has its plan.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) call: Call,
    pub(crate) plan: Arc<Plan>,
    pub(crate) specs: Vec<ParamSpec>,
    pub(crate) outputs: Vec<[usize; 4]>,
    /// Which inputs the second half reads.
    pub(crate) reads_again: Vec<bool>,
}

/// A call that is ready to run, with its memory.
#[derive(Debug)]
pub(crate) struct Ready<T: Element> {
    pub(crate) planned: Arc<Planned>,
    pub(crate) executor: Executor<'static, T>,
    pub(crate) parameters: Parameters<T>,
}

impl<T: Element> Ready<T> {
    fn bytes(&self) -> u64 {
        self.planned.plan.peak_bytes()
    }
}

/// What calls that were have left.
#[derive(Debug)]
pub(crate) struct Calls<T: Element> {
    /// The last used last.
    plans: Vec<Arc<Planned>>,
    idle: Vec<Ready<T>>,
}

/// The bytes that executors without work may hold, but for the last one.
const IDLE_BYTES: u64 = 64 << 20;
/// The plans and executors that are kept at most: a search through more would take as long as a small call.
const MOST_KEPT: usize = 64;

impl<T: Element> Calls<T> {
    pub(crate) const fn new() -> Self {
        Self { plans: Vec::new(), idle: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    pub(super) fn planned(&mut self, call: &Call) -> Option<Arc<Planned>> {
        let found = self.plans.iter().rposition(|planned| planned.call == *call)?;
        self.plans[found..].rotate_left(1);
        self.plans.last().cloned()
    }

    /// An executor of a plan, rather one whose parameters have the wanted values.
    pub(super) fn take(
        &mut self,
        planned: &Arc<Planned>,
        has_values: impl Fn(&Ready<T>) -> bool,
    ) -> Option<Ready<T>> {
        let fits = |ready: &Ready<T>| Arc::ptr_eq(&ready.planned, planned);
        let exact = self.idle.iter().rposition(|ready| fits(ready) && has_values(ready));
        let found = exact.or_else(|| self.idle.iter().rposition(fits))?;
        Some(self.idle.remove(found))
    }

    /// Takes an executor back, and gives up those that were used longest ago.
    pub(crate) fn give(&mut self, ready: Ready<T>) {
        self.idle.push(ready);
        let is_too_much = |idle: &[Ready<T>]| {
            idle.len() > MOST_KEPT || idle.iter().map(Ready::bytes).sum::<u64>() > IDLE_BYTES
        };
        while self.idle.len() > 1 && is_too_much(&self.idle) {
            self.idle.remove(0);
        }
    }

    pub(super) fn remember(&mut self, planned: &Arc<Planned>) {
        if self.plans.len() >= MOST_KEPT {
            self.plans.remove(0);
        }
        self.plans.push(Arc::clone(planned));
    }
}

/// Whether a parameter holds statistics, which move by themselves.
pub(crate) const fn is_statistic(spec: &ParamSpec) -> bool {
    matches!(spec.kind, ParamKind::RunningMean | ParamKind::RunningVar | ParamKind::NumBatchesTracked)
}
