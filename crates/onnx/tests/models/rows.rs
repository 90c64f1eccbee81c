//! Convolutions along the channels of a pooled value.

use tiled_graph::{Op, PixelShuffle};

use crate::build::{Attribute, Builder, float_tensor, ints};
use crate::runs::run;

/// Four pooled channels: means 1, 2, 4 and 8.
const IMAGE: [f64; 8] = [0.0, 2.0, 1.0, 3.0, 5.0, 3.0, 8.0, 8.0];

/// `w·means` with one channel of zeros on either side.
fn taps(weights: [f64; 3]) -> Vec<f64> {
    let means = [0.0, 1.0, 2.0, 4.0, 8.0, 0.0];
    means
        .windows(3)
        .map(|window| window.iter().zip(&weights).map(|(mean, weight)| mean * weight).sum())
        .collect()
}

fn start() -> Builder {
    Builder::new(18, 4)
        .tensor(float_tensor("w", &[1, 1, 3], &[1.0, 10.0, 100.0]))
        .ints("last", &[1], &[-1])
        .ints("third", &[1], &[3])
        .ints("row", &[3], &[-1, 1, 4])
        .ints("pixel", &[4], &[-1, 4, 1, 1])
        .node("GlobalAveragePool", &["x"], "p", &[])
}

fn conv(model: Builder, from: &str) -> Builder {
    model.node("Conv", &[from, "w"], "c", &[("kernel_shape", ints(&[3])), ("pads", ints(&[1, 1]))])
}

#[test]
fn a_convolution_along_the_channels_runs_along_columns() {
    let turned = ("perm", ints(&[0, 2, 1]));
    let squeezed = start().node("Squeeze", &["p", "last"], "s", &[]).node(
        "Transpose",
        &["s"],
        "t",
        std::slice::from_ref(&turned),
    );
    let squeezed = conv(squeezed, "t")
        .node("Transpose", &["c"], "u", &[turned])
        .node("Unsqueeze", &["u", "third"], "y", &[])
        .output("y");
    let reshaped = conv(start().node("Reshape", &["p", "row"], "r", &[]), "r")
        .node("Reshape", &["c", "pixel"], "y", &[])
        .output("y");
    let flat = start().ints("one", &[1], &[1]).node("Flatten", &["p"], "f", &[]).node(
        "Unsqueeze",
        &["f", "one"],
        "r",
        &[],
    );
    let flat = conv(flat, "r")
        .node("Squeeze", &["c", "one"], "q", &[])
        .node("Reshape", &["q", "pixel"], "y", &[])
        .output("y");
    for (model, name) in [(squeezed, "squeezed"), (reshaped, "reshaped"), (flat, "flat")] {
        let read = model.read().unwrap_or_else(|error| panic!("{name}: {error}"));
        let ops: Vec<&Op> = read.graph.nodes().iter().map(|node| &node.op).collect();
        let shuffle = Op::PixelShuffle(PixelShuffle { upscale_factor: [1, 4] });
        assert!(
            matches!(ops.as_slice(), [Op::GlobalAvgPool, to, Op::Conv2d(_), Op::PixelUnshuffle(_)] if **to == shuffle),
            "{name}: {ops:?}"
        );
        assert_eq!(run(&model, [1, 4, 1, 2], &IMAGE), (taps([1.0, 10.0, 100.0]), [1, 4, 1, 1]), "{name}");
    }
}

#[test]
fn functions_of_elements_leave_a_row_a_row() {
    let model = conv(start().node("Reshape", &["p", "row"], "r", &[]), "r")
        .tensor(float_tensor("k", &[], &[0.5]))
        .node("Mul", &["c", "k"], "h", &[])
        .node("Relu", &["h"], "a", &[])
        .node("Reshape", &["a", "pixel"], "v", &[])
        .node("Mul", &["x", "v"], "y", &[])
        .output("y");
    let wanted: Vec<f64> =
        IMAGE.iter().enumerate().map(|(place, x)| x * 0.5 * taps([1.0, 10.0, 100.0])[place / 2]).collect();
    assert_eq!(run(&model, [1, 4, 1, 2], &IMAGE).0, wanted);
}

#[test]
fn several_channels_of_a_row_and_their_bias_are_those_of_the_convolution() {
    let model = Builder::new(18, 4)
        .tensor(float_tensor("w", &[2, 1, 2], &[1.0, -1.0, 2.0, 0.0]))
        .tensor(float_tensor("b", &[2], &[0.5, 0.0]))
        .ints("row", &[3], &[-1, 1, 4])
        .ints("axis", &[1], &[2])
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Reshape", &["p", "row"], "r", &[])
        .node("Conv", &["r", "w", "b"], "c", &[("strides", ints(&[2]))])
        .node("Unsqueeze", &["c", "axis"], "y", &[])
        .output("y");
    // means 1 2 and 4 8
    let wanted = vec![1.0 - 2.0 + 0.5, 4.0 - 8.0 + 0.5, 2.0, 8.0];
    assert_eq!(run(&model, [1, 4, 1, 2], &IMAGE), (wanted, [1, 2, 1, 2]));
}

#[test]
fn a_softmax_over_groups_of_the_channels_reads_them_as_pixels() {
    // two groups of two channels, as selective kernels weigh their branches
    let model = Builder::new(18, 4)
        .ints("apart", &[4], &[-1, 2, 2, 1])
        .ints("pixel", &[4], &[-1, 4, 1, 1])
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Reshape", &["p", "apart"], "r", &[])
        .node("Softmax", &["r"], "s", &[("axis", Attribute::Int(1))])
        .node("Reshape", &["s", "pixel"], "y", &[])
        .output("y");
    let first = |a: f64, b: f64| a.exp() / (a.exp() + b.exp());
    // means 1 2 and 4 8
    let wanted = [first(1.0, 4.0), first(2.0, 8.0), first(4.0, 1.0), first(8.0, 2.0)];
    let (got, shape) = run(&model, [1, 4, 1, 2], &IMAGE);
    assert_eq!(shape, [1, 4, 1, 1]);
    assert!(got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-15), "{got:?}, {wanted:?}");
}

#[test]
fn a_layer_norm_over_all_of_a_pixel_is_one_over_its_channels() {
    let model = Builder::new(17, 4)
        .tensor(float_tensor("w", &[4, 1, 1], &[1.0, 2.0, 3.0, 4.0]))
        .tensor(float_tensor("b", &[4, 1, 1], &[0.5; 4]))
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("LayerNormalization", &["p", "w", "b"], "y", &[("axis", Attribute::Int(-3))])
        .output("y");
    let means = [1.0, 2.0, 4.0, 8.0];
    let mean = means.iter().sum::<f64>() / 4.0;
    let variance = means.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 4.0;
    let (got, _) = run(&model, [1, 4, 1, 2], &IMAGE);
    for (place, got) in got.iter().enumerate() {
        let weight = [1.0, 2.0, 3.0, 4.0][place];
        let wanted = weight * (means[place] - mean) / (variance + 1e-5).sqrt() + 0.5;
        assert!((got - wanted).abs() < 1e-14, "{place}: {got}, {wanted}");
    }
}

#[test]
fn rows_that_are_taken_apart_are_refused() {
    let only = |model: Builder| {
        let refusals = model.refusals();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        refusals[0].split_once(": ").unwrap().1.to_owned()
    };
    let row = || start().node("Reshape", &["p", "row"], "r", &[]);
    let halves = row().ints("two", &[3], &[-1, 2, 2]).node("Reshape", &["r", "two"], "y", &[]).output("y");
    assert_eq!(
        only(halves),
        "input 1 is a constant of shape [3], wants the batch and all elements along one axis"
    );
    let dropped = row().node("Squeeze", &["r", "last"], "y", &[]).output("y");
    assert_eq!(only(dropped), "input 0 is a row of three axes, wants an axis of one");
    let same = conv(row(), "r").node("Softmax", &["c"], "y", &[("axis", Attribute::Int(2))]).output("y");
    assert_eq!(only(same), "input 0 is a row of three axes, wants a value of the network");
    let mixed = row().node("Add", &["r", "p"], "y", &[]).output("y");
    assert_eq!(
        only(mixed),
        "input 1 is a batch of images, wants a value of as many axes as the others, or a number"
    );
}
