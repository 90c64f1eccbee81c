//! The network format: what it accepts, what it defaults to, and what it says when it refuses.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod format_networks;

use format_networks::network;
use proptest::prelude::*;
use tiled_graph::{
    Activation, AdaptivePool2d, AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, Dropout2d, Graph,
    GraphError, GroupNorm, InstanceNorm, LayerNorm, Linear, LocalResponseNorm, MaxPool2d, Op, PaddingMode,
    PartPooling, Prelu, ResizeMode, RmsNorm, Upsample, UpsampleTo,
};

/// A network of one node over an input `x` of 4 channels.
fn one(node: &str) -> String {
    format!(
        r#"{{"inputs": [{{"name": "x", "channels": 4}}], "nodes": [{{"name": "n", {node}}}], "outputs": ["n"]}}"#
    )
}

fn op(node: &str) -> Op {
    let graph = Graph::from_json(&one(node)).unwrap();
    graph.nodes()[0].op.clone()
}

fn error(text: &str) -> String {
    Graph::from_json(text).expect_err("the text is wrong").to_string()
}

#[test]
fn a_chain_with_every_attribute_written_out_is_read() {
    let text = r#"
        {"inputs": [{"name": "x", "channels": 3}],
         "nodes": [{"name": "c1", "op": "conv2d", "inputs": ["x"], "out_channels": 16, "kernel_size": [3,3], "stride": [1,1],
                    "padding": [1,1], "dilation": [1,1], "groups": 1, "bias": true, "padding_mode": "zeros"},
                   {"name": "r1", "op": "relu", "inputs": ["c1"]},
                   {"name": "p1", "op": "max_pool2d", "inputs": ["r1"], "kernel_size": [2,2], "stride": [2,2], "padding": [0,0],
                    "dilation": [1,1], "ceil_mode": false}],
         "outputs": ["p1"]}"#;
    let graph = Graph::from_json(text).unwrap();
    let ops: Vec<&Op> = graph.nodes().iter().map(|node| &node.op).collect();
    let conv = Op::Conv2d(Conv2d::new(16, [3, 3]).padded([1, 1]));
    assert_eq!(ops, [&conv, &Op::Activation(Activation::Relu), &Op::MaxPool2d(MaxPool2d::new([2, 2]))]);
    assert_eq!(graph.outputs(), [graph.value("p1").unwrap()]);
}

#[test]
fn attributes_default_as_in_pytorch() {
    let sized = r#""inputs": ["x"], "out_channels": 8, "kernel_size": 3"#;
    assert_eq!(op(&format!(r#""op": "conv2d", {sized}"#)), Op::Conv2d(Conv2d::new(8, [3, 3])));
    assert_eq!(
        op(&format!(r#""op": "conv_transpose2d", {sized}"#)),
        Op::ConvTranspose2d(ConvTranspose2d::new(8, [3, 3]))
    );
    let pooled = r#""inputs": ["x"], "kernel_size": [2, 3]"#;
    let max = MaxPool2d {
        kernel_size: [2, 3],
        stride: [2, 3],
        padding: [[0, 0]; 2],
        dilation: [1, 1],
        ceil_mode: false,
    };
    assert_eq!(op(&format!(r#""op": "max_pool2d", {pooled}"#)), Op::MaxPool2d(max));
    let avg = AvgPool2d {
        kernel_size: [2, 3],
        stride: [2, 3],
        padding: [[0, 0]; 2],
        ceil_mode: false,
        count_include_pad: true,
    };
    assert_eq!(op(&format!(r#""op": "avg_pool2d", {pooled}"#)), Op::AvgPool2d(avg));
    let norm = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track_running_stats: true };
    assert_eq!(op(r#""op": "batch_norm", "inputs": ["x"]"#), Op::BatchNorm(norm.clone()));
    assert_eq!(op(r#""op": "instance_norm", "inputs": ["x"]"#), Op::InstanceNorm(InstanceNorm::default()));
    assert_eq!(
        op(r#""op": "group_norm", "inputs": ["x"], "num_groups": 2"#),
        Op::GroupNorm(GroupNorm::new(2))
    );
    assert_eq!(op(r#""op": "layer_norm", "inputs": ["x"]"#), Op::LayerNorm(LayerNorm::default()));
    assert_eq!(
        op(r#""op": "layer_norm", "inputs": ["x"], "normalized_shape": [4]"#),
        Op::LayerNorm(LayerNorm::default())
    );
    assert_eq!(op(r#""op": "rms_norm", "inputs": ["x"]"#), Op::RmsNorm(RmsNorm::default()));
    assert_eq!(op(r#""op": "softmax", "inputs": ["x"], "dim": -3"#), Op::Softmax);
    assert_eq!(op(r#""op": "log_softmax", "inputs": ["x"]"#), Op::LogSoftmax);
    let local = Op::LocalResponseNorm(LocalResponseNorm::new(5));
    assert_eq!(op(r#""op": "local_response_norm", "inputs": ["x"], "size": 5"#), local);
    let means = r#""op": "batch_norm", "inputs": ["x"], "momentum": null, "track_running_stats": false"#;
    assert_eq!(op(means), Op::BatchNorm(BatchNorm { momentum: None, track_running_stats: false, ..norm }));
    for (key, wanted, got) in
        [("momentum", "a number or null", "\"none\""), ("track_running_stats", "true or false", "null")]
    {
        assert_eq!(
            error(&one(&format!(r#""op": "batch_norm", "inputs": ["x"], "{key}": {got}"#))),
            format!("batch_norm `n`: `{key}` wants {wanted}, got {got}")
        );
    }
    let leaky = Activation::LeakyRelu { slope: 0.01 };
    assert_eq!(op(r#""op": "leaky_relu", "inputs": ["x"]"#), Op::Activation(leaky));
    assert_eq!(op(r#""op": "gelu", "inputs": ["x"]"#), Op::Activation(Activation::Gelu));
    let linear = Linear { out_features: 5, in_features: None, bias: true };
    assert_eq!(op(r#""op": "linear", "inputs": ["x"], "out_features": 5"#), Op::Linear(linear));
    assert_eq!(op(r#""op": "dropout", "inputs": ["x"]"#), Op::Dropout(Dropout { p: 0.5 }));
    let twice = Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Scale([2.0, 2.0]) };
    assert_eq!(op(r#""op": "upsample", "inputs": ["x"], "scale_factor": 2"#), Op::Upsample(twice));
}

#[test]
fn operators_without_attributes_are_read_by_name() {
    for (name, wanted) in [
        ("relu", Op::Activation(Activation::Relu)),
        ("sigmoid", Op::Activation(Activation::Sigmoid)),
        ("tanh", Op::Activation(Activation::Tanh)),
        ("silu", Op::Activation(Activation::Silu)),
        ("relu6", Op::Activation(Activation::Clamp { min: 0.0, max: 6.0 })),
        ("hardtanh", Op::Activation(Activation::Clamp { min: -1.0, max: 1.0 })),
        ("clamp", Op::Activation(Activation::Clamp { min: f64::NEG_INFINITY, max: f64::INFINITY })),
        ("elu", Op::Activation(Activation::Elu { alpha: 1.0 })),
        ("selu", Op::Activation(Activation::Selu)),
        ("celu", Op::Activation(Activation::Celu { alpha: 1.0 })),
        ("softplus", Op::Activation(Activation::Softplus { beta: 1.0, threshold: 20.0 })),
        ("softsign", Op::Activation(Activation::Softsign)),
        ("hardsigmoid", Op::Activation(Activation::HardSigmoid)),
        ("hardswish", Op::Activation(Activation::HardSwish)),
        ("mish", Op::Activation(Activation::Mish)),
        ("logsigmoid", Op::Activation(Activation::LogSigmoid)),
        ("exp", Op::Activation(Activation::Exp)),
        ("log", Op::Activation(Activation::Log)),
        ("sqrt", Op::Activation(Activation::Sqrt)),
        ("abs", Op::Activation(Activation::Abs)),
        ("neg", Op::Activation(Activation::Neg)),
        ("reciprocal", Op::Activation(Activation::Reciprocal)),
        ("prelu", Op::Prelu(Prelu { num_parameters: 1, init: 0.25 })),
        ("dropout2d", Op::Dropout2d(Dropout2d { p: 0.5 })),
        ("global_avg_pool", Op::GlobalAvgPool),
        ("global_max_pool", Op::GlobalMaxPool),
        ("global_sum_pool", Op::GlobalSumPool),
        ("channel_max", Op::ChannelMax),
        ("channel_mean", Op::ChannelMean),
        ("channel_sum", Op::ChannelSum),
    ] {
        assert_eq!(op(&format!(r#""op": "{name}", "inputs": ["x"]"#)), wanted, "{name}");
    }
    for (name, wanted) in [
        ("add", Op::Add),
        ("mul", Op::Mul),
        ("sub", Op::Sub),
        ("div", Op::Div),
        ("minimum", Op::Minimum),
        ("maximum", Op::Maximum),
        ("concat", Op::Concat),
    ] {
        assert_eq!(op(&format!(r#""op": "{name}", "inputs": ["x", "x"]"#)), wanted, "{name}");
    }
}

#[test]
fn convolution_padding_has_five_forms() {
    let padding = |written: &str| {
        let node = format!(
            r#""op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": [4, 3], "dilation": [3, 1], "padding": {written}"#
        );
        match op(&node) {
            Op::Conv2d(conv) => conv.padding,
            other => panic!("{other:?} is not a convolution"),
        }
    };
    assert_eq!(padding("2"), [[2, 2], [2, 2]]);
    assert_eq!(padding("[1, 2]"), [[1, 1], [2, 2]]);
    assert_eq!(padding("[[1, 2], [3, 4]]"), [[1, 2], [3, 4]]);
    assert_eq!(padding("\"valid\""), [[0, 0], [0, 0]]);
    // d·(k − 1) is 9 rows and 2 columns; of an odd number the larger half is behind
    assert_eq!(padding("\"same\""), [[4, 5], [1, 1]]);
}

#[test]
fn upsampling_has_three_targets() {
    let target = |written: &str| match op(&format!(
        r#""op": "upsample", "inputs": ["x"], "mode": "bilinear", {written}"#
    )) {
        Op::Upsample(upsample) => (upsample.mode, upsample.to),
        other => panic!("{other:?} is not an upsampling"),
    };
    let bilinear = |corners| if corners { ResizeMode::LINEAR_ALIGNED } else { ResizeMode::LINEAR };
    assert_eq!(target(r#""size": [5, 7]"#), (bilinear(false), UpsampleTo::Size([5, 7])));
    assert_eq!(
        target(r#""scale_factor": 3, "align_corners": true"#),
        (bilinear(true), UpsampleTo::Scale([3.0, 3.0]))
    );
    let (mode, to) = target(r#""like": "x", "align_corners": null"#);
    assert_eq!((mode, to), (bilinear(false), UpsampleTo::Like(tiled_graph::ValueId(0))));
}

#[test]
fn adaptive_pools_of_one_pixel_are_the_global_ones() {
    let node = |name: &str, size: &str| format!(r#""op": "{name}", "inputs": ["x"], "output_size": {size}"#);
    assert_eq!(op(&node("adaptive_avg_pool2d", "1")), Op::GlobalAvgPool);
    assert_eq!(op(&node("adaptive_max_pool2d", "[1, 1]")), Op::GlobalMaxPool);
}

#[test]
fn adaptive_pools_of_several_pixels_have_a_size_for_each_axis() {
    let node = |name: &str, size: &str| format!(r#""op": "{name}", "inputs": ["x"], "output_size": {size}"#);
    let seven = AdaptivePool2d::new(PartPooling::Mean, [7, 7]);
    assert_eq!(op(&node("adaptive_avg_pool2d", "7")), Op::AdaptivePool2d(seven));
    let columns = AdaptivePool2d { pooling: PartPooling::Max, output_size: [None, Some(5)] };
    assert_eq!(op(&node("adaptive_max_pool2d", "[null, 5]")), Op::AdaptivePool2d(columns));
    assert_eq!(
        error(&one(&node("adaptive_avg_pool2d", "[7, 0]"))),
        "adaptive_avg_pool2d `n`: output_size is 0, must be at least 1"
    );
    assert_eq!(
        error(&one(&node("adaptive_avg_pool2d", "[7]"))),
        "adaptive_avg_pool2d `n`: `output_size` wants a whole number or null, or a pair [height, width] of them, got [7]"
    );
}

#[test]
fn numbers_of_input_channels_are_checked_where_they_stand() {
    let conv = r#""op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": 3, "in_channels""#;
    assert!(matches!(op(&format!("{conv}: 4")), Op::Conv2d(_)));
    assert_eq!(error(&one(&format!("{conv}: 3"))), "conv2d `n`: input has 4 channels, in_channels wants 3");
    assert_eq!(
        error(&one(r#""op": "batch_norm", "inputs": ["x"], "num_features": 8"#)),
        "batch_norm `n`: input has 4 channels, num_features wants 8"
    );
    for (attributes, message) in [
        (
            r#""op": "instance_norm", "num_features": 5"#,
            "instance_norm `n`: input has 4 channels, num_features wants 5",
        ),
        (
            r#""op": "group_norm", "num_groups": 2, "num_channels": 6"#,
            "group_norm `n`: input has 4 channels, num_channels wants 6",
        ),
        (
            r#""op": "layer_norm", "normalized_shape": 3"#,
            "layer_norm `n`: input has 4 channels, normalized_shape wants 3",
        ),
        (
            r#""op": "rms_norm", "normalized_shape": [3]"#,
            "rms_norm `n`: input has 4 channels, normalized_shape wants 3",
        ),
    ] {
        assert_eq!(error(&one(&format!(r#"{attributes}, "inputs": ["x"]"#))), message);
    }
    assert_eq!(
        error(&one(r#""op": "linear", "inputs": ["x"], "out_features": 8, "in_features": 9"#)),
        "linear `n`: input has 4 channels, in_features wants 9"
    );
}

#[test]
fn unknown_names_are_named_with_the_nearest_known_ones() {
    for (text, message) in [
        (
            one(r#""op": "Conv2d", "inputs": ["x"]"#),
            "node `n`: unknown operator `Conv2d`, nearest known: `conv2d`",
        ),
        (
            one(r#""op": "maxpool", "inputs": ["x"]"#),
            "node `n`: unknown operator `maxpool`, nearest known: `max_pool2d`",
        ),
        (one(r#""op": "wavelet_stack", "inputs": ["x"]"#), "node `n`: unknown operator `wavelet_stack`"),
        (
            one(r#""op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_sise": 3"#),
            "conv2d `n`: unknown key `kernel_sise`, nearest known: `kernel_size`",
        ),
        (one(r#""op": "relu", "inputs": ["x"], "inplace": true"#), "relu `n`: unknown key `inplace`"),
        (one(r#""op": "relu", "inputs": ["X1"]"#), "relu `n`: unknown input `X1`, nearest known: `x`"),
        (
            r#"{"inputs": [], "nodes": [], "output": []}"#.to_owned(),
            "network: unknown key `output`, nearest known: `outputs`",
        ),
        (
            r#"{"inputs": [{"name": "image", "channels": 1}], "nodes": [], "outputs": ["imag"]}"#.to_owned(),
            "network: unknown output `imag`, nearest known: `image`",
        ),
    ] {
        assert_eq!(error(&text), message);
    }
}

#[test]
fn operators_that_cannot_be_tiled_say_so_by_name() {
    for name in [
        "scaled_dot_product_attention",
        "MultiheadAttention",
        "flatten",
        "grid_sample",
        "cumsum",
        "roll",
        "fft2",
    ] {
        let message = error(&one(&format!(r#""op": "{name}", "inputs": ["x"]"#)));
        let start = format!("{name} `n` cannot be tiled: ");
        assert!(message.starts_with(&start) && message.len() > start.len() + 10, "{message}");
    }
    for (attributes, reason) in [
        (
            r#""op": "softmax", "inputs": ["x"], "dim": -1"#,
            "softmax `n` cannot be tiled: along other axes than the channels, dim 1, every pixel reads the sum over \
             its row, its column or the batch",
        ),
        (
            r#""op": "layer_norm", "inputs": ["x"], "normalized_shape": [4, 8, 8]"#,
            "layer_norm `n` cannot be tiled: over height and width it has a weight for each pixel; over the channels \
             it is one number, and `group_norm` with one group has statistics of the whole image",
        ),
    ] {
        assert_eq!(error(&one(attributes)), reason);
    }
}

#[test]
fn wrong_types_name_the_key_what_was_expected_and_what_was_found() {
    let conv = |attributes: &str| {
        one(&format!(r#""op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": 3, {attributes}"#))
    };
    for (text, message) in [
        (
            conv(r#""stride": "two""#),
            "conv2d `n`: `stride` wants a whole number or a pair [height, width] of them, got \"two\"",
        ),
        (
            conv(r#""dilation": [1, 1, 1]"#),
            "conv2d `n`: `dilation` wants a whole number or a pair [height, width] of them, got [1,1,1]",
        ),
        (
            conv(r#""stride": 1.5"#),
            "conv2d `n`: `stride` wants a whole number or a pair [height, width] of them, got 1.5",
        ),
        (
            conv(r#""padding": "full""#),
            "conv2d `n`: `padding` wants a whole number, a pair [height, width], [[top, bottom], [left, right]], \
             \"same\" or \"valid\", got \"full\"",
        ),
        (
            conv(r#""padding": [[1, 1], 1]"#),
            "conv2d `n`: `padding` wants a whole number, a pair [height, width], [[top, bottom], [left, right]], \
             \"same\" or \"valid\", got [[1,1],1]",
        ),
        (conv(r#""bias": 1"#), "conv2d `n`: `bias` wants true, false or the name of a parameter, got 1"),
        (conv(r#""groups": -1"#), "conv2d `n`: `groups` wants a whole number of at least 1, got -1"),
        (
            conv(r#""padding_mode": "circular""#),
            "conv2d `n`: `padding_mode` wants \"zeros\", \"reflect\" or \"replicate\", got \"circular\"",
        ),
        (one(r#""op": "relu", "inputs": "x""#), "relu `n`: `inputs` wants a list, got \"x\""),
        (one(r#""op": "relu", "inputs": [0]"#), "relu `n`: `inputs` wants a list of strings, got 0"),
        (one(r#""op": 7, "inputs": ["x"]"#), "node `n`: `op` wants a string, got 7"),
        (
            one(r#""op": "dropout", "inputs": ["x"], "p": {"a": [null, false]}"#),
            "dropout `n`: `p` wants a number, got {\"a\":[null,false]}",
        ),
        (
            one(r#""op": "upsample", "inputs": ["x"], "size": 2, "mode": "trilinear""#),
            "upsample `n`: `mode` wants \"nearest\", \"nearest-exact\", \"bilinear\" or \"bicubic\", got \"trilinear\"",
        ),
        (
            one(r#""op": "upsample", "inputs": ["x"], "size": 2, "align_corners": true"#),
            "upsample `n`: `align_corners` wants mode \"bilinear\" or \"bicubic\", got true",
        ),
        ("[1, 2]".to_owned(), "network: `network` wants an object, got [1,2]"),
        (
            r#"{"inputs": ["x"], "nodes": [], "outputs": []}"#.to_owned(),
            "network: `inputs[0]` wants an object, got \"x\"",
        ),
    ] {
        assert_eq!(error(&text), message);
    }
}

#[test]
fn missing_double_and_exclusive_keys_are_named() {
    for (text, message) in [
        (one(r#""inputs": ["x"]"#), "node `n`: key `op` is missing"),
        (one(r#""op": "relu""#), "relu `n`: key `inputs` is missing"),
        (
            one(r#""op": "conv2d", "inputs": ["x"], "kernel_size": 3"#),
            "conv2d `n`: key `out_channels` is missing",
        ),
        (one(r#""op": "relu", "op": "tanh", "inputs": ["x"]"#), "nodes[0]: key `op` stands twice"),
        (
            one(r#""op": "upsample", "inputs": ["x"]"#),
            "upsample `n`: wants exactly one of the keys `size`, `scale_factor`, `like`, got none",
        ),
        (
            one(r#""op": "upsample", "inputs": ["x"], "size": 4, "like": "x""#),
            "upsample `n`: wants exactly one of the keys `size`, `scale_factor`, `like`, got `size`, `like`",
        ),
        (r#"{"inputs": [{"channels": 1}]}"#.to_owned(), "inputs[0]: key `name` is missing"),
        (r#"{"inputs": []}"#.to_owned(), "network: key `nodes` is missing"),
        (r#"{"inputs": [], "nodes": [], "outputs": []}"#.to_owned(), "network has no outputs"),
    ] {
        assert_eq!(error(&text), message);
    }
}

#[test]
fn a_node_stands_after_its_inputs() {
    let text = r#"{"inputs": [{"name": "x", "channels": 1}],
        "nodes": [{"name": "a", "op": "relu", "inputs": ["b"]}, {"name": "b", "op": "relu", "inputs": ["x"]}],
        "outputs": ["a"]}"#;
    assert_eq!(error(text), "relu `a`: input `b` is defined later, a node must stand after its inputs");
    let of_itself = one(r#""op": "relu", "inputs": ["n"]"#);
    assert_eq!(error(&of_itself), "relu `n`: input `n` is defined later, a node must stand after its inputs");
}

#[test]
fn same_padding_refuses_strides() {
    let text = one(
        r#""op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": 3, "stride": [1, 2], "padding": "same""#,
    );
    assert_eq!(error(&text), "conv2d `n`: padding \"same\" wants stride 1, got 2");
}

#[test]
fn syntax_errors_name_line_and_column() {
    assert_eq!(error("{\"inputs\": [}"), "line 1, column 13: expected value");
    assert_eq!(error("{}\n x"), "line 2, column 2: trailing characters");
    let deep = "[".repeat(1000);
    assert!(matches!(Graph::from_json(&deep), Err(GraphError::Syntax { line: 1, .. })));
}

#[test]
fn long_values_are_cut_in_messages() {
    let text = one(&format!(r#""op": "relu", "inputs": "{}""#, "é".repeat(100)));
    assert_eq!(error(&text), format!("relu `n`: `inputs` wants a list, got \"{}…", "é".repeat(39)));
}

#[test]
fn padding_modes_survive_a_round_trip() {
    for padding_mode in [PaddingMode::Zeros, PaddingMode::Reflect, PaddingMode::Replicate] {
        let mut graph = Graph::new();
        let x = graph.add_input("x", 4).unwrap();
        let conv = Conv2d { padding_mode, padding: [[0, 1], [2, 3]], ..Conv2d::new(2, [5, 5]) };
        let n = graph.add_node("n", Op::Conv2d(conv), &[x]).unwrap();
        graph.set_outputs(&[n]).unwrap();
        assert_eq!(Graph::from_json(&graph.to_json()).unwrap(), graph);
    }
}

/// The blocks of a page between lines of three backticks that open with `json`.
fn json_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("```json\n") {
        let (block, behind) = after.split_once("```").unwrap();
        blocks.push(block.to_owned());
        rest = behind;
    }
    blocks
}

#[test]
fn the_networks_of_the_documentation_are_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/network-format.md");
    let blocks = json_blocks(&std::fs::read_to_string(page).unwrap());
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        assert!(Graph::from_json(&block).is_ok(), "{block}");
    }
}

#[test]
fn every_operator_occurs_in_the_generated_networks() {
    use proptest::strategy::ValueTree;
    use std::collections::BTreeSet;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..600 {
        let graph = network().new_tree(&mut runner).unwrap().current();
        seen.extend(graph.nodes().iter().map(|node| node.op.name()));
    }
    assert_eq!(seen.len(), 66, "{seen:?}");
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_same_network(graph in network()) {
        let text = graph.to_json();
        prop_assert_eq!(Graph::from_json(&text).unwrap(), graph, "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,80}") {
        let _ = Graph::from_json(&text);
    }

    #[test]
    fn no_cut_of_a_network_is_a_network(graph in network(), cut in any::<prop::sample::Index>()) {
        let text = graph.to_json();
        let whole = text.trim_end();
        let mut end = cut.index(whole.len());
        while !whole.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(Graph::from_json(&whole[..end]).is_err());
    }
}
