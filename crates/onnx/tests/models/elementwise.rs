//! Functions of one element and arithmetic: what they become, and their numbers.

use tiled_graph::{Activation, Elementwise, Op, Operand, Prelu, WithOperand};

use crate::build::{Attribute, Builder, float_tensor, graph, ops};
use crate::runs::run;

/// What a node of one operand becomes.
fn of(opset: i64, op: &str, attributes: &[(&str, Attribute)]) -> Vec<Op> {
    ops(&Builder::new(opset, 2).node(op, &["x"], "y", attributes).output("y"))
}

fn with(function: Elementwise, number: f64) -> Op {
    Op::WithOperand(WithOperand { function, operand: Operand::Number(number), reversed: false })
}

#[test]
fn a_factor_near_one_is_a_factor() {
    let model = |outer: f32, inner: f32| {
        Builder::new(18, 2)
            .tensor(float_tensor("outer", &[], &[outer]))
            .tensor(float_tensor("inner", &[], &[inner]))
            .node("Mul", &["x", "outer"], "a", &[])
            .node("Mul", &["x", "inner"], "b", &[])
            .node("Sigmoid", &["b"], "s", &[])
            .node("Mul", &["a", "s"], "y", &[])
            .output("y")
    };
    assert_eq!(ops(&model(1.0, 1.0)), [Op::Activation(Activation::Silu)]);
    for (outer, inner) in [(1.001, 1.0), (1.0, 1.0012), (0.5, 1.0)] {
        let got = run(&model(outer, inner), [1, 2, 1, 1], &[1.0, -2.0]).0;
        let (outer, inner) = (f64::from(outer), f64::from(inner));
        for (got, x) in got.iter().zip([1.0, -2.0]) {
            let wanted = outer * x / (1.0 + f64::exp(-inner * x));
            assert!((got - wanted).abs() <= 1e-7, "{outer}, {inner}: {got}, not {wanted}");
        }
    }
}

#[test]
fn functions_of_one_element_are_activations() {
    let alpha = |alpha| [("alpha", Attribute::Float(alpha))];
    for (op, attributes, activation) in [
        ("Abs", &[][..], Activation::Abs),
        ("Celu", &alpha(1.5), Activation::Celu { alpha: 1.5 }),
        ("Elu", &[], Activation::Elu { alpha: 1.0 }),
        ("Exp", &[], Activation::Exp),
        ("HardSwish", &[], Activation::HardSwish),
        ("Log", &[], Activation::Log),
        ("Mish", &[], Activation::Mish),
        ("Neg", &[], Activation::Neg),
        ("Reciprocal", &[], Activation::Reciprocal),
        ("Selu", &[], Activation::Selu),
        ("Softplus", &[], Activation::Softplus { beta: 1.0, threshold: 40.0 }),
        ("Softsign", &[], Activation::Softsign),
        ("Sqrt", &[], Activation::Sqrt),
        ("ThresholdedRelu", &alpha(0.5), Activation::Threshold { threshold: 0.5, value: 0.0 }),
        ("HardSigmoid", &alpha(1.0 / 6.0), Activation::HardSigmoid),
    ] {
        assert_eq!(of(22, op, attributes), [Op::Activation(activation)], "{op}");
    }
}

#[test]
fn constants_that_no_activation_has_are_arithmetic_around_one() {
    let unit = Op::Activation(Activation::Clamp { min: 0.0, max: 1.0 });
    assert_eq!(of(17, "HardSigmoid", &[]), [with(Elementwise::Mul, 0.2), with(Elementwise::Add, 0.5), unit]);
    let selu = [("alpha", Attribute::Float(2.0)), ("gamma", Attribute::Float(3.0))];
    let elu = Op::Activation(Activation::Elu { alpha: 2.0 });
    assert_eq!(of(17, "Selu", &selu), [elu, with(Elementwise::Mul, 3.0)]);
}

#[test]
fn bounds_are_attributes_and_later_operands() {
    let clamp = |min, max| [Op::Activation(Activation::Clamp { min, max })];
    let bounds = [("min", Attribute::Float(0.0)), ("max", Attribute::Float(6.0))];
    assert_eq!(of(7, "Clip", &bounds), clamp(0.0, 6.0));
    assert_eq!(of(7, "Clip", &bounds[..1]), clamp(0.0, f64::INFINITY));
    assert_eq!(of(13, "Clip", &[]), clamp(f64::NEG_INFINITY, f64::INFINITY));
    let model = Builder::new(13, 2)
        .tensor(float_tensor("high", &[], &[0.5]))
        .node("Clip", &["x", "", "high"], "y", &[])
        .output("y");
    assert_eq!(ops(&model), clamp(f64::NEG_INFINITY, 0.5));
}

#[test]
fn slopes_are_one_or_one_for_each_channel() {
    for (dims, count) in [(&[][..], 1), (&[1][..], 1), (&[2, 1, 1][..], 2), (&[1, 2, 1, 1][..], 2)] {
        let model = Builder::new(16, 2).floats("s", dims).node("PRelu", &["x", "s"], "y", &[]).output("y");
        let prelu = Prelu { num_parameters: count, ..Prelu::default() };
        assert_eq!(ops(&model), [Op::Prelu(prelu)], "{dims:?}");
    }
    let model = Builder::new(16, 2)
        .tensor(float_tensor("s", &[2, 1, 1], &[0.5, -2.0]))
        .node("PRelu", &["x", "s"], "y", &[])
        .output("y");
    assert_eq!(run(&model, [1, 2, 1, 2], &[-1.0, 3.0, -4.0, 5.0]).0, [-0.5, 3.0, 8.0, 5.0]);
}

#[test]
fn arithmetic_takes_numbers_on_either_side() {
    for (op, function) in [
        ("Add", Elementwise::Add),
        ("Sub", Elementwise::Sub),
        ("Mul", Elementwise::Mul),
        ("Div", Elementwise::Div),
    ] {
        for reversed in [false, true] {
            let operands = if reversed { ["two", "x"] } else { ["x", "two"] };
            let model = Builder::new(17, 2)
                .tensor(float_tensor("two", &[1, 1, 1, 1], &[2.0]))
                .node(op, &operands, "y", &[])
                .output("y");
            // the order of a sum and of a product does not matter
            let reversed = reversed && matches!(function, Elementwise::Sub | Elementwise::Div);
            let wanted = WithOperand { function, operand: Operand::Number(2.0), reversed };
            assert_eq!(ops(&model), [Op::WithOperand(wanted)], "{op}");
        }
    }
    let power = Builder::new(17, 2)
        .tensor(float_tensor("e", &[], &[-1.5]))
        .node("Pow", &["x", "e"], "y", &[])
        .output("y");
    assert_eq!(ops(&power), [Op::Activation(Activation::Pow { exponent: -1.5 })]);
    // a factor near one is a factor
    let near = Builder::new(17, 2)
        .tensor(float_tensor("k", &[], &[1.001]))
        .node("Mul", &["x", "k"], "y", &[])
        .output("y");
    assert_eq!(ops(&near).len(), 1);
}

#[test]
fn a_number_for_each_channel_is_a_weight() {
    let model = Builder::new(17, 2)
        .tensor(float_tensor("mean", &[1, 2, 1, 1], &[1.0, 2.0]))
        .tensor(float_tensor("std", &[2, 1, 1], &[4.0, 0.5]))
        .node("Sub", &["x", "mean"], "c", &[])
        .node("Div", &["c", "std"], "y", &[])
        .output("y");
    let weight =
        |function| Op::WithOperand(WithOperand { function, operand: Operand::Weight, reversed: false });
    assert_eq!(ops(&model), [weight(Elementwise::Sub), weight(Elementwise::Div)]);
    assert_eq!(run(&model, [1, 2, 1, 1], &[3.0, 3.0]).0, [0.5, 2.0]);
}

#[test]
fn functions_of_several_values_go_from_the_left() {
    let model = |op: &str| {
        Builder::new(17, 1)
            .tensor(float_tensor("k", &[], &[2.0]))
            .node("Neg", &["x"], "n", &[])
            .node(op, &["x", "n", "k"], "y", &[])
            .output("y")
    };
    let image = [-3.0, 1.0];
    let result = |op: &str| run(&model(op), [1, 1, 1, 2], &image).0;
    assert_eq!(result("Min"), [-3.0, -1.0]);
    assert_eq!(result("Max"), [3.0, 2.0]);
    assert_eq!(result("Sum"), [2.0, 2.0]);
    assert_eq!(result("Mean"), [2.0 / 3.0, 2.0 / 3.0]);
    let values =
        Builder::new(17, 1).node("Neg", &["x"], "n", &[]).node("Max", &["x", "n", "x"], "y", &[]).output("y");
    assert_eq!(ops(&values)[1], Op::Maximum);
}

#[test]
fn a_value_of_one_pixel_or_channel_stands_for_all() {
    let squeeze = Builder::new(17, 2)
        .node("GlobalAveragePool", &["x"], "p", &[])
        .node("Mul", &["p", "x"], "y", &[])
        .output("y");
    assert_eq!(ops(&squeeze), [Op::GlobalAvgPool, Op::Mul]);
    // means 2 and 3
    assert_eq!(run(&squeeze, [1, 2, 1, 2], &[1.0, 3.0, 2.0, 4.0]).0, [2.0, 6.0, 6.0, 12.0]);
    let plane = Builder::new(17, 2)
        .tensor(float_tensor("w", &[1, 2, 1, 1], &[1.0, -1.0]))
        .node("Conv", &["x", "w"], "c", &[])
        .node("Sub", &["x", "c"], "y", &[])
        .output("y");
    assert_eq!(run(&plane, [1, 2, 1, 1], &[5.0, 3.0]).0, [3.0, 1.0]);
}

#[test]
fn activations_written_out_of_others_are_the_arithmetic_that_they_are() {
    let model = Builder::new(17, 1)
        .tensor(float_tensor("three", &[], &[3.0]))
        .tensor(float_tensor("six", &[], &[6.0]))
        .tensor(float_tensor("zero", &[], &[0.0]))
        .node("Add", &["x", "three"], "a", &[])
        .node("Clip", &["a", "zero", "six"], "b", &[])
        .node("Div", &["b", "six"], "c", &[])
        .node("Mul", &["x", "c"], "y", &[])
        .output("y");
    assert_eq!(run(&model, [1, 1, 1, 3], &[-4.0, 3.0, 5.0]).0, [0.0, 3.0, 5.0]);
    let mish = Builder::new(17, 1)
        .node("Softplus", &["x"], "a", &[])
        .node("Tanh", &["a"], "b", &[])
        .node("Mul", &["x", "b"], "y", &[])
        .output("y");
    let names: Vec<&str> = graph(&mish).nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(names, ["softplus", "tanh", "mul"]);
}
