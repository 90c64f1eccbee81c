//! Planning of deep networks, of large images and of many tiles: what it takes, and that it ends where it is told to.

use std::cell::Cell;

use tiled_graph::program::{SinkRole, SourceRole, Store, StoreId};
use tiled_graph::{
    Action, Activation, BatchNorm, Binding, Conv2d, Graph, GroupNorm, Hold, IndexVec, Linear, Loss,
    MaxPool2d, Objective, Op, Plan, PlanError, PlanOptions, Planner, SweepNode, SweepNodeId, SweepPlan,
    Tiling, ValueId, infer, lower, sweeps,
};
use tiled_kernel::{Backend, Reference, forward};

/// Convolutions of one channel, one after another.
fn chain(count: usize) -> Graph {
    let mut graph = Graph::new();
    let mut last = graph.add_input("x", 1).expect("an input");
    for number in 0..count {
        let conv = Op::Conv2d(Conv2d::new(1, [3, 3]).padded([1, 1]));
        last = graph.add_node(&format!("c{number}"), conv, &[last]).expect("a convolution");
    }
    graph.set_outputs(&[last]).expect("an output");
    graph
}

/// Bottlenecks with batch norm as in ResNet-50, -101 and -152, so many in each of four stages.
fn resnet(blocks: [usize; 4]) -> Graph {
    struct Builder(Graph);
    impl Builder {
        fn add(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
            self.0.add_node(name, op, inputs).expect("a node")
        }
        fn conv(&mut self, name: &str, x: ValueId, channels: usize, kernel: i64, stride: i64) -> ValueId {
            let mut conv = Conv2d::new(channels, [kernel, kernel]).padded([kernel / 2, kernel / 2]);
            conv.stride = [stride, stride];
            conv.bias = false;
            let y = self.add(name, Op::Conv2d(conv), &[x]);
            self.add(&format!("{name}_bn"), Op::BatchNorm(BatchNorm::default()), &[y])
        }
        fn relu(&mut self, name: &str, x: ValueId) -> ValueId {
            self.add(&format!("{name}_relu"), Op::Activation(Activation::Relu), &[x])
        }
    }
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("an input");
    let mut net = Builder(graph);
    let stem = net.conv("stem", x, 64, 7, 2);
    let stem = net.relu("stem", stem);
    let pool = MaxPool2d { stride: [2, 2], ..MaxPool2d::new([3, 3]).padded([1, 1]) };
    let mut x = net.add("pool", Op::MaxPool2d(pool), &[stem]);
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let name = |part: &str| format!("s{stage}b{block}{part}");
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let mut y = x;
            for (part, channels, kernel, stride) in
                [("c1", width, 1, 1), ("c2", width, 3, stride), ("c3", 4 * width, 1, 1)]
            {
                y = net.conv(&name(part), y, channels, kernel, stride);
                y = if part == "c3" { y } else { net.relu(&name(part), y) };
            }
            let shortcut = if block == 0 { net.conv(&name("down"), x, 4 * width, 1, stride) } else { x };
            let sum = net.add(&name("sum"), Op::Add, &[y, shortcut]);
            x = net.relu(&name(""), sum);
        }
    }
    let pooled = net.add("gap", Op::GlobalAvgPool, &[x]);
    let head = net.add("head", Op::Linear(Linear::new(10)), &[pooled]);
    net.0.set_outputs(&[head]).expect("an output");
    net.0
}

fn plan(
    graph: &Graph,
    extents: [usize; 2],
    objective: &Objective,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    let shapes = infer(graph, 1, &[extents]).expect("shapes");
    Planner::<f32>::new(graph, &shapes, objective, &Reference).plan(options)
}

fn smallest(graph: &Graph, extents: [usize; 2], objective: &Objective, options: &PlanOptions) -> u64 {
    match plan(graph, extents, objective, options) {
        Err(PlanError::BudgetTooSmall { smallest, .. }) => smallest,
        other => panic!("a budget that is too small, got {other:?}"),
    }
}

fn within(bytes: u64) -> PlanOptions {
    PlanOptions { memory_bytes: Some(bytes), ..PlanOptions::default() }
}

#[test]
fn r08_a_chain_of_a_hundred_thousand_convolutions_is_planned_walked_and_dropped() {
    let graph = chain(100_000);
    let text = graph.to_json();
    assert_eq!(Graph::from_json(&text).expect("the same network"), graph);
    // on a stack of one mebibyte whatever recurses over the network ends the process
    let run = move || {
        for objective in [Objective::inference(), Objective::training(Loss::Sum)] {
            let plan = plan(&graph, [4, 4], &objective, &PlanOptions::default()).expect("a plan");
            let mut calls = 0;
            let sweep = &plan.sweeps[0];
            let ran = sweep.schedule(0).expect("memory").run(
                |_| {
                    calls += 1;
                    Ok::<(), ()>(())
                },
                || Ok(()),
            );
            assert_eq!(ran, Ok(()));
            assert!(calls >= 100_000, "{calls} calls");
            drop(plan);
        }
        drop(graph);
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread");
    thread.join().expect("it ends");
}

#[test]
fn r08_a_schedule_of_small_bands_goes_as_deep_as_the_network() {
    let graph = chain(6000);
    let run = move || {
        let options = PlanOptions { hold: Hold::Slide, band: Some(1), ..PlanOptions::default() };
        let plan = plan(&graph, [8, 8], &Objective::inference(), &options).expect("a plan");
        assert_eq!(plan.sweeps[0].steps, 8);
        assert!(plan.sweeps[0].calls >= 8 * 6000, "{} calls", plan.sweeps[0].calls);
    };
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(run).expect("a thread");
    thread.join().expect("it ends");
}

#[test]
fn r11_sweeps_of_deep_networks_with_batch_norm_are_bounded() {
    // each convolution is a level of its own, and without stores each level computes all before it again
    let mut graph = Graph::new();
    let mut last = graph.add_input("x", 2).expect("an input");
    for number in 0..3000 {
        let conv = Op::Conv2d(Conv2d::new(2, [3, 3]).padded([1, 1]));
        last = graph.add_node(&format!("c{number}"), conv, &[last]).expect("a convolution");
        let norm = Op::BatchNorm(BatchNorm::default());
        last = graph.add_node(&format!("b{number}"), norm, &[last]).expect("a norm");
    }
    graph.set_outputs(&[last]).expect("an output");
    let objective = Objective::training(Loss::Sum);
    let made = plan(&graph, [8, 8], &objective, &PlanOptions::default()).expect("a plan");
    let nodes: usize = made.sweeps.iter().map(|sweep| sweep.nodes.len()).sum();
    assert!(nodes < 20 * made.program.nodes.len(), "{nodes} nodes in {} sweeps", made.sweeps.len());
    let least = smallest(&graph, [8, 8], &objective, &within(1));
    assert!(least <= made.peak_bytes());
}

#[test]
fn r11_the_smallest_budget_that_is_named_plans_and_one_byte_less_names_it_again() {
    let resnet = resnet([2, 2, 3, 2]);
    let light = Graph::builtin("light").expect("built in");
    let unet = Graph::builtin("unet").expect("built in");
    let training = Objective::training(Loss::Sum);
    let cases = [
        (&resnet, [224, 224], &training),
        (&resnet, [5000, 5000], &training),
        (&resnet, [1111, 3001], &Objective::inference()),
        (&light, [3_000_000, 8], &training),
        (&light, [8, 3_000_000], &training),
        (&unet, [1025, 777], &training),
    ];
    for (number, (graph, extents, objective)) in cases.into_iter().enumerate() {
        let least = smallest(graph, extents, objective, &within(1));
        let fits = plan(graph, extents, objective, &within(least)).expect("the budget that was named");
        assert!(fits.peak_bytes() <= least, "case {number}: {} bytes of {least}", fits.peak_bytes());
        assert_eq!(smallest(graph, extents, objective, &within(least - 1)), least, "case {number}");
    }
}

#[test]
fn r11_a_plan_is_given_up_when_nobody_waits_for_it() {
    let graph = resnet([3, 4, 6, 3]);
    let shapes = infer(&graph, 1, &[[4096, 4096]]).expect("shapes");
    let objective = Objective::training(Loss::Sum);
    let planner = Planner::<f32>::new(&graph, &shapes, &objective, &Reference);
    let asked = Cell::new(0_u64);
    let whole = || {
        asked.set(asked.get() + 1);
        false
    };
    let options = within(4 << 30);
    let _ = planner.plan_unless(&options, &whole);
    let often = asked.get();
    assert!(often > 1000, "asked {often} times");
    for stop in [1, 2, often / 3, often / 2] {
        asked.set(0);
        let is_cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() >= stop
        };
        assert_eq!(planner.plan_unless(&options, &is_cancelled).map(drop), Err(PlanError::Cancelled));
        assert!(asked.get() <= stop + 1, "asked {} times after {stop}", asked.get());
    }
}

#[test]
fn r11_a_tall_image_is_planned_like_a_low_one() {
    let graph = Graph::builtin("light").expect("built in");
    let objective = Objective::training(Loss::Sum);
    let of = |height: usize| {
        plan(&graph, [height, 8], &objective, &within(16 << 20)).expect("a plan").sweeps[0].rings.clone()
    };
    assert_eq!(of(300_000), of(30_000_000));
}

#[test]
fn r15_a_grid_has_at_most_as_many_tiles_as_the_output_has_pixels() {
    let graph = Graph::builtin("vgg2").expect("built in");
    for hold in [Hold::Recompute, Hold::Auto, Hold::Slide] {
        let tiling = Tiling::Grid([1_000_000, 1_000_000]);
        let options = PlanOptions { hold, tiling, ..PlanOptions::default() };
        let plan = plan(&graph, [512, 512], &Objective::inference(), &options).expect("a plan");
        let [rows, cols] = plan.sweeps[0].grid.counts();
        assert_eq!(cols, 128, "{hold:?}");
        assert_eq!(rows, if hold == Hold::Slide { 1 } else { 128 }, "{hold:?}");
    }
    let tiling = Tiling::Grid([0, 3]);
    let options = PlanOptions { tiling, ..PlanOptions::default() };
    assert!(matches!(
        plan(&graph, [512, 512], &Objective::inference(), &options),
        Err(PlanError::Geometry(_))
    ));
}

#[test]
fn r15_thousands_of_tiles_are_held_once_for_all_that_are_alike() {
    let graph = Graph::builtin("light").expect("built in");
    let tiling = Tiling::Grid([4096, 4096]);
    let options = PlanOptions { hold: Hold::Recompute, tiling, ..PlanOptions::default() };
    let made = plan(&graph, [50_000, 50_000], &Objective::training(Loss::Sum), &options).expect("a plan");
    let sweep = &made.sweeps[0];
    assert_eq!([sweep.rows.len(), sweep.cols.len()], [4096, 4096]);
    // what is said of all tiles together is what each says
    let mut ends = IndexVec::<SweepNodeId, i64>::from(vec![0; sweep.nodes.len()]);
    for part in sweep.rows.iter() {
        for (id, node) in sweep.nodes.entries() {
            let own = part.interval(id);
            if node.is_terminal() && !own.is_empty() {
                assert_eq!(own.begin(), ends[id], "node {id:?}");
                ends[id] = own.end();
            }
        }
    }
    for (node, end) in sweep.nodes.iter().zip(ends) {
        let extents = made.program.nodes[node.node].extents;
        assert!(!node.is_terminal() || end == extents[0]);
    }
}

#[test]
fn r11_what_is_kept_between_sweeps_is_found_without_cutting_all_sweeps() {
    let graph = resnet([1, 1, 1, 1]);
    let shapes = infer(&graph, 1, &[[64, 64]]).expect("shapes");
    let program = lower(&graph, &shapes, &Objective::training(Loss::Sum), &[]).expect("a program");
    let all = sweeps(&program, &[]);
    assert!(all.len() > 20);
    // every sweep ends in terminals of one level, and their operands stand before them
    for sweep in &all {
        for (id, node) in sweep.entries() {
            assert!(node.operands.iter().all(|operand| *operand < id));
        }
        let mut levels =
            sweep.iter().filter(|node| node.is_terminal()).map(|node| program.nodes[node.node].level);
        let first = levels.next().expect("a terminal");
        assert!(levels.all(|level| level == first));
    }
}

/// Two blocks of squeeze and excitation, each behind two convolutions and before one.
const GATED: &str = r#"{
    "inputs": [{"name": "x", "channels": 3}],
    "nodes": [
        {"name": "a1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": 3, "padding": 1},
        {"name": "b1", "op": "conv2d", "inputs": ["a1"], "out_channels": 16, "kernel_size": 3, "padding": 1},
        {"name": "s1", "op": "global_avg_pool", "inputs": ["b1"]},
        {"name": "g1", "op": "mul", "inputs": ["b1", "s1"]},
        {"name": "a2", "op": "conv2d", "inputs": ["g1"], "out_channels": 16, "kernel_size": 3, "padding": 1},
        {"name": "b2", "op": "conv2d", "inputs": ["a2"], "out_channels": 16, "kernel_size": 3, "padding": 1},
        {"name": "s2", "op": "global_avg_pool", "inputs": ["b2"]},
        {"name": "g2", "op": "mul", "inputs": ["b2", "s2"]},
        {"name": "y", "op": "conv2d", "inputs": ["g2"], "out_channels": 3, "kernel_size": 3, "padding": 1}
    ],
    "outputs": ["y"]
}"#;

#[test]
fn only_what_a_later_sweep_reads_is_kept() {
    let graph = Graph::from_json(GATED).expect("a network");
    for hold in [Hold::Auto, Hold::Slide, Hold::Materialise] {
        let options = PlanOptions { hold, ..PlanOptions::default() };
        let plan = plan(&graph, [64, 64], &Objective::inference(), &options).expect("a plan");
        assert_eq!(plan.sweeps.len(), 3);
        let kept: Vec<&str> = plan.program.stores.iter().map(|store| store.name.as_str()).collect();
        assert_eq!(kept, ["b1", "b2"], "{hold:?}: what the gates multiply, not what came before");
    }
}

/// Convolutions behind gates, each of which waits for the mean of the whole image, with one more way past the first two.
fn gates(count: usize) -> Graph {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("an input");
    let mut add =
        |name: String, op: Op, inputs: &[ValueId]| graph.add_node(&name, op, inputs).expect("a node");
    let conv = |channels: usize| Op::Conv2d(Conv2d::new(channels, [3, 3]).padded([1, 1]));
    let mut last = add("c".into(), conv(8), &[x]);
    let first = last;
    for gate in 0..count {
        let value = add(format!("v{gate}"), conv(8 + 2 * (gate % 3)), &[last]);
        let mean = add(format!("m{gate}"), Op::GlobalAvgPool, &[value]);
        last = add(format!("g{gate}"), Op::Mul, &[value, mean]);
        if gate == 1 {
            let back = add("back".into(), conv(8), &[last]);
            last = add("sum".into(), Op::Add, &[back, first]);
        }
    }
    let y = add("y".into(), conv(2), &[last]);
    graph.set_outputs(&[y]).expect("an output");
    graph
}

#[test]
fn values_that_no_sweep_needs_together_share_memory() {
    for objective in [Objective::inference(), Objective::training(Loss::Sum)] {
        let plan = plan(&gates(8), [40, 56], &objective, &PlanOptions::default()).expect("a plan");
        let stores = &plan.program.stores;
        // of the sweeps that need a value, the first and the last
        let held = |id: StoreId| {
            let mut sweeps = (0..plan.sweeps.len()).filter(|sweep| {
                plan.sweeps[*sweep].nodes.iter().any(|node| match node.action {
                    Action::Load(SourceRole::Store(store)) | Action::Write(SinkRole::Store(store)) => {
                        store == id
                    }
                    _ => false,
                })
            });
            let first = sweeps.next().expect("a sweep writes it");
            (first, sweeps.next_back().expect("another one reads it"))
        };
        for (a, slot) in plan.store_slots.entries() {
            for b in plan.store_slots.ids().filter(|b| *b != a && plan.store_slots[*b] == *slot) {
                let (a, b) = (held(a), held(b));
                assert!(a.1 < b.0 || b.1 < a.0, "{a:?} and {b:?} share memory");
            }
        }
        let elements = |store: &Store| store.shape.iter().product::<usize>() as u64 * 4;
        let all: u64 = stores.iter().map(elements).sum();
        let together = |sweep: usize| -> u64 {
            let held = stores.entries().filter(|(id, _)| (held(*id).0..=held(*id).1).contains(&sweep));
            held.map(|(_, store)| elements(store)).sum()
        };
        let most = (0..plan.sweeps.len()).map(together).max().expect("sweeps");
        let bytes = plan.memory.stores_bytes;
        assert!(most <= bytes && bytes <= most + most / 4, "{bytes} bytes where a sweep needs {most}");
        if objective.loss.is_none() {
            assert!(2 * bytes < all, "{bytes} bytes of {all}");
        }
    }
}

/// The reference on as many threads as there are.
#[derive(Debug)]
struct Threads;

impl Backend<f32> for Threads {
    forward!(f32, |_threads| &Reference; name block support seconds transfers_beside open);

    fn workers(&self, threads: usize) -> usize {
        threads
    }
}

#[test]
fn what_is_kept_is_computed_where_it_stays_by_a_lane_that_runs_alone() {
    let graph = gates(4);
    let shapes = infer(&graph, 1, &[[96, 112]]).expect("shapes");
    let mut seen = [false; 2];
    for objective in [Objective::inference(), Objective::training(Loss::Sum)] {
        for (hold, lanes) in [
            (Hold::Auto, 1),
            (Hold::Slide, 1),
            (Hold::Materialise, 1),
            (Hold::Slide, 2),
            (Hold::Recompute, 2),
            (Hold::Recompute, 4),
        ] {
            let tiling = if lanes > 1 { Tiling::Grid([4, 1]) } else { Tiling::Auto };
            let lanes = Some(lanes);
            let options = PlanOptions { lanes, parallelism: 4, hold, tiling, ..PlanOptions::default() };
            let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Threads).plan(&options);
            let plan = plan.expect("a plan");
            let is_alone = plan.in_flight() == 1;
            seen[usize::from(is_alone)] = true;
            let mut kept = 0;
            for sweep in &plan.sweeps {
                for node in &sweep.nodes {
                    let Action::Write(SinkRole::Store(store)) = node.action else { continue };
                    let writer = node.operands[0];
                    let expected = if is_alone { Binding::Store(store) } else { Binding::Window };
                    assert_eq!(sweep.bindings[writer], expected, "{options:?}");
                    assert_eq!(sweep.slots[writer].is_none(), is_alone, "{options:?}: a window");
                    kept += 1;
                }
            }
            assert!(kept >= 4, "{options:?}: what four gates multiply");
            let windows = plan.sweeps.iter().map(|sweep| sweep.slot_elements.iter().sum::<usize>());
            let windows = windows.max().expect("sweeps") * plan.in_flight();
            assert_eq!(plan.memory.windows_bytes, 4 * windows as u64, "{options:?}");
        }
    }
    assert_eq!(seen, [true; 2], "plans of both kinds");
}

#[test]
fn deep_networks_run_in_bands_of_whole_rows_whose_calls_are_worth_their_weights() {
    // early layers of many pixels, which the last cache does not hold, and deep ones of many weights
    for network in ["darknet19", "resnet18"] {
        let graph = Graph::builtin(network).expect("a built-in network");
        let of = |hold| {
            let options = PlanOptions { hold, parallelism: 2, ..PlanOptions::default() };
            plan(&graph, [2048, 2048], &Objective::inference(), &options).expect("a plan")
        };
        let (chosen, untiled) = (of(Hold::Auto), of(Hold::Materialise));
        let weights = |sweep: &&SweepPlan| -> usize {
            let work = sweep.nodes.iter().filter_map(|node| chosen.program.work(node.node));
            work.map(|work| work.weights()).sum()
        };
        let sweep = chosen.sweeps.iter().max_by_key(weights).expect("a sweep");
        // at least sixteen rows in each call of the layers with the most weights, or all there are
        let rows = |node: &SweepNode| chosen.program.nodes[node.node].extents[0];
        let most: i64 = sweep.nodes.iter().map(|node| (rows(node) / 16).max(1) + 1).sum();
        assert!(sweep.band <= 128 && sweep.calls <= most.unsigned_abs(), "{network}: {} calls", sweep.calls);
        let [bytes, all] = [&chosen, &untiled].map(Plan::peak_bytes);
        assert!(2 * bytes <= all, "{network}: {bytes} bytes of {all}");
        let [seconds, longer] = [&chosen, &untiled].map(|plan| plan.predicted_seconds);
        assert!(seconds < longer, "{network}: {seconds} s of {longer}");
        // rows of more than one band in a call, or a band of all rows
        let options = PlanOptions { hold: Hold::Slide, band: Some(sweep.band), ..PlanOptions::default() };
        let low = plan(&graph, [2048, 2048], &Objective::inference(), &options).expect("a plan");
        assert!(sweep.calls < low.sweeps[0].calls, "{network}: {} calls", sweep.calls);
    }
}

#[test]
fn what_parts_need_lies_in_the_image_where_a_value_ends_long_before_the_others() {
    // a convolution as large as its map has one pixel at the rate of the map, which an early part owns alone
    let mut graph = Graph::new();
    let x = graph.add_input("x", 9).expect("an input");
    let pool = MaxPool2d { stride: [2, 2], ceil_mode: true, ..MaxPool2d::new([3, 4]).padded([1, 2]) };
    let pool = graph.add_node("pool", Op::MaxPool2d(pool), &[x]).expect("a pooling");
    let mut conv = Conv2d::new(6, [2, 2]);
    (conv.stride, conv.dilation) = ([3, 3], [2, 2]);
    let map = graph.add_node("map", Op::Conv2d(conv), &[x]).expect("a convolution");
    let linear = Op::Conv2d(Conv2d::new(1, [19, 18]));
    let linear = graph.add_node("linear", linear, &[map]).expect("a linear layer");
    graph.set_outputs(&[linear, pool]).expect("outputs");
    for count in 17..=29 {
        let tiling = Tiling::Grid([count, 46 - count]);
        let options = PlanOptions { tiling, hold: Hold::Recompute, ..PlanOptions::default() };
        let plan = plan(&graph, [57, 56], &Objective::inference(), &options).expect("a plan");
        let sweep = &plan.sweeps[0];
        for (id, node) in sweep.nodes.entries() {
            let node = &plan.program.nodes[node.node];
            for (parts, extent) in [&sweep.rows, &sweep.cols].into_iter().zip(node.extents) {
                for part in 0..parts.len() {
                    let needed = parts.part(part).interval(id);
                    let is_within = needed.is_empty() || (needed.begin() >= 0 && needed.end() <= extent);
                    assert!(
                        is_within,
                        "{}: {needed} of {extent} in part {part} of {}",
                        node.name,
                        parts.len()
                    );
                }
            }
        }
    }
}

#[test]
fn early_layers_and_deep_ones_have_tilings_of_their_own() {
    let graph = Graph::builtin("darknet19").expect("a built-in network");
    let options = PlanOptions { parallelism: 2, ..PlanOptions::default() };
    let objective = Objective::inference();
    let chosen = plan_on_threads(&graph, [2048, 2048], &objective, &options);
    let [early, deep] = [&chosen.sweeps[0], &chosen.sweeps[chosen.sweeps.len() - 2]];
    assert_eq!(
        [early.lanes, deep.lanes],
        [2, 1],
        "lanes of early layers, threads that share calls of deep ones"
    );
    assert!(early.least_rows < deep.least_rows, "{} and {}", early.least_rows, deep.least_rows);
    // nothing is gathered, so each further sweep begins with what one before has kept for it alone
    let cuts = &chosen.program.cuts;
    for (number, sweep) in chosen.sweeps.iter().enumerate() {
        let level = chosen.level_of(number);
        let ends = sweep.nodes.iter().filter(|node| node.is_terminal());
        assert!(ends.count() == 1, "sweep {number}: one end");
        if let Some(cut) = cuts.iter().find(|cut| chosen.program.nodes[**cut].level == level) {
            assert!(sweep.nodes.iter().any(|node| node.node == *cut), "sweep {number} computes its end");
            let later = &chosen.sweeps[number + 1].nodes;
            let loads = later.iter().filter(|node| matches!(node.action, Action::Load(_)));
            assert_eq!(loads.map(|node| node.node).collect::<Vec<_>>(), [*cut]);
        }
    }
    let windows =
        chosen.sweeps.iter().map(|sweep| sweep.in_flight * sweep.slot_elements.iter().sum::<usize>());
    assert_eq!(chosen.memory.windows_bytes, 4 * windows.max().expect("sweeps") as u64);
    // what is asked for is planned in one piece, and so is what a loss follows
    for options in [
        PlanOptions { hold: Hold::Slide, ..options.clone() },
        PlanOptions { lanes: Some(2), ..options.clone() },
        PlanOptions { band: Some(16), ..options.clone() },
        PlanOptions { hold: Hold::Materialise, ..options.clone() },
    ] {
        let plan = plan_on_threads(&graph, [2048, 2048], &objective, &options);
        assert_eq!(plan.program.cuts, [], "{options:?}");
        assert!(plan.sweeps.iter().all(|sweep| sweep.lanes == plan.lanes()), "{options:?}");
    }
    let step = plan_on_threads(&graph, [512, 512], &Objective::training(Loss::Sum), &options);
    assert_eq!(step.program.cuts, [], "sums with roundings");
    // a budget that holds no more windows is kept
    let budget = chosen.peak_bytes() - chosen.memory.windows_bytes / 2;
    let within = PlanOptions { memory_bytes: Some(budget), ..options };
    let within = plan_on_threads(&graph, [2048, 2048], &objective, &within);
    assert!(within.peak_bytes() <= budget, "{} of {budget}", within.peak_bytes());
}

fn plan_on_threads(graph: &Graph, extents: [usize; 2], objective: &Objective, options: &PlanOptions) -> Plan {
    let shapes = infer(graph, 1, &[extents]).expect("shapes");
    Planner::<f32>::new(graph, &shapes, objective, &Threads).plan(options).expect("a plan")
}

/// What is kept between sweeps and windows share the memory: a budget that holds a little more of the first may leave nothing to the second.
#[test]
fn more_memory_hardly_ever_makes_a_plan_slower() {
    let mut graph = Graph::new();
    let mut last = graph.add_input("x", 1).expect("an input");
    for (number, (channels, stride)) in
        [(8, 1), (8, 1), (16, 2), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)].into_iter().enumerate()
    {
        let conv = Conv2d { stride: [stride, stride], ..Conv2d::new(channels, [3, 3]).padded([1, 1]) };
        let y = graph.add_node(&format!("c{number}"), Op::Conv2d(conv), &[last]).expect("a convolution");
        let norm = Op::GroupNorm(GroupNorm::new(4));
        let y = graph.add_node(&format!("n{number}"), norm, &[y]).expect("a norm");
        let relu = Op::Activation(Activation::Relu);
        last = graph.add_node(&format!("r{number}"), relu, &[y]).expect("an activation");
    }
    graph.set_outputs(&[last]).expect("an output");
    let objective = Objective::inference();
    let extents = [128, 2048];
    let least = smallest(&graph, extents, &objective, &within(1));
    let most = plan(&graph, extents, &objective, &PlanOptions::default()).expect("a plan").peak_bytes();
    let (mut budget, mut fastest) = (least, f64::INFINITY);
    while budget < 2 * most {
        let plan = plan(&graph, extents, &objective, &within(budget)).expect("a plan");
        let seconds = plan.predicted_seconds;
        assert!(seconds <= 1.2 * fastest, "{seconds} s in {budget} bytes, {fastest} s in fewer");
        fastest = fastest.min(seconds);
        budget += budget / 40;
    }
}
