//! Assignments to other parts than channels.

use super::{Builder, alone, declared, int, ints, node, start, text};
use crate::assigned::{Places, index, newer};

/// The channels first.
const FIRST: [i64; 4] = [1, 0, 2, 3];

pub(super) fn of_assignments() -> Vec<(&'static str, Builder)> {
    let turned = || start().node("Transpose", &["x"], "t", &[("perm", ints(&FIRST))]);
    let added = |reduction| {
        let model = turned().ints("i", &[1, 1], &[0]);
        model.node("ScatterND", &["t", "i", "t"], "y", &[("reduction", text(reduction))]).output("y")
    };
    let shape = [2, 3, 4, 5];
    let images = declared(start(), &shape.map(Some));
    let images = index(images, Some([1, 3, 4, 5]), Places::List(&[0, 1, 2]), 2);
    let images = images.node("ScatterND", &["x", "index", "x"], "y", &[]).output("y");
    let grid = || index(start(), None, Places::Part([0, 2, 1]), 2);
    let line = || start().ints("zero", &[], &[0]).ints("one", &[], &[1]).ints("many", &[], &[99]);
    let line = || line().node("Range", &["zero", "many", "one"], "r", &[]);
    let cut = |from: i64, by: i64| {
        let model = line().ints("f", &[1], &[from]).ints("b", &[1], &[by]).ints("a", &[1], &[0]);
        model.node("Slice", &["r", "f", "many_ends", "a", "b"], "y", &[]).output("y").ints(
            "many_ends",
            &[1],
            &[99],
        )
    };
    let size = start().node("Shape", &["x"], "s", &[]).ints("at", &[], &[2]).ints("a", &[1], &[0]);
    let size = size.node("Gather", &["s", "at"], "h", &[]).ints("zero", &[], &[0]).ints("one", &[], &[1]);
    let rows = size.node("Range", &["zero", "h", "one"], "r", &[]).ints("f", &[1], &[1]);
    let rows = rows.ints("t", &[1], &[3]).node("Slice", &["r", "f", "t", "a"], "y", &[]).output("y");
    let elements = |axis: i64| {
        let model = start().ints("i", &[1, 1, 1, 1], &[0]);
        node(model, "ScatterElements", &["i", "x"], &[("axis", int(axis))])
    };
    let many: Vec<i64> = (0..200).step_by(2).collect();
    vec![
        ("assignment_that_adds", added("add")),
        ("assignment_to_an_image", images),
        ("assignment_to_rows", newer(start(), Places::List(&[0, 1]), &[2, 1, 0, 3])),
        ("assignment_of_all_channels", grid().node("ScatterND", &["x", "index", "x"], "y", &[]).output("y")),
        (
            "assignment_of_a_constant",
            declared(grid(), &shape.map(Some))
                .floats("u", &[2, 2, 4, 5])
                .node("ScatterND", &["x", "index", "u"], "y", &[])
                .output("y"),
        ),
        ("assignment_to_many_runs", newer(Builder::new(18, 200), Places::List(&many), &FIRST)),
        ("assignment_to_many_channels", newer(Builder::new(18, 1 << 17), Places::List(&[0]), &FIRST)),
        ("assignment_by_elements_of_rows", elements(2)),
        ("assignment_by_elements_of_a_pixel", elements(1)),
        ("channels_first_in_an_operator", turned().node("Relu", &["t"], "y", &[]).output("y")),
        (
            "channels_of_no_list",
            turned().ints("l", &[1], &[0]).node("GatherND", &["t", "l"], "y", &[]).output("y"),
        ),
        (
            "channels_of_an_empty_list",
            turned().ints("l", &[0, 1], &[]).node("GatherND", &["t", "l"], "y", &[]).output("y"),
        ),
        ("numbers_as_output", line().output("r")),
        ("numbers_cut_backward", cut(98, -1)),
        ("numbers_cut_along_two_axes", {
            let model = line().ints("f", &[2], &[0, 0]).ints("t", &[2], &[1, 1]);
            model.node("Slice", &["r", "f", "t"], "y", &[]).output("y")
        }),
        ("numbers_of_which_none_is_left", cut(99, 1)),
        ("numbers_of_rows_cut", rows),
        (
            "numbers_in_two_axes",
            line().ints("w", &[2], &[9, 1]).node("Reshape", &["r", "w"], "y", &[]).output("y"),
        ),
        (
            "numbers_of_other_extents",
            line().ints("w", &[2], &[2, 98]).node("Expand", &["r", "w"], "y", &[]).output("y"),
        ),
        (
            "coordinates_along_another_axis",
            grid().node("Concat", &["u0", "u1"], "y", &[("axis", int(0))]).output("y"),
        ),
        (
            "coordinates_along_five_axes",
            grid().node("Concat", &["index", "index", "u0"], "y", &[("axis", int(-1))]).output("y"),
        ),
        ("plane_of_another_size", {
            let plane = start().ints("c", &[], &[0]).node("Gather", &["x", "c"], "p", &[("axis", int(1))]);
            plane.ints("s", &[3], &[1, 7, 7]).node("Expand", &["p", "s"], "y", &[]).output("y")
        }),
        ("plane_to_rows", {
            let plane = start().ints("c", &[], &[0]).node("Gather", &["x", "c"], "p", &[("axis", int(1))]);
            plane.ints("s", &[2], &[1, 49]).node("Reshape", &["p", "s"], "y", &[]).output("y")
        }),
        ("scatter_of_nothing", alone("ScatterND", &[])),
    ]
}
