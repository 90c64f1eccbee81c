//! What a case computes of its network, and how.

use tiled::graph::{
    Hold, InMemory, Loss, Mode, Objective, Op, ParamKind, PlanOptions, Tiling, ValueId, lower, params,
};

use super::draw::Draw;
use super::network::Network;

/// Draws the objective: no loss, or one of every loss that fits.
pub(super) fn objective(draw: &mut Draw, network: &Network) -> Objective {
    let classes = network.graph.channels(network.graph.outputs()[0]);
    // what the largest channel is has no gradient
    let is_flat = network.graph.nodes().iter().any(|node| node.op == Op::ArgMax);
    let loss = match draw.below(8) {
        _ if is_flat => None,
        0 => None,
        1 => Some(Loss::Sum),
        2 => Some(Loss::GradOutput),
        3 => Some(Loss::GradOutputLater),
        4 | 5 => Some(Loss::MeanSquaredError),
        6 => Some(Loss::CrossEntropy { target_channels: 1 }),
        _ => Some(Loss::CrossEntropy { target_channels: classes }),
    };
    let mode = if draw.chance(60) { Mode::Train } else { Mode::Eval };
    let mut objective = Objective {
        mode,
        outputs: loss.is_none() || draw.chance(70),
        loss,
        grad_inputs: loss.is_some() && draw.chance(80),
        grad_params: loss.is_some() && draw.chance(85),
        seed: draw.seed(),
        // of class numbers, some are this one
        ignore_index: (loss == Some(Loss::CrossEntropy { target_channels: 1 })).then_some(IGNORED),
        wanted: None,
        evaluated: Vec::new(),
    };
    let is_trained = params(&network.graph).iter().any(|spec| spec.kind.is_trained());
    if loss.is_some() && !(objective.grad_params && is_trained) {
        objective.grad_inputs = true;
    }
    if loss.is_some() && draw.chance(25) {
        freeze(draw, network, &mut objective);
    }
    objective
}

/// Wants about half of the gradients alone, at least one, and lets about half of the nodes evaluate.
fn freeze(draw: &mut Draw, network: &Network, objective: &mut Objective) {
    let graph = &network.graph;
    let inputs = graph.inputs().iter().map(|input| input.name.clone()).filter(|_| objective.grad_inputs);
    let params = params(graph).into_iter().filter(|spec| objective.grad_params && spec.kind.is_trained());
    let mut names: Vec<String> = inputs.chain(params.map(|spec| spec.name)).collect();
    let kept = names.swap_remove(draw.below(names.len()));
    names.retain(|_| draw.chance(50));
    names.push(kept);
    objective.wanted = Some(names);
    let nodes = graph.nodes().iter().map(|node| node.name.clone());
    objective.evaluated = nodes.filter(|_| draw.chance(50)).collect();
}

/// The class number that is ignored.
pub(super) const IGNORED: i64 = -1;

/// Options before a budget is known.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) options: PlanOptions,
    /// Where between the smallest budget (zero) and the untiled peak (one) the budget lies, if there is one.
    pub(super) budget: Option<f64>,
}

/// Draws how a network is cut and held.
pub(super) fn options(draw: &mut Draw, network: &Network, objective: &Objective) -> Drawn {
    let anchor = lower(&network.graph, &network.shapes, objective, &[])
        .map_or([1, 1], |program| program.anchor.map(|extent| extent.max(1)));
    let (hold, tiling, has_budget) = match draw.below(12) {
        0 | 1 => (Hold::Slide, Tiling::Tile([draw.between(1, 8), part(draw, anchor[1])]), false),
        2 => (Hold::Slide, Tiling::Grid([draw.between(1, anchor[0]), draw.between(1, 5)]), false),
        3 | 4 => (Hold::Recompute, Tiling::Tile(anchor.map(|extent| part(draw, extent))), false),
        5 => (Hold::Recompute, Tiling::Grid([draw.between(1, 5), draw.between(1, 5)]), false),
        6 => (Hold::Auto, Tiling::Tile(anchor.map(|extent| part(draw, extent))), false),
        7 => (Hold::Recompute, Tiling::Auto, true),
        8 => (Hold::Slide, Tiling::Auto, true),
        _ => (Hold::Auto, Tiling::Auto, true),
    };
    let checkpoints = draw.chance(30).then(|| checkpoints(draw, network));
    let lanes = draw.chance(60).then(|| 1 + draw.below(3));
    let budget = has_budget.then(|| if draw.chance(30) { 0.0 } else { draw.uniform() * draw.uniform() });
    let options = PlanOptions {
        hold,
        tiling,
        lanes,
        parallelism: 1 + draw.below(2),
        least_rows: draw.chance(30).then(|| draw.between(2, 5)),
        checkpoints,
        temporary_files: draw.chance(25),
        winograd: draw.chance(30),
        in_memory: in_memory(draw),
        releases_parameters: draw.chance(50),
        ..PlanOptions::default()
    };
    Drawn { options, budget }
}

/// Tensors that kernels may read and write where they lie: all of those of a case do.
fn in_memory(draw: &mut Draw) -> InMemory {
    match draw.below(3) {
        0 => InMemory::default(),
        1 => InMemory::ALL,
        _ => InMemory {
            inputs: draw.chance(50),
            target: draw.chance(50),
            grad_outputs: draw.chance(50),
            outputs: draw.chance(50),
            grad_inputs: draw.chance(50),
        },
    }
}

/// An extent that cuts this one into at most six.
fn part(draw: &mut Draw, extent: i64) -> i64 {
    let least = (extent / 6).max(1);
    draw.between(least, extent.max(least))
}

fn checkpoints(draw: &mut Draw, network: &Network) -> Vec<ValueId> {
    let graph = &network.graph;
    let mut values: Vec<ValueId> =
        (0..1 + draw.below(2)).map(|_| graph.node_value(draw.below(graph.nodes().len()))).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The values that a parameter of a normalisation is drawn from: those it starts with would hide mistakes.
pub(super) const fn norm_range(kind: ParamKind) -> (f64, f64) {
    match kind {
        ParamKind::Weight | ParamKind::RunningVar => (0.5, 1.5),
        ParamKind::Bias | ParamKind::RunningMean => (-0.5, 0.5),
        ParamKind::NumBatchesTracked => (3.0, 3.0),
    }
}
