//! Values of an integer type: class numbers and masks.

use tiled_onnx::proto::TensorProto;

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints};
use crate::runs::run;

const SHAPE: [usize; 4] = [2, 3, 1, 2];

/// Three channels of two pixels, of two images.
const IMAGE: [f64; 12] = [0.0, 5.0, 1.0, 2.0, 7.0, 1.0, 4.0, 0.0, 3.0, -1.0, 2.0, -2.0];

/// The largest channel of each pixel.
const CLASSES: [f64; 4] = [2.0, 0.0, 0.0, 0.0];

const UINT8: i64 = 2;
const INT8: i64 = 3;
const INT32: i64 = 6;
const FLOAT: i64 = 1;

fn start() -> Builder {
    Builder::new(18, 3)
        .tensor(int_tensor("three", &[], &[3]))
        .tensor(int_tensor("twenty", &[1], &[20]))
        .tensor(int_tensor("axis", &[1], &[1]))
        .tensor(float_tensor("half", &[], &[0.5]))
}

fn cast(model: Builder, from: &str, name: &str, to: i64) -> Builder {
    model.node("Cast", &[from], name, &[("to", Attribute::Int(to))])
}

fn classes() -> Builder {
    start().node("ArgMax", &["x"], "c", &[("axis", Attribute::Int(1))])
}

fn mask(to: i64) -> Builder {
    cast(start().node("Greater", &["x", "half"], "b", &[]), "b", "c", to)
}

fn typed_choice() -> Builder {
    let byte = |name: &str, value: i32| TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(2),
        int32_data: vec![value],
        ..TensorProto::default()
    };
    let model =
        start().tensor(byte("one", 1)).tensor(byte("zero", 0)).node("Greater", &["x", "half"], "b", &[]);
    model.node("Where", &["b", "one", "zero"], "w", &[])
}

fn made(model: &Builder) -> Vec<f64> {
    run(model, SHAPE, &IMAGE).0
}

#[test]
fn whole_numbers_are_added_and_multiplied_as_they_are() {
    let of = |made: fn(f64) -> f64| CLASSES.map(made).to_vec();
    let product = || classes().node("Mul", &["c", "twenty"], "m", &[]);
    assert_eq!(made(&product().output("m")), of(|c| c * 20.0));
    let sum = product().node("Sub", &["three", "m"], "s", &[]);
    assert_eq!(made(&sum.clone().output("s")), of(|c| 3.0 - c * 20.0));
    assert_eq!(made(&cast(sum, "s", "y", INT8).output("y")), of(|c| 3.0 - c * 20.0));
    let twice = classes().node("Add", &["c", "c"], "y", &[]).output("y");
    assert_eq!(made(&twice), of(|c| c + c));
    // as floats they are divided
    let half = cast(classes(), "c", "f", FLOAT).node("Mul", &["f", "half"], "y", &[]).output("y");
    assert_eq!(made(&half), of(|c| c / 2.0));
}

#[test]
fn whole_numbers_are_moved_and_compared() {
    let squeezed = classes().node("Squeeze", &["c", "axis"], "p", &[]);
    let back = squeezed.node("Unsqueeze", &["p", "axis"], "y", &[]).output("y");
    assert_eq!(made(&back), CLASSES);
    let beside = classes().node("Concat", &["c", "c"], "y", &[("axis", Attribute::Int(1))]).output("y");
    assert_eq!(made(&beside), [2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let above = classes().tensor(int_tensor("one", &[], &[1])).node("Greater", &["c", "one"], "g", &[]);
    assert_eq!(made(&above.output("g")), CLASSES.map(|c| f64::from(u8::from(c > 1.0))));
    let pooled = classes().node("MaxPool", &["c"], "y", &[("kernel_shape", ints(&[1, 2]))]).output("y");
    assert_eq!(made(&pooled), [2.0, 0.0]);
}

#[test]
fn masks_of_integers_are_whole_numbers() {
    let wanted = IMAGE.map(|x| f64::from(u8::from(x > 0.5)));
    assert_eq!(made(&mask(UINT8).output("c")), wanted);
    let scaled = mask(INT32).node("Mul", &["c", "twenty"], "y", &[]).output("y");
    assert_eq!(made(&scaled), wanted.map(|is| is * 20.0));
    let mean = |model: Builder, of: &str| {
        model.tensor(int_tensor("pixels", &[2], &[2, 3])).node("ReduceMean", &[of, "pixels"], "y", &[])
    };
    let of_floats = mean(cast(mask(INT32), "c", "f", FLOAT), "f").output("y");
    assert_eq!(made(&of_floats), [0.5, 1.0, 1.0, 0.5, 0.5, 0.5]);
}

/// What is refused, and a part of the words.
#[test]
fn what_would_be_cut_or_start_again_is_refused() {
    let pixels = |model: Builder| model.tensor(int_tensor("pixels", &[2], &[2, 3]));
    let refused = [
        (pixels(mask(INT32)).node("ReduceMean", &["c", "pixels"], "y", &[]), "from 0 to 1 (int32)"),
        (classes().node("Div", &["c", "three"], "y", &[]), "from 0 to 2 (int64)"),
        (classes().node("Div", &["three", "c"], "y", &[]), "from 0 to 2 (int64)"),
        (classes().node("Div", &["c", "c"], "y", &[]), "from 0 to 2 (int64)"),
        (mask(UINT8).node("Sub", &["c", "three"], "y", &[]), "stay below"),
        (mask(UINT8).node("Neg", &["c"], "y", &[]), "from 0 to 1 (uint8)"),
        (
            // 255 in eight bits without a sign
            typed_choice().node("Sub", &["zero", "w"], "y", &[]),
            "from 0 to 1 (uint8)",
        ),
        (classes().node("Pow", &["c", "half"], "y", &[]), "from 0 to 2 (int64)"),
        (
            cast(
                classes().tensor(int_tensor("many", &[], &[64])).node("Mul", &["c", "many"], "m", &[]),
                "m",
                "y",
                INT8,
            ),
            "int8 for 0 to 128",
        ),
        (
            start()
                .tensor(int_tensor("one", &[], &[1]))
                .tensor(int_tensor("zero", &[], &[0]))
                .node("Greater", &["x", "half"], "b", &[])
                .node("Where", &["b", "one", "zero"], "w", &[])
                .node("Div", &["w", "three"], "y", &[]),
            "from 0 to 1 (int64)",
        ),
    ];
    for (model, words) in refused {
        let refusals = model.output("y").refusals();
        assert!(refusals.len() == 1 && refusals[0].contains(words), "{refusals:?}, wants {words}");
    }
}
