//! Channels, rows and columns that are repeated: each by itself, or all of them one after another.

use crate::build::{Attribute, Builder, reason, value};
use crate::runs::run;

const SHAPE: [usize; 4] = [2, 3, 2, 5];

fn image() -> Vec<f64> {
    (0..SHAPE.iter().product()).map(|place: usize| place as f64 / 4.0 - 3.0).collect()
}

fn declared(mut model: Builder) -> Builder {
    model.graph().input[0] = value("x", 1, &SHAPE.map(|extent| i64::try_from(extent).ok()));
    model
}

/// A value of this shape whose element at `[n, c, h, w]` is that of the image at the place that a function gives.
fn made_of(shape: [usize; 4], place: impl Fn([usize; 4]) -> [usize; 4]) -> Vec<f64> {
    let (image, [_, channels, height, width]) = (image(), SHAPE);
    let mut made = Vec::new();
    for n in 0..shape[0] {
        for c in 0..shape[1] {
            for h in 0..shape[2] {
                for w in 0..shape[3] {
                    let [n, c, h, w] = place([n, c, h, w]);
                    made.push(image[((n * channels + c) * height + h) * width + w]);
                }
            }
        }
    }
    made
}

/// The value, each of its elements along an axis repeated by itself: by `Tile` or by `Expand` along an axis that is added behind it.
fn interleaved(operator: &str, axis: usize, count: i64, shape: &[i64]) -> Builder {
    let mut repeats = [1; 5];
    repeats[axis] = count;
    declared(Builder::new(18, 3))
        .ints("at", &[1], &[i64::try_from(axis).unwrap()])
        .ints("repeats", &[5], &repeats)
        .ints("shape", &[i64::try_from(shape.len()).unwrap()], shape)
        .node("Unsqueeze", &["x", "at"], "u", &[])
        .node(operator, &["u", "repeats"], "t", &[])
        .node("Reshape", &["t", "shape"], "y", &[])
        .output("y")
}

#[test]
fn channels_are_repeated_one_after_another() {
    let model =
        Builder::new(13, 3).ints("r", &[4], &[1, 4, 1, 1]).node("Tile", &["x", "r"], "y", &[]).output("y");
    let (made, shape) = run(&model, SHAPE, &image());
    assert_eq!(shape, [2, 12, 2, 5]);
    assert_eq!(made, made_of(shape, |[n, c, h, w]| [n, c % 3, h, w]));
    // features of a pooled value
    let pooled = Builder::new(13, 3)
        .ints("r", &[2], &[1, 2])
        .node("GlobalMaxPool", &["x"], "m", &[])
        .node("Flatten", &["m"], "f", &[])
        .node("Tile", &["f", "r"], "y", &[])
        .output("y");
    let (made, shape) = run(&pooled, SHAPE, &image());
    assert_eq!(shape, [2, 6, 1, 1]);
    assert_eq!(made, made_of(shape, |[n, c, ..]| [n, c % 3, 1, 4]));
}

#[test]
fn elements_along_an_axis_are_repeated_each_by_itself() {
    for operator in ["Tile", "Expand"] {
        let check = |axis, shape: &[i64], place: fn([usize; 4]) -> [usize; 4], wanted: [usize; 4]| {
            let (made, shape) = run(&interleaved(operator, axis, 3, shape), SHAPE, &image());
            assert_eq!(shape, wanted, "{operator} along {axis}");
            assert_eq!(made, made_of(shape, place), "{operator} along {axis}");
        };
        // before the channels they are repeated one after another
        check(1, &[0, 9, -1, 5], |[n, c, h, w]| [n, c % 3, h, w], [2, 9, 2, 5]);
        check(2, &[0, -1, 2, 5], |[n, c, h, w]| [n, c / 3, h, w], [2, 9, 2, 5]);
        check(3, &[0, 3, -1, 5], |[n, c, h, w]| [n, c, h / 3, w], [2, 3, 6, 5]);
        check(4, &[0, 3, 2, -1], |[n, c, h, w]| [n, c, h, w / 3], [2, 3, 2, 15]);
    }
}

#[test]
fn shapes_that_models_take_from_what_is_repeated_are_known() {
    // the older exporter: the extents beside the axis that is joined, of an image of open size
    let model = Builder::new(17, 3)
        .ints("two", &[1], &[2])
        .ints("zero", &[1], &[0])
        .ints("one", &[1], &[1])
        .ints("three", &[1], &[3])
        .ints("five", &[1], &[5])
        .ints("all", &[1], &[-1])
        .ints("repeats", &[5], &[1, 1, 2, 1, 1])
        .node("Unsqueeze", &["x", "two"], "u", &[])
        .node("Tile", &["u", "repeats"], "t", &[])
        .node("Shape", &["t"], "s", &[])
        .node("Slice", &["s", "zero", "one", "zero"], "n", &[])
        .node("Slice", &["s", "three", "five", "zero"], "hw", &[])
        .node("Concat", &["n", "all", "hw"], "shape", &[("axis", Attribute::Int(0))])
        .node("Reshape", &["t", "shape"], "y", &[])
        .output("y");
    let (made, shape) = run(&model, SHAPE, &image());
    assert_eq!(shape, [2, 6, 2, 5]);
    assert_eq!(made, made_of(shape, |[n, c, h, w]| [n, c / 2, h, w]));
}

#[test]
fn values_side_by_side_are_joined_with_their_channels() {
    // torch.stack([x, -x], 2).flatten(1, 2): a channel of each in turn
    let model = Builder::new(18, 3)
        .ints("two", &[1], &[2])
        .ints("shape", &[4], &[0, 6, -1, 5])
        .node("Neg", &["x"], "negated", &[])
        .node("Unsqueeze", &["x", "two"], "a", &[])
        .node("Unsqueeze", &["negated", "two"], "b", &[])
        .node("Concat", &["a", "b"], "c", &[("axis", Attribute::Int(2))])
        .node("Reshape", &["c", "shape"], "y", &[])
        .output("y");
    let (made, shape) = run(&declared(model), SHAPE, &image());
    assert_eq!(shape, [2, 6, 2, 5]);
    let plain = made_of(shape, |[n, c, h, w]| [n, c / 2, h, w]);
    let signs = (0..plain.len()).map(|place| if place / 10 % 2 == 0 { 1.0 } else { -1.0 });
    assert!(made.iter().zip(plain.iter().zip(signs)).all(|(made, (plain, sign))| *made == plain * sign));
}

#[test]
fn what_is_repeated_otherwise_is_refused() {
    let tile = |repeats: &[i64]| {
        let len = i64::try_from(repeats.len()).unwrap();
        Builder::new(13, 3).ints("r", &[len], repeats).node("Tile", &["x", "r"], "y", &[]).output("y")
    };
    let wanted = "wants at least 1 of the channels, and 1 of the other axes";
    for repeats in
        [&[2, 1, 1, 1][..], &[1, 1, 2, 1], &[1, 0, 1, 1], &[1, -1, 1, 1], &[1, 2], &[1, 1, 1, 1, 1]]
    {
        let len = repeats.len();
        assert_eq!(reason(&tile(repeats)), format!("input 1 is a constant of shape [{len}], {wanted}"));
    }
    // more operands than a file of a few bytes may make
    assert!(reason(&tile(&[1, i64::MAX, 1, 1])).ends_with("in all nodes"));
    let along = "input 1 is a constant of shape [5], wants at least 1 along the axis that Unsqueeze has added, and 1 of the other axes";
    for operator in ["Tile", "Expand"] {
        let other = Builder::new(18, 3)
            .ints("at", &[1], &[2])
            .ints("repeats", &[5], &[1, 2, 2, 1, 1])
            .node("Unsqueeze", &["x", "at"], "u", &[])
            .node(operator, &["u", "repeats"], "y", &[])
            .output("y");
        assert_eq!(reason(&other), along);
    }
    let rows = interleaved("Tile", 3, 2, &[0, 3, 5, 5]);
    assert_eq!(
        reason(&rows),
        "input 1 is a constant of shape [4], wants the shape of the values joined along one axis"
    );
    let apart = Builder::new(18, 3)
        .ints("at", &[1], &[3])
        .ints("shape", &[4], &[0, 3, -1, 5])
        .node("Neg", &["x"], "negated", &[])
        .node("Unsqueeze", &["x", "at"], "a", &[])
        .node("Unsqueeze", &["negated", "at"], "b", &[])
        .node("Concat", &["a", "b"], "c", &[("axis", Attribute::Int(3))])
        .node("Reshape", &["c", "shape"], "y", &[])
        .output("y");
    assert_eq!(
        reason(&apart),
        "input 0 is a stack of 2 values, wants values along an axis beside the channels, or one value repeated"
    );
}

#[test]
fn stacks_that_are_joined_to_themselves_again_and_again_are_refused() {
    let doubled = |times: usize| {
        let mut model =
            Builder::new(17, 1).ints("one", &[1], &[1]).node("Unsqueeze", &["x", "one"], "u0", &[]);
        for time in 0..times {
            let (from, to) = (format!("u{time}"), format!("u{}", time + 1));
            model = model.node("Concat", &[&from, &from], &to, &[("axis", Attribute::Int(1))]);
        }
        model.node("Squeeze", &[&format!("u{times}"), "one"], "y", &[]).output("y")
    };
    assert!(reason(&doubled(10)).contains("a stack of 1024 values"));
    assert!(reason(&doubled(40)).contains("at most 262144 values that are copies of others"));
}
