//! What the builder refuses, and what it says.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

use tiled_graph::{
    Activation, AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, Graph, GraphError, GroupNorm,
    InstanceNorm, LayerNorm, Linear, LocalResponseNorm, MaxPool2d, Op, ResizeMode, RmsNorm, Upsample,
    UpsampleTo, ValueId,
};

const RELU: Op = Op::Activation(Activation::Relu);

/// A network of the inputs `x` (6 channels) and `y` (4 channels).
fn start() -> (Graph, ValueId, ValueId) {
    let mut graph = Graph::new();
    let (x, y) = (graph.add_input("x", 6).unwrap(), graph.add_input("y", 4).unwrap());
    (graph, x, y)
}

fn error(op: Op) -> String {
    let (mut graph, x, _) = start();
    let before = graph.clone();
    let error = graph.add_node("n", op, &[x]).expect_err("the node is wrong");
    assert_eq!(graph, before, "a refused node changed the graph");
    error.to_string()
}

#[test]
fn names_are_unique_and_have_no_empty_parts() {
    let (mut graph, x, _) = start();
    graph.add_node("n", RELU, &[x]).unwrap();
    for (name, message) in [
        ("x", "the name `x` is used twice"),
        ("n", "the name `n` is used twice"),
        ("", "the name `` must not be empty, nor begin or end with `.`, nor have `..`"),
        ("a..b", "the name `a..b` must not be empty, nor begin or end with `.`, nor have `..`"),
    ] {
        assert_eq!(graph.add_node(name, RELU, &[x]).unwrap_err().to_string(), message);
        assert_eq!(graph.add_input(name, 1).unwrap_err().to_string(), message);
    }
    let late = graph.add_input("z", 1).unwrap_err().to_string();
    assert_eq!(late, "input `z` is added after a node, inputs come first");
    let empty = Graph::new().add_input("x", 0).unwrap_err().to_string();
    assert_eq!(empty, "input `x`: channels is 0, must be at least 1");
}

#[test]
fn values_are_found_by_name_and_by_number() {
    let (mut graph, x, y) = start();
    let n = graph.add_node("n", RELU, &[y]).unwrap();
    assert_eq!((graph.value("y"), graph.value("n"), graph.value("m")), (Some(y), Some(n), None));
    assert_eq!((graph.op(n), graph.op(x), graph.values()), (Some(&RELU), None, 3));
    assert_eq!((graph.operands(n), graph.operands(x)), (&[y][..], &[][..]));
    assert_eq!((graph.name(n), graph.channels(n), graph.node_value(0)), ("n", 4, n));
    assert_eq!(
        (graph.place(x).to_string(), graph.place(n).to_string()),
        ("input `x`".into(), "relu `n`".into())
    );
}

#[test]
fn operands_are_as_many_as_the_operator_takes() {
    let (mut graph, x, y) = start();
    for (op, operands, message) in [
        (RELU, vec![x, y], "relu `n`: has 2 inputs, wants 1"),
        (RELU, vec![], "relu `n`: has 0 inputs, wants 1"),
        (Op::Add, vec![x], "add `n`: has 1 inputs, wants at least 2"),
        (Op::Concat, vec![], "concat `n`: has 0 inputs, wants at least 2"),
        (RELU, vec![ValueId(2)], "relu `n`: value 2 does not exist, the graph has 2 values"),
    ] {
        assert_eq!(graph.add_node("n", op, &operands).unwrap_err().to_string(), message);
    }
    let like = Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Like(ValueId(9)) };
    assert_eq!(error(Op::Upsample(like)), "upsample `n`: value 9 does not exist, the graph has 2 values");
}

#[test]
fn outputs_are_there_once_each() {
    let (mut graph, x, _) = start();
    let n = graph.add_node("n", RELU, &[x]).unwrap();
    assert_eq!(graph.set_outputs(&[]), Err(GraphError::NoOutputs));
    assert_eq!(graph.set_outputs(&[n, n]).unwrap_err().to_string(), "the output `n` is named twice");
    assert_eq!(
        graph.set_outputs(&[n, ValueId(7)]).unwrap_err().to_string(),
        "outputs[1]: value 7 does not exist, the graph has 3 values"
    );
    assert!(graph.outputs().is_empty());
    graph.set_outputs(&[n, x]).unwrap();
    assert_eq!(graph.outputs(), [n, x]);
}

#[test]
fn channels_divide_into_groups() {
    let grouped = |out_channels, groups| Op::Conv2d(Conv2d { groups, ..Conv2d::new(out_channels, [3, 3]) });
    assert_eq!(error(grouped(8, 4)), "conv2d `n`: 6 input channels do not divide into 4 groups");
    assert_eq!(error(grouped(8, 3)), "conv2d `n`: 8 output channels do not divide into 3 groups");
    assert_eq!(error(grouped(8, 0)), "conv2d `n`: groups is 0, must be at least 1");
    assert_eq!(error(grouped(0, 1)), "conv2d `n`: out_channels is 0, must be at least 1");
    // products beyond 64 bits, or beyond any machine
    let wide = |kernel| Op::Conv2d(Conv2d::new(1 << 24, [kernel; 2]));
    let text = |shape: &str| format!("conv2d `n`: a weight of {shape} has more than 1099511627776 elements");
    assert_eq!(error(wide(1 << 20)), text("16777216×6×1048576×1048576"));
    assert_eq!(error(wide(129)), text("16777216×6×129×129"));
    assert_eq!(error(grouped(1 << 31, 1)), "conv2d `n`: out_channels is 2147483648, must be at most 2^30");
    let transposed = ConvTranspose2d { groups: 4, ..ConvTranspose2d::new(8, [2, 2]) };
    assert_eq!(
        error(Op::ConvTranspose2d(transposed)),
        "conv_transpose2d `n`: 6 input channels do not divide into 4 groups"
    );
    assert_eq!(error(Op::Linear(Linear::new(0))), "linear `n`: out_features is 0, must be at least 1");
    let (mut graph, x, _) = start();
    assert!(graph.add_node("depthwise", grouped(12, 6), &[x]).is_ok());
}

#[test]
fn sums_and_products_want_equal_channels() {
    let (mut graph, x, y) = start();
    assert_eq!(
        graph.add_node("n", Op::Mul, &[x, x, y]).unwrap_err().to_string(),
        "mul `n`: `x` has 6 channels, `y` has 4"
    );
    let n = graph.add_node("n", Op::Concat, &[x, y, x]).unwrap();
    assert_eq!(graph.channels(n), 16);
}

#[test]
fn sizes_of_windows_are_positive_and_bounded() {
    let conv = Conv2d::new(8, [3, 3]);
    for (op, message) in [
        (Op::Conv2d(Conv2d::new(8, [0, 3])), "conv2d `n`: kernel size is 0, must be at least 1"),
        (
            Op::Conv2d(Conv2d { stride: [1, 0], ..conv.clone() }),
            "conv2d `n`: stride is 0, must be at least 1",
        ),
        (
            Op::Conv2d(Conv2d { dilation: [-1, 1], ..conv.clone() }),
            "conv2d `n`: dilation is -1, must be at least 1",
        ),
        (
            Op::Conv2d(Conv2d { stride: [1 << 21, 1], ..conv.clone() }),
            "conv2d `n`: stride is 2097152, must be at most 1048576",
        ),
        (
            Op::Conv2d(Conv2d { padding: [[0, 0], [0, -2]], ..conv.clone() }),
            "conv2d `n`: padding is -2, must be at least 0",
        ),
        (
            Op::Conv2d(Conv2d { padding: [[0, 1 << 21], [0, 0]], ..conv }),
            "conv2d `n`: padding is 2097152, must be at most 2^20",
        ),
        (
            Op::MaxPool2d(MaxPool2d { stride: [0, 1], ..MaxPool2d::new([2, 2]) }),
            "max_pool2d `n`: stride is 0, must be at least 1",
        ),
        (
            Op::ConvTranspose2d(ConvTranspose2d {
                output_padding: [-1, 0],
                ..ConvTranspose2d::new(8, [2, 2])
            }),
            "conv_transpose2d `n`: output_padding is -1, must be at least 0",
        ),
    ] {
        assert_eq!(error(op), message);
    }
}

#[test]
fn pool_padding_is_at_most_half_the_kernel() {
    let max = MaxPool2d { padding: [[1, 1], [0, 2]], ..MaxPool2d::new([3, 3]) };
    assert_eq!(error(Op::MaxPool2d(max)), "max_pool2d `n`: padding of 2 is more than half of kernel size 3");
    let avg = AvgPool2d::new([2, 2]).padded([2, 0]);
    assert_eq!(error(Op::AvgPool2d(avg)), "avg_pool2d `n`: padding of 2 is more than half of kernel size 2");
}

#[test]
fn output_padding_is_below_stride_or_dilation() {
    let conv = ConvTranspose2d {
        stride: [2, 2],
        dilation: [1, 3],
        output_padding: [1, 3],
        ..ConvTranspose2d::new(8, [2, 2])
    };
    assert_eq!(
        error(Op::ConvTranspose2d(conv)),
        "conv_transpose2d `n`: output_padding of 3 must be smaller than stride 2 or dilation 3"
    );
}

#[test]
fn numbers_are_in_their_ranges() {
    for (op, message) in [
        (Op::Dropout(Dropout { p: 1.0 }), "dropout `n`: p is 1, must be at least 0 and below 1"),
        (Op::Dropout(Dropout { p: -0.5 }), "dropout `n`: p is -0.5, must be at least 0 and below 1"),
        (Op::Dropout(Dropout { p: f64::NAN }), "dropout `n`: p is NaN, must be at least 0 and below 1"),
        (
            Op::BatchNorm(BatchNorm { eps: 0.0, ..BatchNorm::default() }),
            "batch_norm `n`: eps is 0, must be a finite number above 0",
        ),
        (
            Op::BatchNorm(BatchNorm { momentum: Some(1.5), ..BatchNorm::default() }),
            "batch_norm `n`: momentum is 1.5, must be at least 0 and at most 1",
        ),
        (
            Op::InstanceNorm(InstanceNorm { eps: f64::NAN, ..InstanceNorm::default() }),
            "instance_norm `n`: eps is NaN, must be a finite number above 0",
        ),
        (
            Op::InstanceNorm(InstanceNorm { momentum: -0.5, ..InstanceNorm::default() }),
            "instance_norm `n`: momentum is -0.5, must be at least 0 and at most 1",
        ),
        (Op::GroupNorm(GroupNorm::new(0)), "group_norm `n`: num_groups is 0, must be at least 1"),
        (Op::GroupNorm(GroupNorm::new(4)), "group_norm `n`: 6 input channels do not divide into 4 groups"),
        (
            Op::LayerNorm(LayerNorm { eps: -1.0, ..LayerNorm::default() }),
            "layer_norm `n`: eps is -1, must be a finite number above 0",
        ),
        (
            Op::RmsNorm(RmsNorm { eps: 0.0, ..RmsNorm::default() }),
            "rms_norm `n`: eps is 0, must be a finite number above 0",
        ),
        (
            Op::LocalResponseNorm(LocalResponseNorm::new(0)),
            "local_response_norm `n`: size is 0, must be at least 1",
        ),
        (
            Op::LocalResponseNorm(LocalResponseNorm { alpha: -1.0, ..LocalResponseNorm::new(5) }),
            "local_response_norm `n`: alpha is -1, must be a finite number of at least 0",
        ),
        (
            Op::LocalResponseNorm(LocalResponseNorm { k: 0.0, ..LocalResponseNorm::new(5) }),
            "local_response_norm `n`: k is 0, must be a finite number above 0",
        ),
        (
            Op::Activation(Activation::LeakyRelu { slope: f64::INFINITY }),
            "leaky_relu `n`: negative_slope is inf, must be a finite number",
        ),
        (
            Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Size([4, 0]) }),
            "upsample `n`: size is 0, must be at least 1",
        ),
        (
            Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Scale([-1.0, 1.0]) }),
            "upsample `n`: scale_factor is -1, must be above 0 and a fraction of numbers up to 2^30",
        ),
        (
            Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Scale([1e19, 1.0]) }),
            "upsample `n`: scale_factor is 10000000000000000000, must be above 0 and a fraction of numbers up to 2^30",
        ),
        (
            Op::Upsample(Upsample { mode: ResizeMode::AREA, to: UpsampleTo::Size([2, 2]) }),
            "upsample `n`: mode is area, must be an interpolation",
        ),
    ] {
        assert_eq!(error(op), message);
    }
}
