//! Models that are nearly others: what they say is what is computed.

use crate::build::{Attribute, Builder, float_tensor, ints, value};
use crate::runs::run;

const IMAGE: [f64; 12] = [3.0, -1.0, 0.5, 2.0, 4.0, -2.0, 1.0, 0.0, 7.0, 5.0, -3.0, 1.5];

fn nearest() -> [(&'static str, Attribute); 3] {
    [
        ("mode", Attribute::Text("nearest")),
        ("coordinate_transformation_mode", Attribute::Text("asymmetric")),
        ("nearest_mode", Attribute::Text("floor")),
    ]
}

/// What is one pixel at some sizes alone is as large as the others nowhere.
#[test]
fn the_size_of_a_product_is_that_of_its_larger_operand() {
    for operands in [["p", "x"], ["x", "p"]] {
        let model = Builder::new(18, 1)
            .node("AveragePool", &["x"], "p", &[("kernel_shape", ints(&[3, 4]))])
            .node("Mul", &operands, "m", &[])
            .node("Shape", &["m"], "s", &[])
            .node("MaxPool", &["x"], "q", &[("kernel_shape", ints(&[3, 2])), ("strides", ints(&[3, 2]))])
            .node("Resize", &["q", "", "", "s"], "y", &nearest())
            .output("y");
        let (values, shape) = run(&model, [1, 1, 3, 4], &IMAGE);
        assert_eq!(shape, [1, 1, 3, 4], "{operands:?}");
        assert_eq!(values, [7.0, 7.0, 2.0, 2.0].repeat(3), "{operands:?}");
    }
}

#[test]
fn a_column_that_is_resized_to_a_pixel_is_one_pixel() {
    let model = Builder::new(18, 1)
        .ints("columns", &[1], &[3])
        .ints("pixel", &[4], &[1, 1, 1, 1])
        .node("ReduceMean", &["x", "columns"], "r", &[])
        .node("Resize", &["r", "", "", "pixel"], "u", &nearest())
        .node("GlobalMaxPool", &["x"], "g", &[])
        .node("Add", &["u", "g"], "y", &[])
        .output("y");
    assert_eq!(run(&model, [1, 1, 3, 4], &IMAGE), (vec![4.5 / 4.0 + 7.0], [1, 1, 1, 1]));
}

#[test]
fn nearest_pixels_of_version_10_lie_behind_where_an_axis_shrinks() {
    let model = |scale: f32| {
        Builder::new(10, 1)
            .tensor(float_tensor("scales", &[4], &[1.0, 1.0, scale, 1.0]))
            .node("Resize", &["x", "scales"], "y", &[])
            .output("y")
    };
    let rows: Vec<f64> = (0..10_u8).map(f64::from).collect();
    for (scale, wanted) in [
        (0.6, vec![0.0, 2.0, 4.0, 5.0, 7.0, 9.0]),
        (0.5, vec![0.0, 2.0, 4.0, 6.0, 8.0]),
        (1.5, vec![0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 8.0, 9.0]),
    ] {
        assert_eq!(run(&model(scale), [1, 1, 10, 1], &rows).0, wanted, "{scale}");
    }
}

#[test]
fn axes_that_a_resize_does_not_name_stay() {
    let sized = |axis: i64, name: &str, numbers: fn(Builder) -> Builder| {
        let scales = if name == "n" { ["x", "", "", "n"].as_slice() } else { &["x", "", "s"] };
        let mut attributes = nearest().to_vec();
        attributes.push(("axes", ints(&[axis])));
        let mut model = numbers(Builder::new(18, 1)).node("Resize", scales, "y", &attributes).output("y");
        // a height that stays beside a width that is given is one of the image where the model declares it alone
        if name == "n" {
            model.graph().input[0] = value("x", 1, &[Some(1), Some(1), Some(3), Some(4)]);
        }
        run(&model, [1, 1, 3, 4], &IMAGE).1
    };
    assert_eq!(sized(3, "n", |model| model.ints("n", &[1], &[2])), [1, 1, 3, 2]);
    assert_eq!(sized(-2, "s", |model| model.tensor(float_tensor("s", &[1], &[2.0]))), [1, 1, 6, 4]);
}

/// 13/11·11 is below 13 in 32 bits.
#[test]
fn quotients_of_sizes_are_rounded_before_they_are_multiplied() {
    let mut model = Builder::new(18, 1)
        .tensor(float_tensor("eleven", &[], &[11.0]))
        .ints("nc", &[2], &[1, 1])
        .node("Shape", &["x"], "s", &[("start", Attribute::Int(2))])
        .node("Cast", &["s"], "f", &[("to", Attribute::Int(1))])
        .node("Div", &["f", "eleven"], "d", &[])
        .node("Mul", &["d", "eleven"], "m", &[])
        .node("Floor", &["m"], "w", &[])
        .node("Cast", &["w"], "i", &[("to", Attribute::Int(7))])
        .node("Concat", &["nc", "i"], "n", &[("axis", Attribute::Int(0))])
        .node("Resize", &["x", "", "", "n"], "y", &nearest())
        .output("y");
    model.graph().input[0] = value("x", 1, &[Some(1), Some(1), Some(13), Some(13)]);
    assert_eq!(run(&model, [1, 1, 13, 13], &[0.0; 169]).1, [1, 1, 12, 12]);
}
