//! Attention over parts of the channels, as ResNeSt and SKNet have it: weights by a softmax over the parts, a sum of the weighted parts.

use crate::build::{Attribute, Builder, ints};
use crate::runs::run;

const SHAPE: [usize; 4] = [2, 6, 3, 5];

fn image() -> Vec<f64> {
    (0..SHAPE.iter().product()).map(|place: usize| (place * 7 % 23) as f64 / 8.0 - 1.0).collect()
}

/// The parts of three channels, weighed by the softmax over two of their means.
fn expected(image: &[f64]) -> Vec<f64> {
    let [batch, channels, height, width] = SHAPE;
    let (pixels, half) = (height * width, channels / 2);
    let plane = |n: usize, c: usize| &image[(n * channels + c) * pixels..][..pixels];
    let mean = |n: usize, c: usize| plane(n, c).iter().sum::<f64>() / pixels as f64;
    let mut made = Vec::new();
    for n in 0..batch {
        for c in 0..half {
            let powers = [mean(n, c), mean(n, c + half)].map(f64::exp);
            let sum: f64 = powers.iter().sum();
            let pair = plane(n, c).iter().zip(plane(n, c + half));
            made.extend(pair.map(|(a, b)| (a * powers[0] + b * powers[1]) / sum));
        }
    }
    made
}

fn assert_is_split_attention(model: &Builder) {
    let image = image();
    let (made, shape) = run(model, SHAPE, &image);
    assert_eq!(shape, [2, 3, 3, 5]);
    for (got, wanted) in made.iter().zip(expected(&image)) {
        assert!((got - wanted).abs() < 1e-14, "{got} is not {wanted}");
    }
}

/// A model whose image is declared, with the means of its channels.
fn pooled() -> Builder {
    let [n, c, h, w] = SHAPE.map(|extent| i64::try_from(extent).ok());
    let mut model = Builder::new(17, 6);
    model.graph().input[0] = crate::build::value("x", 1, &[n, c, h, w]);
    model
        .ints("parts", &[5], &[2, 2, 3, 3, 5])
        .ints("pixels", &[5], &[2, 2, 3, 1, 1])
        .ints("one", &[1], &[1])
        .node("GlobalAveragePool", &["x"], "m", &[])
}

#[test]
fn weights_over_parts_of_the_channels_are_slices_that_are_weighed() {
    // SKNet: paths side by side, their weights taken apart
    let model = pooled()
        .node("Reshape", &["x", "parts"], "p", &[])
        .node("Reshape", &["m", "pixels"], "a", &[])
        .node("Softmax", &["a"], "w", &[("axis", Attribute::Int(1))])
        .node("Mul", &["p", "w"], "wp", &[])
        .node("ReduceSum", &["wp", "one"], "y", &[("keepdims", Attribute::Int(0))])
        .output("y");
    assert_is_split_attention(&model);
}

#[test]
fn weights_whose_parts_are_moved_first_are_the_same() {
    // ResNeSt: N×1×R×C, transposed to N×R×1×C, and back to a list, to a pixel or to pixels beside the parts
    let weights = |reshapings: &[&str]| {
        let model = pooled()
            .ints("apart", &[4], &[2, 1, 2, -1])
            .ints("list", &[2], &[2, -1])
            .ints("pixel", &[4], &[-1, 6, 1, 1])
            .node("Reshape", &["m", "apart"], "v", &[])
            .node("Transpose", &["v"], "t", &[("perm", ints(&[0, 2, 1, 3]))])
            .node("Softmax", &["t"], "0", &[("axis", Attribute::Int(1))]);
        let names = ["0", "1", "2", "3"];
        let reshaped = reshapings.iter().enumerate().fold(model, |model, (place, shape)| {
            model.node("Reshape", &[names[place], *shape], names[place + 1], &[])
        });
        reshaped
            .node("Reshape", &["x", "parts"], "p", &[])
            .node("Mul", &["p", names[reshapings.len()]], "wp", &[])
            .node("ReduceSum", &["wp", "one"], "y", &[("keepdims", Attribute::Int(0))])
            .output("y")
    };
    for reshapings in [&["list", "pixel", "pixels"][..], &["pixel", "pixels"], &["pixels"]] {
        assert_is_split_attention(&weights(reshapings));
    }
    assert_eq!(
        weights(&["parts"]).refusals(),
        [
            "Reshape `n_1` (opset 17): input 1 is a constant of shape [5], wants the batch and all elements along one axis"
        ]
    );
}

#[test]
fn parts_along_another_axis_are_refused() {
    let over = |axis: i64| {
        pooled()
            .node("Reshape", &["m", "pixels"], "a", &[])
            .node("Softmax", &["a"], "w", &[("axis", Attribute::Int(axis))])
            .node("ReduceSum", &["w", "one"], "y", &[("keepdims", Attribute::Int(0))])
            .output("y")
            .refusals()
    };
    let wanted = |axis: i64| {
        format!("Softmax `n_w` (opset 17): attribute `axis` is {axis}, wants the axis of the stack")
    };
    for axis in [0, 4, -2, i64::MIN, i64::MAX] {
        assert_eq!(over(axis), [wanted(axis)]);
    }
    // weights over the channels of a part, added over the parts
    assert_eq!(over(2), ["ReduceSum `n_y` (opset 17): attribute `axes` is [1], wants the axis of the stack"]);
}

#[test]
fn parts_behind_or_between_the_others_are_refused() {
    let moved = |perm: &[i64], axis: i64| {
        let model = pooled().ints("axis", &[1], &[axis]).node("Reshape", &["x", "parts"], "p", &[]);
        let model = model.node("Transpose", &["p"], "t", &[("perm", ints(perm))]);
        model.node("ReduceSum", &["t", "axis"], "y", &[("keepdims", Attribute::Int(0))]).output("y")
    };
    for (perm, axis) in [(&[0, 1, 3, 4, 2], 1), (&[0, 3, 1, 4, 2], 2), (&[0, 3, 4, 1, 2], 3)] {
        assert_eq!(moved(perm, axis).refusals().len(), 1, "{perm:?}");
    }
    // the parts may change places
    let image = image();
    let sums = |n: usize, c: usize| -> Vec<f64> {
        let plane = |part: usize| &image[(n * 6 + part * 3 + c) * 15..][..15];
        plane(0).iter().zip(plane(1)).map(|(a, b)| a + b).collect()
    };
    let wanted: Vec<f64> = (0..6).flat_map(|plane| sums(plane / 3, plane % 3)).collect();
    assert_eq!(run(&moved(&[0, 2, 1, 3, 4], 2), SHAPE, &image), (wanted, [2, 3, 3, 5]));
    let joined = |perm: &[i64], axis: i64| {
        let model = pooled().ints("apart", &[4], &[2, 1, 2, 3]).ints("list", &[2], &[2, -1]);
        let model = model.node("Reshape", &["m", "apart"], "v", &[]);
        let model = model.node("Transpose", &["v"], "t", &[("perm", ints(perm))]);
        let model = model.node("Softmax", &["t"], "s", &[("axis", Attribute::Int(axis))]);
        model.node("Reshape", &["s", "list"], "y", &[]).output("y").refusals().len()
    };
    assert_eq!([joined(&[0, 3, 1, 2], 3), joined(&[0, 1, 3, 2], 3), joined(&[0, 3, 2, 1], 2)], [1, 1, 1]);
}
