//! Norms and softmax: as operators, as exporters write them out, and between two transpositions.

use tiled_graph::{
    Activation, Conv2d, Elementwise, GroupNorm, InstanceNorm, LayerNorm, LocalResponseNorm, Op, Operand,
    RmsNorm, WithOperand,
};
use tiled_onnx::proto::TensorProto;

use crate::build::{Attribute, Builder, float_tensor, ints, reason};
use crate::runs::run;

fn nodes(model: &Builder) -> Vec<Op> {
    let read = model.read().unwrap_or_else(|error| panic!("{error}"));
    read.graph.nodes().iter().map(|node| node.op.clone()).collect()
}

/// What a parameter of the only node holds.
fn parameter(model: &Builder, name: &str) -> Vec<f64> {
    let parameters = model.read().unwrap().weights.parameters::<f64>().unwrap();
    let of = |tensor: &&tiled_graph::ParamTensor<f64>| tensor.name.ends_with(name);
    parameters.tensors().iter().find(of).unwrap_or_else(|| panic!("{name}")).data.clone()
}

fn numbers(name: &str, values: &[f32]) -> TensorProto {
    float_tensor(name, &[i64::try_from(values.len()).unwrap()], values)
}

/// To the last axis.
fn there(model: Builder, from: &str, to: &str) -> Builder {
    model.node("Transpose", &[from], to, &[("perm", ints(&[0, 2, 3, 1]))])
}

/// And back.
fn back(model: Builder, from: &str, to: &str) -> Builder {
    model.node("Transpose", &[from], to, &[("perm", ints(&[0, 3, 1, 2]))])
}

const GROUPED: Op = Op::GroupNorm(GroupNorm { num_groups: 2, eps: 1e-5, affine: true });
const LAYERED: Op = Op::LayerNorm(LayerNorm { eps: 1e-6, elementwise_affine: true, bias: true });

#[test]
fn batch_norm_with_the_statistics_of_the_batch_is_refused_in_every_version() {
    let model = |opset| {
        let model =
            ["s", "b", "m", "v"].iter().fold(Builder::new(opset, 2), |model, name| model.floats(name, &[2]));
        let mut model = model.node("BatchNormalization", &["x", "s", "b", "m", "v"], "y", &[]).output("y");
        let results = ["mean", "var", "saved_mean", "saved_var"].map(str::to_owned);
        model.graph().node[0].output.extend(results);
        model
    };
    assert_eq!(reason(&model(9)), "attribute `training_mode` is said by 5 results, wants 0, evaluation");
    // running statistics are further results since
    assert!(model(15).read().is_ok());
}

#[test]
fn norms_of_images_have_their_weights() {
    let model = Builder::new(17, 4)
        .floats("s", &[4])
        .floats("b", &[4])
        .node("InstanceNormalization", &["x", "s", "b"], "y", &[("epsilon", Attribute::Float(1e-3))])
        .output("y");
    let norm = InstanceNorm { eps: 1e-3, affine: true, ..InstanceNorm::default() };
    assert_eq!(nodes(&model), [Op::InstanceNorm(norm)]);
    // 1 and 5 have a mean of 3 and a variance of 4
    let model = Builder::new(17, 1)
        .tensor(numbers("s", &[2.0]))
        .tensor(numbers("b", &[1.0]))
        .node("InstanceNormalization", &["x", "s", "b"], "y", &[("epsilon", Attribute::Float(12.0))])
        .output("y");
    assert_eq!(run(&model, [2, 1, 1, 2], &[1.0, 5.0, -3.0, -3.0]).0, [0.0, 2.0, 1.0, 1.0]);
}

#[test]
fn a_group_norm_has_numbers_of_groups_before_version_21_and_of_channels_since() {
    let model = |opset, scale: &[f32]| {
        Builder::new(opset, 4)
            .tensor(numbers("s", scale))
            .tensor(numbers("b", &vec![0.0; scale.len()]))
            .node("GroupNormalization", &["x", "s", "b"], "y", &[("num_groups", Attribute::Int(2))])
            .output("y")
    };
    for (opset, scale) in [(18, &[2.0, 3.0][..]), (21, &[2.0, 2.0, 3.0, 3.0])] {
        let model = model(opset, scale);
        assert_eq!(nodes(&model), [GROUPED]);
        assert_eq!(parameter(&model, "weight"), [2.0, 2.0, 3.0, 3.0]);
    }
    assert_eq!(
        model(21, &[2.0, 3.0]).refusals(),
        ["GroupNormalization `n_y` (opset 21): weight has shape [2], wants [4]"]
    );
}

/// `Reshape`, `InstanceNormalization`, `Reshape`, and factors of channels where there are some.
fn written_out(shape: &[i64], factors: bool) -> Builder {
    let model = Builder::new(17, 4)
        .tensor(numbers("ones", &[1.0, 1.0]))
        .tensor(numbers("zeros", &[0.0, 0.0]))
        .ints("groups", &[3], &[0, 2, -1])
        .ints("shape", &[4], shape)
        .tensor(float_tensor("w", &[4, 1, 1], &[1.0, 2.0, 3.0, 4.0]))
        .tensor(float_tensor("v", &[1, 4, 1, 1], &[5.0, 6.0, 7.0, 8.0]))
        .node("Shape", &["x"], "size", &[])
        .node("Reshape", &["x", "groups"], "g", &[])
        .node("InstanceNormalization", &["g", "ones", "zeros"], "n", &[])
        .node("Reshape", &["n", if shape.is_empty() { "size" } else { "shape" }], "r", &[]);
    if !factors {
        return model.output("r");
    }
    model.node("Mul", &["r", "w"], "m", &[]).node("Add", &["v", "m"], "y", &[]).output("y")
}

#[test]
fn a_group_norm_that_is_written_out_is_one_node() {
    let plain = GroupNorm { affine: false, ..GroupNorm::new(2) };
    for shape in [&[][..], &[0, 4, -1, 0]] {
        let read = written_out(shape, false).read();
        if shape.is_empty() {
            let nodes: Vec<Op> = read.unwrap().graph.nodes().iter().map(|node| node.op.clone()).collect();
            assert_eq!(nodes, [Op::GroupNorm(plain.clone())]);
        } else {
            let got = written_out(shape, false).refusals();
            assert!(got[0].contains("the batch, the channels, height and width"), "{got:?}");
        }
    }
    let model = written_out(&[], true);
    assert_eq!(nodes(&model), [GROUPED]);
    assert_eq!(parameter(&model, "weight"), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(parameter(&model, "bias"), [5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn a_layer_norm_between_transpositions_is_one_over_channels() {
    let model = Builder::new(17, 3).floats("w", &[3]).floats("b", &[3]);
    let attributes = [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(1e-6))];
    let model = there(model, "x", "l").node("LayerNormalization", &["l", "w", "b"], "n", &attributes);
    assert_eq!(nodes(&back(model.clone(), "n", "y").output("y")), [LAYERED]);
    let read = model.output("n").read().unwrap();
    assert!(read.outputs[0].channels_last && !read.inputs[0].channels_last);
    let first =
        Builder::new(17, 3).floats("w", &[3]).node("LayerNormalization", &["x", "w"], "y", &[]).output("y");
    assert_eq!(
        first.refusals(),
        [
            "LayerNormalization `n_y` (opset 17): input 0 is a batch of images, wants a value whose channels are last"
        ]
    );
}

#[test]
fn a_norm_that_is_written_out_over_either_axis_is_one_node() {
    for last in [false, true] {
        let shape: &[i64] = if last { &[3] } else { &[3, 1, 1] };
        let axis = [("axes", ints(&[if last { -1 } else { 1 }]))];
        let model = Builder::new(13, 3)
            .floats("w", shape)
            .floats("b", shape)
            .tensor(float_tensor("two", &[], &[2.0]))
            .tensor(float_tensor("eps", &[], &[0.0078125]));
        let model = if last { there(model, "x", "l") } else { model.node("Identity", &["x"], "l", &[]) };
        let model = model
            .node("ReduceMean", &["l"], "mean", &axis)
            .node("Sub", &["l", "mean"], "d", &[])
            .node("Pow", &["d", "two"], "squares", &[])
            .node("ReduceMean", &["squares"], "variance", &axis)
            .node("Add", &["variance", "eps"], "sum", &[])
            .node("Sqrt", &["sum"], "root", &[])
            .node("Div", &["d", "root"], "q", &[])
            .node("Mul", &["q", "w"], "m", &[])
            .node("Add", &["m", "b"], "n", &[]);
        let model = if last { back(model, "n", "y") } else { model.node("Identity", &["n"], "y", &[]) };
        let norm = LayerNorm { eps: 0.0078125, elementwise_affine: true, bias: true };
        assert_eq!(nodes(&model.output("y")), [Op::LayerNorm(norm)], "last {last}");
    }
    let model = Builder::new(18, 3)
        .tensor(float_tensor("two", &[], &[2.0]))
        .tensor(float_tensor("eps", &[], &[0.5]))
        .ints("axis", &[1], &[1])
        .node("Pow", &["x", "two"], "squares", &[])
        .node("ReduceMean", &["squares", "axis"], "mean", &[])
        .node("Add", &["mean", "eps"], "sum", &[])
        .node("Sqrt", &["sum"], "root", &[])
        .node("Div", &["x", "root"], "y", &[])
        .output("y");
    assert_eq!(nodes(&model), [Op::RmsNorm(RmsNorm { eps: 0.5, elementwise_affine: false })]);
}

#[test]
fn a_block_whose_layers_are_linear_over_channels_is_convolutions_of_one_tap() {
    let model = Builder::new(17, 2)
        .floats("w", &[2])
        .floats("b", &[2])
        .tensor(float_tensor("up", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        .floats("up_b", &[3])
        .tensor(float_tensor("down", &[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]))
        .floats("down_b", &[2])
        .tensor(float_tensor("root", &[], &[std::f32::consts::SQRT_2]))
        .tensor(float_tensor("one", &[], &[1.0]))
        .tensor(float_tensor("half", &[], &[0.5]))
        .tensor(float_tensor("scale", &[2, 1, 1], &[0.25, 0.5]));
    let model = there(model, "x", "l")
        .node("LayerNormalization", &["l", "w", "b"], "n", &[("epsilon", Attribute::Float(1e-6))])
        .node("MatMul", &["n", "up"], "p", &[])
        .node("Add", &["up_b", "p"], "u", &[])
        .node("Div", &["u", "root"], "d", &[])
        .node("Erf", &["d"], "e", &[])
        .node("Add", &["e", "one"], "f", &[])
        .node("Mul", &["u", "f"], "g", &[])
        .node("Mul", &["g", "half"], "h", &[])
        .node("MatMul", &["h", "down"], "q", &[])
        .node("Add", &["down_b", "q"], "v", &[]);
    let model =
        back(model, "v", "z").node("Mul", &["scale", "z"], "s", &[]).node("Add", &["s", "x"], "y", &[]);
    let model = model.output("y");
    let scale = WithOperand { function: Elementwise::Mul, operand: Operand::Weight, reversed: false };
    let expected = [
        LAYERED,
        Op::Conv2d(Conv2d::new(3, [1, 1])),
        Op::Activation(Activation::Gelu),
        Op::Conv2d(Conv2d::new(2, [1, 1])),
        Op::WithOperand(scale),
        Op::Add,
    ];
    assert_eq!(nodes(&model), expected);

    let linear = Builder::new(17, 2).tensor(float_tensor("up", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let linear = there(linear, "x", "l").node("MatMul", &["l", "up"], "p", &[]);
    // channels 1 and 10, then 0 and 1
    let got = run(&back(linear, "p", "y").output("y"), [1, 2, 1, 2], &[1.0, 0.0, 10.0, 1.0]);
    assert_eq!(got, (vec![41.0, 4.0, 52.0, 5.0, 63.0, 6.0], [1, 3, 1, 2]));
}

#[test]
fn softmax_is_along_the_channels() {
    let model = |opset, op: &str, axis: Option<i64>| {
        let attributes: Vec<_> = axis.map(|axis| ("axis", Attribute::Int(axis))).into_iter().collect();
        Builder::new(opset, 3).node(op, &["x"], "y", &attributes).output("y")
    };
    assert_eq!(nodes(&model(13, "Softmax", Some(1))), [Op::Softmax]);
    assert_eq!(nodes(&model(17, "LogSoftmax", Some(-3))), [Op::LogSoftmax]);
    assert_eq!(
        model(13, "Softmax", None).refusals(),
        ["Softmax `n_y` (opset 13): attribute `axis` is -1, wants the channels"]
    );
    assert_eq!(
        model(11, "Softmax", None).refusals(),
        [
            "Softmax `n_y` (opset 11): input 0 is a batch of images, wants a value of one pixel, as height and width are \
             joined to the channels before version 13"
        ]
    );
    let pooled = |opset| {
        Builder::new(opset, 3).node("GlobalAveragePool", &["x"], "p", &[]).node("Flatten", &["p"], "f", &[])
    };
    for opset in [11, 13] {
        let model = pooled(opset).node("Softmax", &["f"], "y", &[]).output("y");
        assert_eq!(nodes(&model), [Op::GlobalAvgPool, Op::Softmax]);
    }
    let last = there(Builder::new(13, 3), "x", "l").node("Softmax", &["l"], "s", &[]);
    assert_eq!(nodes(&back(last, "s", "y").output("y")), [Op::Softmax]);
    // as exporters have it before version 13: channels and width change places
    let turn = [("perm", ints(&[0, 3, 2, 1]))];
    let turned = Builder::new(11, 3).node("Transpose", &["x"], "l", &turn);
    let turned = turned.node("Softmax", &["l"], "s", &[("axis", Attribute::Int(3))]);
    assert_eq!(nodes(&turned.clone().node("Transpose", &["s"], "y", &turn).output("y")), [Op::Softmax]);
    assert_eq!(
        back(turned, "s", "y").output("y").refusals(),
        [
            "Transpose `n_y` (opset 11): attribute `perm` is [0, 3, 1, 2], wants the axes as they are, the channels last \
             and back, or height and width of one row or column changed over"
        ]
    );
}

#[test]
fn a_local_response_of_an_even_size_is_refused() {
    let model = |size| {
        let attributes = [("size", Attribute::Int(size)), ("bias", Attribute::Float(2.0))];
        Builder::new(13, 8).node("LRN", &["x"], "y", &attributes).output("y")
    };
    let norm = LocalResponseNorm { k: 2.0, ..LocalResponseNorm::new(5) };
    assert_eq!(nodes(&model(5)), [Op::LocalResponseNorm(norm)]);
    assert_eq!(
        model(4).refusals(),
        ["LRN `n_y` (opset 13): attribute `size` is 4, wants an odd number of channels"]
    );
}

#[test]
fn numbers_of_rows_are_no_numbers_of_channels() {
    // three rows, or three channels: with the channels last the constant is of the first
    let model = Builder::new(13, 3).floats("w", &[3, 1, 1]);
    let model = back(there(model, "x", "l").node("Mul", &["l", "w"], "m", &[]), "m", "y").output("y");
    assert_eq!(
        model.refusals(),
        [
            "Mul `n_m` (opset 13): input 1 is a constant of shape [3, 1, 1], wants a value whose axes are those of the \
             others, or a number for each channel"
        ]
    );
}
