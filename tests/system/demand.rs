//! What tiles own and what they need.

use std::cell::Cell;

use tiled::geometry::Interval;
use tiled::graph::{
    Call, Demand, Graph, Hold, IndexVec, Loss, Mode, Objective, Plan, PlanError, PlanOptions, Planner, Rng,
    SweepNodeId, Tiling, infer, lower, sweeps,
};
use tiled::kernel::Reference;

const NETWORKS: [(&str, [usize; 2]); 6] = [
    ("seed-001", [16, 16]),
    ("seed-002", [65, 34]),
    ("light", [37, 53]),
    ("vgg2", [30, 41]),
    ("unet", [45, 38]),
    ("resnet18", [66, 97]),
];

fn objective() -> Objective {
    Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) }
}

fn plans(name: &str, extents: [usize; 2]) -> Vec<Plan> {
    let graph = Graph::builtin(name).expect("built in");
    let (shapes, objective) = (infer(&graph, 2, &[extents]).expect("fits"), objective());
    let planner = Planner::<f32>::new(&graph, &shapes, &objective, &Reference);
    let tilings = [
        (Hold::Recompute, Tiling::Grid([3, 2])),
        (Hold::Recompute, Tiling::Tile([2, 3])),
        // more tiles than there are rows: some are empty
        (Hold::Recompute, Tiling::Grid([40, 1])),
        (Hold::Slide, Tiling::Tile([1, 5])),
        (Hold::Slide, Tiling::Grid([4, 3])),
        (Hold::Auto, Tiling::Auto),
    ];
    let plan = |(hold, tiling)| PlanOptions { hold, tiling, ..PlanOptions::default() };
    tilings.into_iter().map(|tiling| planner.plan(&plan(tiling)).expect("plans")).collect()
}

/// Whether intervals follow each other from zero to the end.
#[track_caller]
fn assert_partition(label: &str, parts: impl Iterator<Item = Interval>, extent: i64) {
    let mut end = 0;
    for part in parts.filter(|part| !part.is_empty()) {
        assert_eq!(part.begin(), end, "{label}: a gap or an overlap");
        end = part.end();
    }
    assert_eq!(end, extent, "{label}: the end");
}

#[test]
fn shares_of_every_reduction_and_sink_partition_its_domain() {
    for (name, extents) in NETWORKS {
        for plan in plans(name, extents) {
            let mut terminals = 0;
            for sweep in &plan.sweeps {
                for (id, node) in sweep.nodes.entries().filter(|(_, node)| node.is_terminal()) {
                    let node = &plan.program.nodes[node.node];
                    let label = format!("{name}: `{}`", node.name);
                    assert_partition(
                        &label,
                        sweep.rows.iter().map(|rows| rows.interval(id)),
                        node.extents[0],
                    );
                    assert_partition(
                        &label,
                        sweep.cols.iter().map(|cols| cols.interval(id)),
                        node.extents[1],
                    );
                    terminals += 1;
                }
            }
            assert!(terminals > 2, "{name}");
        }
    }
}

/// A node's rows come once, from the top, and hold what its consumers still need.
#[test]
fn every_row_that_a_tile_needs_is_computed_once() {
    for (name, extents) in NETWORKS {
        for plan in plans(name, extents) {
            for sweep in &plan.sweeps {
                for row in 0..sweep.rows.len() {
                    let mut calls = IndexVec::<SweepNodeId, _>::from(vec![Vec::new(); sweep.nodes.len()]);
                    let mut steps = 0;
                    let ran = sweep.schedule(row).expect("memory").run(
                        |call: Call| {
                            calls[call.node].push(call);
                            Ok::<(), ()>(())
                        },
                        || {
                            steps += 1;
                            Ok(())
                        },
                    );
                    assert_eq!(ran, Ok(()));
                    for (node, calls) in calls.entries() {
                        let (needed, ring) = (sweep.rows.part(row).interval(node), sweep.rings[node]);
                        let label = format!("{name}: node {node:?}");
                        let shifted = calls.iter().map(|call| {
                            assert!(call.low <= call.rows.begin(), "{label}: a window lets go of new rows");
                            assert!(
                                sweep.nodes[node].is_terminal() || call.rows.end() - call.low <= ring,
                                "{label}: a ring of {ring} rows does not hold {call:?}"
                            );
                            Interval::new(
                                call.rows.begin() - needed.begin(),
                                call.rows.end() - needed.begin(),
                            )
                        });
                        assert_partition(&label, shifted, needed.len());
                    }
                    assert!(steps <= sweep.steps, "{name}: {steps} of {} steps", sweep.steps);
                }
            }
        }
    }
}

/// Residual blocks of two convolutions each, whose sums name the shortcut first or last.
fn residual_blocks(count: usize, shortcut_first: bool) -> Graph {
    let mut nodes = Vec::new();
    let mut last = "x".to_owned();
    for block in 0..count {
        let conv = |name: &str, input: &str| {
            format!(
                r#"{{"name":"{name}","op":"conv2d","inputs":["{input}"],"out_channels":4,"kernel_size":3,"padding":1}}"#
            )
        };
        let [first, second, sum] = ["first", "second", "sum"].map(|name| format!("{name}{block}"));
        nodes.push(conv(&first, &last));
        nodes.push(conv(&second, &first));
        let inputs = if shortcut_first { [&last, &second] } else { [&second, &last] };
        nodes.push(format!(r#"{{"name":"{sum}","op":"add","inputs":["{}","{}"]}}"#, inputs[0], inputs[1]));
        last = sum;
    }
    let nodes = nodes.join(",");
    let text =
        format!(r#"{{"inputs":[{{"name":"x","channels":4}}],"outputs":["{last}"],"nodes":[{nodes}]}}"#);
    Graph::from_json(&text).expect("a network")
}

#[test]
fn a_band_is_one_call_of_each_node_of_a_deep_network() {
    // a shortcut wants fewer rows than the path beside it: asked first, it would cut the calls of what both read
    let networks = [
        (Graph::builtin("resnet18").expect("built in"), 1024),
        (residual_blocks(6, true), 256),
        (residual_blocks(6, false), 256),
    ];
    for (graph, height) in networks {
        let (shapes, objective) = (infer(&graph, 1, &[[height, 32]]).expect("fits"), Objective::inference());
        let planner = Planner::<f32>::new(&graph, &shapes, &objective, &Reference);
        let options = PlanOptions {
            hold: Hold::Slide,
            band: i64::try_from(height / 16).ok(),
            ..PlanOptions::default()
        };
        let plan = planner.plan(&options).expect("plans");
        let sweep = &plan.sweeps[0];
        let (calls, mut steps) = (Cell::new(0), Vec::new());
        let count = |_| {
            calls.set(calls.get() + 1);
            Ok::<(), ()>(())
        };
        let ran = sweep.schedule(0).expect("memory").run(count, || {
            steps.push(calls.take());
            Ok(())
        });
        assert_eq!((ran, steps.len()), (Ok(()), 16));
        let nodes = sweep.nodes.len();
        assert!(nodes > 12, "{nodes} nodes");
        assert!(steps[1..].iter().all(|calls| *calls <= nodes), "{steps:?} calls of {nodes} nodes");
    }
}

#[test]
fn a_larger_share_never_needs_less() {
    let mut rng = Rng::new(7);
    let mut below = |count: i64| {
        i64::try_from(rng.next_u64() % count.unsigned_abs().max(1)).expect("a remainder is small")
    };
    for (name, extents) in NETWORKS {
        let graph = Graph::builtin(name).expect("built in");
        let shapes = infer(&graph, 1, &[extents]).expect("fits");
        let program = lower(&graph, &shapes, &objective(), &[]).expect("lowers");
        for sweep in sweeps(&program, &[]) {
            for axis in [0, 1] {
                for _ in 0..30 {
                    let shares: Vec<[Interval; 2]> = sweep
                        .iter()
                        .map(|node| {
                            let extent = program.nodes[node.node].extents[axis];
                            let (a, b) = (below(extent + 1), below(extent + 1));
                            let (c, d) = (below(extent + 1), below(extent + 1));
                            let [inner, other] =
                                [(a, b), (c, d)].map(|(a, b)| Interval::new(a.min(b), a.max(b)));
                            [inner, inner.hull(other)]
                        })
                        .collect();
                    let shares = IndexVec::from(shares);
                    let [inner, outer] = [0, 1]
                        .map(|which| Demand::new(&program, &sweep, axis, |node, _| shares[node][which]));
                    for node in sweep.ids() {
                        assert!(
                            outer.interval(node).contains_interval(inner.interval(node)),
                            "{name}: node {node:?}: {} within {}",
                            inner.interval(node),
                            outer.interval(node)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn no_part_of_a_fine_grid_leaves_the_image() {
    // a dilated pooling in ceil mode and a pixel of the whole image: the last parts are cut where others are not
    let graph = Graph::from_json(
        r#"{"inputs": [{"name": "x", "channels": 3}],
            "nodes": [
                {"name": "n0", "op": "add", "inputs": ["x", "x"]},
                {"name": "n1", "op": "concat", "inputs": ["x", "n0"]},
                {"name": "n2", "op": "mul", "inputs": ["n1", "n1"]},
                {"name": "n6", "op": "conv2d", "inputs": ["x"], "out_channels": 12, "kernel_size": [4, 3], "groups": 3,
                 "padding": [[0, 0], [1, 0]], "dilation": [1, 3]},
                {"name": "n8", "op": "global_max_pool", "inputs": ["n6"]}],
            "outputs": ["n2", "n8"]}"#,
    )
    .expect("a network");
    let shapes = infer(&graph, 1, &[[30, 49]]).expect("shapes");
    let objective = Objective { mode: Mode::Eval, ..Objective::gradients() };
    let planner = Planner::<f32>::new(&graph, &shapes, &objective, &Reference);
    let mut most = 0;
    for (hold, tiling) in [
        (Hold::Auto, Tiling::Auto),
        (Hold::Recompute, Tiling::Auto),
        (Hold::Recompute, Tiling::Grid([1, 49])),
        (Hold::Recompute, Tiling::Grid([30, 25])),
        (Hold::Recompute, Tiling::Tile([1, 2])),
    ] {
        let options = PlanOptions { hold, tiling, memory_bytes: Some(1), ..PlanOptions::default() };
        let Err(PlanError::BudgetTooSmall { smallest, .. }) = planner.plan(&options) else {
            panic!("{hold:?} {tiling:?}: one byte was enough")
        };
        let plan = planner
            .plan(&PlanOptions { memory_bytes: Some(smallest), ..options })
            .expect("the smallest budget that was named");
        for sweep in &plan.sweeps {
            for (axis, parts) in [&sweep.rows, &sweep.cols].into_iter().enumerate() {
                most = most.max(parts.len());
                for (id, node) in sweep.nodes.entries() {
                    let extent = plan.program.nodes[node.node].extents[axis];
                    for part in parts.iter() {
                        let interval = part.interval(id);
                        let whole = Interval::whole(extent);
                        assert_eq!(interval.intersect(whole), interval, "{hold:?} {tiling:?}: node {id:?}");
                    }
                }
            }
        }
    }
    assert!(most > 16, "{most} parts are few");
}
