//! Networks whose parallel convolutions are merged compute what they did.

use tiled::exec::NoProgress;
use tiled::graph::{
    Activation, Conv2d, Graph, Objective, Op, PlanOptions, Rng, ValueId, initialise, merge, params,
};
use tiled::prelude::CpuBackend;
use tiled_tests::{Job, recompute, whole};

/// A network over `x`, of eight channels, whose nodes these are; the last one is the output, and whatever else is said to be.
fn network(nodes: &str, outputs: &str) -> Graph {
    let text = format!(
        r#"{{"inputs": [{{"name": "x", "channels": 8}}], "nodes": [{nodes}], "outputs": [{outputs}]}}"#
    );
    Graph::from_json(&text).expect("a network")
}

fn conv(name: &str, input: &str, rest: &str) -> String {
    format!(r#"{{"name": "{name}", "op": "conv2d", "inputs": ["{input}"], "out_channels": 8, {rest}}}"#)
}

fn node(name: &str, op: &str, inputs: &[&str], rest: &str) -> String {
    let inputs: Vec<String> = inputs.iter().map(|input| format!("\"{input}\"")).collect();
    format!(r#"{{"name": "{name}", "op": "{op}", "inputs": [{}]{rest}}}"#, inputs.join(", "))
}

/// The names of the nodes that are left, after what they compute was compared, with more than one tile too.
#[track_caller]
fn merged(graph: &Graph) -> Vec<String> {
    let mut job = Job::<f64>::random(graph.clone(), 2, [19, 26], Objective::inference(), 3);
    let mut rng = Rng::new(7);
    for (name, values) in job.parameters.iter_mut() {
        let least = if name.ends_with("running_var") { 0.5 } else { -1.0 };
        values.iter_mut().for_each(|value| *value = least + (1.0 - least) * rng.uniform());
    }
    let merged = merge(graph, job.parameters.clone()).expect("merges");
    let other = Job { graph: merged.graph.clone(), parameters: merged.parameters, ..job.clone() };
    let shapes = tiled::graph::infer(&other.graph, 2, &[[19, 26]]).expect("fits");
    let other = Job { shapes, ..other };
    let backend = CpuBackend::new().expect("an instruction set");
    let run = |job: &Job<f64>, options: &PlanOptions| {
        job.run(&backend, job.plan(&backend, options), 2, &NoProgress).outputs
    };
    let expected = run(&job, &whole());
    for options in [whole(), recompute([2, 3])] {
        for (got, expected) in run(&other, &options).iter().zip(&expected) {
            let largest = expected.data().iter().fold(0.0_f64, |most, value| most.max(value.abs()));
            let pairs = got.data().iter().zip(expected.data());
            let off = pairs.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(largest > 0.1 && off <= 1e-13 * largest, "{off} of {largest}");
        }
    }
    let names: Vec<String> = merged.graph.nodes().iter().map(|node| node.name.clone()).collect();
    assert_eq!(names.len() < graph.nodes().len(), merged.convolutions > 0, "{names:?}");
    names
}

#[test]
fn branches_of_repvgg_are_one_convolution() {
    for groups in [1, 2, 8] {
        let of = |kernel: i64| {
            format!(
                r#""kernel_size": {kernel}, "padding": {}, "bias": false, "groups": {groups}"#,
                kernel / 2
            )
        };
        let nodes = [
            conv("c3", "x", &of(3)),
            node("n3", "batch_norm", &["c3"], ""),
            conv("c1", "x", &of(1)),
            node("n1", "batch_norm", &["c1"], r#", "affine": false"#),
            node("n0", "batch_norm", &["x"], ""),
            node("a", "add", &["n3", "n1"], ""),
            node("b", "add", &["a", "n0"], ""),
            node("r", "relu", &["b"], ""),
        ];
        assert_eq!(merged(&network(&nodes.join(","), r#""r""#)), ["b", "r"]);
    }
}

#[test]
fn strides_dilations_and_kernels_of_one_row_or_column() {
    let strided = |kernel: &str, padding: &str| {
        format!(r#""kernel_size": {kernel}, "padding": {padding}, "stride": [2, 1], "dilation": [1, 2]"#)
    };
    let nodes = [
        conv("whole", "x", &strided("3", "[1, 2]")),
        conv("row", "x", &strided("[1, 3]", "[0, 2]")),
        conv("column", "x", &strided("[3, 1]", "[1, 0]")),
        conv("point", "x", &strided("1", "0")),
        node("sum", "add", &["row", "whole", "point", "column"], ""),
    ];
    assert_eq!(merged(&network(&nodes.join(","), r#""sum""#)), ["sum"]);
    let beside = [
        conv("left", "x", r#""kernel_size": [1, 5], "padding": [[0, 0], [3, 1]]"#),
        conv("right", "x", r#""kernel_size": [1, 5], "padding": [[0, 0], [1, 3]]"#),
        node("sum", "add", &["left", "right"], ""),
    ];
    assert_eq!(merged(&network(&beside.join(","), r#""sum""#)), ["sum"]);
}

#[test]
fn numbers_and_factors_for_each_channel_scale_a_branch() {
    let nodes = [
        conv("c", "x", r#""kernel_size": 3, "padding": 1"#),
        node("half", "mul", &["c"], r#", "scalar": 0.5"#),
        node("from", "sub", &["half"], r#", "scalar": 2, "reversed": true"#),
        node("per", "div", &["x"], r#", "per_channel": true"#),
        node("less", "sub", &["per"], r#", "scalar": 0.25"#),
        node("sum", "add", &["less", "from"], ""),
    ];
    assert_eq!(merged(&network(&nodes.join(","), r#""sum""#)), ["sum"]);
}

#[test]
fn other_terms_stay_beside_a_merged_convolution() {
    let nodes = [
        node("s", "sigmoid", &["x"], ""),
        conv("c3", "x", r#""kernel_size": 3, "padding": 1"#),
        conv("d5", "s", r#""kernel_size": 5, "padding": 2, "groups": 8"#),
        conv("d3", "s", r#""kernel_size": 3, "padding": 1, "groups": 8"#),
        node("a", "add", &["c3", "d5"], ""),
        node("b", "add", &["d3", "s", "a"], ""),
    ];
    assert_eq!(merged(&network(&nodes.join(","), r#""b""#)), ["s", "c3", "d3", "b"]);
}

#[test]
fn the_value_itself_is_added_once() {
    let three = r#""kernel_size": 3, "padding": 1"#;
    let nodes = [
        conv("dense", "x", three),
        conv("each", "x", &format!(r#"{three}, "groups": 8"#)),
        node("n", "batch_norm", &["x"], ""),
        node("sum", "add", &["dense", "each", "x", "n", "x"], ""),
    ];
    assert_eq!(merged(&network(&nodes.join(","), r#""sum""#)), ["each", "dense", "sum"]);
}

#[test]
fn a_branch_that_reaches_too_far_stays_beside_the_others() {
    let nodes = [
        conv("far", "x", r#""kernel_size": 3, "padding": 7, "dilation": 7"#),
        conv("c3", "x", r#""kernel_size": 3, "padding": 1"#),
        conv("c1", "x", r#""kernel_size": 1"#),
        node("a", "add", &["far", "c1"], ""),
        node("b", "add", &["a", "c3"], ""),
    ];
    assert_eq!(merged(&network(&nodes.join(","), r#""b""#)), ["far", "c1", "b"]);
}

#[test]
fn sums_of_a_hundred_thousand_terms_take_no_time() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 1).expect("fits");
    let mut sum = x;
    for place in 0..100_000 {
        let mut add = |kind: char, op, inputs: &[ValueId]| {
            graph.add_node(&format!("{kind}{place}"), op, inputs).expect("fits")
        };
        let other = add('r', Op::Activation(Activation::Relu), &[x]);
        let conv = add('c', Op::Conv2d(Conv2d::new(1, [1, 1])), &[other]);
        sum = add('s', Op::Add, &[sum, conv]);
    }
    graph.set_outputs(&[sum]).expect("fits");
    let parameters = initialise::<f32>(&params(&graph), 1);
    assert_eq!(merge(&graph, parameters).expect("merges").convolutions, 0);
}

#[test]
fn parameters_that_were_released_are_refused() {
    let nodes = [
        conv("a", "x", r#""kernel_size": 1"#),
        conv("b", "x", r#""kernel_size": 1"#),
        node("sum", "add", &["a", "b"], ""),
    ];
    let graph = network(&nodes.join(","), r#""sum""#);
    let mut parameters = initialise::<f32>(&params(&graph), 1);
    parameters.release(0);
    let error = merge(&graph, parameters).expect_err("they are gone").to_string();
    assert!(error.contains("a.weight"), "{error}");
}

#[test]
fn parameters_may_be_shared_with_branches_and_with_what_stays() {
    let three = r#""kernel_size": 3, "padding": 1"#;
    let shared = |what: &str| format!(r#"{three}, "{what}": "c.{what}""#);
    let nodes = [
        conv("c", "x", three),
        conv("d", "x", &shared("bias")),
        node("sum", "add", &["c", "d"], ""),
        conv("e", "sum", &shared("weight")),
        conv("f", "e", r#""kernel_size": 3, "padding": 1, "weight": "e.weight""#),
    ];
    assert_eq!(merged(&network(&nodes.join(","), r#""f""#)), ["sum", "e", "f"]);
}

#[test]
fn what_would_cost_more_or_is_read_elsewhere_stays() {
    let three = r#""kernel_size": 3, "padding": 1"#;
    let stays = |nodes: &[String], outputs: &str| {
        let names = merged(&network(&nodes.join(","), outputs));
        assert_eq!(names.len(), nodes.len(), "{names:?}");
    };
    // 9 taps for 6
    let row = conv("row", "x", r#""kernel_size": [1, 3], "padding": [0, 1]"#);
    let column = conv("column", "x", r#""kernel_size": [3, 1], "padding": [1, 0]"#);
    stays(&[row, column, node("sum", "add", &["row", "column"], "")], r#""sum""#);
    // a dense kernel for one of each channel
    let dense = conv("dense", "x", r#""kernel_size": 1"#);
    let each = conv("each", "x", &format!(r#"{three}, "groups": 8"#));
    stays(&[dense.clone(), each, node("sum", "add", &["dense", "each"], "")], r#""sum""#);
    // an output, and a value that is read twice
    let both = [dense.clone(), conv("c", "x", three), node("sum", "add", &["dense", "c"], "")];
    stays(&both, r#""sum", "c""#);
    let twice = [&both[..], &[node("r", "relu", &["c"], ""), node("all", "add", &["r", "sum"], "")]].concat();
    stays(&twice, r#""all""#);
    // padding that shows the image
    let mirrored = conv("c", "x", &format!(r#"{three}, "padding_mode": "reflect""#));
    stays(&[dense.clone(), mirrored, node("sum", "add", &["dense", "c"], "")], r#""sum""#);
    // statistics of the image
    let of_image = node("n", "instance_norm", &["x"], "");
    stays(&[dense, of_image, node("sum", "add", &["dense", "n"], "")], r#""sum""#);
}
