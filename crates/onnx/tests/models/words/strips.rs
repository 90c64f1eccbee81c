//! Values of one row or one column, and such values beside each other, as they are not read.

use super::{Builder, OPEN, declared, int, node, start};
use crate::build::{Attribute, ints};

pub(super) fn of_strips() -> Vec<(&'static str, Builder)> {
    let square = declared(start(), &[Some(1), Some(3), Some(4), Some(3)]).input("z", &OPEN);
    vec![
        ("sum_over_rows_of_open_size", node(start().ints("at", &[1], &[2]), "ReduceSum", &["at"], &[])),
        (
            "maximum_of_rows_without_axis",
            start()
                .node("ReduceMax", &["x"], "m", &[("axes", ints(&[3])), ("keepdims", int(0))])
                .node("Mul", &["x", "m"], "y", &[])
                .output("y"),
        ),
        (
            "column_of_a_declared_size",
            square
                .node("MaxPool", &["x"], "m", &[("kernel_shape", ints(&[1, 3]))])
                .node("Mul", &["z", "m"], "y", &[])
                .output("y"),
        ),
    ]
}

/// The means of rows and those of columns, turned, in `h` and `t`; both beside each other in `l`.
fn beside() -> Builder {
    start()
        .node("ReduceMax", &["x"], "h", &[("axes", ints(&[3]))])
        .node("ReduceMax", &["x"], "w", &[("axes", ints(&[2]))])
        .node("Transpose", &["w"], "t", &[("perm", ints(&[0, 1, 3, 2]))])
        .node("Concat", &["h", "t"], "l", &[("axis", int(2))])
}

pub(super) fn of_lanes() -> Vec<(&'static str, Builder)> {
    let then = |op: &str, inputs: &[&str], attributes: &[(&str, Attribute)]| {
        beside().node(op, inputs, "y", attributes).output("y")
    };
    let joined = |inputs: &[&str], axis: i64| then("Concat", inputs, &[("axis", int(axis))]);
    let conv = |kernel: i64, attributes: &[(&str, Attribute)]| {
        beside().floats("k", &[3, 3, kernel, 1]).node("Conv", &["l", "k"], "y", attributes).output("y")
    };
    // from zero to a place
    let slice = |places: &[i64], axes: &[i64], steps: &[i64]| {
        let len = |list: &[i64]| [i64::try_from(list.len()).unwrap()];
        beside()
            .ints("from", &len(axes), &vec![0; axes.len()])
            .ints("to", &len(places), places)
            .ints("at", &len(axes), axes)
            .ints("by", &len(steps), steps)
            .node("Slice", &["l", "from", "to", "at", "by"], "y", &[])
            .output("y")
    };
    let few = beside().floats("k", &[2, 3, 1, 1]).node("Conv", &["h", "k"], "c", &[]);
    let other = beside().node("Concat", &["t", "h"], "m", &[("axis", int(2))]);
    let turned = beside().node("Transpose", &["h"], "u", &[("perm", ints(&[0, 1, 3, 2]))]);
    let sizes = beside().ints("s", &[2], &[4, 5]);
    vec![
        ("row_that_is_turned_as_output", beside().output("t")),
        ("lanes_as_output", beside().output("l")),
        ("lanes_that_are_pooled", then("GlobalAveragePool", &["l"], &[])),
        ("lanes_under_three_taps", conv(3, &[("pads", ints(&[1, 0, 1, 0]))])),
        ("lanes_at_a_stride", conv(1, &[("strides", ints(&[2, 1]))])),
        ("lanes_with_a_border", conv(1, &[("pads", ints(&[1, 0, 0, 0]))])),
        ("lanes_with_an_image", then("Add", &["x", "l"], &[])),
        ("lanes_of_another_order", other.node("Add", &["l", "m"], "y", &[]).output("y")),
        ("lanes_beside_an_image", joined(&["l", "x"], 2)),
        ("lanes_along_channels", joined(&["l", "l"], 1)),
        ("lanes_of_other_axes", turned.node("Concat", &["l", "u"], "y", &[("axis", int(2))]).output("y")),
        ("lanes_of_other_channels", few.node("Concat", &["c", "t"], "y", &[("axis", int(2))]).output("y")),
        ("lanes_of_many", joined(&["l"; 9], 2)),
        ("lanes_in_another_order", then("Transpose", &["l"], &[("perm", ints(&[0, 2, 1, 3]))])),
        ("lanes_cut_within_a_value", slice(&[4], &[2], &[1])),
        ("lanes_cut_along_channels", slice(&[2], &[1], &[1])),
        ("lanes_cut_along_two_axes", slice(&[4, 1], &[2, 3], &[1, 1])),
        ("lanes_cut_with_steps", slice(&[i64::MAX], &[2], &[2])),
        (
            "lanes_split_within_a_value",
            sizes.node("Split", &["l", "s"], "y", &[("axis", int(2))]).output("y"),
        ),
        ("lanes_split_in_open_halves", then("Split", &["l"], &[("axis", int(2)), ("num_outputs", int(1))])),
    ]
}
