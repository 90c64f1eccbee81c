//! Plans and executors that are kept for the calls that follow.

use std::sync::Arc;

use tiled_exec::{Executor, Source};
use tiled_graph::program::SourceRole;
use tiled_graph::{
    Chunks, Graph, Hold, InMemory, Loss, Mode, Objective, Op, ParamKind, ParamSpec, Parameters, Plan,
    PlanError, PlanOptions, Planner, infer_nchw, try_params,
};
use tiled_tensor::Element;

use crate::context::Context;
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
    in_place: bool,
    /// The bytes that sources keep, and what one may take while it converts elements.
    resident_bytes: u64,
    transfer_bytes: u64,
    chunks: Vec<(SourceRole, Chunks)>,
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
/// The bytes that a single operator may take where nobody says: more makes none faster.
const DEFAULT_BYTES: u64 = 64 << 20;

impl<T: Element> Calls<T> {
    pub(crate) const fn new() -> Self {
        Self { plans: Vec::new(), idle: Vec::new() }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    fn planned(&mut self, call: &Call) -> Option<Arc<Planned>> {
        let found = self.plans.iter().rposition(|planned| planned.call == *call)?;
        self.plans[found..].rotate_left(1);
        self.plans.last().cloned()
    }

    /// An executor of a plan, rather one whose parameters have the wanted values.
    fn take(&mut self, planned: &Arc<Planned>, has_values: impl Fn(&Ready<T>) -> bool) -> Option<Ready<T>> {
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

    fn remember(&mut self, planned: &Arc<Planned>) {
        if self.plans.len() >= MOST_KEPT {
            self.plans.remove(0);
        }
        self.plans.push(Arc::clone(planned));
    }
}

/// The executor of a call: one of a call before, or a new one.
pub(crate) fn ready<T: Element>(
    context: &Context<T>,
    operator: &'static str,
    call: &Call,
    has_values: impl Fn(&Ready<T>) -> bool,
) -> Result<Ready<T>> {
    let known = context.calls().planned(call);
    let planned = match known {
        Some(planned) => planned,
        None => {
            let planned = Arc::new(plan(context, operator, call)?);
            context.calls().remember(&planned);
            planned
        }
    };
    let idle = context.calls().take(&planned, has_values);
    if let Some(ready) = idle {
        return Ok(ready);
    }
    let failed = TapeError::run(operator);
    let folder = std::env::temp_dir(); // of no use: nothing is kept in files
    let (plan, pool) = (Arc::clone(&planned.plan), Arc::clone(context.pool()));
    let executor = Executor::with_pool(plan, context.backend(), pool, &folder).map_err(failed)?;
    let parameters = Parameters::zeros(&planned.specs).map_err(TapeError::network(operator))?;
    Ok(Ready { planned, executor, parameters })
}

fn plan<T: Element>(context: &Context<T>, operator: &'static str, call: &Call) -> Result<Planned> {
    let failed = TapeError::network(operator);
    let graph = call.what.graph(operator, call.inputs[0][1])?;
    let specs = try_params(&graph).map_err(failed)?;
    let shapes = infer_nchw(&graph, &call.inputs).map_err(failed)?;
    let objective = objective(&graph, &specs, call);
    let planner = Planner::<T>::new(&graph, &shapes, &objective, context.backend());
    let within = |bytes: u64| {
        planner.plan(&PlanOptions {
            memory_bytes: Some(bytes),
            parallelism: context.pool().current_num_threads(),
            hold: call.hold,
            in_memory: InMemory { inputs: call.reads.in_place, ..InMemory::ALL },
            resident_bytes: call.reads.resident_bytes,
            transfer_bytes: call.reads.transfer_bytes,
            chunks: call.reads.chunks.clone(),
            ..PlanOptions::default()
        })
    };
    let plan = match (call.memory_bytes, within(call.memory_bytes.unwrap_or(DEFAULT_BYTES))) {
        (None, Err(PlanError::BudgetTooSmall { smallest, .. })) => within(smallest),
        (_, planned) => planned,
    };
    let plan = plan.map_err(TapeError::plan(operator))?;
    let reads_again = reads_again(&plan, call.inputs.len());
    let outputs = graph.outputs().iter().map(|output| shapes.shape(*output)).collect();
    Ok(Planned { call: call.clone(), plan: Arc::new(plan), specs, outputs, reads_again })
}

fn objective(graph: &Graph, specs: &[ParamSpec], call: &Call) -> Objective {
    let common = Objective { mode: call.mode, seed: call.seed, ..Objective::inference() };
    if call.wants.is_empty() {
        return common;
    }
    let names = graph
        .inputs()
        .iter()
        .map(|input| input.name.clone())
        .chain(specs.iter().filter(|spec| spec.kind.is_trained()).map(|spec| spec.name.clone()));
    let wanted: Vec<String> =
        names.zip(&call.wants).filter(|(_, wants)| **wants).map(|(name, _)| name).collect();
    Objective {
        loss: Some(Loss::GradOutputLater),
        grad_inputs: true,
        grad_params: true,
        wanted: Some(wanted),
        ..common
    }
}

/// Which inputs the sweeps of the second half load.
fn reads_again(plan: &Plan, inputs: usize) -> Vec<bool> {
    use tiled_graph::Action;
    let mut reads = vec![false; inputs];
    let Some(second) = plan.second_half() else { return reads };
    for node in plan.sweeps[second..].iter().flat_map(|sweep| &sweep.nodes) {
        if let Action::Load(SourceRole::Input(input)) = node.action {
            reads[input] = true;
        }
    }
    reads
}

/// Whether a parameter holds statistics, which move by themselves.
pub(crate) const fn is_statistic(spec: &ParamSpec) -> bool {
    matches!(spec.kind, ParamKind::RunningMean | ParamKind::RunningVar | ParamKind::NumBatchesTracked)
}
