//! Resizing by scales that are quotients of sizes.

use tiled_graph::{Coordinates, Filter, Op, ResizeMode, Rounding, Upsample, UpsampleTo, ValueId};
use tiled_onnx::proto::TensorProto;

use crate::build::{Attribute, Builder, float_tensor, ints, ops, reason, value};
use crate::runs::run;

/// A pooling by three of x to the size of x, by a scale that is the quotient of the sizes.
pub(crate) fn resized(opset: i64, mode: &'static str) -> Builder {
    let pool = [("kernel_shape", ints(&[3, 3])), ("strides", ints(&[3, 3]))];
    let cut = [("axes", ints(&[0])), ("starts", ints(&[2])), ("ends", ints(&[i64::MAX]))];
    let model = Builder::new(opset, 1).node("MaxPool", &["x"], "m", &pool);
    let model = if opset < 10 {
        ["x", "m"].iter().fold(model, |model, of| {
            let name = |step: &str| format!("{of}_{step}");
            model.node("Shape", &[of], &name("s"), &[]).node("Slice", &[&name("s")], &name("e"), &cut)
        })
    } else {
        let model = model.ints("two", &[1], &[2]).ints("end", &[1], &[i64::MAX]);
        ["x", "m"].iter().fold(model, |model, of| {
            let name = |step: &str| format!("{of}_{step}");
            model.node("Shape", &[of], &name("s"), &[]).node(
                "Slice",
                &[&name("s"), "two", "end"],
                &name("e"),
                &[],
            )
        })
    };
    let to_float = [("to", Attribute::Int(1))];
    model
        .node("Cast", &["x_e"], "x_f", &to_float)
        .node("Cast", &["m_e"], "m_f", &to_float)
        .node("Div", &["x_f", "m_f"], "scale", &[])
        .tensor(float_tensor("ones", &[2], &[1.0, 1.0]))
        .node("Concat", &["ones", "scale"], "scales", &[("axis", Attribute::Int(0))])
        .node(
            if opset < 10 { "Upsample" } else { "Resize" },
            &["m", "scales"],
            "u",
            &[("mode", Attribute::Text(mode))],
        )
}

#[test]
fn sizes_are_worked_out_in_32_bits_as_the_model_says() {
    // 10·0.7 is 7 in 32 bits, and below that in 64
    for (element, number, size) in
        [(1, float_tensor("r", &[], &[0.7]), 7), (11, double("r", 0.7_f32.into()), 6)]
    {
        let mut model = Builder::new(18, 1)
            .tensor(number)
            .ints("nc", &[2], &[1, 1])
            .node("Shape", &["x"], "s", &[("start", Attribute::Int(2))])
            .node("Cast", &["s"], "f", &[("to", Attribute::Int(element))])
            .node("Mul", &["f", "r"], "m", &[])
            .node("Floor", &["m"], "w", &[])
            .node("Cast", &["w"], "i", &[("to", Attribute::Int(7))])
            .node("Concat", &["nc", "i"], "n", &[("axis", Attribute::Int(0))])
            .node("Resize", &["x", "", "", "n"], "y", &[])
            .output("y");
        model.graph().input[0] = value("x", 1, &[Some(1), Some(1), Some(10), Some(10)]);
        let [Op::Upsample(Upsample { to, .. })] = ops(&model)[..] else { panic!("{:?}", ops(&model)) };
        assert_eq!(to, UpsampleTo::Size([size; 2]));
    }
}

fn double(name: &str, value: f64) -> TensorProto {
    TensorProto { data_type: Some(11), double_data: vec![value], ..float_tensor(name, &[], &[]) }
}

#[test]
fn a_scale_that_is_a_quotient_of_sizes_makes_the_dividend() {
    for opset in [9, 10] {
        for (mode, filter) in [("nearest", Filter::Nearest(Rounding::Floor)), ("linear", Filter::Linear)] {
            let model = resized(opset, mode).node("Sub", &["u", "x"], "y", &[]).output("y");
            let mode = ResizeMode { filter, coordinates: Coordinates::Asymmetric };
            let like = Upsample { mode, to: UpsampleTo::Like(ValueId(0)) };
            assert_eq!(ops(&model)[1], Op::Upsample(like), "{opset}");
        }
        let model = resized(opset, "nearest").output("u");
        for [height, width] in [[3, 7], [8, 11], [4, 3]] {
            let image: Vec<f64> = (0..2 * height * width).map(|at| at as f64).collect();
            let plane = |plane: &[f64]| -> Vec<f64> {
                let places = (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
                places
                    .map(|(row, column)| {
                        let (row, column) = (row * (height / 3) / height, column * (width / 3) / width);
                        plane[(3 * row + 2) * width + 3 * column + 2]
                    })
                    .collect()
            };
            let wanted: Vec<f64> = image.chunks(height * width).flat_map(plane).collect();
            assert_eq!(run(&model, [2, 1, height, width], &image), (wanted, [2, 1, height, width]));
        }
    }
}

#[test]
fn a_scale_that_makes_a_number_is_a_size() {
    let model = |one: f32, dividend: f32| {
        Builder::new(9, 1)
            .node("Shape", &["x"], "s", &[])
            .node("Slice", &["s"], "e", &[("starts", ints(&[2])), ("ends", ints(&[4]))])
            .node("Cast", &["e"], "f", &[("to", Attribute::Int(1))])
            .tensor(float_tensor("size", &[2], &[dividend, 5.0]))
            .node("Div", &["size", "f"], "scale", &[])
            .tensor(float_tensor("ones", &[2], &[1.0, one]))
            .node("Concat", &["ones", "scale"], "scales", &[("axis", Attribute::Int(0))])
            .node("Upsample", &["x", "scales"], "y", &[])
            .output("y")
    };
    assert!(
        matches!(&ops(&model(1.0, 4.0))[..], [Op::Upsample(upsample)] if upsample.to == UpsampleTo::Size([4, 5]))
    );
    assert!(reason(&model(2.0, 4.0)).contains("wants scales of 1 for batch and channels"));
    assert_eq!(
        reason(&model(1.0, 4.5)),
        "its scale depends on the size of the image, which the model leaves open"
    );
    // by the extents of another value
    let mut other = resized(9, "nearest");
    other.graph().node.last_mut().unwrap().input[0] = "x".to_owned();
    assert_eq!(
        reason(&other.output("u")),
        "its scale depends on the size of the image, which the model leaves open"
    );
}
