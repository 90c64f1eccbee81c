//! Models that are refused for a layer or for a step of several.

use tiled_onnx::proto::TensorProto;

use super::{alone, conv, declared, int, node, of_tensor, pooled, start, text};
use crate::build::{Attribute, Builder, float_tensor, ints};

pub(super) fn of_layers() -> Vec<(&'static str, Builder)> {
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
    let wide = TensorProto {
        data_type: Some(11),
        double_data: vec![1e300, 1.0, -1e39],
        ..float_tensor("w", &[1, 3, 1, 1], &[])
    };
    let before = |opset| Builder::new(opset, 3).node("Softmax", &["x"], "y", &[("axis", int(1))]).output("y");
    let last = || start().node("Transpose", &["x"], "l", &[("perm", ints(&[0, 2, 3, 1]))]).floats("g", &[3]);
    vec![
        ("strides_of_three", conv(&[("strides", ints(&[1, 1, 1]))])),
        ("pads_of_one", conv(&[("pads", ints(&[1]))])),
        ("pads_too_large", conv(&[("pads", ints(&[i64::MAX, 0, 0, 0]))])),
        ("kernel_of_another_weight", conv(&[("kernel_shape", ints(&[5, 5]))])),
        ("auto_pad", conv(&[("auto_pad", text("SAME"))])),
        ("auto_pad_of_open_size", conv(&[("auto_pad", text("SAME_LOWER")), ("strides", ints(&[2, 2]))])),
        ("groups_of_conv", conv(&[("group", int(-1))])),
        (
            "weight_of_other_channels",
            node(Builder::new(18, 5).floats("w", &[4, 3, 3, 3]), "Conv", &["w"], &[]),
        ),
        ("weights_beyond_f32", node(start().tensor(wide), "Conv", &["w"], &[])),
        ("weight_of_three_axes", node(start().floats("w", &[4, 3, 3]), "Conv", &["w"], &[])),
        ("weight_that_is_computed", node(start(), "Conv", &["x"], &[])),
        ("transposed_output_shape", transposed(&[("output_shape", ints(&[9, 9]))])),
        (
            "transposed_beyond_its_windows",
            transposed(&[("auto_pad", text("SAME_UPPER")), ("strides", ints(&[4, 1]))]),
        ),
        (
            "pad_mode",
            node(
                start().ints("p", &[8], &[0, 0, 1, 1, 0, 0, 1, 1]),
                "Pad",
                &["p"],
                &[("mode", text("mirror"))],
            ),
        ),
        (
            "pad_of_channels",
            node(
                start().ints("p", &[8], &[0, 1, 0, 0, 0, 0, 0, 0]),
                "Pad",
                &["p"],
                &[("mode", text("reflect"))],
            ),
        ),
        ("pool_without_kernel", alone("MaxPool", &[])),
        ("average_over_dilated", alone("AveragePool", &[kernel.clone(), ("dilations", ints(&[2, 2]))])),
        (
            "maximum_of_columns_twice",
            start()
                .node("ReduceMax", &["x"], "m", &[("axes", ints(&[3])), ("keepdims", int(0))])
                .node("ReduceMax", &["m"], "y", &[("axes", ints(&[-2])), ("keepdims", int(0))])
                .output("y"),
        ),
        ("mean_over_rows", alone("ReduceMean", &[("axes", ints(&[2])), ("keepdims", int(0))])),
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

pub(super) fn of_steps() -> Vec<(&'static str, Builder)> {
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
