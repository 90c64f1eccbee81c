//! Sliding windows compute nothing twice.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tiled::exec::NoProgress;
use tiled::geometry::Region;
use tiled::graph::program::{NodeId, NodeKind};
use tiled::graph::{
    Action, Graph, Hold, Linear, Loss, Mode, Objective, Op, Plan, PlanError, PlanOptions, Planner, ValueId,
    infer,
};
use tiled::kernel::{Backend, Host, Kernel, Params, Partial, Reduction, Reference, Workspace, forward};
use tiled::tensor::{Element, View, ViewMut};
use tiled_tests::{Job, recompute, slide, whole};

const NETWORKS: [&str; 5] = ["seed-001", "seed-002", "vgg2", "light", "unet"];
const SIZES: [[usize; 2]; 4] = [[64, 48], [77, 53], [131, 37], [45, 150]];

fn plan_of(
    graph: &Graph,
    extents: [usize; 2],
    objective: &Objective,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    let shapes = infer(graph, 1, &vec![extents; graph.inputs().len()]).expect("fits");
    Planner::<f32>::new(graph, &shapes, objective, &Reference).plan(options)
}

fn plan(graph: &Graph, extents: [usize; 2], objective: &Objective, options: &PlanOptions) -> Plan {
    plan_of(graph, extents, objective, options).expect("plans")
}

/// The same in as few bytes as will do, so that nothing is kept between sweeps.
fn smallest(graph: &Graph, extents: [usize; 2], objective: &Objective, options: &PlanOptions) -> Plan {
    let with = |bytes| PlanOptions { memory_bytes: Some(bytes), ..options.clone() };
    match plan_of(graph, extents, objective, &with(0)) {
        Err(PlanError::BudgetTooSmall { smallest, .. }) => plan(graph, extents, objective, &with(smallest)),
        other => panic!("a plan of no bytes: {other:?}"),
    }
}

/// Flops are integers and quarters far below 2^53, so sums of them are exact.
#[track_caller]
fn assert_flops(label: &str, plan: &Plan, untiled: f64, again: f64) {
    assert_eq!(plan.flops, untiled + again, "{label}: arithmetic");
    assert_eq!(plan.redundant_flops, again, "{label}: the redundant part");
}

fn check(objective: &Objective) {
    for name in NETWORKS {
        let graph = Graph::builtin(name).expect("built in");
        for extents in SIZES {
            let untiled = plan(&graph, extents, objective, &whole());
            assert_eq!(untiled.redundant_flops, 0.0, "{name}");
            for rows in [1, 2, 7] {
                let slid = plan(&graph, extents, objective, &slide(rows));
                assert!(slid.tiles() > 1, "{name}: {} steps", slid.tiles());
                assert_eq!(slid.sweeps.len(), 1, "{name}: one sweep");
                assert_flops(&format!("{name} {extents:?} {rows}"), &slid, untiled.flops, 0.0);
            }
            let tiled = plan(&graph, extents, objective, &recompute([3, 3]));
            assert!(tiled.redundant_flops > 0.0, "{name}: tiles that overlap compute something twice");
        }
    }
}

#[test]
fn inference_that_slides_takes_the_arithmetic_of_the_untiled_run() {
    check(&Objective::inference());
}

#[test]
fn training_with_a_pixel_loss_that_slides_takes_the_arithmetic_of_the_untiled_run() {
    let objective =
        Objective { mode: Mode::Eval, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) };
    check(&objective);
}

#[test]
fn training_of_a_network_without_statistics_is_one_sweep_in_training_mode_too() {
    let objective = Objective::training(Loss::CrossEntropy { target_channels: 1 });
    for name in ["vgg2", "light"] {
        let graph = Graph::builtin(name).expect("built in");
        let untiled = plan(&graph, [65, 51], &objective, &whole());
        let slid = plan(&graph, [65, 51], &objective, &slide(1));
        assert_eq!(slid.sweeps.len(), 1);
        assert_flops(name, &slid, untiled.flops, 0.0);
    }
}

/// The network with a global pooling and a linear layer behind it.
fn with_head(name: &str) -> Graph {
    let mut graph = Graph::builtin(name).expect("built in");
    let last = graph.outputs()[0];
    let pooled = graph.add_node("pooled", Op::GlobalAvgPool, &[last]).expect("fits");
    let head = graph.add_node("head", Op::Linear(Linear::new(5)), &[pooled]).expect("fits");
    graph.set_outputs(&[head]).expect("known");
    graph
}

/// The forward pass up to what the node reads. Sizes here are multiples of the poolings: a row that a pooling drops is
/// computed for weight gradients alone, and so once whatever runs again.
fn forward_before(graph: &Graph, node: ValueId, extents: [usize; 2]) -> f64 {
    let mut before = graph.clone();
    before.set_outputs(&[node]).expect("known");
    let plan = plan(&before, extents, &Objective::inference(), &whole());
    let own = plan.program.nodes.iter().find(|own| own.name == graph.name(node)).expect("it is computed");
    let NodeKind::Compute(kernel) = &own.kind else { panic!("`{}` computes", own.name) };
    let elements = own.extents[0] * own.extents[1] * i64::try_from(own.batch * own.channels).expect("few");
    plan.flops - kernel.flops_per_element() * f64::from(u32::try_from(elements).expect("few"))
}

/// The arithmetic of every node over all that any tile of any sweep computes of it.
fn once(plan: &Plan) -> f64 {
    let mut regions: BTreeMap<NodeId, Region<2>> = BTreeMap::new();
    for sweep in &plan.sweeps {
        for tile in sweep.grid.tiles().enumerate().map(|(index, _)| sweep.grid.index_of(index)) {
            for (id, node) in sweep.nodes.entries() {
                if matches!(node.action, Action::Compute | Action::Reduce(_)) {
                    let region = sweep.region(id, tile);
                    regions.entry(node.node).and_modify(|all| *all = all.hull(region)).or_insert(region);
                }
            }
        }
    }
    let flops = |(node, region): (NodeId, Region<2>)| {
        let node = &plan.program.nodes[node];
        let per_element = match &node.kind {
            NodeKind::Compute(kernel) => kernel.flops_per_element(),
            NodeKind::Reduce(reduction) => plan.program.reductions[*reduction].reduction.flops_per_element(),
            NodeKind::Source(_) | NodeKind::Sink(_) => 0.0,
        };
        let planes = u32::try_from(node.batch * node.channels).expect("few");
        per_element * f64::from(planes) * f64::from(u32::try_from(region.volume()).expect("small"))
    };
    regions.into_iter().map(flops).sum()
}

/// The loss knows nothing before the whole image was seen, so the second sweep computes again what gradients read: every
/// value up to the operand of the last operator before the global pooling, whose gradient reads nothing.
#[test]
fn a_loss_over_the_whole_image_costs_one_more_forward_pass() {
    let objective = Objective::training(Loss::CrossEntropy { target_channels: 1 });
    for name in ["seed-001", "seed-002", "vgg2", "light"] {
        let graph = with_head(name);
        let last = Graph::builtin(name).expect("built in").outputs()[0];
        for extents in [[516, 36], [608, 52]] {
            let untiled = plan(&graph, extents, &objective, &whole());
            let slid = smallest(&graph, extents, &objective, &slide(1));
            let label = format!("{name} {extents:?}");
            assert_eq!(slid.sweeps.len(), 2, "{label}");
            assert_eq!(slid.memory.stores_bytes, 0, "{label}: nothing is kept");
            let again = forward_before(&graph, last, extents);
            assert!(again > 0.0, "{label}");
            assert_flops(&label, &slid, untiled.flops, again);
        }
        // rows that a pooling drops are wanted by one of the sweeps alone
        for extents in [[517, 37], [610, 53]] {
            let untiled = plan(&graph, extents, &objective, &whole());
            assert_eq!(untiled.redundant_flops, 0.0, "{name} {extents:?}");
            assert_eq!(untiled.flops, once(&untiled), "{name} {extents:?}");
            let slid = smallest(&graph, extents, &objective, &slide(1));
            assert!(slid.redundant_flops > 0.0, "{name} {extents:?}");
            assert_eq!(slid.flops - slid.redundant_flops, once(&slid), "{name} {extents:?}");
        }
    }
}

/// Before a checkpoint, the forward pass runs twice: once to the checkpoint, and once for the gradients.
#[test]
fn a_checkpoint_costs_one_more_forward_pass_of_what_is_before_it() {
    let objective = Objective { outputs: true, ..Objective::gradients() };
    for name in ["vgg2", "light"] {
        let graph = Graph::builtin(name).expect("built in");
        let checkpoint = graph.value("pool1").expect("a pooling");
        let extents = [516, 36];
        let untiled = plan(&graph, extents, &objective, &whole());
        let options = PlanOptions { checkpoints: Some(vec![checkpoint]), ..slide(1) };
        let slid = smallest(&graph, extents, &objective, &options);
        assert!(slid.memory.stores_bytes > 0, "{name}: the checkpoint is kept");
        assert_flops(name, &slid, untiled.flops, forward_before(&graph, checkpoint, extents));
    }
}

/// Counts the arithmetic of the calls that it passes on.
#[derive(Debug, Default)]
struct Counting(Mutex<f64>);

impl Counting {
    fn add(&self, per_element: f64, batch: usize, channels: usize, region: Region<2>) {
        let elements = i64::try_from(batch * channels).expect("few") * region.volume();
        let elements = f64::from(u32::try_from(elements).expect("few"));
        *self.0.lock().expect("nobody panics") += per_element * elements;
    }
}

impl<T: Element> Backend<T> for Counting {
    fn name(&self) -> String {
        "counting".to_owned()
    }

    forward!(T, |_counting| &Reference; block support seconds transfers_beside workers open_own);
}

impl<T: Element> Host<T> for Counting {
    forward!(T, |_counting| &Reference; pack compute_part unpack copy);

    fn compute(
        &self,
        kernel: &Kernel,
        params: Params<'_, T>,
        inputs: &[View<'_, T>],
        output: ViewMut<'_, T>,
        region: Region<2>,
        workspace: &Workspace<T>,
    ) {
        let layout = *output.layout();
        self.add(kernel.flops_per_element(), layout.batch(), layout.channels(), region);
        Reference.compute(kernel, params, inputs, output, region, workspace);
    }

    fn reduce(
        &self,
        reduction: &Reduction,
        params: &[&[T]],
        inputs: &[View<'_, T>],
        share: Region<2>,
        partial: &mut Partial<T>,
    ) {
        // the domain has the channels of the gradient, which is the last operand of what has two
        let layout = inputs[if matches!(reduction, Reduction::ConvWeight(_)) { 1 } else { 0 }].layout();
        self.add(reduction.flops_per_element(), layout.batch(), layout.channels(), share);
        Reference.reduce(reduction, params, inputs, share, partial);
    }
}

#[test]
fn plans_state_the_arithmetic_that_runs_do() {
    let objective =
        Objective { grad_inputs: true, outputs: true, ..Objective::training(Loss::MeanSquaredError) };
    for (name, extents) in [("seed-002", [33, 26]), ("light", [21, 18]), ("unet", [17, 22])] {
        let graph = Graph::builtin(name).expect("built in");
        let job = Job::<f32>::random(graph, 2, extents, objective.clone(), 1);
        for options in [whole(), slide(1), slide(3), recompute([2, 3])] {
            let backend = Counting::default();
            let plan = job.plan(&backend, &options);
            let (flops, hold) = (plan.flops, options.hold);
            assert_eq!(plan.tiles() > 1, hold != Hold::Materialise);
            let _ = job.run(&backend, plan, 2, &NoProgress);
            let counted = *backend.0.lock().expect("nobody panics");
            assert_eq!(counted, flops, "{name} {hold:?}");
        }
    }
}
