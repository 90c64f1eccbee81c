//! Models that are refused for a shape or a size.

use super::{alone, declared, int, node, pooled, start, text};
use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints};

pub(super) fn of_shapes() -> Vec<(&'static str, Builder)> {
    let shape = |dims: &[i64]| {
        let len = i64::try_from(dims.len()).unwrap();
        node(start().ints("s", &[len], dims), "Reshape", &["s"], &[])
    };
    let seven = [None, Some(3), Some(7), Some(7)];
    let flat = || start().node("Flatten", &["x"], "f", &[]);
    // all that an image has, read by a head
    let features = |model: Builder| {
        declared(model.floats("w", &[147, 2]).node("MatMul", &["v", "w"], "y", &[]).output("y"), &seven)
    };
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
    // nine pooled channels as nine columns of one channel
    let row = || {
        let model = Builder::new(18, 9).node("GlobalAveragePool", &["x"], "p", &[]);
        model.ints("s", &[3], &[-1, 1, 9]).node("Reshape", &["p", "s"], "r", &[])
    };
    let wide = |attributes: &[(&str, Attribute)]| {
        row().floats("w", &[2, 1, 3]).node("Conv", &["r", "w"], "c", attributes)
    };
    let turned = wide(&[]).node("Transpose", &["c"], "y", &[("perm", ints(&[0, 2, 1]))]).output("y");
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
            start().ints("w", &[2, 2, 2], &[0; 8]).node("Transpose", &["w"], "y", &[]).output("y"),
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
        (
            "row_to_two_axes",
            row().ints("u", &[3], &[-1, 3, 3]).node("Reshape", &["r", "u"], "y", &[]).output("y"),
        ),
        (
            "row_that_is_dropped",
            row().ints("u", &[1], &[2]).node("Squeeze", &["r", "u"], "y", &[]).output("y"),
        ),
        ("row_that_is_turned", turned),
        (
            "row_of_a_flat_kernel",
            row().floats("w", &[2, 1, 1, 3]).node("Conv", &["r", "w"], "y", &[]).output("y"),
        ),
        ("row_of_two_strides", wide(&[("strides", ints(&[1, 2]))]).output("c")),
        (
            "row_with_another_axis",
            row().ints("u", &[1], &[3]).node("Unsqueeze", &["r", "u"], "y", &[]).output("y"),
        ),
        (
            "rows_joined_to_columns",
            start()
                .ints("s", &[3], &[0, -1, 7])
                .node("Transpose", &["x"], "t", &[("perm", ints(&[0, 3, 2, 1]))])
                .node("Reshape", &["t", "s"], "y", &[])
                .output("y"),
        ),
        ("mod_of_fractions", node(start().ints("by", &[], &[2]), "Mod", &["by"], &[("fmod", int(1))])),
        ("row_with_an_image", row().node("Add", &["r", "p"], "y", &[]).output("y")),
        ("row_of_another_padding", wide(&[("auto_pad", text("SAME_UPPER"))]).output("c")),
        ("squeeze_of_rows", node(start().ints("a", &[1], &[2]), "Squeeze", &["a"], &[])),
        (
            "mean_of_flat_features",
            features(flat().ints("a", &[1], &[1]).node("ReduceMean", &["f", "a"], "m", &[]).node(
                "Sub",
                &["f", "m"],
                "v",
                &[],
            )),
        ),
        ("softmax_of_flat_features", features(flat().node("Softmax", &["f"], "v", &[]))),
        (
            "flat_features_that_lie_otherwise",
            features(
                flat()
                    .floats("k", &[147, 3, 1, 1])
                    .node("Conv", &["x", "k"], "c", &[])
                    .node("GlobalAveragePool", &["c"], "p", &[])
                    .node("Flatten", &["p"], "g", &[])
                    .node("Mul", &["g", "f"], "v", &[]),
            ),
        ),
        (
            "resize_of_the_batch",
            declared(
                node(start().ints("n", &[4], &[1, 3, 8, 8]), "Resize", &["", "", "n"], &[]),
                &[Some(2), Some(3), Some(4), Some(4)],
            ),
        ),
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
                start().ints("f", &[1], &[-1]).ints("t", &[1], &[i64::MIN]).ints("a", &[1], &[2]).ints(
                    "s",
                    &[1],
                    &[-1],
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
            "slice_to_half_the_rows",
            start()
                .node("Shape", &["x"], "h", &[("start", int(2)), ("end", int(3))])
                .ints("by", &[1], &[2])
                .ints("f", &[1], &[0])
                .node("Div", &["h", "by"], "half", &[])
                .node("Slice", &["x", "f", "half", "by"], "y", &[])
                .output("y"),
        ),
        (
            "pad_by_all_rows",
            start()
                .node("Shape", &["x"], "h", &[("start", int(2)), ("end", int(3))])
                .ints("none", &[7], &[0; 7])
                .node("Concat", &["none", "h"], "pads", &[("axis", int(0))])
                .node("Pad", &["x", "pads"], "y", &[])
                .output("y"),
        ),
        (
            "pad_by_what_is_left",
            start()
                .node("Shape", &["x"], "h", &[("start", int(2)), ("end", int(3))])
                .ints("by", &[1], &[4])
                .node("Mod", &["h", "by"], "left", &[])
                .ints("before", &[6], &[0; 6])
                .ints("after", &[1], &[0])
                .node("Concat", &["before", "left", "after"], "pads", &[("axis", int(0))])
                .node("Pad", &["x", "pads"], "y", &[])
                .output("y"),
        ),
        ("mod_of_an_image", node(start().ints("by", &[], &[2]), "Mod", &["by"], &[])),
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
        (
            "slice_of_an_axis_twice",
            node(
                start().ints("starts", &[2], &[0, 1]).ints("ends", &[2], &[4, 5]).ints(
                    "axes",
                    &[2],
                    &[2, -2],
                ),
                "Slice",
                &["starts", "ends", "axes"],
                &[],
            ),
        ),
        (
            "one_image_of_an_open_batch",
            pooled().ints("flat", &[2], &[1, -1]).node("Reshape", &["p", "flat"], "y", &[]).output("y"),
        ),
        (
            "features_and_pixels_of_one_value",
            pooled().node("Sigmoid", &["p"], "s", &[]).node("Mul", &["f", "s"], "y", &[]).output("y"),
        ),
        (
            "nearest_pixels_of_two_kinds",
            Builder::new(10, 3)
                .tensor(float_tensor("scales", &[4], &[1.0, 1.0, 0.6, 2.0]))
                .node("Resize", &["x", "scales"], "y", &[])
                .output("y"),
        ),
        (
            "mean_of_a_mask",
            start()
                .tensor(float_tensor("half", &[], &[0.5]))
                .ints("pixels", &[2], &[2, 3])
                .node("Greater", &["x", "half"], "b", &[])
                .node("Cast", &["b"], "c", &[("to", int(6))])
                .node("ReduceMean", &["c", "pixels"], "y", &[])
                .output("y"),
        ),
        (
            "numbers_beyond_their_type",
            start()
                .ints("n", &[1], &[300])
                .node("Cast", &["n"], "c", &[("to", int(3))])
                .node("Expand", &["x", "c"], "y", &[])
                .output("y"),
        ),
        (
            "class_numbers_and_many_others",
            start()
                .ints("many", &[1, 2, 1, 1], &[3, 4])
                .node("ArgMax", &["x"], "c", &[("axis", int(1))])
                .node("Add", &["c", "many"], "y", &[])
                .output("y"),
        ),
        (
            "class_numbers_beyond_their_type",
            start()
                .ints("many", &[], &[64])
                .node("ArgMax", &["x"], "c", &[("axis", int(1))])
                .node("Mul", &["c", "many"], "m", &[])
                .node("Cast", &["m"], "y", &[("to", int(3))])
                .output("y"),
        ),
        (
            "class_numbers_beyond_floats",
            start()
                .ints("many", &[], &[1 << 24])
                .node("ArgMax", &["x"], "c", &[("axis", int(1))])
                .node("Mul", &["c", "many"], "y", &[])
                .output("y"),
        ),
        (
            "quotient_of_class_numbers",
            start()
                .ints("two", &[1], &[2])
                .node("ArgMax", &["x"], "c", &[("axis", int(1))])
                .node("Div", &["c", "two"], "y", &[])
                .output("y"),
        ),
        ("arg_max_of_rows", alone("ArgMax", &[("axis", int(2))])),
        ("arg_max_of_the_last", alone("ArgMax", &[("axis", int(1)), ("select_last_index", int(1))])),
    ]
}

pub(super) fn of_sizes() -> Vec<(&'static str, Builder)> {
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
    let mut expanded = Builder::new(18, 1).ints("s", &[4], &[1, 1 << 12, 1, 1]);
    for place in 0..=64 {
        let name = format!("e{place}");
        expanded = expanded.node("Expand", &["x", "s"], &name, &[]).output(&name);
    }
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
            node(Builder::new(18, 2).ints("s", &[4], &[1, 3, 1, 1]), "Expand", &["s"], &[]),
        ),
        ("expand_of_many_nodes", expanded),
        ("resize_to_other_channels", sizes),
        (
            "where_by_an_open_size",
            start()
                .ints("k", &[1], &[3])
                .node("Shape", &["x"], "s", &[])
                .node("Equal", &["s", "k"], "c", &[])
                .node("Where", &["c", "k", "s"], "y", &[])
                .output("y"),
        ),
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
        ("stacks_along_two_axes", stacks(3, 1)),
        ("stacks_of_other_counts", stacks(1, 3)),
        ("gather_of_nothing", picked(3, 1, Vec::new())),
        ("gather_of_a_feature", picked(3, 0, vec![1])),
        ("gather_of_no_channel", picked(3, 1, vec![3])),
        ("gather_of_rows", node(start().ints("i", &[1], &[0]), "Gather", &["i"], &[("axis", int(2))])),
        ("sizes_cut_backward", cut.node("Slice", &["s", "f", "t", "a", "b"], "y", &[]).output("y")),
        (
            "range_of_many",
            counted
                .tensor(float_tensor("far", &[], &[99.0]))
                .node("Range", &["zero", "far", "one"], "y", &[])
                .output("y"),
        ),
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
            start()
                .node("Shape", &["x"], "s", &[("start", int(1))])
                .node("ConstantOfShape", &["s"], "y", &[])
                .output("y"),
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

/// The product of so many values along an axis of their own, and of two parts of the channels along the first.
fn stacks(axis: i64, count: usize) -> Builder {
    let apart = Builder::new(17, 6).ints("parts", &[5], &[-1, 2, 3, 1, 1]).ints("a", &[1], &[axis]);
    let apart = apart.node("GlobalAveragePool", &["x"], "m", &[]).node("Reshape", &["m", "parts"], "p", &[]);
    let stacked = apart.node("Unsqueeze", &["m", "a"], "u", &[]);
    let stacked = stacked.node("Concat", &vec!["u"; count], "s", &[("axis", Attribute::Int(axis))]);
    stacked.node("Mul", &["s", "p"], "y", &[]).output("y")
}

/// Channels at these places, of a pixel's features by a number alone where they have no axes.
fn picked(channels: i64, axes: usize, places: Vec<i64>) -> Builder {
    let dims = [i64::try_from(places.len()).unwrap_or_default()];
    let model = Builder::new(17, channels).ints("i", &dims[..axes], &places);
    let mean = [("axes", ints(&[2, 3])), ("keepdims", Attribute::Int(i64::from(axes > 0)))];
    let model = model.node("ReduceMean", &["x"], "m", &mean);
    model.node("Gather", &["m", "i"], "y", &[("axis", Attribute::Int(1))]).output("y")
}
