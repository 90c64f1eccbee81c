//! Parameters that several nodes read: how they are named, checked, listed and written.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use tiled_graph::{
    Activation, BatchNorm, Conv2d, ConvTranspose2d, Graph, Op, ParamKind, ParamTensor, Parameters, ValueId,
    initialise, params,
};

use ParamKind::{Bias, NumBatchesTracked, RunningMean, RunningVar, Weight};

/// `x` of 4 channels, `a` from 4 to 4 channels, and `wide` from 4 to 8.
fn start() -> (Graph, ValueId) {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 4).unwrap();
    let a = graph.add_node("a", conv(4), &[x]).unwrap();
    graph.add_node("wide", conv(8), &[a]).unwrap();
    (graph, a)
}

fn conv(channels: usize) -> Op {
    Op::Conv2d(Conv2d::new(channels, [3, 3]).padded([1, 1]))
}

fn error(op: Op, shared: &[(ParamKind, &str)]) -> String {
    let (mut graph, a) = start();
    let before = graph.clone();
    let error = graph.add_node_sharing("b", op, &[a], shared).expect_err("the node is wrong");
    assert_eq!(graph, before, "a refused node changed the graph");
    error.to_string()
}

fn names(graph: &Graph) -> Vec<String> {
    params(graph).into_iter().map(|spec| spec.name).collect()
}

#[test]
fn a_shared_parameter_is_listed_once() {
    let (mut graph, a) = start();
    let b = graph.add_node_sharing("b", conv(4), &[a], &[(Weight, "a.weight")]).unwrap();
    // by the name that the node in between has for it
    let c = graph.add_node_sharing("c", conv(4), &[b], &[(Bias, "b.bias"), (Weight, "b.weight")]).unwrap();
    graph.set_outputs(&[c]).unwrap();
    assert_eq!(names(&graph), ["a.weight", "a.bias", "wide.weight", "wide.bias", "b.bias"]);
    let specs = params(&graph);
    assert_eq!((specs[0].node, specs[4].node), (0, 2));
    // what others read starts as if they did not
    let alone = params(&start().0);
    assert_eq!(initialise::<f32>(&specs, 1).get("a.weight"), initialise::<f32>(&alone, 1).get("a.weight"));
    let given = initialise::<f32>(&specs, 1).into_tensors();
    Parameters::new(&specs, given).unwrap();
}

#[test]
fn a_shared_parameter_may_be_given_under_any_of_its_names_or_several_that_agree() {
    let (mut graph, a) = start();
    let b = graph.add_node_sharing("b", conv(4), &[a], &[(Weight, "a.weight")]).unwrap();
    graph.set_outputs(&[b]).unwrap();
    let specs = params(&graph);
    assert_eq!(specs[0].names().collect::<Vec<_>>(), ["a.weight", "b.weight"]);
    let whole = initialise::<f32>(&specs, 1);
    let mut given = whole.clone().into_tensors();
    given[0].name = "b.weight".to_owned();
    assert_eq!(Parameters::new(&specs, given.clone()).unwrap(), whole);
    given.push(ParamTensor { name: "a.weight".to_owned(), ..given[0].clone() });
    assert_eq!(Parameters::new(&specs, given.clone()).unwrap(), whole);
    // zeros of two signs are equal and have other bits
    let copy = given.len() - 1;
    (given[0].data[17], given[copy].data[17]) = (0.0, -0.0);
    let error = Parameters::new(&specs, given.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "parameters `b.weight` and `a.weight` are one in this network, but differ at element 17"
    );
    given[copy].name = "b.weight".to_owned();
    let error = Parameters::new(&specs, given).unwrap_err();
    assert_eq!(error.to_string(), "parameter `b.weight` is given twice");
}

#[test]
fn parameters_of_a_network_that_lists_them_otherwise_are_not_taken_for_its_own() {
    let specs = params(&start().0);
    let mut reversed = specs.clone();
    reversed.reverse();
    let error = initialise::<f32>(&reversed, 1).check(&specs).unwrap_err();
    assert_eq!(error.to_string(), "parameter `wide.bias` does not stand where this network has it");
}

#[test]
fn the_format_names_shared_parameters() {
    let text = r#"{"inputs": [{"name": "x", "channels": 4}],
      "nodes": [{"name": "a", "op": "conv2d", "inputs": ["x"], "out_channels": 4, "kernel_size": 3, "padding": 1},
                {"name": "n", "op": "batch_norm", "inputs": ["a"], "momentum": null},
                {"name": "b", "op": "conv2d", "inputs": ["n"], "out_channels": 4, "kernel_size": 3, "padding": 1,
                 "weight": "a.weight", "bias": "a.bias"},
                {"name": "m", "op": "batch_norm", "inputs": ["b"], "momentum": null, "weight": "n.weight", "bias": "n.bias",
                 "running_mean": "n.running_mean", "running_var": "n.running_var",
                 "num_batches_tracked": "n.num_batches_tracked"}],
      "outputs": ["m"]}"#;
    let graph = Graph::from_json(text).unwrap();
    let shared = |node: usize| {
        let of = graph.nodes()[node].shared.iter();
        of.map(|shared| (shared.kind, shared.node)).collect::<Vec<_>>()
    };
    assert_eq!(shared(2), [(Weight, 0), (Bias, 0)]);
    let all = [Weight, Bias, RunningMean, RunningVar, NumBatchesTracked];
    assert_eq!(shared(3), all.map(|kind| (kind, 1)));
    assert_eq!(names(&graph).len(), 7);
    let written = graph.to_json();
    assert!(
        written.contains(r#""bias":"a.bias""#) && written.contains(r#""weight":"a.weight""#),
        "{written}"
    );
    assert!(written.contains(r#""num_batches_tracked":"n.num_batches_tracked""#), "{written}");
    assert_eq!(Graph::from_json(&written).unwrap(), graph);
    // node by node, as the C interface adds them
    let mut again = Graph::new();
    let x = again.add_input("x", 4).unwrap();
    let sizes = r#""out_channels": 4, "kernel_size": 3, "padding": 1"#;
    let a = again.add_node_from_json("a", "conv2d", &format!("{{{sizes}}}"), &[x]).unwrap();
    let b = format!(r#"{{{sizes}, "weight": "a.weight", "bias": "a.bias"}}"#);
    again.add_node_from_json("b", "conv2d", &b, &[a]).unwrap();
    assert_eq!(again.nodes()[1].shared.len(), 2);
}

#[test]
fn a_convolution_and_a_transposed_one_can_share_their_weights() {
    let mut graph = Graph::new();
    let x = graph.add_input("x", 3).unwrap();
    let down = graph.add_node("down", Op::Conv2d(Conv2d::new(8, [2, 2])), &[x]).unwrap();
    let up = Op::ConvTranspose2d(ConvTranspose2d::new(3, [2, 2]));
    graph.add_node_sharing("up", up, &[down], &[(Weight, "down.weight")]).unwrap();
    assert_eq!(names(&graph), ["down.weight", "down.bias", "up.bias"]);
}

#[test]
fn shapes_that_differ_name_both_nodes_and_both_shapes() {
    assert_eq!(
        error(conv(4), &[(Weight, "wide.weight")]),
        "conv2d `b`: `weight` has shape [4, 4, 3, 3], the shared `wide.weight` has [8, 4, 3, 3]"
    );
    assert_eq!(
        error(Op::BatchNorm(BatchNorm::default()), &[(Bias, "wide.bias")]),
        "batch_norm `b`: `bias` has shape [4], the shared `wide.bias` has [8]"
    );
}

#[test]
fn names_that_cannot_be_shared_are_told() {
    for (shared, message) in [
        (
            (Weight, "a.wieght"),
            "conv2d `b`: `weight` names `a.wieght`, no node before it has that parameter, nearest known: `a.weight`",
        ),
        (
            (Weight, "b.weight"),
            "conv2d `b`: `weight` names `b.weight`, no node before it has that parameter, nearest known: `a.weight`",
        ),
        (
            (Weight, "a.running_var"),
            "conv2d `b`: `weight` names `a.running_var`, no node before it has that parameter",
        ),
        (
            (Weight, "x.weight"),
            "conv2d `b`: `weight` names `x.weight`, no node before it has that parameter, nearest known: `a.weight`",
        ),
        ((Weight, "a.bias"), "conv2d `b`: `weight` names `a.bias`, wants a `weight`"),
    ] {
        assert_eq!(error(conv(4), &[shared]), message);
    }
    let relu = Op::Activation(Activation::Relu);
    assert_eq!(error(relu, &[(Weight, "a.weight")]), "relu `b`: has no parameter `weight`");
    let bare = Op::Conv2d(Conv2d { bias: false, ..Conv2d::new(4, [3, 3]) });
    assert_eq!(error(bare, &[(Bias, "a.bias")]), "conv2d `b`: has no parameter `bias`");
    let twice = [(Weight, "a.weight"), (Weight, "a.weight")];
    assert_eq!(error(conv(4), &twice), "conv2d `b`: key `weight` stands twice");
}

#[test]
fn the_format_says_what_it_wants_to_be_named() {
    let error = |attributes: &str| {
        let text = format!(
            r#"{{"inputs": [{{"name": "x", "channels": 4}}],
              "nodes": [{{"name": "n", "inputs": ["x"], {attributes}}}], "outputs": ["n"]}}"#
        );
        Graph::from_json(&text).unwrap_err().to_string()
    };
    let conv = r#""op": "conv2d", "out_channels": 4, "kernel_size": 3"#;
    for (attributes, message) in [
        (format!(r#"{conv}, "weight": 3"#), "conv2d `n`: `weight` wants the name of a parameter, got 3"),
        (
            format!(r#"{conv}, "bias": 3"#),
            "conv2d `n`: `bias` wants true, false or the name of a parameter, got 3",
        ),
        (
            format!(r#"{conv}, "weight": "n.weight""#),
            "conv2d `n`: `weight` names `n.weight`, no node before it has that parameter",
        ),
        (
            r#""op": "batch_norm", "bias": true"#.to_owned(),
            "batch_norm `n`: `bias` wants the name of a parameter, got true",
        ),
        (
            r#""op": "batch_norm", "affine": false, "bias": "n.bias""#.to_owned(),
            "batch_norm `n`: has no parameter `bias`",
        ),
        (r#""op": "relu", "weight": "a""#.to_owned(), "relu `n`: unknown key `weight`"),
    ] {
        assert_eq!(error(&attributes), message);
    }
}
