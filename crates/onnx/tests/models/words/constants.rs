//! Models that are refused for what they compute of constants.

use super::{int, start};
use crate::build::{Attribute, Builder, ints};

pub(super) fn of_constants() -> Vec<(&'static str, Builder)> {
    let matrix = || start().floats("a", &[2, 3]).floats("b", &[2, 1, 4]).floats("v", &[3]);
    let made = |model: Builder, op: &str, inputs: &[&str], attributes: &[(&str, Attribute)]| {
        model.node(op, inputs, "c", attributes).node("Mul", &["x", "c"], "y", &[]).output("y")
    };
    let cut =
        matrix().ints("f", &[1], &[0]).ints("t", &[1], &[2]).ints("at", &[1], &[1]).ints("by", &[1], &[0]);
    let many = (0..65).fold(start().floats("one", &[1]).ints("s", &[1], &[1 << 16]), |model, place| {
        model.node("Expand", &["one", "s"], &format!("e{place}"), &[])
    });
    let names: Vec<String> = (0..65).map(|place| format!("e{place}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    vec![
        ("constants_that_do_not_broadcast", made(matrix(), "Add", &["a", "b"], &[])),
        ("constants_of_other_extents", made(matrix(), "Concat", &["a", "v"], &[("axis", int(0))])),
        ("constants_without_the_axis", made(matrix(), "Concat", &["a", "a"], &[("axis", int(2))])),
        ("constant_flattened_at_no_axis", made(matrix(), "Flatten", &["a"], &[("axis", int(3))])),
        ("constant_of_other_axes", made(matrix(), "ReduceL2", &["a"], &[("axes", ints(&[2]))])),
        ("constant_without_its_rows", made(matrix(), "Squeeze", &["a"], &[("axes", ints(&[0]))])),
        ("constant_of_another_order", made(matrix(), "Transpose", &["b"], &[("perm", ints(&[0, 0, 1]))])),
        ("constant_cut_by_no_step", made(cut, "Slice", &["a", "f", "t", "at", "by"], &[])),
        ("constant_expanded_to_others", made(matrix().ints("s", &[2], &[2, 2]), "Expand", &["a", "s"], &[])),
        ("constants_of_no_product", made(matrix(), "MatMul", &["v", "a"], &[])),
        ("constant_normed_without_channels", made(matrix(), "BatchNormalization", &["v"; 5], &[])),
        (
            "constant_of_many_elements",
            made(start().floats("one", &[1]).ints("s", &[2], &[2, 1 << 16]), "Expand", &["one", "s"], &[]),
        ),
        ("constants_of_many_bytes", made(many, "Concat", &names, &[("axis", int(0))])),
        ("constants_of_many_nodes", computed_again(1400)),
        ("constants_of_many_operands", made(start().floats("many", &[1 << 16]), "Max", &["many"; 1400], &[])),
    ]
}

/// A constant of 2¹⁶ elements that so many nodes compute of one another.
fn computed_again(times: usize) -> Builder {
    let first = start().floats("v0", &[1 << 16]);
    let last = (0..times)
        .fold(first, |model, time| model.node("Neg", &[&format!("v{time}")], &format!("v{}", time + 1), &[]));
    last.node("Mul", &["x", &format!("v{times}")], "y", &[]).output("y")
}
