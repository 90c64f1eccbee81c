//! Channels of one number as large as the image.

use tiled_graph::Op;

use crate::build::{Attribute, Builder, float_tensor, ints, ops, reason, value};
use crate::runs::run;

const CHANNELS: [(&str, Attribute); 1] = [("axis", Attribute::Int(1))];

fn image(shape: [usize; 4]) -> Vec<f64> {
    (0..shape.iter().product::<usize>()).map(|at| (at * 5 % 13) as f64 - 6.0).collect()
}

/// Planes with so many of a number before and behind those of each image.
fn with_planes(image: &[f64], [_, c, h, w]: [usize; 4], value: f64, [before, after]: [usize; 2]) -> Vec<f64> {
    let filled = |count: usize| vec![value; count * h * w];
    image
        .chunks(c * h * w)
        .flat_map(|image| [filled(before), image.to_vec(), filled(after)].concat())
        .collect()
}

#[test]
fn padding_over_channels_is_channels_of_a_number() {
    for (value, sides) in [(0.0, [0_i64, 3]), (0.0, [2, 0]), (-1.5, [1, 2]), (7.0, [3, 3])] {
        let pads = [0, sides[0], 0, 0, 0, sides[1], 0, 0];
        let model = Builder::new(17, 2).ints("pads", &[8], &pads).tensor(float_tensor("v", &[], &[value]));
        let model = model.node("Pad", &["x", "pads", "v"], "y", &[]).output("y");
        let counts = sides.map(|side| usize::try_from(side).unwrap());
        for shape in [[2, 2, 3, 5], [1, 2, 1, 1], [2, 2, 4, 1]] {
            let image = image(shape);
            let wanted = with_planes(&image, shape, value.into(), counts);
            let channels = 2 + counts.iter().sum::<usize>();
            assert_eq!(run(&model, shape, &image), (wanted, [shape[0], channels, shape[2], shape[3]]));
        }
    }
}

#[test]
fn padding_over_channels_goes_with_that_of_rows_and_columns() {
    // by axes, of which the channels are counted from the last; two channels go, one comes
    let model = Builder::new(18, 4).ints("pads", &[6], &[-2, 1, 0, 1, 0, 2]).ints("axes", &[3], &[-3, 2, -1]);
    let model = model.tensor(float_tensor("v", &[], &[9.0]));
    let model = model.node("Pad", &["x", "pads", "v", "axes"], "y", &[]).output("y");
    let (got, shape) = run(&model, [1, 4, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
    let nines = |count: usize| vec![9.0; count];
    let plane = |value: f64| [nines(3), vec![value], nines(2)].concat();
    assert_eq!((got, shape), ([plane(3.0), plane(4.0), nines(6)].concat(), [1, 3, 2, 3]));
    // zeros of rows and columns are still those of a convolution
    let conv = Builder::new(17, 2).ints("pads", &[8], &[0, 0, 1, 1, 0, 1, 1, 1]).floats("w", &[1, 3, 3, 3]);
    let conv = conv.node("Pad", &["x", "pads"], "p", &[]).node("Conv", &["p", "w"], "y", &[]).output("y");
    assert!(matches!(ops(&conv).last(), Some(Op::Conv2d(conv)) if conv.padding == [[1, 1]; 2]));
    let cut = Builder::new(17, 4).ints("pads", &[8], &[0, -1, 0, 0, 0, -1, 0, 0]);
    let cut = cut.node("Pad", &["x", "pads"], "y", &[]).output("y");
    assert_eq!(run(&cut, [1, 4, 1, 1], &[1.0, 2.0, 3.0, 4.0]).0, [2.0, 3.0]);
}

#[test]
fn all_but_infinity_and_nan_becomes_the_number() {
    let model = Builder::new(17, 1).ints("pads", &[8], &[0, 0, 0, 0, 0, 1, 0, 0]);
    let model = model.node("Pad", &["x", "pads"], "y", &[]).output("y");
    // the largest single is no bound in 64 bits; there an infinity above zero stays
    let (got, _) = run(&model, [1, 1, 1, 4], &[f64::NEG_INFINITY, f64::MAX, f64::INFINITY, f64::NAN]);
    assert_eq!(&got[4..7], &[0.0, 0.0, f64::INFINITY]);
    assert!(got[7].is_nan());
}

#[test]
fn padding_over_channels_that_is_no_number_is_refused() {
    let pad = |pads: &[i64; 8], mode| {
        let model = Builder::new(17, 2).ints("pads", &[8], pads);
        reason(&model.node("Pad", &["x", "pads"], "y", &[("mode", Attribute::Text(mode))]).output("y"))
    };
    let wanted = "wants before and after of height and width alone";
    let reflected = pad(&[0, 1, 0, 0, 0, 0, 0, 0], "reflect");
    assert_eq!(reflected, format!("attribute `pads` is [0, 1, 0, 0, 0, 0, 0, 0], {wanted}"));
    for (before, after) in [(-2, 0), (-1, -1), (1 << 13, 0), (-1, i64::MAX), (i64::MIN, 1)] {
        let text = pad(&[0, before, 0, 0, 0, after, 0, 0], "constant");
        assert!(text.ends_with(wanted), "{before} {after}: {text}");
    }
    let text = pad(&[1, 0, 0, 0, 0, 0, 0, 0], "constant");
    assert!(text.ends_with(wanted), "{text}");
}

/// `[batch of m, channels, height of m, width of m]`, where m is a pooling of x.
pub(crate) fn pooled_shape(opset: i64, channels: i64) -> Builder {
    let pool = [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
    let model = Builder::new(opset, 2).node("MaxPool", &["x"], "m", &pool).node("Shape", &["m"], "of_m", &[]);
    [("n", 0), ("h", 2), ("w", 3)]
        .iter()
        .fold(model, |model, (name, place)| {
            let at = format!("at_{name}");
            model.ints(&at, &[1], &[*place]).node("Gather", &["of_m", &at], name, &[])
        })
        .ints("c", &[1], &[channels])
        .node("Concat", &["n", "c", "h", "w"], "shape", &[("axis", Attribute::Int(0))])
}

fn pooled(image: &[f64], [_, _, h, w]: [usize; 4]) -> Vec<f64> {
    let plane = |plane: &[f64]| -> Vec<f64> {
        let places = (0..h / 2).flat_map(|row| (0..w / 2).map(move |column| (2 * row, 2 * column)));
        let at = |row: usize, column: usize| plane[row * w + column];
        places
            .map(|(row, column)| {
                at(row, column).max(at(row, column + 1)).max(at(row + 1, column)).max(at(row + 1, column + 1))
            })
            .collect()
    };
    image.chunks(h * w).flat_map(plane).collect()
}

#[test]
fn constants_of_computed_sizes_are_channels_of_a_number() {
    let value = |value: f32| [("value", Attribute::Tensor(Box::new(float_tensor("v", &[1], &[value]))))];
    let of_shape = |number: f32| pooled_shape(17, 3).node("ConstantOfShape", &["shape"], "z", &value(number));
    let expanded = |number: f32| {
        let model = pooled_shape(17, 3).tensor(float_tensor("number", &[1], &[number]));
        model.node("Expand", &["number", "shape"], "z", &[])
    };
    for number in [0.0_f32, 2.5] {
        for model in [of_shape(number), expanded(number)] {
            let model = model.node("Concat", &["m", "z"], "y", &CHANNELS).output("y");
            for shape in [[2, 2, 5, 6], [1, 2, 2, 3]] {
                let image = image(shape);
                let [n, _, h, w] = shape;
                let small = [n, 2, h / 2, w / 2];
                let wanted = with_planes(&pooled(&image, shape), small, number.into(), [0, 3]);
                assert_eq!(run(&model, shape, &image), (wanted, [n, 5, h / 2, w / 2]));
            }
        }
    }
    // alone it is a value too, of which one channel is enough
    let one = pooled_shape(17, 1).node("ConstantOfShape", &["shape"], "y", &value(4.0)).output("y");
    assert_eq!(run(&one, [1, 2, 2, 4], &image([1, 2, 2, 4])), (vec![4.0; 2], [1, 1, 1, 2]));
}

#[test]
fn constants_of_the_declared_size_are_channels_of_a_number() {
    let declared = |zeros: &[f32; 12]| {
        let mut model = Builder::new(17, 2).tensor(float_tensor("z", &[1, 2, 2, 3], zeros));
        model.graph().input[0] = value("x", 1, &[Some(1), Some(2), Some(2), Some(3)]);
        model.node("Concat", &["z", "x"], "y", &CHANNELS).output("y")
    };
    let image = image([1, 2, 2, 3]);
    let wanted = with_planes(&image, [1, 2, 2, 3], 0.5, [2, 0]);
    assert_eq!(run(&declared(&[0.5; 12]), [1, 2, 2, 3], &image), (wanted, [1, 4, 2, 3]));
    let mut uneven = [0.5; 12];
    uneven[7] = 0.25;
    assert_eq!(
        reason(&declared(&uneven)),
        "input 0 is a constant of shape [1, 2, 2, 3], wants a value of the network"
    );
}

#[test]
fn constants_of_sizes_that_no_value_has_are_refused() {
    let wanted = "input 0 is computed sizes, wants whole numbers that do not depend on the image";
    let more = pooled_shape(17, 3).ints("one", &[1], &[1]).node("Add", &["shape", "one"], "s", &[]);
    assert_eq!(reason(&more.node("ConstantOfShape", &["s"], "y", &[]).output("y")), wanted);
    let empty = pooled_shape(17, 0).node("ConstantOfShape", &["shape"], "y", &[]).output("y");
    assert_eq!(reason(&empty), "is a value without elements, wants a value of the network");
    for channels in [-1, i64::MAX] {
        let model = pooled_shape(17, channels).node("ConstantOfShape", &["shape"], "y", &[]).output("y");
        assert_eq!(reason(&model), wanted, "{channels}");
    }
}
