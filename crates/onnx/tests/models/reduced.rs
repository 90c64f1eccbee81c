//! Reductions over the channels and over the image, and steps of a norm that something else reads.

use tiled_graph::{Activation, Op};

use crate::build::{Attribute, Builder, float_tensor, ints, ops};
use crate::runs::run;

/// The steps of a norm over the channels up to the root, as exporters write them out.
fn steps_of_a_norm() -> Builder {
    Builder::new(18, 2)
        .ints("a", &[1], &[1])
        .tensor(float_tensor("eps", &[], &[0.25]))
        .node("ReduceMean", &["x", "a"], "mean", &[])
        .node("Sub", &["x", "mean"], "centred", &[])
        .node("Mul", &["centred", "centred"], "squares", &[])
        .node("ReduceMean", &["squares", "a"], "variance", &[])
        .node("Add", &["variance", "eps"], "guarded", &[])
        .node("Sqrt", &["guarded"], "root", &[])
}

/// Two channels of three pixels.
const IMAGE: [f64; 6] = [1.0, -2.0, 3.0, -4.0, 0.5, 2.0];

fn reduced(op: &str, axes: &[i64]) -> Vec<f64> {
    let model = Builder::new(13, 2).node(op, &["x"], "y", &[("axes", ints(axes))]).output("y");
    run(&model, [1, 2, 1, 3], &IMAGE).0
}

#[test]
fn reductions_have_their_numbers_over_the_channels_and_the_image() {
    let root = f64::sqrt;
    let expected: [(&str, &[f64], &[f64]); 6] = [
        ("ReduceMax", &[1.0, 0.5, 3.0], &[3.0, 2.0]),
        ("ReduceMin", &[-4.0, -2.0, 2.0], &[-2.0, -4.0]),
        ("ReduceMean", &[-1.5, -0.75, 2.5], &[2.0 / 3.0, -0.5]),
        ("ReduceL1", &[5.0, 2.5, 5.0], &[6.0, 6.5]),
        ("ReduceL2", &[root(17.0), root(4.25), root(13.0)], &[root(14.0), root(20.25)]),
        ("ReduceSumSquare", &[17.0, 4.25, 13.0], &[14.0, 20.25]),
    ];
    for (op, over_channels, over_image) in expected {
        for (axes, wanted) in
            [([1].as_slice(), over_channels), (&[-3], over_channels), (&[3, -2], over_image)]
        {
            let got = reduced(op, axes);
            let is_near = |(got, wanted): (&f64, &f64)| (got - wanted).abs() <= 1e-15 * wanted.abs();
            assert!(
                got.len() == wanted.len() && got.iter().zip(wanted).all(is_near),
                "{op} {axes:?}: {got:?}"
            );
        }
    }
    let sums = Builder::new(13, 2).ints("a", &[1], &[1]).node("ReduceSum", &["x", "a"], "y", &[]).output("y");
    assert_eq!(run(&sums, [1, 2, 1, 3], &IMAGE).0, [-3.0, -1.5, 5.0]);
}

#[test]
fn what_keeps_a_divisor_from_zero_is_added_however_small() {
    let model = Builder::new(13, 2)
        .tensor(float_tensor("eps", &[], &[1e-12]))
        .node("ReduceSumSquare", &["x"], "s", &[("axes", ints(&[1]))])
        .node("Add", &["s", "eps"], "guarded", &[])
        .node("Sqrt", &["guarded"], "root", &[])
        .node("Div", &["x", "root"], "y", &[])
        .output("y");
    let got = run(&model, [1, 2, 1, 2], &[0.0, 3.0, 0.0, -4.0]).0;
    let is_near = |(got, wanted): (&f64, f64)| (got - wanted).abs() < 1e-12;
    assert!(got.iter().zip([0.0, 0.6, 0.0, -0.8]).all(is_near), "{got:?}");
}

#[test]
fn channels_that_are_dropped_and_added_again_are_one_channel() {
    let model = Builder::new(18, 3)
        .ints("a", &[1], &[1])
        .node("ReduceMax", &["x", "a"], "m", &[("keepdims", Attribute::Int(0))])
        .node("Unsqueeze", &["m", "a"], "u", &[])
        .node("ReduceMean", &["x", "a"], "n", &[("keepdims", Attribute::Int(1))])
        .node("Concat", &["u", "n"], "y", &[("axis", Attribute::Int(1))])
        .output("y");
    assert_eq!(ops(&model), [Op::ChannelMax, Op::ChannelMean, Op::Concat]);
}

/// `x·(g/(mean of g + 1/2))` of g, the norm of each channel over the image, with the channels last (ConvNeXt V2).
#[test]
fn a_global_response_norm_has_the_norms_of_the_channels() {
    let model = Builder::new(18, 2)
        .ints("pixels", &[2], &[1, 2])
        .ints("last", &[1], &[-1])
        .tensor(float_tensor("eps", &[], &[0.5]))
        .tensor(float_tensor("scale", &[1, 1, 1, 2], &[2.0, -1.0]))
        .node("Transpose", &["x"], "t", &[("perm", ints(&[0, 2, 3, 1]))])
        .node("ReduceL2", &["t", "pixels"], "g", &[])
        .node("ReduceMean", &["g", "last"], "m", &[])
        .node("Add", &["m", "eps"], "e", &[])
        .node("Div", &["g", "e"], "n", &[])
        .node("Mul", &["t", "n"], "p", &[])
        .node("Mul", &["scale", "p"], "q", &[])
        .node("Add", &["q", "t"], "z", &[])
        .node("Transpose", &["z"], "y", &[("perm", ints(&[0, 3, 1, 2]))])
        .output("y");
    let norms = [f64::sqrt(14.0), f64::sqrt(20.25)];
    let by = f64::midpoint(norms[0], norms[1]) + 0.5;
    let wanted = IMAGE.iter().enumerate().map(|(place, x)| {
        let channel = place / 3;
        [2.0, -1.0][channel] * (x * (norms[channel] / by)) + x
    });
    let (got, _) = run(&model, [1, 2, 1, 3], &IMAGE);
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() < 1e-14, "{got}, {wanted}");
    }
}

#[test]
fn steps_of_a_norm_that_something_else_reads_are_values() {
    let model = steps_of_a_norm()
        .node("Relu", &["x"], "z", &[])
        .node("Div", &["z", "root"], "d", &[])
        .node("Concat", &["d", "root", "mean", "variance"], "y", &[("axis", Attribute::Int(1))])
        .output("y");
    let (got, shape) = run(&model, [1, 2, 1, 3], &IMAGE);
    assert_eq!(shape, [1, 5, 1, 3]);
    for pixel in 0..3 {
        let [a, b] = [IMAGE[pixel], IMAGE[3 + pixel]];
        let mean = f64::midpoint(a, b);
        let variance = f64::midpoint((a - mean).powi(2), (b - mean).powi(2));
        let root = (variance + 0.25).sqrt();
        for (channel, wanted) in
            [a.max(0.0) / root, b.max(0.0) / root, root, mean, variance].iter().enumerate()
        {
            let got = got[3 * channel + pixel];
            assert!((got - wanted).abs() < 1e-14, "{channel} {pixel}: {got}, {wanted}");
        }
    }
    // the steps are there once, and the norm beside them is one node
    let both = steps_of_a_norm()
        .node("Div", &["centred", "root"], "n", &[])
        .node("Mul", &["n", "mean"], "p", &[])
        .node("Sigmoid", &["mean"], "s", &[])
        .node("Mul", &["p", "s"], "y", &[])
        .output("y");
    let ops = ops(&both);
    assert!(matches!(ops[0], Op::LayerNorm(_)), "{ops:?}");
    assert_eq!(&ops[1..], [Op::ChannelMean, Op::Mul, Op::Activation(Activation::Sigmoid), Op::Mul]);
}
