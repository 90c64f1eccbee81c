//! Axes of one that are dropped and added.

use crate::build::{Builder, float_tensor, ints, reason};
use crate::runs::run;

#[test]
fn one_channel_is_squeezed_and_back() {
    for (away, back) in [(1, 1), (-3, -3), (1, -3)] {
        let model = Builder::new(17, 2)
            .ints("away", &[1], &[away])
            .ints("back", &[1], &[back])
            .tensor(float_tensor("half", &[], &[0.5]))
            .node("ReduceMax", &["x"], "m", &[("axes", ints(&[1]))])
            .node("Squeeze", &["m", "away"], "p", &[])
            .node("Mul", &["p", "half"], "q", &[])
            .node("Add", &["q", "p"], "r", &[])
            .node("Unsqueeze", &["r", "back"], "s", &[])
            .node("Sub", &["x", "s"], "y", &[]);
        let image = [1.0, -2.0, 4.0, -6.0];
        assert_eq!(run(&model.clone().output("r"), [1, 2, 1, 2], &image), (vec![6.0, -3.0], [1, 1, 1, 2]));
        assert_eq!(run(&model.output("y"), [1, 2, 1, 2], &image).0, [-5.0, 1.0, -2.0, -3.0]);
    }
    let two = Builder::new(11, 2).node("Squeeze", &["x"], "y", &[("axes", ints(&[1]))]).output("y");
    assert_eq!(reason(&two), "attribute `axes` is [1], wants height and width, 2 and 3");
    let mixed = Builder::new(11, 1).node("Squeeze", &["x"], "p", &[("axes", ints(&[-3]))]);
    let mixed = mixed.node("Add", &["p", "x"], "y", &[]).output("y");
    assert_eq!(
        reason(&mixed),
        "input 1 is a batch of images, wants a value of as many axes as the others, or a number"
    );
}

#[test]
fn pixels_lose_and_gain_axes_that_are_counted_from_the_last() {
    for axes in [[-2, -1], [-1, -2], [2, -1], [-2, 3]] {
        let model = Builder::new(17, 2)
            .ints("axes", &[2], &axes)
            .node("GlobalAveragePool", &["x"], "p", &[])
            .node("Squeeze", &["p", "axes"], "f", &[])
            .node("Relu", &["f"], "r", &[])
            .node("Unsqueeze", &["r", "axes"], "u", &[])
            .node("Mul", &["x", "u"], "y", &[])
            .output("y");
        let got = run(&model, [1, 2, 1, 2], &[1.0, 3.0, -1.0, -3.0]).0;
        assert_eq!(got, [2.0, 6.0, 0.0, 0.0], "{axes:?}");
    }
}
