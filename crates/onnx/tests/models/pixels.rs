//! Values whose pixels are one axis: what is folded, weighed and mixed over them.

use crate::build::{Attribute, Builder, float_tensor, ints, only, reason};
use crate::runs::run;

const SHAPE: [usize; 4] = [2, 3, 4, 5];
const PIXELS: usize = 20;

fn image() -> Vec<f64> {
    (0..SHAPE.iter().product()).map(|place: usize| (place * 7 % 23) as f64 / 8.0 - 1.0).collect()
}

/// The channels of the image, image by image.
fn planes(image: &[f64]) -> impl Iterator<Item = &[f64]> {
    image.chunks_exact(PIXELS)
}

/// `x`, and `x.flatten(2)` as `lines`.
fn lines() -> Builder {
    Builder::new(17, 3).ints("s", &[3], &[0, 3, -1]).node("Reshape", &["x", "s"], "lines", &[])
}

fn assert_near(made: &[f64], wanted: &[f64]) {
    assert_eq!(made.len(), wanted.len());
    for (made, wanted) in made.iter().zip(wanted) {
        assert!((made - wanted).abs() <= 1e-14 * wanted.abs().max(1.0), "{made} is not {wanted}");
    }
}

#[test]
fn pixels_are_folded_to_one_number_of_each_channel() {
    type Operator = (&'static str, fn(&[f64]) -> f64);
    let folds: [Operator; 4] = [
        ("ReduceMean", |plane| plane.iter().sum::<f64>() / PIXELS as f64),
        ("ReduceMax", |plane| plane.iter().copied().fold(f64::MIN, f64::max)),
        ("ReduceMin", |plane| plane.iter().copied().fold(f64::MAX, f64::min)),
        ("ReduceL2", |plane| plane.iter().map(|x| x * x).sum::<f64>().sqrt()),
    ];
    let image = image();
    for (operator, fold) in folds {
        let wanted: Vec<f64> = planes(&image).map(fold).collect();
        for (axis, keepdims) in [(2, 0), (-1, 0), (2, 1)] {
            let attributes = [("axes", ints(&[axis])), ("keepdims", Attribute::Int(keepdims))];
            let model = lines().ints("last", &[1], &[-1]).node(operator, &["lines"], "f", &attributes);
            let output = if keepdims == 1 { "y" } else { "f" };
            let model = model.node("Unsqueeze", &["f", "last"], "y", &[]).output(output);
            let (made, shape) = run(&model, SHAPE, &image);
            assert_eq!(shape, [2, 3, 1, 1], "{operator}");
            assert_near(&made, &wanted);
        }
    }
    // of the groups of a norm they are others
    let groups = Builder::new(17, 6)
        .ints("s", &[3], &[0, 3, -1])
        .node("Reshape", &["x", "s"], "g", &[])
        .node("ReduceMean", &["g"], "y", &[("axes", ints(&[2]))])
        .output("y");
    assert!(reason(&groups).contains("a value of 3 groups of channels"));
}

#[test]
fn a_softmax_over_all_pixels_sums_to_one_in_each_channel() {
    let softmax = |axis: i64| {
        lines()
            .ints("back", &[4], &[0, 3, 4, 5])
            .node("Softmax", &["lines"], "w", &[("axis", Attribute::Int(axis))])
            .node("Reshape", &["w", "back"], "y", &[])
            .output("y")
    };
    // far above what a power can hold
    let image: Vec<f64> = image().iter().map(|x| 900.0 * x).collect();
    let wanted: Vec<f64> = planes(&image)
        .flat_map(|plane| {
            let most = plane.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = plane.iter().map(|x| (x - most).exp()).sum();
            plane.iter().map(move |x| (x - most).exp() / sum)
        })
        .collect();
    for axis in [2, -1] {
        let model = with_extents(softmax(axis));
        let (made, shape) = run(&model, SHAPE, &image);
        assert_eq!(shape, SHAPE);
        assert_near(&made, &wanted);
    }
    assert!(only(&softmax(1)).contains("a value of 3 groups of channels"));
}

fn with_extents(mut model: Builder) -> Builder {
    model.graph().input[0] = crate::build::value("x", 1, &SHAPE.map(|extent| i64::try_from(extent).ok()));
    model
}

/// The context of an image: its channels summed over all pixels, each pixel weighed by the softmax of its first channel.
fn context(last: impl FnOnce(Builder) -> Builder) -> Builder {
    let model = lines()
        .ints("one", &[1], &[1])
        .ints("last", &[1], &[-1])
        .ints("zero", &[1], &[0])
        .ints("key", &[3], &[0, 1, -1])
        .ints("pixel", &[4], &[0, 3, 1, 1])
        .ints("features", &[2], &[0, -1])
        .node("Slice", &["x", "zero", "one", "one"], "k", &[])
        .node("Reshape", &["k", "key"], "kl", &[])
        .node("Softmax", &["kl"], "w", &[("axis", Attribute::Int(2))]);
    last(model).output("y")
}

fn expected_context(image: &[f64]) -> Vec<f64> {
    let mut wanted = Vec::new();
    for image in image.chunks_exact(3 * PIXELS) {
        let sum: f64 = image[..PIXELS].iter().map(|x| x.exp()).sum();
        for plane in planes(image) {
            wanted.push(plane.iter().zip(image).map(|(x, key)| x * key.exp() / sum).sum());
        }
    }
    wanted
}

#[test]
fn pixels_weighed_by_a_softmax_are_summed_to_a_context() {
    let image = image();
    let rows = |model: Builder| {
        model
            .node("Unsqueeze", &["lines", "one"], "rows", &[])
            .node("Unsqueeze", &["w", "last"], "column", &[])
            .node("MatMul", &["rows", "column"], "c", &[])
    };
    let models = [
        context(|model| rows(model).node("Reshape", &["c", "pixel"], "y", &[])),
        context(|model| rows(model).node("Reshape", &["c", "features"], "y", &[])),
        context(|model| {
            model
                .node("Transpose", &["w"], "column", &[("perm", ints(&[0, 2, 1]))])
                .node("MatMul", &["lines", "column"], "c", &[])
                .node("Unsqueeze", &["c", "last"], "y", &[])
        }),
    ];
    for (place, model) in models.iter().enumerate() {
        let (made, shape) = run(model, SHAPE, &image);
        assert_eq!(shape, [2, 3, 1, 1], "{place}");
        assert_near(&made, &expected_context(&image));
    }
    let twice = context(|model| {
        model.node("Unsqueeze", &["lines", "one"], "rows", &[]).node("MatMul", &["rows", "rows"], "y", &[])
    });
    assert!(reason(&twice).starts_with(
        "input 1 is a value whose pixels are one axis of four, wants height and width kept apart"
    ));
}

#[test]
fn shapes_of_planes_and_of_joined_pixels_are_those_of_their_images() {
    // each channel less its spread over the image, by shapes that the model takes from what is folded
    let model = lines()
        .ints("one", &[1], &[1])
        .ints("at", &[1], &[1])
        .node("ReduceMax", &["x"], "m", &[("axes", ints(&[1])), ("keepdims", Attribute::Int(0))])
        .node("Shape", &["m"], "nhw", &[])
        .node("Shape", &["lines"], "ncp", &[])
        .node("Shape", &["x"], "nchw", &[])
        .node("Slice", &["nhw", "zero", "one"], "n", &[])
        .ints("zero", &[1], &[0])
        .ints("three", &[1], &[3])
        .node("Slice", &["nhw", "one", "three"], "hw", &[])
        .node("Concat", &["n", "one", "hw"], "n1hw", &[("axis", Attribute::Int(0))])
        .node("Reshape", &["m", "n1hw"], "largest", &[])
        .node("Reshape", &["lines", "nchw"], "image", &[])
        .node("Sub", &["image", "largest"], "y", &[])
        .output("y");
    let image = image();
    let (made, shape) = run(&model, SHAPE, &image);
    assert_eq!(shape, SHAPE);
    for (place, made) in made.iter().enumerate() {
        let (n, pixel) = (place / (3 * PIXELS), place % PIXELS);
        let largest = (0..3).map(|c| image[(n * 3 + c) * PIXELS + pixel]).fold(f64::MIN, f64::max);
        assert_eq!(*made, image[place] - largest);
    }
}

#[test]
fn a_matrix_from_the_left_mixes_the_channels_of_every_pixel() {
    let model = lines()
        .tensor(float_tensor("m", &[2, 3], &[1.0, 2.0, 4.0, -1.0, 0.5, 0.0]))
        .ints("back", &[4], &[0, 2, 4, 5])
        .node("MatMul", &["m", "lines"], "mixed", &[])
        .node("Reshape", &["mixed", "back"], "y", &[])
        .output("y");
    let image = image();
    let (made, shape) = run(&with_extents(model), SHAPE, &image);
    assert_eq!(shape, [2, 2, 4, 5]);
    let mut wanted = Vec::new();
    for image in image.chunks_exact(3 * PIXELS) {
        let at = |c: usize, pixel: usize| image[c * PIXELS + pixel];
        wanted.extend((0..PIXELS).map(|pixel| at(0, pixel) + 2.0 * at(1, pixel) + 4.0 * at(2, pixel)));
        wanted.extend((0..PIXELS).map(|pixel| 0.5 * at(1, pixel) - at(0, pixel)));
    }
    assert_near(&made, &wanted);
}

#[test]
fn a_softmax_without_an_axis_joins_the_channels_to_the_pixels_before_version_13() {
    let softmax = |opset: i64| {
        with_extents(
            Builder::new(opset, 3)
                .ints("s", &[3], &[0, 3, -1])
                .ints("back", &[4], &[0, 3, 4, 5])
                .node("Reshape", &["x", "s"], "lines", &[])
                .node("Softmax", &["lines"], "w", &[])
                .node("Reshape", &["w", "back"], "y", &[])
                .output("y"),
        )
    };
    assert!(only(&softmax(12)).contains("a value of 3 groups of channels"));
    // since then the axis is the last
    let (made, _) = run(&softmax(13), SHAPE, &image());
    for plane in planes(&made) {
        assert!((plane.iter().sum::<f64>() - 1.0).abs() <= 1e-14);
    }
}
