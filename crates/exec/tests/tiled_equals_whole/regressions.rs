//! What once was wrong.

use tiled_exec::{Executor, Io, MemorySink, NoProgress};
use tiled_graph::{
    Activation, Conv2d, Graph, Hold, Loss, Objective, Op, Parameters, PlanOptions, Planner, Tiling, ValueId,
    initialise, lower, params,
};
use tiled_graph::{infer, program::NodeKind};
use tiled_kernel::{Epilogue, Kernel, Reference};

use crate::run::{Case, assert_same, source};

#[test]
fn a_convolution_that_reads_nothing_but_padding_runs_in_tiles() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("new");
    // outputs read the rows −3 and 1 of one
    let conv = Conv2d { stride: [4, 4], ..Conv2d::new(2, [1, 1]).padded([3, 3]) };
    let y = graph.add_node("c", Op::Conv2d(conv), &[x]).expect("fits");
    graph.set_outputs(&[y]).expect("known");
    let objective =
        Objective { outputs: true, grad_inputs: true, ..Objective::training(Loss::MeanSquaredError) };
    let case = Case { graph: &graph, batch: 2, extents: [1, 1], objective: &objective };
    for hold in [Hold::Recompute, Hold::Slide] {
        let options = PlanOptions { hold, tiling: Tiling::Grid([2, 2]), ..PlanOptions::default() };
        let tiled = case.run(&options);
        assert!(tiled.tiles > 1, "{hold:?}");
        assert_same("all padding", &case.whole(), &tiled);
    }
}

#[test]
fn the_loss_of_three_outputs_does_not_depend_on_checkpoints() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 1).expect("new");
    let mut values = vec![x];
    for name in ["a", "b", "c"] {
        let conv = Op::Conv2d(Conv2d::new(1, [3, 3]).padded([1, 1]));
        values.push(graph.add_node(name, conv, &values[values.len() - 1..]).expect("fits"));
    }
    // the outputs behind the checkpoint come first: their losses are ready last
    graph.set_outputs(&[values[3], values[2], values[1]]).expect("known");
    let objective = Objective::training(Loss::Sum);
    for extent in 9..25 {
        let case = Case { graph: &graph, batch: 1, extents: [extent, 11], objective: &objective };
        let checkpoints = Some(vec![values[1]]);
        let options = PlanOptions {
            hold: Hold::Slide,
            tiling: Tiling::Tile([2, 11]),
            checkpoints,
            ..PlanOptions::default()
        };
        let (whole, tiled) = (case.whole(), case.run(&options));
        assert_eq!(whole.loss.map(f64::to_bits), tiled.loss.map(f64::to_bits), "{extent} rows");
    }
}

/// A checkpoint keeps an operator and the activation behind it apart; fused or not, the bits must be the same.
#[test]
fn only_an_exact_activation_is_fused() {
    for activation in [
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.1 },
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::Gelu,
    ] {
        let mut graph = Graph::new();
        let x = graph.add_input("x", 1).expect("new");
        let conv = graph.add_node("c", Op::Conv2d(Conv2d::new(1, [3, 3])), &[x]).expect("fits");
        let y = graph.add_node("a", Op::Activation(activation), &[conv]).expect("fits");
        graph.set_outputs(&[y]).expect("known");
        let shapes = infer(&graph, 1, &[[9, 9]]).expect("fits");
        let is_fused = |checkpoints: &[ValueId]| {
            let program = lower(&graph, &shapes, &Objective::inference(), checkpoints).expect("lowers");
            program.nodes.iter().any(|node| {
                matches!(
                    node.kind,
                    NodeKind::Compute(Kernel::Conv2d { epilogue: Epilogue { activation: Some(_), .. }, .. })
                )
            })
        };
        assert_eq!(is_fused(&[]), activation == Activation::Relu, "{activation:?}");
        assert!(!is_fused(&[conv]), "{activation:?} behind a checkpoint");
    }
}

#[test]
fn weights_that_changed_between_runs_are_packed_again() {
    let graph = Graph::builtin("light").expect("it is built in");
    let shapes = infer(&graph, 1, &[[12, 20]]).expect("fits");
    let objective = Objective::inference();
    let plan = Planner::<f64>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default());
    let plan = plan.expect("plans");
    let input = source(shapes.all()[0], 3);
    let run = |executor: &mut Executor<'_, f64>, parameters: &mut Parameters<f64>| {
        let output = MemorySink::new(shapes.shape(graph.outputs()[0])).expect("small");
        let io = Io { inputs: vec![&input], outputs: vec![&output], ..Io::default() };
        executor.run(parameters, &io, &NoProgress).expect("runs");
        output.into_tensor().data().to_vec()
    };
    let mut executor = Executor::new(plan.clone(), &Reference, 1).expect("starts");
    let mut parameters = initialise::<f64>(&params(&graph), 7);
    let before = run(&mut executor, &mut parameters);
    assert_eq!(run(&mut executor, &mut parameters), before, "nothing changed");
    parameters.data_mut(0).expect("there are some")[0] += 1.0;
    let after = run(&mut executor, &mut parameters);
    assert_ne!(after, before);
    let mut fresh = Executor::new(plan, &Reference, 1).expect("starts");
    assert_eq!(after, run(&mut fresh, &mut parameters));
    let mut others = initialise::<f64>(&params(&graph), 8);
    assert_eq!(run(&mut executor, &mut others), run(&mut fresh, &mut others), "other parameters");
}

/// What reads weights may compute rows ahead of its readers: the bits stay, and the calls are fewer.
#[test]
fn calls_of_more_rows_than_were_asked_for_give_the_same() {
    for (name, extents, objective) in [
        ("resnet18", [70, 33], Objective::inference()),
        ("unet", [48, 32], Objective { outputs: true, ..Objective::training(Loss::Sum) }),
    ] {
        let graph = Graph::builtin(name).expect("it is built in");
        let case = Case { graph: &graph, batch: 1, extents, objective: &objective };
        let whole = case.whole();
        let of = |least_rows| {
            let (hold, tiling) = (Hold::Slide, Tiling::Grid([1, 2]));
            case.run(&PlanOptions { hold, tiling, band: Some(1), least_rows, ..PlanOptions::default() })
        };
        let one = of(None);
        for least_rows in [2, 3, 7, 1000, i64::MAX] {
            let more = of(Some(least_rows));
            assert!(
                more.calls < one.calls,
                "{name}: {} calls, {} with {least_rows} rows",
                one.calls,
                more.calls
            );
            assert_same(name, &whole, &more);
        }
    }
}

/// Values behind gates, each kept whole until the mean of all of it is known; those that no sweep needs together share a file.
#[test]
fn values_that_share_a_file_are_those_of_memory() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).expect("new");
    let mut last = x;
    for gate in 0..6 {
        let mut add = |name: &str, op: Op, inputs: &[ValueId]| {
            graph.add_node(&format!("{name}{gate}"), op, inputs).expect("fits")
        };
        let value = add("v", Op::Conv2d(Conv2d::new(3 + gate % 3, [3, 3]).padded([1, 1])), &[last]);
        let mean = add("m", Op::GlobalAvgPool, &[value]);
        last = add("g", Op::Mul, &[value, mean]);
    }
    graph.set_outputs(&[last]).expect("known");
    for objective in [Objective::inference(), Objective::training(Loss::Sum)] {
        let case = Case { graph: &graph, batch: 2, extents: [37, 29], objective: &objective };
        let shapes = infer(&graph, 2, &[[37, 29]]).expect("fits");
        let planner = Planner::<f64>::new(&graph, &shapes, &objective, &Reference);
        let within = |memory_bytes| PlanOptions {
            memory_bytes,
            temporary_files: true,
            tiling: Tiling::Grid([3, 2]),
            ..PlanOptions::default()
        };
        let peak = planner.plan(&within(None)).expect("plans").peak_bytes();
        let in_files = (1..64).rev().map(|part| within(Some(peak * part / 64))).find_map(|options| {
            let plan = planner.plan(&options).ok().filter(|plan| plan.stores_in_files)?;
            Some((options, plan))
        });
        let (options, plan) = in_files.expect("files hold what memory does not");
        let mut slots: Vec<_> = plan.store_slots.iter().flatten().collect();
        let values = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert!(slots.len() < values, "{values} values in {} files", slots.len());
        let tiled = case.run(&options);
        assert!(tiled.tiles > 1);
        assert_same("gates in files", &case.whole(), &tiled);
    }
}
