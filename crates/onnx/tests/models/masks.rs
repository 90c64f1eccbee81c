//! Comparisons of values with numbers that are read as values.

use crate::build::{Attribute, Builder, float_tensor};
use crate::runs::run;

/// The float that is next above a half, a half, and others on both sides, however near and far.
const IMAGE: [f64; 8] = [
    0.500_000_000_000_000_1,
    0.5,
    0.499_999_999_999_999_94,
    1e300,
    -1e300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.0,
];

const SHAPE: [usize; 4] = [2, 1, 2, 2];

fn compared(nodes: impl FnOnce(Builder) -> Builder) -> Vec<f64> {
    let model = Builder::new(18, 1)
        .tensor(float_tensor("half", &[], &[0.5]))
        .tensor(float_tensor("one", &[], &[1.0]))
        .tensor(float_tensor("zero", &[], &[0.0]));
    run(&nodes(model).output("y"), SHAPE, &IMAGE).0
}

fn wanted(is: impl Fn(f64) -> bool) -> Vec<f64> {
    IMAGE.iter().map(|x| f64::from(u8::from(is(*x)))).collect()
}

#[test]
fn masks_are_one_where_a_comparison_holds() {
    type Comparison = (&'static str, [&'static str; 2], fn(f64) -> bool);
    let comparisons: [Comparison; 8] = [
        ("Greater", ["x", "half"], |x| x > 0.5),
        ("GreaterOrEqual", ["x", "half"], |x| x >= 0.5),
        ("Less", ["x", "half"], |x| x < 0.5),
        ("LessOrEqual", ["x", "half"], |x| x <= 0.5),
        ("Greater", ["half", "x"], |x| 0.5 > x),
        ("GreaterOrEqual", ["half", "x"], |x| 0.5 >= x),
        ("Less", ["half", "x"], |x| 0.5 < x),
        ("LessOrEqual", ["half", "x"], |x| 0.5 <= x),
    ];
    for (operator, inputs, is) in comparisons {
        assert_eq!(
            compared(|model| model.node(operator, &inputs, "y", &[])),
            wanted(is),
            "{operator} {inputs:?}"
        );
        let inverse = compared(|model| model.node(operator, &inputs, "c", &[]).node("Not", &["c"], "y", &[]));
        assert_eq!(inverse, wanted(|x| !is(x)), "not {operator} {inputs:?}");
        // bool, u8, i64, f32
        for to in [9, 2, 7, 1] {
            let cast = |model: Builder| {
                let model = model.node(operator, &inputs, "c", &[]);
                model.node("Cast", &["c"], "y", &[("to", Attribute::Int(to))])
            };
            assert_eq!(compared(cast), wanted(is), "{operator} {inputs:?} as {to}");
        }
        for (numbers, holds) in [(["c", "one", "zero"], true), (["c", "zero", "one"], false)] {
            let chosen =
                |model: Builder| model.node(operator, &inputs, "c", &[]).node("Where", &numbers, "y", &[]);
            assert_eq!(compared(chosen), wanted(|x| is(x) == holds), "{operator} {inputs:?} {numbers:?}");
        }
    }
}

#[test]
fn numbers_hardly_above_zero_are_above_it() {
    let image = [f64::from_bits(1), 1e-60, -1e-60, 0.0, -0.0, -f64::from_bits(1)];
    for (operator, wanted) in
        [("Greater", [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]), ("LessOrEqual", [0.0, 0.0, 1.0, 1.0, 1.0, 1.0])]
    {
        let model = Builder::new(18, 1)
            .tensor(float_tensor("zero", &[], &[0.0]))
            .node(operator, &["x", "zero"], "y", &[])
            .output("y");
        assert_eq!(run(&model, [1, 1, 2, 3], &image).0, wanted, "{operator}");
    }
}

#[test]
fn a_mask_is_a_value_that_others_read() {
    let masked = compared(|model| {
        model
            .node("Clip", &["x", "", "one"], "v", &[])
            .node("Clip", &["v", "zero"], "w", &[])
            .node("Greater", &["x", "half"], "c", &[])
            .node("Cast", &["c"], "m", &[("to", Attribute::Int(1))])
            .node("Mul", &["w", "m"], "y", &[])
    });
    let wanted: Vec<f64> = IMAGE.iter().map(|x| if *x > 0.5 { x.clamp(0.0, 1.0) } else { 0.0 }).collect();
    assert_eq!(masked, wanted);
}

#[test]
fn numbers_that_are_none_stay_none() {
    let model = Builder::new(18, 1)
        .tensor(float_tensor("half", &[], &[0.5]))
        .node("Greater", &["x", "half"], "y", &[])
        .output("y");
    assert!(run(&model, [1, 1, 1, 1], &[f64::NAN]).0[0].is_nan());
}

#[test]
fn one_known_condition_chooses_a_value() {
    let chosen = |weight: f32, inputs: [&str; 2]| {
        let model = Builder::new(18, 1)
            .tensor(float_tensor("weight", &[], &[weight]))
            .tensor(float_tensor("half", &[], &[0.5]))
            .node("Less", &["weight", "half"], "c", &[])
            .node("Abs", &["x"], "a", &[])
            .node("Where", &["c", inputs[0], inputs[1]], "y", &[])
            .output("y");
        run(&model, [1, 1, 1, 2], &[-2.0, 3.0]).0
    };
    assert_eq!(chosen(0.25, ["x", "a"]), [-2.0, 3.0]);
    assert_eq!(chosen(0.5, ["x", "a"]), [2.0, 3.0]);
    assert_eq!(chosen(0.25, ["a", "half"]), [2.0, 3.0]);
    // another operand that is larger would make it as large
    let larger = Builder::new(18, 4)
        .tensor(float_tensor("yes", &[], &[1.0]))
        .tensor(float_tensor("half", &[], &[0.5]))
        .node("Greater", &["yes", "half"], "c", &[])
        .node("GlobalAveragePool", &["x"], "m", &[])
        .node("Where", &["c", "m", "x"], "y", &[])
        .output("y");
    assert_eq!(larger.refusals().len(), 1);
}

#[test]
fn a_number_of_more_axes_than_what_it_meets_is_refused() {
    let with = |dims: &[i64], value: &'static str, operator: &'static str| {
        let model = Builder::new(18, 1)
            .tensor(float_tensor("two", dims, &[2.0]))
            .ints("one", &[1], &[1])
            .node("GlobalAveragePool", &["x"], "image", &[])
            .node("Flatten", &["image"], "features", &[])
            .node("Squeeze", &["x", "one"], "plane", &[])
            .node(operator, &[value, "two"], "y", &[])
            .output("y");
        model.read().map(drop)
    };
    let refused = |dims: &[i64], value, operator| {
        let error = with(dims, value, operator).unwrap_err().to_string();
        assert!(error.contains("a constant of no more axes than the value"), "{error}");
    };
    refused(&[1, 1, 1], "features", "Mul");
    refused(&[1, 1, 1], "features", "Greater");
    refused(&[1, 1, 1, 1], "features", "Add");
    refused(&[1, 1, 1, 1], "plane", "Mul");
    for (axes, value) in [(2, "features"), (3, "plane"), (4, "image")] {
        (0..=axes).for_each(|axes| with(&vec![1; axes], value, "Mul").unwrap());
    }
}
