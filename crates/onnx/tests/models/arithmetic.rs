//! The numbers of each operator between constants, against loops.

use crate::build::{Attribute, Builder, float_tensor, ints, only};
use crate::folded::{constant, counting, int, is_near, list, parameter, weight};

#[test]
fn axes_are_matched_from_the_last_one_on_in_every_place() {
    let dims: [&[i64]; 7] = [&[], &[1], &[3], &[2, 1], &[2, 3], &[4, 1, 1], &[4, 2, 3]];
    for (first, second) in dims.iter().flat_map(|a| dims.iter().map(move |b| (*a, *b))) {
        let model = constant(counting(first), "b", second)
            .tensor(float_tensor("ten", &[], &[10.0]))
            .node("Mul", &["a", "ten"], "tens", &[])
            .node("Sub", &["tens", "b"], "c", &[]);
        let rank = first.len().max(second.len());
        let at = |of: &[i64], axis: usize| (axis + of.len()).checked_sub(rank).map_or(1, |place| of[place]);
        let common: Vec<i64> = (0..rank).map(|axis| at(first, axis).max(at(second, axis))).collect();
        let mut wanted = Vec::new();
        for place in 0..common.iter().product::<i64>() {
            let (mut left, mut places, mut steps) = (place, [0, 0], [1, 1]);
            for axis in (0..rank).rev() {
                let index = left % common[axis];
                left /= common[axis];
                for (of, (place, step)) in [first, second].iter().zip(places.iter_mut().zip(&mut steps)) {
                    *place += index % at(of, axis) * *step;
                    *step *= at(of, axis);
                }
            }
            wanted.push((10 * places[0] - places[1]) as f64);
        }
        assert_eq!(weight(&model, wanted.len()), wanted, "{first:?} and {second:?}");
    }
}

#[test]
fn shapes_that_do_not_match_are_refused_with_both() {
    let words = "wants a constant whose axes, from the last one on, are as long as the other's, or one";
    let model = constant(counting(&[2, 3]), "b", &[2, 1, 4]);
    let text =
        only(&model.node("Add", &["a", "b"], "c", &[]).node("Conv", &["x", "c"], "y", &[]).output("y"));
    let wanted = format!(
        "Add `n_c` (opset 18): input 1 is a constant of shape [2, 1, 4] beside one of [2, 3], {words}"
    );
    assert_eq!(text, wanted);
    let joined =
        constant(counting(&[2, 3]), "b", &[2, 1]).node("Concat", &["a", "b"], "c", &[("axis", int(0))]);
    let text = only(&joined.node("Conv", &["x", "c"], "y", &[]).output("y"));
    assert_eq!(
        text,
        "Concat `n_c` (opset 18): input 1 is a constant of shape [2, 1] behind one of [2, 3], wants a constant of the \
         same extents along the other axes"
    );
    let expanded = list(counting(&[2, 3]), "s", &[2, 2]).node("Expand", &["a", "s"], "c", &[]);
    let text = only(&expanded.node("Conv", &["x", "c"], "y", &[]).output("y"));
    assert_eq!(
        text,
        "Expand `n_c` (opset 18): input 1 is [2, 2] for a constant of shape [2, 3], wants extents that are those of the \
         constant, from the last one on, or one"
    );
}

#[test]
fn functions_of_elements_have_their_numbers() {
    type Function = fn(f64) -> f64;
    let given = [-2.0_f32, -0.5, 0.25, 1.0, 3.0];
    let of = |op: &str| {
        let model = Builder::new(18, 1).tensor(float_tensor("a", &[5, 1], &given)).node(op, &["a"], "c", &[]);
        weight(&model, 5)
    };
    let functions: [(&str, Function); 10] = [
        ("Abs", f64::abs),
        ("Exp", f64::exp),
        ("Log", f64::ln),
        ("Neg", |x| -x),
        ("Reciprocal", |x| 1.0 / x),
        ("Relu", |x| x.max(0.0)),
        ("Sigmoid", |x| 1.0 / (1.0 + f64::exp(-x))),
        ("Softplus", |x| f64::ln(1.0 + f64::exp(x))),
        ("Sqrt", f64::sqrt),
        ("Tanh", f64::tanh),
    ];
    for (op, function) in functions {
        for (got, x) in of(op).iter().zip(given) {
            let wanted = function(x.into());
            assert!(
                (got - wanted).abs() < 1e-14 || got.is_nan() && wanted.is_nan(),
                "{op} {x}: {got}, {wanted}"
            );
        }
    }
    let pair = |op: &str, other: &[f32]| {
        let len = i64::try_from(other.len()).unwrap();
        let model = Builder::new(18, 1)
            .tensor(float_tensor("a", &[5, 1], &given))
            .tensor(float_tensor("b", &[len, 1], other))
            .node(op, &["a", "b"], "c", &[]);
        weight(&model, 5)
    };
    assert_eq!(pair("Max", &[0.5]), [0.5, 0.5, 0.5, 1.0, 3.0]);
    assert_eq!(pair("Min", &[0.5]), [-2.0, -0.5, 0.25, 0.5, 0.5]);
    assert_eq!(pair("Sum", &[0.5]), [-1.5, 0.0, 0.75, 1.5, 3.5]);
    assert_eq!(pair("Mean", &[1.0]), [-0.5, 0.25, 0.625, 1.0, 2.0]);
    assert_eq!(pair("Pow", &[2.0]), [4.0, 0.25, 0.0625, 1.0, 9.0]);
    assert_eq!(pair("Div", &[-0.5]), [4.0, 1.0, -0.5, -2.0, -6.0]);
    // what is no number stays none
    assert!(pair("Pow", &[0.5])[..2].iter().all(|value| value.is_nan()));
    assert_eq!(pair("Div", &[0.0])[..2], [f64::NEG_INFINITY; 2]);
    let whole = Builder::new(18, 1).tensor(float_tensor("a", &[5, 1], &given)).ints("b", &[], &[3]).node(
        "Pow",
        &["a", "b"],
        "c",
        &[],
    );
    assert_eq!(weight(&whole, 5), [-8.0, -0.125, 0.015_625, 1.0, 27.0]);
}

#[test]
fn bounds_of_clip_may_be_missing() {
    let clipped = |inputs: &[&str], attributes: &[(&str, Attribute)]| {
        let model = Builder::new(18, 1)
            .tensor(float_tensor("a", &[3, 1], &[-2.0, 0.5, 3.0]))
            .tensor(float_tensor("low", &[], &[-1.0]))
            .tensor(float_tensor("high", &[], &[1.0]));
        weight(&model.node("Clip", inputs, "c", attributes), 3)
    };
    assert_eq!(clipped(&["a"], &[]), [-2.0, 0.5, 3.0]);
    assert_eq!(clipped(&["a", "low"], &[]), [-1.0, 0.5, 3.0]);
    assert_eq!(clipped(&["a", "", "high"], &[]), [-2.0, 0.5, 1.0]);
    assert_eq!(clipped(&["a", "low", "high"], &[]), [-1.0, 0.5, 1.0]);
    assert_eq!(clipped(&["a"], &[("max", Attribute::Float(0.0))]), [-2.0, 0.0, 0.0]);
}

#[test]
fn reductions_are_over_the_axes_that_are_given_all_or_none() {
    // 0 1 2; 3 4 5
    let reduced = |op: &str, axes: Option<&[i64]>, attributes: &[(&str, Attribute)], len| {
        let model = counting(&[2, 3]);
        let model = match axes {
            Some(axes) => list(model, "axes", axes).node(op, &["a", "axes"], "c", attributes),
            None => model.node(op, &["a"], "c", attributes),
        };
        weight(&model, len)
    };
    let none = ("noop_with_empty_axes", int(1));
    assert_eq!(reduced("ReduceSum", Some(&[0]), &[], 3), [3.0, 5.0, 7.0]);
    assert_eq!(reduced("ReduceMax", Some(&[-1]), &[("keepdims", int(0))], 2), [2.0, 5.0]);
    assert_eq!(reduced("ReduceMin", Some(&[0]), &[], 3), [0.0, 1.0, 2.0]);
    assert_eq!(reduced("ReduceMean", None, &[], 1), [2.5]);
    assert_eq!(reduced("ReduceMean", Some(&[]), &[], 1), [2.5]);
    assert_eq!(
        reduced("ReduceMean", Some(&[]), std::slice::from_ref(&none), 6),
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    );
    assert_eq!(reduced("ReduceSumSquare", None, &[("axes", ints(&[1]))], 2), [5.0, 50.0]);
    assert_eq!(reduced("ReduceL1", None, &[], 1), [15.0]);
    assert_eq!(reduced("ReduceL2", Some(&[1]), &[], 2), [f64::sqrt(5.0), f64::sqrt(50.0)]);
    let refused = |axes: &[i64]| {
        let model = list(counting(&[2, 3]), "axes", axes).node("ReduceSum", &["a", "axes"], "c", &[]);
        only(&model.node("Conv", &["x", "c"], "y", &[]).output("y"))
    };
    let words = "wants axes that the constant has, each once";
    assert_eq!(
        refused(&[2]),
        format!("ReduceSum `n_c` (opset 18): attribute `axes` is [2] of 2 axes, {words}")
    );
    assert_eq!(
        refused(&[0, -2]),
        format!("ReduceSum `n_c` (opset 18): attribute `axes` is [0, -2] of 2 axes, {words}")
    );
}

/// The element of a list from `start` to `end` by `step` as Python cuts it.
fn cut(len: i64, start: i64, end: i64, step: i64) -> Vec<f64> {
    let place = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (mut at, mut made) = (place(start), Vec::new());
    at = if step > 0 { at.clamp(0, len) } else { at.clamp(0, len - 1) };
    let end = place(end).clamp(if step > 0 { 0 } else { -1 }, len);
    while if step > 0 { at < end } else { at > end } {
        made.push(at as f64);
        at += step;
    }
    made
}

#[test]
fn slices_take_every_so_many_forward_and_backward() {
    let places = [i64::MIN + 1, -9, -5, -2, -1, 0, 1, 3, 4, 5, 9, i64::MAX];
    let mut seen = 0;
    for (start, end) in places.iter().flat_map(|start| places.iter().map(move |end| (*start, *end))) {
        for step in [1, 2, 3, 9, -1, -2, -9] {
            let wanted = cut(5, start, end, step);
            let model = list(list(counting(&[5, 1]), "f", &[start]), "t", &[end]);
            let model = list(list(model, "ax", &[-2]), "by", &[step]);
            let model = model.node("Slice", &["a", "f", "t", "ax", "by"], "c", &[]);
            if wanted.is_empty() {
                // a weight of no elements is refused, as an empty one of the file is
                let refusal = only(&model.node("Conv", &["x", "c"], "y", &[]).output("y"));
                assert!(refusal.contains("a constant of shape [0, 1]"), "{refusal}");
            } else {
                assert_eq!(weight(&model, wanted.len()), wanted, "{start}:{end}:{step}");
                seen += 1;
            }
        }
    }
    assert!(seen > 300, "{seen}");
    // along two axes, in another order than they have
    let model = list(list(counting(&[3, 4]), "f", &[-1, 0]), "t", &[i64::MIN + 1, 2]);
    let model = list(list(model, "ax", &[1, 0]), "by", &[-2, 1]);
    let model = model.node("Slice", &["a", "f", "t", "ax", "by"], "c", &[]);
    assert_eq!(weight(&model, 4), [3.0, 1.0, 7.0, 5.0]);
    // attributes before version 10
    let old = constant(Builder::new(9, 1), "a", &[3, 2]);
    let old = old.node("Slice", &["a"], "c", &[("starts", ints(&[1])), ("ends", ints(&[9]))]);
    assert_eq!(weight(&old, 4), [2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn shapes_change_as_onnx_says() {
    let rows = |op: &str, second: Option<&[i64]>, attributes: &[(&str, Attribute)]| {
        let model = counting(&[2, 1, 3]).node("Neg", &["a"], "n", &[]);
        let model = match second {
            Some(second) => list(model, "s", second).node(op, &["n", "s"], "m", attributes),
            None => model.node(op, &["n"], "m", attributes),
        };
        model.node("Shape", &["m"], "of", &[]).node("Mul", &["m", "minus"], "c", &[])
    };
    let minus = float_tensor("minus", &[], &[-1.0]);
    let shape = |op: &str, second: Option<&[i64]>, attributes: &[(&str, Attribute)], wanted: &[i64]| {
        let model = rows(op, second, attributes).tensor(minus.clone());
        assert_eq!(weight(&model, 6), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{op} to {wanted:?}");
        // a product with the wanted shape fails where it has another rank, and repeats nothing where it has the same
        let len: i64 = wanted.iter().product();
        let ones = float_tensor("ones", wanted, &vec![1.0; usize::try_from(len).unwrap()]);
        let same = model.tensor(ones).node("Concat", &["m", "ones"], "joined", &[("axis", int(0))]);
        let same = same.node("Reshape", &["joined", "to"], "w", &[]).ints("to", &[4], &[12, 1, 1, 1]);
        assert_eq!(parameter(&same.node("Conv", &["x", "w"], "y", &[]).output("y")).len(), 12, "{op}");
    };
    shape("Reshape", Some(&[0, -1]), &[], &[2, 3]);
    shape("Squeeze", None, &[], &[2, 3]);
    shape("Squeeze", Some(&[-2]), &[], &[2, 3]);
    shape("Unsqueeze", Some(&[0, -1]), &[], &[1, 2, 1, 3, 1]);
    shape("Flatten", None, &[("axis", int(2))], &[2, 3]);
    shape("Flatten", None, &[("axis", int(0))], &[1, 6]);
    shape("Transpose", None, &[("perm", ints(&[1, 0, 2]))], &[1, 2, 3]);
    // without an order, the reverse one
    let turned = counting(&[2, 1, 3]).node("Transpose", &["a"], "c", &[]);
    assert_eq!(weight(&turned, 6), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let matrix = counting(&[2, 3]).node("Transpose", &["a"], "t", &[]).node("Neg", &["t"], "c", &[]);
    assert_eq!(weight(&matrix, 6), [0.0, -3.0, -1.0, -4.0, -2.0, -5.0]);
    let matrix = list(counting(&[2, 3]), "l", &[-1]).node("Transpose", &["a"], "t", &[]);
    let matrix = matrix.node("Reshape", &["t", "l"], "c", &[]);
    assert_eq!(weight(&matrix, 6), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let joined = constant(counting(&[2, 1]), "b", &[2, 2]);
    let joined = joined.node("Concat", &["a", "b"], "c", &[("axis", int(-1))]);
    assert_eq!(weight(&joined, 6), [0.0, 0.0, 1.0, 1.0, 2.0, 3.0]);
    let expanded = list(counting(&[2, 1]), "s", &[2, 1, 2]).node("Expand", &["a", "s"], "c", &[]);
    assert_eq!(weight(&expanded, 8), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    let passed = counting(&[2, 3])
        .node("Exp", &["a"], "e", &[])
        .node("Cast", &["e"], "f", &[("to", int(10))])
        .node("Identity", &["f"], "i", &[])
        .node("Log", &["i"], "c", &[]);
    assert!(is_near(&weight(&passed, 6), &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 1e-14));
}
