//! Nodes all of whose operands are constants: their numbers, as a network that has them as parameters runs with them, and what is
//! refused.

use tiled_graph::Op;
use tiled_onnx::proto::TensorProto;
use tiled_tensor::Element;

use crate::build::{Attribute, Builder, float_tensor, int_tensor, ints, only, outside};
use crate::runs::run;

pub(crate) fn int(value: i64) -> Attribute {
    Attribute::Int(value)
}

/// The elements of a constant of 12 elements that a model makes under the name `c`: the weight of a convolution of one pixel.
pub(crate) fn weight(model: &Builder, len: usize) -> Vec<f64> {
    let dims = [i64::try_from(len).unwrap(), 1, 1, 1];
    let model = model
        .clone()
        .ints("to_weight", &[4], &dims)
        .node("Reshape", &["c", "to_weight"], "weight", &[])
        .node("Conv", &["x", "weight"], "y", &[])
        .output("y");
    parameter(&model)
}

/// The elements of the only parameter.
pub(crate) fn parameter(model: &Builder) -> Vec<f64> {
    let read = model.read().unwrap_or_else(|error| panic!("{error}"));
    let parameters = read.weights.parameters::<f64>().unwrap();
    assert_eq!(parameters.tensors().len(), 1);
    parameters.tensors()[0].data.clone()
}

/// A model of one channel with a constant `a` that counts up from zero.
pub(crate) fn counting(dims: &[i64]) -> Builder {
    constant(Builder::new(18, 1), "a", dims)
}

pub(crate) fn constant(model: Builder, name: &str, dims: &[i64]) -> Builder {
    let len: i64 = dims.iter().product();
    let values: Vec<f32> = (0..len).map(|place| place as f32).collect();
    model.tensor(float_tensor(name, dims, &values))
}

pub(crate) fn list(model: Builder, name: &str, values: &[i64]) -> Builder {
    model.ints(name, &[i64::try_from(values.len()).unwrap()], values)
}

pub(crate) fn is_near(got: &[f64], wanted: &[f64], tolerance: f64) -> bool {
    got.len() == wanted.len() && got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() <= tolerance)
}

const EPS: f32 = 1e-5;
const SCALE: f32 = 1.25;

fn kernel() -> Vec<f32> {
    (0..4 * 3 * 9).map(|place: i32| (place * place % 23) as f32 / 7.0 - 1.0).collect()
}

const GAIN: [f32; 4] = [1.0, 0.5, -2.0, 1.5];

/// A weight of four outputs without its mean and divided by its deviation, times a gain and a number, by loops.
fn standardised() -> Vec<f64> {
    let mut weight: Vec<f64> = kernel().iter().map(|value| f64::from(*value)).collect();
    for (row, gain) in weight.chunks_mut(27).zip(GAIN) {
        let mut mean = 0.0;
        for value in row.iter() {
            mean += value / 27.0;
        }
        let mut variance = 0.0;
        for value in row.iter() {
            variance += (value - mean) * (value - mean) / 27.0;
        }
        for value in row {
            *value =
                (*value - mean) / (variance + f64::from(EPS)).sqrt() * f64::from(gain) * f64::from(SCALE);
        }
    }
    weight
}

/// The same as exporters write it out.
fn written_out(opset: i64) -> Builder {
    let model = Builder::new(opset, 3)
        .tensor(float_tensor("stem.conv.weight", &[4, 3, 3, 3], &kernel()))
        .tensor(float_tensor("stem.conv.gain", &[4, 1, 1, 1], &GAIN))
        .tensor(float_tensor("eps", &[], &[EPS]))
        .tensor(float_tensor("scale", &[], &[SCALE]))
        .ints("axes", &[3], &[1, 2, -1]);
    let mean = |model: Builder, of: &str, to: &str| {
        if opset < 18 {
            model.node("ReduceMean", &[of], to, &[("axes", ints(&[1, 2, -1])), ("keepdims", int(1))])
        } else {
            model.node("ReduceMean", &[of, "axes"], to, &[("keepdims", int(1))])
        }
    };
    let model =
        mean(model, "stem.conv.weight", "mean").node("Sub", &["stem.conv.weight", "mean"], "centred", &[]);
    mean(model.node("Mul", &["centred", "centred"], "squares", &[]), "squares", "variance")
        .node("Add", &["variance", "eps"], "guarded", &[])
        .node("Sqrt", &["guarded"], "root", &[])
        .node("Div", &["centred", "root"], "standard", &[])
        .node("Mul", &["standard", "stem.conv.gain"], "gained", &[])
        .node("Mul", &["gained", "scale"], "scaled", &[])
}

fn picture() -> Vec<f64> {
    (0..3 * 5 * 4).map(|place: i32| f64::from(place * 7 % 11) / 3.0 - 1.0).collect()
}

#[test]
fn a_standardised_convolution_is_one_with_standardised_weights() {
    let plain: Vec<f32> = standardised().iter().map(|value| f32::from_f64(*value)).collect();
    let plain = Builder::new(17, 3)
        .tensor(float_tensor("w", &[4, 3, 3, 3], &plain))
        .node("Conv", &["x", "w"], "y", &[])
        .output("y");
    let (wanted, shape) = run(&plain, [1, 3, 5, 4], &picture());
    for opset in [13, 17, 18, 23] {
        let model = written_out(opset).node("Conv", &["x", "scaled"], "y", &[]).output("y");
        assert!(is_near(&parameter(&model), &standardised(), 1e-6), "opset {opset}");
        let (got, of) = run(&model, [1, 3, 5, 4], &picture());
        assert_eq!(of, shape);
        assert!(is_near(&got, &wanted, 1e-6), "opset {opset}: {got:?}, {wanted:?}");
        // the weight is that of no module any more
        let read = model.read().unwrap();
        assert_eq!(read.graph.nodes()[0].name, "n_y");
        let names: Vec<(&str, &str)> = read.weights.names().collect();
        assert_eq!(names, [("n_y.weight", "scaled")]);
    }
}

/// As PyTorch's exporters write it: a batch norm of the weight with its outputs as channels, in training or by its own statistics.
#[test]
fn a_batch_norm_of_a_weight_standardises_it() {
    let start = |opset| {
        Builder::new(opset, 3)
            .tensor(float_tensor("w", &[4, 3, 3, 3], &kernel()))
            .tensor(float_tensor("gain", &[4, 1, 1, 1], &GAIN))
            .tensor(float_tensor("scale", &[], &[SCALE]))
            .tensor(float_tensor("zeros", &[4], &[0.0; 4]))
            .tensor(float_tensor("ones", &[4], &[1.0; 4]))
            .ints("rows", &[3], &[1, 4, -1])
            .ints("list", &[1], &[-1])
            .ints("axes", &[2], &[0, 2])
            .node("Reshape", &["w", "rows"], "v", &[])
            .node("Mul", &["gain", "scale"], "g", &[])
            .node("Reshape", &["g", "list"], "gamma", &[])
    };
    let end = |model: Builder| {
        model
            .node("Shape", &["w"], "shape", &[])
            .node("Reshape", &["n", "shape"], "back", &[])
            .node("Conv", &["x", "back"], "y", &[])
            .output("y")
    };
    let training = [("training_mode", int(1)), ("epsilon", Attribute::Float(EPS))];
    let of_itself =
        start(17).node("BatchNormalization", &["v", "gamma", "zeros", "zeros", "ones"], "n", &training);
    assert!(is_near(&parameter(&end(of_itself.clone())), &standardised(), 1e-6));
    // before version 14 by its further results
    let mut old =
        start(11).node("BatchNormalization", &["v", "gamma", "zeros", "zeros", "ones"], "n", &training[1..]);
    let norm = old.graph().node.last_mut().unwrap();
    norm.output.extend(["mean", "var", "saved_mean", "saved_var"].map(str::to_owned));
    assert!(is_near(&parameter(&end(old)), &standardised(), 1e-6));
    let keeps = [("keepdims", int(0))];
    let by_statistics = start(18)
        .node("ReduceMean", &["v", "axes"], "mean", &keeps)
        .node("ReduceMean", &["v", "axes"], "kept", &[])
        .node("Sub", &["v", "kept"], "centred", &[])
        .node("Mul", &["centred", "centred"], "squares", &[])
        .node("ReduceMean", &["squares", "axes"], "var", &keeps)
        .node("BatchNormalization", &["v", "gamma", "zeros", "mean", "var"], "n", &training[1..]);
    assert!(is_near(&parameter(&end(by_statistics)), &standardised(), 1e-6));
    let wide = of_itself.tensor(float_tensor("three", &[3], &[1.0; 3]));
    let wide = wide.node("BatchNormalization", &["v", "gamma", "three", "zeros", "ones"], "n2", &training);
    let text = only(&wide.node("Conv", &["x", "n2"], "y", &[]).output("y"));
    assert_eq!(text, "BatchNormalization `n_n2` (opset 17): bias has shape [3], wants [4]");
}

#[test]
fn a_weight_norm_divides_by_the_norms_of_the_rows() {
    let model = Builder::new(18, 3)
        .tensor(float_tensor("v", &[4, 3, 3, 3], &kernel()))
        .tensor(float_tensor("g", &[4, 1, 1, 1], &GAIN))
        .ints("axes", &[3], &[1, 2, 3])
        .node("ReduceL2", &["v", "axes"], "norm", &[])
        .node("Div", &["g", "norm"], "factor", &[])
        .node("Mul", &["factor", "v"], "w", &[])
        .node("Conv", &["x", "w"], "y", &[])
        .output("y");
    let mut wanted = Vec::new();
    for (row, gain) in kernel().chunks(27).zip(GAIN) {
        let norm = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        wanted.extend(row.iter().map(|value| f64::from(*value) * f64::from(gain) / norm));
    }
    assert!(is_near(&parameter(&model), &wanted, 1e-6));
}

/// `w/(σ + ε)` of the deviation that PyTorch's `std` has, whose divisor is one less than the number of elements.
#[test]
fn a_deviation_is_that_of_as_many_elements_as_its_axes_have() {
    let model = Builder::new(17, 3)
        .tensor(float_tensor("w", &[4, 3, 3, 3], &kernel()))
        .tensor(float_tensor("one", &[], &[1.0]))
        .ints("which", &[3], &[1, 2, 3])
        .node("ReduceMean", &["w"], "mean", &[("axes", ints(&[1, 2, 3]))])
        .node("Sub", &["w", "mean"], "centred", &[])
        .node("Mul", &["centred", "centred"], "squares", &[])
        .node("ReduceMean", &["squares"], "variance", &[("axes", ints(&[1, 2, 3]))])
        .node("Shape", &["w"], "shape", &[])
        .node("Gather", &["shape", "which"], "extents", &[])
        .node("ReduceProd", &["extents"], "count", &[("keepdims", int(0))])
        .node("Cast", &["count"], "of", &[("to", int(1))])
        .node("Mul", &["variance", "of"], "sum", &[])
        .node("Sub", &["of", "one"], "less", &[])
        .node("Div", &["sum", "less"], "corrected", &[])
        .node("Sqrt", &["corrected"], "deviation", &[])
        .node("Div", &["w", "deviation"], "v", &[])
        .node("Conv", &["x", "v"], "y", &[])
        .output("y");
    let mut wanted = Vec::new();
    for row in kernel().chunks(27) {
        let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / 27.0;
        let sum: f64 = row.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum();
        wanted.extend(row.iter().map(|value| f64::from(*value) / (sum / 26.0).sqrt()));
    }
    assert!(is_near(&parameter(&model), &wanted, 1e-6));
}

/// A norm by the largest singular value, `uᵀ·W·v`, of vectors that training has left.
#[test]
fn a_spectral_norm_divides_by_a_product_of_vectors() {
    let of = |len: usize| -> Vec<f32> { (0..len).map(|place| place as f32 / 8.0 - 0.5).collect() };
    let model = Builder::new(18, 3)
        .tensor(float_tensor("w", &[4, 3, 3, 3], &kernel()))
        .tensor(float_tensor("u", &[4], &of(4)))
        .tensor(float_tensor("v", &[27], &of(27)))
        .node("Flatten", &["w"], "m", &[])
        .node("MatMul", &["m", "v"], "wv", &[])
        .node("MatMul", &["u", "wv"], "sigma", &[])
        .node("Div", &["w", "sigma"], "n", &[])
        .node("Conv", &["x", "n"], "y", &[])
        .output("y");
    let mut sigma = 0.0;
    for (row, u) in kernel().chunks(27).zip(of(4)) {
        for (value, v) in row.iter().zip(of(27)) {
            sigma += f64::from(u) * f64::from(*value) * f64::from(v);
        }
    }
    let wanted: Vec<f64> = kernel().iter().map(|value| f64::from(*value) / sigma).collect();
    assert!(is_near(&parameter(&model), &wanted, 1e-6));
    // from the left, and with the axes of matrices
    let row = constant(counting(&[2]), "b", &[2, 3]).node("MatMul", &["a", "b"], "c", &[]);
    assert_eq!(weight(&row, 3), [3.0, 4.0, 5.0]);
    let row = constant(counting(&[1, 2]), "b", &[2, 3]).node("MatMul", &["a", "b"], "c", &[]);
    assert_eq!(weight(&row, 3), [3.0, 4.0, 5.0]);
}

/// A kernel H×W×I×O as TensorFlow has it, turned and joined to what a convolution reads.
#[test]
fn a_kernel_whose_axes_are_turned_is_the_kernel() {
    let image = picture();
    let mut turned = vec![0.0_f32; 108];
    for (place, value) in kernel().iter().enumerate() {
        // o, i, h, w to h, w, i, o
        let [o, i, h, w] = [place / 27, place / 9 % 3, place / 3 % 3, place % 3];
        turned[((h * 3 + w) * 3 + i) * 4 + o] = *value;
    }
    let plain = Builder::new(17, 3)
        .tensor(float_tensor("w", &[4, 3, 3, 3], &kernel()))
        .node("Conv", &["x", "w"], "y", &[])
        .output("y");
    let model = Builder::new(17, 3)
        .tensor(float_tensor("k", &[3, 3, 12], &turned))
        .ints("apart", &[4], &[0, 0, 3, -1])
        .ints("list", &[1], &[-1])
        .ints("again", &[4], &[4, 3, 3, 3])
        .node("Reshape", &["k", "apart"], "hwio", &[])
        .node("Transpose", &["hwio"], "oihw", &[("perm", ints(&[3, 2, 0, 1]))])
        .node("Reshape", &["oihw", "list"], "flat", &[])
        .node("Reshape", &["flat", "again"], "w", &[])
        .node("Conv", &["x", "w"], "y", &[])
        .output("y");
    assert_eq!(run(&model, [1, 3, 5, 4], &image), run(&plain, [1, 3, 5, 4], &image));
}

#[test]
fn what_is_computed_is_a_bias_a_slope_a_factor_and_a_number() {
    let start = || {
        Builder::new(17, 2)
            .tensor(float_tensor("a", &[2], &[4.0, 9.0]))
            .tensor(float_tensor("two", &[], &[4.0]))
            .ints("axes", &[2], &[1, 2])
            .node("Sqrt", &["a"], "root", &[])
            .node("Unsqueeze", &["root", "axes"], "per_channel", &[])
            .node("Sqrt", &["two"], "number", &[])
    };
    let pixel = [1.0, -1.0];
    let of = |model: Builder| run(&model.output("y"), [1, 2, 1, 1], &pixel).0;
    assert_eq!(of(start().node("Mul", &["x", "per_channel"], "y", &[])), [2.0, -3.0]);
    assert_eq!(of(start().node("Mul", &["number", "x"], "y", &[])), [2.0, -2.0]);
    assert_eq!(of(start().node("Pow", &["x", "number"], "y", &[])), [1.0, 1.0]);
    assert_eq!(of(start().node("PRelu", &["x", "per_channel"], "y", &[])), [1.0, -3.0]);
    assert_eq!(of(start().node("Clip", &["x", "", "number"], "y", &[])), [1.0, -1.0]);
    let conv = start().tensor(float_tensor("w", &[2, 2, 1, 1], &[1.0, 0.0, 0.0, 1.0])).node(
        "Conv",
        &["x", "w", "root"],
        "y",
        &[],
    );
    assert_eq!(of(conv), [3.0, 2.0]);
    // epsilon under a root of a norm over the channels, and scales of a resize
    let resized = start()
        .tensor(float_tensor("ones", &[2], &[1.0, 1.0]))
        .node("Concat", &["ones", "root"], "scales", &[("axis", int(0))])
        .node("Resize", &["x", "", "scales"], "y", &[])
        .output("y");
    assert_eq!(run(&resized, [1, 2, 1, 1], &pixel).1, [1, 2, 2, 3]);
}

#[test]
fn a_parameter_that_several_read_is_one() {
    let model = written_out(17)
        .node("Conv", &["x", "scaled"], "a", &[])
        .node("Conv", &["x", "scaled"], "b", &[])
        .node("Add", &["a", "b"], "y", &[])
        .output("y");
    assert_eq!(parameter(&model).len(), 108);
    // doubles stay doubles
    let third = 1.0 / 3.0;
    let double = TensorProto {
        data_type: Some(11),
        float_data: Vec::new(),
        double_data: vec![third; 18],
        ..float_tensor("a", &[18, 1], &[])
    };
    let model = Builder::new(18, 1).tensor(double).node("Neg", &["a"], "c", &[]);
    assert_eq!(weight(&model, 18), [-third; 18]);
}

/// Whole numbers and sizes are worked out as before, and a constant that only changes its shape is not read.
#[test]
fn what_only_changes_its_shape_keeps_the_name_of_its_module() {
    let turned = Builder::new(17, 3)
        .floats("head.conv.weight", &[1, 4, 1, 3])
        .node("Transpose", &["head.conv.weight"], "t", &[("perm", ints(&[2, 1, 0, 3]))])
        .node("Squeeze", &["t"], "s", &[])
        .ints("shape", &[4], &[4, 3, 1, 1])
        .node("Reshape", &["s", "shape"], "w", &[])
        .node("Conv", &["x", "w"], "y", &[])
        .output("y");
    let read = turned.read().unwrap();
    assert_eq!(read.graph.nodes()[0].name, "head.conv");
    assert!(matches!(read.graph.nodes()[0].op, Op::Conv2d(_)));
    let names: Vec<(&str, &str)> = read.weights.names().collect();
    assert_eq!(names, [("head.conv.weight", "head.conv.weight")]);
}

/// What lies in the file when the parameters are asked for is what they are, unless it was computed with before.
#[test]
fn elements_stay_in_the_file_unless_something_is_computed_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let elements = folder.path().join("w.bin");
    let write = |value: f32| std::fs::write(&elements, value.to_le_bytes().repeat(20)).unwrap();
    let weight = outside("w", &[20, 1], &[("location", "w.bin")]);
    let start = || list(Builder::new(18, 1).tensor(weight.clone()), "s", &[20, 1, 1, 1]);
    let plain = start().node("Unsqueeze", &["w", "at"], "v", &[]).ints("at", &[1], &[2]);
    let computed = start().node("Neg", &["w"], "v", &[]);
    for (model, wanted) in [(plain, 2.0), (computed, -1.0)] {
        let model = model
            .node("Transpose", &["v"], "t", &[])
            .node("Reshape", &["t", "s"], "u", &[])
            .node("Conv", &["x", "u"], "y", &[])
            .output("y");
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, model.bytes()).unwrap();
        write(1.0);
        let read = tiled_onnx::read(&path).unwrap();
        write(2.0);
        let parameters = read.weights.parameters::<f64>().unwrap();
        assert_eq!(parameters.tensors()[0].data, [wanted; 20]);
    }
}

#[test]
fn few_numbers_are_not_written_out_to_many() {
    let expand = |to: &[i64]| {
        let model = list(counting(&[1]), "s", to).node("Expand", &["a", "s"], "c", &[]);
        only(&model.node("Conv", &["x", "c"], "y", &[]).output("y"))
    };
    assert_eq!(
        expand(&[2, 1 << 16]),
        "Expand `n_c` (opset 18): makes a constant of 131072 elements, at most 65536 are made of its operands"
    );
    let text = expand(&[i64::MAX, i64::MAX]);
    assert!(text.contains(&u64::MAX.to_string()), "{text}");
    let outer = constant(counting(&[1 << 9, 1]), "b", &[1 << 9]).node("Mul", &["a", "b"], "c", &[]);
    let text = only(&outer.node("Conv", &["x", "c"], "y", &[]).output("y"));
    assert!(text.contains("of 262144 elements, at most 65536 are"), "{text}");
    // 64 of half a MiB each are 32 MiB
    let chain = |count: usize| {
        let mut model = list(counting(&[1]), "s", &[1 << 16]);
        let names: Vec<String> = (0..count).map(|place| format!("e{place}")).collect();
        for name in &names {
            model = model.node("Expand", &["a", "s"], name, &[]);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        model
            .node("Concat", &names, "all", &[("axis", int(0))])
            .node("Mul", &["x", "all"], "y", &[])
            .output("y")
    };
    let refusals = chain(70).refusals();
    let text =
        "constants that are computed take 34078728 bytes, at most 33554468 are taken beside this model";
    assert_eq!(refusals[0], format!("Expand `n_e64` (opset 18): {text}"));
    assert_eq!(refusals.len(), 6);
}

#[test]
fn integers_are_no_weights() {
    let model = Builder::new(18, 1)
        .tensor(int_tensor("a", &[2, 2], &[1, 2, 3, 4]))
        .node("Mul", &["a", "a"], "c", &[])
        .node("Conv", &["x", "c"], "y", &[])
        .output("y");
    let text = only(&model);
    assert!(text.starts_with("Mul `n_c` (opset 18): input 0 is a constant of shape [2, 2], wants"), "{text}");
}

/// Numbers that look like chance, the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % end
    }

    fn list(&mut self, most: i64, from: i64, end: i64) -> Vec<i64> {
        (0..self.below(most + 1)).map(|_| from + self.below(end - from)).collect()
    }
}

#[test]
fn whatever_is_asked_of_constants_is_read_or_refused() {
    const OPS: [&str; 31] = [
        "Abs",
        "Add",
        "BatchNormalization",
        "Cast",
        "Clip",
        "Concat",
        "Div",
        "Exp",
        "Expand",
        "Flatten",
        "Identity",
        "MatMul",
        "Max",
        "Mean",
        "Mul",
        "Neg",
        "Pow",
        "ReduceL2",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceSum",
        "Reshape",
        "Shape",
        "Slice",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Transpose",
        "Unsqueeze",
    ];
    let mut chance = Chance(3);
    let mut read = 0;
    for round in 0..3000 {
        let mut model = Builder::new(if round % 2 == 0 { 12 } else { 18 }, 2);
        let mut names: Vec<String> = Vec::new();
        for place in 0..4 {
            let (name, dims) = (format!("f{place}"), chance.list(3, if place == 3 { 0 } else { 1 }, 4));
            model = model.floats(&name, &dims);
            names.push(name);
        }
        for place in 0..3 {
            let (name, edge) = (format!("i{place}"), i64::MAX * chance.below(2) * chance.below(2));
            let mut values = chance.list(3, -3, 5);
            if let Some(value) = values.first_mut().filter(|_| edge != 0) {
                *value = if place == 0 { edge } else { -edge };
            }
            model = list(model, &name, &values);
            names.push(name);
        }
        for place in 0..6 {
            let op = OPS[usize::try_from(chance.below(31)).unwrap()];
            let count = if op == "BatchNormalization" { 5 } else { 1 + chance.below(4) };
            let mut pick =
                || names[usize::try_from(chance.below(i64::try_from(names.len()).unwrap())).unwrap()].clone();
            let inputs: Vec<String> = (0..count).map(|_| pick()).collect();
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let attributes = match op {
                "Concat" | "Flatten" => vec![("axis", int(chance.below(8) - 4))],
                "Transpose" => vec![("perm", Attribute::Ints(chance.list(3, 0, 3)))],
                "ReduceL2" | "ReduceMax" | "Squeeze" | "Unsqueeze" if chance.below(2) == 0 => {
                    vec![("axes", Attribute::Ints(chance.list(2, -3, 3)))]
                }
                "Cast" => vec![("to", int(1 + 6 * chance.below(2)))],
                _ => Vec::new(),
            };
            let name = format!("c{place}");
            model = model.node(op, &inputs, &name, &attributes);
            names.push(name);
        }
        let last = names.last().unwrap();
        let model = model.node("Mul", &["x", last], "y", &[]).output("y");
        if let Ok(model) = model.read() {
            model.weights.parameters::<f32>().unwrap();
            read += 1;
        }
    }
    assert!(read > 100, "{read}");
}
