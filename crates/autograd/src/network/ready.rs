//! Executors that are ready for a call.

use std::sync::Arc;

use tiled_exec::Executor;
use tiled_graph::program::SourceRole;
use tiled_graph::{
    Graph, InMemory, Loss, Objective, ParamSpec, Parameters, Plan, PlanError, PlanOptions, Planner,
    infer_nchw, try_params,
};
use tiled_tensor::Element;

use super::calls::{Call, Planned, Ready};
use crate::context::Context;
use crate::error::{Result, TapeError};

/// The bytes that a single operator may take where nobody says: more makes none faster.
const DEFAULT_BYTES: u64 = 64 << 20;

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
