//! Every refusal has a text in `tests/ui/onnx_<name>.txt`: the error of a small model. `BLESS=1 cargo test -p tiled-onnx --test models`
//! writes them; `refusals_page` checks that none is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tiled_onnx::proto::{FunctionProto, SparseTensorProto, StringStringEntryProto, TensorProto};
use tiled_onnx::{from_bytes, read};

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, value};

const OPEN: [Option<i64>; 4] = [None, Some(3), None, None];

fn int(value: i64) -> Attribute {
    Attribute::Int(value)
}

fn text(value: &'static str) -> Attribute {
    Attribute::Text(value)
}

fn start() -> Builder {
    Builder::new(18, 3)
}

/// A node that reads `x` and constants, and makes the output.
fn node(from: Builder, op: &str, others: &[&str], attributes: &[(&str, Attribute)]) -> Builder {
    let inputs: Vec<&str> = std::iter::once("x").chain(others.iter().copied()).collect();
    from.node(op, &inputs, "y", attributes).output("y")
}

/// The same where the operator has no other operands.
fn alone(op: &str, attributes: &[(&str, Attribute)]) -> Builder {
    node(start(), op, &[], attributes)
}

fn declared(mut model: Builder, shape: &[Option<i64>]) -> Builder {
    model.graph().input[0] = value("x", 1, shape);
    model
}

fn pooled() -> Builder {
    start().node("GlobalAveragePool", &["x"], "p", &[]).node("Flatten", &["p"], "f", &[])
}

fn conv(attributes: &[(&str, Attribute)]) -> Builder {
    node(start().floats("w", &[4, 3, 3, 3]), "Conv", &["w"], attributes)
}

fn of_tensor(dims: &[i64], data_type: i32) -> Builder {
    let tensor =
        TensorProto { dims: dims.to_vec(), data_type: Some(data_type), ..float_tensor("w", &[], &[]) };
    node(start().tensor(tensor), "Conv", &["w"], &[])
}

/// Models by the names of their texts.
fn models() -> Vec<(&'static str, Builder)> {
    [of_models(), of_values(), of_layers(), of_shapes(), of_sizes(), of_steps()].concat()
}

fn of_models() -> Vec<(&'static str, Builder)> {
    let mut no_graph = start();
    no_graph.model.graph = None;
    let mut foreign = alone("FusedConv", &[]);
    foreign.graph().node[0].domain = Some("com.microsoft".to_owned());
    let mut function = alone("Block", &[]);
    function.model.functions.push(FunctionProto { name: Some("Block".into()), domain: None });
    let mut second = alone("MaxPool", &[("kernel_shape", ints(&[2, 2]))]);
    second.graph().node[0].output.push("indices".to_owned());
    second.graph().output[0].name = Some("indices".to_owned());
    let mut sparse = alone("Relu", &[]);
    sparse
        .graph()
        .sparse_initializer
        .push(SparseTensorProto { values: Some(float_tensor("s", &[1], &[1.0])) });
    let mut untyped = alone("Relu", &[]);
    untyped.graph().input[0].r#type = None;
    let mut shapeless = alone("Relu", &[]);
    shapeless.graph().input[0]
        .r#type
        .as_mut()
        .and_then(|of| of.tensor_type.as_mut())
        .expect("it has a type")
        .shape = None;
    let mut of_ints = alone("Relu", &[]);
    of_ints.graph().input[0] = value("x", 7, &OPEN);
    vec![
        ("opset", Builder::new(6, 3)),
        ("no_graph", no_graph),
        ("operator", alone("NonZero", &[])),
        ("quantised", alone("QLinearConv", &[])),
        ("domain", foreign),
        ("function", function),
        ("unknown_attribute", alone("Relu", &[("slope", Attribute::Float(1.0))])),
        ("missing_value", node(start(), "Conv", &["w"], &[])),
        ("later_value", start().node("Relu", &["a"], "a", &[]).output("a")),
        ("made_twice", alone("Relu", &[]).node("Tanh", &["x"], "y", &[])),
        ("second_result", second),
        ("nothing_to_read", start().node("Relu", &[""], "y", &[]).output("y")),
        ("sparse", sparse),
        ("untyped_input", untyped),
        ("shapeless_input", shapeless),
        ("input_of_integers", of_ints),
        ("input_of_two_axes", declared(alone("Relu", &[]), &[None, Some(3)])),
        ("output_is_constant", start().floats("w", &[3]).output("w")),
        ("features_as_output", declared(alone("Flatten", &[]), &[None, Some(3), Some(7), Some(7)])),
    ]
}

fn of_values() -> Vec<(&'static str, Builder)> {
    let lengths = start()
        .node("Shape", &["x"], "s", &[])
        .ints("three", &[3], &[1, 2, 3])
        .node("Add", &["s", "three"], "y", &[])
        .output("y");
    let axes = pooled().node("Add", &["x", "f"], "y", &[]).output("y");
    let joined = pooled().node("Concat", &["x", "f"], "y", &[("axis", int(1))]).output("y");
    let stack = start().ints("a", &[1], &[0]).node("Unsqueeze", &["x", "a"], "u", &[]);
    let summed = |axes: i64| {
        let model = stack.clone().ints("at", &[1], &[axes]);
        model.node("ReduceSum", &["u", "at"], "y", &[]).output("y")
    };
    vec![
        ("slopes_of_prelu", node(start().floats("s", &[2]), "PRelu", &["s"], &[])),
        ("numbers_of_rows", node(start().floats("c", &[1, 1, 4]), "Sub", &["c"], &[])),
        ("exponents", node(start().floats("e", &[3, 1, 1]), "Pow", &["e"], &[])),
        ("lists_of_other_lengths", lengths),
        ("sum_of_other_axes", axes),
        ("concat_of_other_axes", joined),
        ("concat_of_rows", node(start(), "Concat", &["x"], &[("axis", int(2))])),
        (
            "stack_of_another_axis",
            stack.clone().node("Concat", &["u", "u"], "y", &[("axis", int(1))]).output("y"),
        ),
        (
            "stack_with_an_image",
            stack.clone().node("Concat", &["u", "x"], "y", &[("axis", int(0))]).output("y"),
        ),
        ("sum_over_another_axis", summed(2)),
        ("sum_over_an_image", node(start().ints("a", &[1], &[1]), "ReduceSum", &["a"], &[])),
        (
            "stack_that_is_dropped",
            stack
                .clone()
                .node("Concat", &["u", "u"], "v", &[("axis", int(0))])
                .node("Squeeze", &["v", "a"], "y", &[])
                .output("y"),
        ),
        (
            "dropout_in_training",
            node(start().floats("r", &[]).ints("t", &[], &[1]), "Dropout", &["r", "t"], &[]),
        ),
        ("cast_to_integers", alone("Cast", &[("to", int(7))])),
        (
            "cast_of_sizes_to_text",
            start().node("Shape", &["x"], "s", &[]).node("Cast", &["s"], "y", &[("to", int(8))]).output("y"),
        ),
        ("constant_of_nothing", start().node("Constant", &[], "y", &[]).output("y")),
        ("constant_of_text", start().node("Constant", &[], "y", &[("value_string", text("a"))]).output("y")),
        ("constant_of_another_type", start().node("Constant", &[], "y", &[("value", int(1))]).output("y")),
        ("attribute_of_another_type", conv(&[("group", text("two"))])),
        ("flag_that_is_none", alone("MaxPool", &[("kernel_shape", ints(&[2, 2])), ("ceil_mode", int(2))])),
    ]
}

fn of_layers() -> Vec<(&'static str, Builder)> {
    let kernel = ("kernel_shape", ints(&[3, 3]));
    let transposed = |attributes: &[(&str, Attribute)]| {
        node(start().floats("w", &[3, 1, 3, 3]), "ConvTranspose", &["w"], attributes)
    };
    let statistics = || ["s", "b", "m", "v"].iter().fold(start(), |model, name| model.floats(name, &[3]));
    let norm = |attributes: &[(&str, Attribute)]| {
        node(statistics(), "BatchNormalization", &["s", "b", "m", "v"], attributes)
    };
    let gemm = |attributes: &[(&str, Attribute)]| {
        let model = pooled().floats("w", &[3, 3]).floats("b", &[3]);
        model.node("Gemm", &["f", "w", "b"], "y", attributes).output("y")
    };
    let biased = pooled().floats("w", &[3, 3]).floats("b", &[3, 1]);
    let weight = pooled().floats("w", &[3, 3, 1]).node("MatMul", &["f", "w"], "y", &[]).output("y");
    let before = |opset| Builder::new(opset, 3).node("Softmax", &["x"], "y", &[("axis", int(1))]).output("y");
    let last = || start().node("Transpose", &["x"], "l", &[("perm", ints(&[0, 2, 3, 1]))]).floats("g", &[3]);
    vec![
        ("strides_of_three", conv(&[("strides", ints(&[1, 1, 1]))])),
        ("pads_of_one", conv(&[("pads", ints(&[1]))])),
        ("pads_too_large", conv(&[("pads", ints(&[i64::MAX, 0, 0, 0]))])),
        ("kernel_of_another_weight", conv(&[("kernel_shape", ints(&[5, 5]))])),
        ("auto_pad", conv(&[("auto_pad", text("SAME"))])),
        ("auto_pad_of_open_size", conv(&[("auto_pad", text("SAME_UPPER")), ("strides", ints(&[2, 2]))])),
        ("groups_of_conv", conv(&[("group", int(-1))])),
        (
            "weight_of_other_channels",
            node(Builder::new(18, 5).floats("w", &[4, 3, 3, 3]), "Conv", &["w"], &[]),
        ),
        ("weight_of_three_axes", node(start().floats("w", &[4, 3, 3]), "Conv", &["w"], &[])),
        ("weight_that_is_computed", node(start(), "Conv", &["x"], &[])),
        ("transposed_cut_behind", transposed(&[("pads", ints(&[0, 0, 1, 1]))])),
        ("transposed_output_shape", transposed(&[("output_shape", ints(&[9, 9]))])),
        (
            "pad_mode",
            node(
                start().ints("p", &[8], &[0, 0, 1, 1, 0, 0, 1, 1]),
                "Pad",
                &["p"],
                &[("mode", text("mirror"))],
            ),
        ),
        ("pad_of_channels", node(start().ints("p", &[8], &[0, 1, 0, 0, 0, 0, 0, 0]), "Pad", &["p"], &[])),
        ("pool_without_kernel", alone("MaxPool", &[])),
        ("average_over_dilated", alone("AveragePool", &[kernel.clone(), ("dilations", ints(&[2, 2]))])),
        ("mean_over_rows", alone("ReduceMax", &[("axes", ints(&[2]))])),
        ("batch_norm_in_training", norm(&[("training_mode", int(1))])),
        ("batch_norm_of_pixels", norm(&[("spatial", int(0))])),
        (
            "group_norm_groups",
            node(
                start().floats("s", &[3]).floats("b", &[3]),
                "GroupNormalization",
                &["s", "b"],
                &[("num_groups", int(-1))],
            ),
        ),
        ("local_response_of_even_size", alone("LRN", &[("size", int(4))])),
        ("layer_norm_of_width", node(start().floats("g", &[3]), "LayerNormalization", &["g"], &[])),
        (
            "layer_norm_of_two_axes",
            last().node("LayerNormalization", &["l", "g"], "y", &[("axis", int(2))]).output("y"),
        ),
        ("softmax_of_rows", alone("Softmax", &[("axis", int(2))])),
        ("softmax_before_13", before(11)),
        ("gelu_approximate", node(Builder::new(20, 3), "Gelu", &[], &[("approximate", text("fast"))])),
        ("swish_alpha", node(Builder::new(24, 3), "Swish", &[], &[("alpha", Attribute::Float(2.0))])),
        ("gemm_alpha", gemm(&[("alpha", Attribute::Float(2.0))])),
        ("gemm_transposed", gemm(&[("transA", int(1))])),
        ("gemm_bias", biased.node("Gemm", &["f", "w", "b"], "y", &[]).output("y")),
        ("gemm_of_an_image", node(start().floats("w", &[3, 3]), "Gemm", &["w"], &[])),
        ("matrix_of_three_axes", weight),
        (
            "axes_of_different_order",
            last().floats("rows", &[3, 1, 1]).node("Mul", &["l", "rows"], "y", &[]).output("y"),
        ),
        ("pooling_of_a_form", last().node("Softmax", &["l"], "y", &[("axis", int(1))]).output("y")),
        (
            "conv_of_a_vector",
            pooled().floats("w", &[4, 3, 1, 1]).node("Conv", &["f", "w"], "y", &[]).output("y"),
        ),
    ]
}

fn of_shapes() -> Vec<(&'static str, Builder)> {
    let shape = |dims: &[i64]| {
        let len = i64::try_from(dims.len()).unwrap();
        node(start().ints("s", &[len], dims), "Reshape", &["s"], &[])
    };
    let seven = [None, Some(3), Some(7), Some(7)];
    let constant = |dims: &[i64]| {
        let model = start().floats("w", &[3, 2]).ints("s", &[i64::try_from(dims.len()).unwrap()], dims);
        model.node("Reshape", &["w", "s"], "c", &[]).output("c")
    };
    let folded = |perm: &[i64], back: &[i64]| {
        let model = Builder::new(18, 4).ints("s", &[5], &[1, 2, 2, 4, 4]).ints("b", &[4], back);
        let model =
            declared(model, &[Some(1), Some(4), Some(4), Some(4)]).node("Reshape", &["x", "s"], "f", &[]);
        model
            .node("Transpose", &["f"], "t", &[("perm", ints(perm))])
            .node("Reshape", &["t", "b"], "y", &[])
            .output("y")
    };
    let grouped = start()
        .ints("s", &[3], &[0, 3, -1])
        .ints("b", &[4], &[0, 5, -1, 7])
        .node("Reshape", &["x", "s"], "g", &[])
        .node("Reshape", &["g", "b"], "y", &[])
        .output("y");
    let square = |shape: &[i64]| {
        let len = i64::try_from(shape.len()).unwrap();
        start().node("Shape", &["x"], "s", &[]).ints("t", &[len], shape).node(
            "Reshape",
            &["s", "t"],
            "r",
            &[],
        )
    };
    vec![
        ("flatten_of_open_size", alone("Flatten", &[])),
        ("flatten_of_rows", alone("Flatten", &[("axis", int(2))])),
        ("reshape_to_two_open", shape(&[-1, -1, 3, 3])),
        ("reshape_to_part", declared(shape(&[1, 100]), &seven)),
        ("reshape_to_rows", shape(&[1, 3, 5, 5])),
        ("reshape_to_blocks", shape(&[1, 2, 2, 4, 4])),
        ("reshape_joins_pixels", shape(&[0, 3, -1])),
        ("reshape_of_a_constant", constant(&[4, 2])),
        ("reshape_of_sizes", square(&[2, 2, 1]).output("r")),
        ("reshape_of_sizes_to_rows", square(&[-1, 3]).output("r")),
        (
            "rows_to_a_matrix",
            square(&[-1, 2]).ints("u", &[2], &[2, 2]).node("Reshape", &["r", "u"], "y", &[]).output("y"),
        ),
        (
            "rows_cut",
            square(&[-1, 2])
                .ints("from", &[1], &[0])
                .ints("to", &[1], &[1])
                .ints("at", &[1], &[0])
                .ints("by", &[1], &[1])
                .node("Slice", &["r", "from", "to", "at", "by"], "y", &[])
                .output("y"),
        ),
        ("groups_to_another_shape", grouped),
        ("transpose_of_width", alone("Transpose", &[("perm", ints(&[0, 1, 3, 2]))])),
        (
            "transpose_of_a_constant",
            start().floats("w", &[2, 2, 2]).node("Transpose", &["w"], "y", &[]).output("y"),
        ),
        ("shuffle_of_the_batch", folded(&[1, 0, 2, 3, 4], &[1, 4, 4, 4])),
        ("shuffle_of_another_order", folded(&[0, 3, 1, 2, 4], &[1, 4, 4, 4])),
        ("shuffle_to_another_shape", folded(&[0, 2, 1, 3, 4], &[1, 4, 2, 8])),
        (
            "depth_to_space_mode",
            node(Builder::new(18, 4), "DepthToSpace", &[], &[("blocksize", int(2)), ("mode", text("RCD"))]),
        ),
        (
            "depth_to_space_of_nothing",
            node(Builder::new(18, 4), "DepthToSpace", &[], &[("blocksize", int(0))]),
        ),
        ("squeeze_of_rows", node(start().ints("a", &[1], &[2]), "Squeeze", &["a"], &[])),
        (
            "unsqueeze_of_an_image",
            declared(
                start()
                    .ints("a", &[2], &[2, 3])
                    .node("Flatten", &["x"], "f", &[])
                    .node("Unsqueeze", &["f", "a"], "y", &[])
                    .output("y"),
                &seven,
            ),
        ),
        (
            "squeeze_of_sizes",
            start().node("Shape", &["x"], "s", &[]).node("Squeeze", &["s"], "y", &[]).output("y"),
        ),
        (
            "slice_of_the_batch",
            node(
                start().ints("f", &[1], &[1]).ints("t", &[1], &[2]).ints("a", &[1], &[0]),
                "Slice",
                &["f", "t", "a"],
                &[],
            ),
        ),
        (
            "slice_with_steps",
            node(
                start().ints("f", &[1], &[0]).ints("t", &[1], &[9]).ints("a", &[1], &[2]).ints(
                    "s",
                    &[1],
                    &[2],
                ),
                "Slice",
                &["f", "t", "a", "s"],
                &[],
            ),
        ),
        (
            "slice_of_fewer_axes",
            node(start().ints("f", &[2], &[0, 0]).ints("t", &[1], &[9]), "Slice", &["f", "t"], &[]),
        ),
        (
            "slice_of_open_rows",
            node(
                start().ints("f", &[1], &[-4]).ints("t", &[1], &[-1]).ints("a", &[1], &[2]),
                "Slice",
                &["f", "t", "a"],
                &[],
            ),
        ),
        (
            "slice_of_features",
            declared(
                start()
                    .ints("f", &[1], &[0])
                    .ints("t", &[1], &[9])
                    .ints("a", &[1], &[1])
                    .node("Flatten", &["x"], "v", &[])
                    .node("Slice", &["v", "f", "t", "a"], "y", &[])
                    .output("y"),
                &seven,
            ),
        ),
        ("split_of_rows", alone("Split", &[("axis", int(2)), ("num_outputs", int(1))])),
        (
            "split_into_other_channels",
            node(start().ints("p", &[1], &[2]), "Split", &["p"], &[("axis", int(1))]),
        ),
        ("split_into_more", alone("Split", &[("axis", int(1)), ("num_outputs", int(2))])),
        ("arg_max_of_rows", alone("ArgMax", &[("axis", int(2))])),
        ("arg_max_of_the_last", alone("ArgMax", &[("axis", int(1)), ("select_last_index", int(1))])),
    ]
}

fn of_sizes() -> Vec<(&'static str, Builder)> {
    let scaled = |scales: &[f32], attributes: &[(&str, Attribute)]| {
        let len = i64::try_from(scales.len()).unwrap();
        node(start().tensor(float_tensor("s", &[len], scales)), "Resize", &["", "s"], attributes)
    };
    let twice = [1.0, 1.0, 2.0, 2.0];
    let cubic =
        |slope| scaled(&twice, &[("mode", text("cubic")), ("cubic_coeff_a", Attribute::Float(slope))]);
    let sizes = node(start().ints("n", &[4], &[1, 4, 8, 8]), "Resize", &["", "", "n"], &[]);
    let of_numbers = |count: i64| {
        let mut model = start().node("Shape", &["x"], "s0", &[]);
        for step in 0..count {
            let from = format!("s{step}");
            model = model.node("Concat", &[&from, &from], &format!("s{}", step + 1), &[("axis", int(0))]);
        }
        model.output(&format!("s{count}"))
    };
    let one = ("value", Attribute::Tensor(Box::new(int_tensor("one", &[1], &[1]))));
    let filled = |dims: &[i64]| {
        let model = start().ints("n", &[i64::try_from(dims.len()).unwrap()], dims);
        model.node("ConstantOfShape", &["n"], "y", std::slice::from_ref(&one)).output("y")
    };
    let gathered = start().node("Shape", &["x"], "s", &[]).ints("i", &[1], &[9]);
    let cut = start()
        .node("Shape", &["x"], "s", &[])
        .ints("f", &[1], &[0])
        .ints("t", &[1], &[2])
        .ints("a", &[1], &[0])
        .ints("b", &[1], &[-1]);
    let counted = start().ints("zero", &[], &[0]).ints("many", &[], &[99]).ints("one", &[], &[1]);
    vec![
        ("resize_antialias", scaled(&twice, &[("antialias", int(1))])),
        ("resize_policy", scaled(&twice, &[("keep_aspect_ratio_policy", text("not_larger"))])),
        ("resize_mode", scaled(&twice, &[("mode", text("area"))])),
        ("resize_rounding", scaled(&twice, &[("nearest_mode", text("round"))])),
        (
            "resize_coordinates",
            scaled(&twice, &[("coordinate_transformation_mode", text("tf_crop_and_resize"))]),
        ),
        (
            "resize_corners",
            scaled(&[1.0, 1.0, 1.5, 1.5], &[("coordinate_transformation_mode", text("align_corners"))]),
        ),
        ("resize_of_channels", scaled(&[1.0, 2.0, 2.0, 2.0], &[])),
        ("resize_by_nothing", scaled(&[1.0, 1.0, 0.0, 2.0], &[])),
        ("resize_of_three_axes", scaled(&[1.0, 2.0, 2.0], &[])),
        ("resize_axes", scaled(&[2.0], &[("axes", ints(&[5]))])),
        ("resize_cubic_slope", cubic(9.0)),
        (
            "expand_of_channels",
            node(Builder::new(18, 1).ints("s", &[4], &[1, 3, 1, 1]), "Expand", &["s"], &[]),
        ),
        ("resize_to_other_channels", sizes),
        (
            "upsample_scales",
            Builder::new(7, 3)
                .node("Upsample", &["x"], "y", &[("scales", Attribute::Floats(vec![2.0]))])
                .output("y"),
        ),
        ("too_many_numbers", of_numbers(4)),
        ("filled_with_too_many", filled(&[99])),
        ("filled_in_two_axes", filled(&[2, 2])),
        ("gather_behind_the_end", gathered.clone().node("Gather", &["s", "i"], "y", &[]).output("y")),
        ("gather_of_channels", node(start().ints("i", &[1], &[0]), "Gather", &["i"], &[("axis", int(1))])),
        ("sizes_cut_backward", cut.node("Slice", &["s", "f", "t", "a", "b"], "y", &[]).output("y")),
        ("range_of_many", counted.node("Range", &["zero", "many", "one"], "y", &[]).output("y")),
        (
            "shape_of_a_form",
            start()
                .floats("e", &[])
                .node("Erf", &["x"], "f", &[])
                .node("Shape", &["f"], "s", &[])
                .node("Relu", &["s"], "y", &[])
                .output("y"),
        ),
        (
            "sizes_that_depend_on_the_image",
            start().node("Shape", &["x"], "s", &[]).node("ConstantOfShape", &["s"], "y", &[]).output("y"),
        ),
        ("number_that_is_many", node(start().floats("low", &[2]), "Clip", &["low"], &[])),
        (
            "conv_of_constant",
            start()
                .floats("w", &[4, 3, 1, 1])
                .floats("i", &[1, 3, 8, 8])
                .node("Conv", &["i", "w"], "y", &[])
                .output("y"),
        ),
    ]
}

fn of_steps() -> Vec<(&'static str, Builder)> {
    let channels = [("axes", ints(&[1]))];
    let normed = start()
        .node("ReduceMean", &["x"], "m", &channels)
        .node("Sub", &["x", "m"], "c", &[])
        .node("Mul", &["c", "c"], "q", &[])
        .node("ReduceMean", &["q"], "v", &channels)
        .tensor(float_tensor("eps", &[], &[0.5]))
        .node("Add", &["v", "eps"], "g", &[])
        .node("Sqrt", &["g"], "r", &[])
        .node("Relu", &["x"], "z", &[])
        .node("Div", &["z", "r"], "y", &[])
        .output("y");
    let listed = pooled()
        .ints("list", &[1], &[-1])
        .ints("at", &[1, 3, 1, 1], &[2, 1, 0])
        .node("Reshape", &["p", "list"], "l", &[])
        .node("Gather", &["l", "at"], "y", &[])
        .output("y");
    let squares = |pads: &[i64], of: &str| {
        let model = declared(start(), &[Some(1), Some(3), Some(4), Some(5)])
            .ints("volume", &[5], &[1, 1, 3, 4, 5])
            .ints("image", &[4], &[1, 3, 4, 5])
            .ints("pads", &[10], pads)
            .ints("axis", &[1], &[1])
            .node("Mul", &["x", "x"], "q", &[])
            .node("Relu", &["x"], "z", &[])
            .node("Reshape", &["q", "volume"], "v", &[])
            .node("Pad", &["v", "pads"], "p", &[])
            .node("AveragePool", &["p"], "a", &[("kernel_shape", ints(&[3, 1, 1]))])
            .node("Squeeze", &["a", "axis"], "s", &[])
            .node("Reshape", &["s", "image"], "r", &[]);
        model.node("Div", &[of, "r"], "y", &[]).output("y")
    };
    vec![
        ("norm_of_another_value", normed),
        ("elements_in_another_order", listed),
        ("response_padded_along_rows", squares(&[0, 0, 1, 1, 0, 0, 0, 1, 0, 0], "x")),
        ("response_of_another_window", squares(&[0, 0, 2, 0, 0, 0, 0, 1, 0, 0], "x")),
        ("response_of_another_value", squares(&[0, 0, 1, 0, 0, 0, 0, 1, 0, 0], "z")),
        ("tensor_of_text", of_tensor(&[4], 8)),
        ("tensor_of_no_shape", of_tensor(&[-1, 3], 1)),
        ("tensor_too_short", of_tensor(&[4, 3, 1, 1], 1)),
        ("network_refuses", conv(&[("strides", ints(&[0, 1]))])),
    ]
}

/// The errors of models whose bias of 16 bytes lies beside them, by what their external data says.
fn beside() -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), [0; 24]).unwrap();
    let path = folder.path().join("m.onnx");
    let model = |keys: &[(&str, &str)]| {
        let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
            key: Some((*key).to_owned()),
            value: Some((*value).to_owned()),
        };
        let bias = TensorProto {
            name: Some("b".to_owned()),
            dims: vec![4],
            data_type: Some(1),
            external_data: keys.iter().map(entry).collect(),
            data_location: Some(1),
            ..TensorProto::default()
        };
        node(start().floats("w", &[4, 3, 1, 1]).tensor(bias), "Conv", &["w", "b"], &[])
    };
    let words = |keys: &[(&str, &str)]| {
        fs::write(&path, model(keys).bytes()).unwrap();
        read(&path).unwrap_err().to_string()
    };
    vec![
        ("file_missing", words(&[("location", "no.bin")])),
        ("file_outside", words(&[("location", "../w.bin")])),
        ("file_too_short", words(&[("location", "w.bin"), ("offset", "16")])),
        ("file_offset", words(&[("location", "w.bin"), ("offset", "-1")])),
        ("file_of_no_folder", model(&[("location", "w.bin")]).read().unwrap_err().to_string()),
        ("not_a_file", read(folder.path()).unwrap_err().to_string()),
        ("not_there", read(folder.path().join("no.onnx")).unwrap_err().to_string()),
        ("no_messages", from_bytes(b"no model".as_slice(), None).unwrap_err().to_string()),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ui")
}

#[test]
fn every_refusal_is_in_the_words_of_its_text() {
    let mut said = beside();
    for (name, model) in models() {
        match model.read() {
            Err(error) => said.push((name, error.to_string())),
            Ok(read) => panic!("{name} is read: {:?}", read.graph.nodes()),
        }
    }
    let names: BTreeSet<String> = said.iter().map(|(name, _)| format!("onnx_{name}.txt")).collect();
    assert_eq!(names.len(), said.len(), "a name is there twice");
    let is_blessed = std::env::var_os("BLESS").is_some();
    for (name, words) in said {
        let path = folder().join(format!("onnx_{name}.txt"));
        let words = format!("{words}\n");
        if is_blessed {
            fs::write(&path, &words).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(words, wanted, "{name}");
    }
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with("onnx_") || names.contains(&name), "{name} is the text of no model");
    }
}
