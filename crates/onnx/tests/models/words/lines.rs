//! Values beside each other, repeated, and with their pixels as one axis, as they are not read.

use super::{Builder, OPEN, declared, int, node, start};

pub(super) fn of_lines() -> Vec<(&'static str, Builder)> {
    let extents = |channels, height, width| [Some(1), Some(channels), Some(height), Some(width)];
    let beside = |channels: i64, width: i64, count: usize| {
        let model = declared(start(), &extents(3, 4, 5)).input("z", &extents(channels, 4, width));
        node(model, "Concat", &vec!["z"; count], &[("axis", int(2))])
    };
    let repeated = |repeats: &[i64], shape: &[i64]| {
        declared(start(), &extents(3, 4, 5))
            .ints("at", &[1], &[2])
            .ints("r", &[5], repeats)
            .ints("s", &[4], shape)
            .node("Unsqueeze", &["x", "at"], "u", &[])
            .node("Tile", &["u", "r"], "t", &[])
            .node("Reshape", &["t", "s"], "y", &[])
            .output("y")
    };
    let apart = declared(start(), &extents(3, 4, 5))
        .ints("at", &[1], &[3])
        .ints("s", &[4], &[0, 3, -1, 5])
        .node("Neg", &["x"], "z", &[])
        .node("Unsqueeze", &["x", "at"], "u", &[])
        .node("Unsqueeze", &["z", "at"], "v", &[])
        .node("Concat", &["u", "v"], "c", &[("axis", int(3))])
        .node("Reshape", &["c", "s"], "y", &[])
        .output("y");
    let plane = start()
        .ints("one", &[1], &[1])
        .ints("s", &[4], &[0, 3, -1, 5])
        .node("ReduceMax", &["x", "one"], "m", &[("keepdims", int(0))])
        .node("Reshape", &["m", "s"], "y", &[])
        .output("y");
    // weights of the pixels of a smaller value
    let weighed = declared(start(), &extents(3, 4, 5))
        .floats("w", &[1, 3, 2, 2])
        .ints("one", &[1], &[1])
        .ints("last", &[1], &[-1])
        .ints("l", &[3], &[0, 3, -1])
        .ints("k", &[3], &[0, 1, -1])
        .node("Conv", &["x", "w"], "small", &[])
        .node("Reshape", &["small", "k"], "key", &[])
        .node("Softmax", &["key"], "weights", &[("axis", int(2))])
        .node("Reshape", &["x", "l"], "lines", &[])
        .node("Unsqueeze", &["lines", "one"], "rows", &[])
        .node("Unsqueeze", &["weights", "last"], "column", &[])
        .node("MatMul", &["rows", "column"], "y", &[])
        .output("y");
    let sums = declared(start(), &OPEN)
        .ints("one", &[1], &[1])
        .ints("l", &[3], &[0, 3, -1])
        .node("Reshape", &["x", "l"], "lines", &[])
        .node("Unsqueeze", &["lines", "one"], "y", &[])
        .output("y");
    vec![
        ("beside_of_other_channels", beside(2, 5, 1)),
        ("beside_of_another_width", beside(3, 6, 1)),
        ("beside_of_many", beside(3, 5, 64)),
        ("repeated_along_two_axes", repeated(&[1, 2, 2, 1, 1], &[0, -1, 4, 5])),
        ("repeated_to_another_shape", repeated(&[1, 1, 2, 1, 1], &[0, -1, 5, 5])),
        ("rows_in_turn", apart),
        ("plane_of_channels", plane),
        ("weights_of_other_pixels", weighed),
        ("lines_as_output", sums),
    ]
}
