//! Every region of the logs, from the system's own plan.

use serde_json::Value;
use tiled::geometry::{Interval, Region};
use tiled::graph::program::{Edge, NodeKind};
use tiled::graph::{Graph, Loss, Objective, Plan, SweepNodeId, SweepPlan};
use tiled::kernel::Reference;
use tiled_tests::{Job, recompute};

use crate::data::{items, load, numbers, region, sides};

struct Golden {
    network: &'static str,
    data: Value,
    /// The names of its operators.
    ops: &'static [&'static str],
}

fn logs() -> [Golden; 2] {
    [
        Golden {
            network: "seed-001",
            data: load("geometry_conv_pool_conv_pool_16x16.json"),
            ops: &["conv1", "pool1", "conv2", "pool2"],
        },
        Golden {
            network: "seed-002",
            data: load("geometry_conv3_pool_conv_64x64.json"),
            ops: &["conv1", "conv2", "conv3", "pool1", "conv4"],
        },
    ]
}

/// Input gradients alone, from a loss that reads the prediction: the objective of the logs.
fn logged() -> Objective {
    Objective { grad_inputs: true, grad_params: false, ..Objective::training(Loss::MeanSquaredError) }
}

impl Golden {
    fn plan(&self, objective: Objective) -> Plan {
        let graph = Graph::builtin(self.network).expect("built in");
        let names: Vec<&str> = graph.nodes().iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, self.ops, "{}", self.network);
        let [_, _, height, width] = numbers(&self.data["input_nchw"]);
        let extents = [height, width].map(|extent| usize::try_from(extent).expect("positive"));
        let job = Job::<f64>::random(graph, 1, extents, objective, 1);
        let plan = job.plan(&Reference, &recompute(numbers(&self.data["grid"])));
        assert_eq!((plan.sweeps.len(), plan.sweeps[0].grid.len()), (1, 16), "one sweep of 16 tiles");
        plan
    }

    /// Calls `check` with every tile of the log and the plan's view of it.
    fn for_each_tile(&self, plan: &Plan, mut check: impl FnMut(&Value, &Tile<'_>)) {
        let tiles = items(&self.data["tiles"]);
        assert_eq!(tiles.len(), 16);
        for tile in tiles {
            let index = numbers::<2>(&tile["tile"]).map(|place| usize::try_from(place).expect("positive"));
            check(tile, &Tile { plan, sweep: &plan.sweeps[0], index });
        }
    }
}

/// A tile of a plan.
struct Tile<'a> {
    plan: &'a Plan,
    sweep: &'a SweepPlan,
    index: [usize; 2],
}

impl Tile<'_> {
    fn node(&self, name: &str) -> Option<SweepNodeId> {
        let is_named = |node: &tiled::graph::SweepNode| self.plan.program.nodes[node.node].name == name;
        self.sweep.nodes.entries().find(|(_, node)| is_named(node)).map(|(id, _)| id)
    }

    /// The region of a node; `None` where it does not run.
    fn region(&self, name: &str) -> Option<Region<2>> {
        self.node(name).map(|node| self.sweep.region(node, self.index))
    }

    fn operand(&self, name: &str, which: usize) -> (&Edge, Region<2>) {
        let id = self.node(name).unwrap_or_else(|| panic!("`{name}` runs"));
        let node = &self.sweep.nodes[id];
        let edge = &self.plan.program.nodes[node.node].operands[which];
        (edge, self.sweep.region(node.operands[which], self.index))
    }

    /// What a region of a node reads of its first operand, before and after clipping.
    fn reads(&self, name: &str, wanted: Region<2>) -> [Region<2>; 2] {
        let (edge, _) = self.operand(name, 0);
        let through = |map: fn(&Edge, usize, Interval) -> Interval| {
            Region::from_rows_cols(map(edge, 0, wanted.rows()), map(edge, 1, wanted.cols()))
        };
        [through(Edge::needed_unclipped), through(Edge::needed)]
    }
}

fn extents(region: Region<2>) -> [i64; 2] {
    region.axes().map(Interval::len)
}

#[test]
fn backward_regions_of_every_tile_equal_the_logs() {
    for golden in logs() {
        let plan = golden.plan(logged());
        golden.for_each_tile(&plan, |logged, tile| {
            assert_eq!(tile.region("x.grad"), Some(region(&logged["input_grad"])));
            for (op, logged) in golden.ops.iter().zip(items(&logged["backward"])) {
                let name = format!("{op}.grad_input");
                let grad_in = tile.region(&name).expect("runs");
                assert_eq!(grad_in, region(&logged["grad_in"]), "{name}");
                let (_, grad_out) = tile.operand(&name, 0);
                assert_eq!(grad_out, region(&logged["grad_out"]), "{name}");
                assert_eq!(extents(grad_out), numbers(&logged["grad_out_hw"]), "{name}");
                let [unclipped, clipped] = tile.reads(&name, grad_in);
                assert_eq!(clipped, grad_out, "{name}");
                if !logged["own_unclipped"].is_null() {
                    assert_eq!(unclipped, region(&logged["own_unclipped"]), "{name}");
                    assert_eq!(unclipped.excess(clipped), sides(&logged["own_pad"]), "{name}");
                } else {
                    assert_eq!(unclipped, region(&logged["grad_out_unclipped"]), "{name}");
                    assert_eq!(unclipped.excess(clipped), sides(&logged["pad"]), "{name}");
                }
            }
            let output = format!("{}.grad", golden.ops[golden.ops.len() - 1]);
            assert_eq!(tile.region(&output), Some(region(&logged["output"])));
            assert_eq!(tile.region(&output).map(extents), Some(numbers(&logged["output_hw"])));
        });
    }
}

#[test]
fn forward_regions_of_every_tile_equal_the_logs() {
    for golden in logs() {
        let plan = golden.plan(logged());
        golden.for_each_tile(&plan, |logged, tile| {
            for (op, logged) in golden.ops.iter().zip(items(&logged["forward"])) {
                let out = tile.region(op).expect("runs");
                assert_eq!(out, region(&logged["out"]), "{op}");
                assert_eq!(extents(out), numbers(&logged["out_hw"]), "{op}");
                let [unclipped, clipped] = tile.reads(op, out);
                assert_eq!(clipped, region(&logged["in"]), "{op}");
                assert_eq!(tile.operand(op, 0).1, clipped, "{op}: nobody asks for more");
                if !logged["own_unclipped"].is_null() {
                    assert_eq!(unclipped, region(&logged["own_unclipped"]), "{op}");
                    assert_eq!(unclipped.excess(clipped), sides(&logged["own_pad"]), "{op}");
                } else {
                    assert_eq!(unclipped, region(&logged["in_unclipped"]), "{op}");
                    assert_eq!(unclipped.excess(clipped), sides(&logged["pad"]), "{op}");
                }
            }
            let (loaded, owned) = (tile.region("x").expect("read"), region(&logged["input_grad"]));
            assert_eq!(loaded.excess(owned), sides(&logged["crop"]));
        });
    }
}

#[test]
fn without_a_loss_that_reads_the_prediction_the_forward_regions_are_the_smallest() {
    let [_, golden] = logs();
    let given = Objective { grad_params: false, ..Objective::gradients() };
    let plan = golden.plan(given);
    let mut skipped = 0;
    golden.for_each_tile(&plan, |logged, tile| {
        for (op, minimal) in golden.ops.iter().zip(items(&logged["minimal_forward"])) {
            if minimal.is_null() {
                assert_eq!(tile.region(op), None, "{op} need not run");
                skipped += 1;
                continue;
            }
            let (out, reads) = match tile.region(op) {
                Some(out) => (out, tile.reads(op, out)[1]),
                // a pooling need not run either: its gradient finds the maxima in what the pooling would read
                None => {
                    assert_eq!(*op, "pool1");
                    let name = format!("{op}.grad_input");
                    (tile.operand(&name, 0).1, tile.operand(&name, 1).1)
                }
            };
            assert_eq!(out, region(&minimal["out"]), "{op}");
            assert_eq!(reads, region(&minimal["in"]), "{op}");
        }
    });
    assert_eq!(skipped, 16, "the last convolution runs for no tile");
}

#[test]
fn weight_gradients_take_disjoint_shares_of_the_size_that_the_logs_give() {
    for golden in logs() {
        let objective = Objective { grad_params: true, ..logged() };
        let plan = golden.plan(objective);
        let grid = numbers::<2>(&golden.data["grid"]);
        let mut reductions = 0;
        let mut covered = vec![0_i64; golden.ops.len()];
        golden.for_each_tile(&plan, |logged, tile| {
            for (i, op) in golden.ops.iter().enumerate() {
                let Some(share) = tile.region(&format!("{op}.grad_weight")) else { continue };
                reductions += 1;
                covered[i] += share.volume();
                let out: [i64; 2] = numbers(&golden.data["ops"][i]["out_hw"]);
                assert_eq!(extents(share), [0, 1].map(|axis| out[axis] / grid[axis]), "{op}");
                let node = tile.node(&format!("{op}.grad_weight")).expect("runs");
                let id = tile.sweep.nodes[node].node;
                assert!(matches!(plan.program.nodes[id].kind, NodeKind::Reduce(_)), "{op}");
                let (_, gradient) = tile.operand(&format!("{op}.grad_weight"), 1);
                assert!(gradient.contains_region(share), "{op}: its gradient is at hand");
                if i + 1 == golden.ops.len() {
                    assert_eq!(share, region(&logged["output_disjoint"]), "{op}");
                }
            }
            let loss = format!("{}.loss", golden.ops[golden.ops.len() - 1]);
            assert_eq!(tile.region(&loss), Some(region(&logged["output_disjoint"])));
        });
        let convs = golden.ops.iter().filter(|op| op.starts_with("conv")).count();
        assert_eq!(reductions, 16 * convs);
        for (i, op) in golden.ops.iter().enumerate().filter(|(_, op)| op.starts_with("conv")) {
            let [height, width] = numbers(&golden.data["ops"][i]["out_hw"]);
            assert_eq!(covered[i], height * width, "{op}: every output gradient counts once");
        }
    }
}

#[test]
fn rows_and_columns_are_not_swapped() {
    for golden in logs() {
        let plan = golden.plan(logged());
        let sweep = &plan.sweeps[0];
        let tall = Tile { plan: &plan, sweep, index: [1, 0] };
        let wide = Tile { plan: &plan, sweep, index: [0, 1] };
        let name = format!("{}.grad_input", golden.ops[0]);
        let (tall, wide) = (tall.operand(&name, 0).1, wide.operand(&name, 0).1);
        assert_ne!(extents(tall), extents(wide), "{}", golden.network);
        assert_eq!(tall.rows(), wide.cols());
    }
}
