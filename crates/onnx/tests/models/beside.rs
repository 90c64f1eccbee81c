//! Values beside each other along rows and columns.

use tiled_graph::{Op, Pad, PadWith};

use crate::build::{Attribute, Builder, ops, reason, value};
use crate::runs::run;

const SHAPE: [usize; 4] = [2, 2, 4, 5];

fn image() -> Vec<f64> {
    (0..SHAPE.iter().product()).map(|place: usize| place as f64 / 4.0 - 3.0).collect()
}

/// x with its last rows (columns) before it and its first behind it.
fn around(mut model: Builder, axis: i64, [before, after]: [i64; 2]) -> Builder {
    model = model
        .ints("at", &[1], &[axis])
        .ints("minus", &[1], &[-before])
        .ints("zero", &[1], &[0])
        .ints("after", &[1], &[after])
        .ints("end", &[1], &[i64::MAX])
        .node("Slice", &["x", "minus", "end", "at"], "a", &[])
        .node("Slice", &["x", "zero", "after", "at"], "b", &[]);
    let parts: Vec<&str> = [(before > 0, "a"), (true, "x"), (after > 0, "b")]
        .iter()
        .filter_map(|(is_there, name)| is_there.then_some(*name))
        .collect();
    model.node("Concat", &parts, "y", &[("axis", Attribute::Int(axis))]).output("y")
}

fn declared(mut model: Builder, shape: [usize; 4]) -> Builder {
    model.graph().input[0] = value("x", 1, &shape.map(|extent| i64::try_from(extent).ok()));
    model
}

#[test]
fn the_last_rows_before_a_value_and_the_first_behind_it_are_circular_padding() {
    for (axis, sides) in [(2, [2, 1]), (3, [1, 3]), (-2, [2, 0]), (-1, [0, 3])] {
        for is_declared in [false, true] {
            let model = around(Builder::new(17, 2), axis, sides);
            let model = if is_declared { declared(model, SHAPE) } else { model };
            let padding = if axis % 4 == 2 || axis == -2 { [sides, [0, 0]] } else { [[0, 0], sides] };
            let wanted = Op::Pad(Pad { padding, with: PadWith::Circular });
            assert!(ops(&model).last() == Some(&wanted), "{:?}", ops(&model));
        }
    }
    let model = around(Builder::new(17, 2), 3, [1, 2]);
    let (made, shape) = run(&model, SHAPE, &image());
    assert_eq!(shape, [2, 2, 4, 8]);
    let wanted =
        image().chunks_exact(5).flat_map(|row| [4, 0, 1, 2, 3, 4, 0, 1].map(|w| row[w])).collect::<Vec<_>>();
    assert_eq!(made, wanted);
}

#[test]
fn parts_beside_each_other_that_are_no_padding_are_what_they_are() {
    // the halves changed over, whose sizes differ
    let model = |axis: i64, at: i64| {
        Builder::new(17, 2)
            .ints("at", &[1], &[axis])
            .ints("zero", &[1], &[0])
            .ints("cut", &[1], &[at])
            .ints("end", &[1], &[i64::MAX])
            .node("Slice", &["x", "zero", "cut", "at"], "a", &[])
            .node("Slice", &["x", "cut", "end", "at"], "b", &[])
            .node("Neg", &["b"], "nb", &[])
            .node("Concat", &["nb", "a", "a"], "y", &[("axis", Attribute::Int(axis))])
            .output("y")
    };
    let (made, shape) = run(&declared(model(3, 2), SHAPE), SHAPE, &image());
    assert_eq!(shape, [2, 2, 4, 7]);
    let row = |row: &[f64]| [-row[2], -row[3], -row[4], row[0], row[1], row[0], row[1]];
    assert_eq!(made, image().chunks_exact(5).flat_map(row).collect::<Vec<_>>());
    let (made, shape) = run(&declared(model(2, 1), SHAPE), SHAPE, &image());
    assert_eq!(shape, [2, 2, 5, 5]);
    let plane = |plane: &[f64]| {
        let below = plane[5..].iter().map(|x| -x);
        below.chain(plane[..5].iter().copied()).chain(plane[..5].iter().copied()).collect::<Vec<_>>()
    };
    assert_eq!(made, image().chunks_exact(20).flat_map(plane).collect::<Vec<_>>());
}

/// The last two rows and the first two columns of an image of open size, and a node that makes `y`.
fn with_ends(operator: &str, inputs: &[&str], attributes: &[(&str, Attribute)]) -> Builder {
    Builder::new(17, 2)
        .ints("rows", &[1], &[2])
        .ints("columns", &[1], &[3])
        .ints("minus", &[1], &[-2])
        .ints("zero", &[1], &[0])
        .ints("two", &[1], &[2])
        .ints("end", &[1], &[i64::MAX])
        .node("Slice", &["x", "minus", "end", "rows"], "last", &[])
        .node("Slice", &["x", "zero", "two", "columns"], "first", &[])
        .node(operator, inputs, "y", attributes)
        .output("y")
}

#[test]
fn ends_of_open_size_are_of_no_other_use() {
    let wanted = "wants a value of the network";
    assert_eq!(
        reason(&with_ends("Relu", &["last"], &[])),
        format!("input 0 is the last rows of a value of open size, {wanted}")
    );
    // at the other side, and the ends of another axis
    let rows = [("axis", Attribute::Int(2))];
    for (parts, place, name) in [(["x", "last"], 1, "last rows"), (["first", "x"], 0, "first columns")] {
        let model = with_ends("Concat", &parts, &rows);
        assert_eq!(reason(&model), format!("input {place} is the {name} of a value of open size, {wanted}"));
    }
}

#[test]
fn nothing_beside_nothing_is_refused() {
    let model = Builder::new(17, 2).node("Concat", &[], "y", &[("axis", Attribute::Int(2))]).output("y");
    assert_eq!(reason(&model), "attribute `axis` is 2, wants 1, the channels");
}

#[test]
fn parts_that_do_not_fit_beside_each_other_are_refused() {
    let both = |channels: i64, extents: [i64; 2], count: usize| {
        let mut model = declared(Builder::new(17, 2), SHAPE)
            .input("z", &[Some(2), Some(channels), Some(extents[0]), Some(extents[1])]);
        let parts: Vec<&str> = std::iter::once("x").chain(std::iter::repeat_n("z", count)).collect();
        model = model.node("Concat", &parts, "y", &[("axis", Attribute::Int(2))]).output("y");
        model
    };
    assert_eq!(reason(&both(3, [4, 5], 1)), "input 1 is 3, not 2, wants as many channels as the first");
    assert_eq!(reason(&both(2, [4, 6], 1)), "input 1 is 6, not 5, wants as many columns as the first");
    assert_eq!(
        reason(&both(2, [4, 5], 64)),
        "input 0 is a batch of images, wants up to 64 values of fewer rows or columns"
    );
}

#[test]
fn the_last_axis_of_two_is_that_of_the_channels() {
    let model = Builder::new(17, 2)
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Flatten", &["p"], "f", &[])
        .node("Relu", &["f"], "g", &[])
        .node("Concat", &["f", "g"], "y", &[("axis", Attribute::Int(-1))])
        .output("y");
    let (made, shape) = run(&model, SHAPE, &image());
    assert_eq!(shape, [2, 4, 1, 1]);
    let means: Vec<f64> = image().chunks_exact(20).map(|plane| plane.iter().sum::<f64>() / 20.0).collect();
    let wanted: Vec<f64> = means
        .chunks_exact(2)
        .flat_map(|of| of.iter().copied().chain(of.iter().map(|x| x.max(0.0))))
        .collect();
    assert_eq!(made, wanted);
}
