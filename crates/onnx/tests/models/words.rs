//! Every refusal has a text in `tests/ui/onnx_<name>.txt`: the error of a small model. `BLESS=1 cargo test -p tiled-onnx --test models`
//! writes them; `refusals_page` checks that none is missing.

mod adaptive;
mod assigned;
mod branches;
mod constants;
mod layers;
mod lines;
mod shapes;
mod strips;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tiled_onnx::proto::{FunctionProto, SparseTensorProto, TensorProto};
use tiled_onnx::{from_bytes, read};

use crate::build::{Attribute, Builder, float_tensor, ints, outside, value};

const OPEN: [Option<i64>; 4] = [None, Some(3), None, None];

fn int(value: i64) -> Attribute {
    Attribute::Int(value)
}

fn text(value: &'static str) -> Attribute {
    Attribute::Text(value)
}

fn start() -> Builder {
    Builder::new(18, 3)
}

/// A node that reads `x` and constants, and makes the output.
fn node(from: Builder, op: &str, others: &[&str], attributes: &[(&str, Attribute)]) -> Builder {
    let inputs: Vec<&str> = std::iter::once("x").chain(others.iter().copied()).collect();
    from.node(op, &inputs, "y", attributes).output("y")
}

/// The same where the operator has no other operands.
fn alone(op: &str, attributes: &[(&str, Attribute)]) -> Builder {
    node(start(), op, &[], attributes)
}

fn declared(mut model: Builder, shape: &[Option<i64>]) -> Builder {
    model.graph().input[0] = value("x", 1, shape);
    model
}

fn pooled() -> Builder {
    start().node("GlobalAveragePool", &["x"], "p", &[]).node("Flatten", &["p"], "f", &[])
}

fn conv(attributes: &[(&str, Attribute)]) -> Builder {
    node(start().floats("w", &[4, 3, 3, 3]), "Conv", &["w"], attributes)
}

fn of_tensor(dims: &[i64], data_type: i32) -> Builder {
    let tensor =
        TensorProto { dims: dims.to_vec(), data_type: Some(data_type), ..float_tensor("w", &[], &[]) };
    node(start().tensor(tensor), "Conv", &["w"], &[])
}

/// Models by the names of their texts.
fn models() -> Vec<(&'static str, Builder)> {
    [
        of_models(),
        of_values(),
        layers::of_layers(),
        shapes::of_shapes(),
        shapes::of_sizes(),
        layers::of_steps(),
        constants::of_constants(),
        adaptive::of_windows(),
        lines::of_lines(),
        strips::of_strips(),
        strips::of_lanes(),
        branches::of_branches(),
        assigned::of_assignments(),
    ]
    .concat()
}

fn of_models() -> Vec<(&'static str, Builder)> {
    let mut no_graph = start();
    no_graph.model.graph = None;
    let mut foreign = alone("FusedConv", &[]);
    foreign.graph().node[0].domain = Some("com.microsoft".to_owned());
    let mut function = alone("Block", &[]);
    function.model.functions.push(FunctionProto { name: Some("Block".into()), domain: None });
    let mut second = alone("MaxPool", &[("kernel_shape", ints(&[2, 2]))]);
    second.graph().node[0].output.push("indices".to_owned());
    second.graph().output[0].name = Some("indices".to_owned());
    let mut sparse = alone("Relu", &[]);
    sparse
        .graph()
        .sparse_initializer
        .push(SparseTensorProto { values: Some(float_tensor("s", &[1], &[1.0])) });
    let mut untyped = alone("Relu", &[]);
    untyped.graph().input[0].r#type = None;
    let mut shapeless = alone("Relu", &[]);
    shapeless.graph().input[0]
        .r#type
        .as_mut()
        .and_then(|of| of.tensor_type.as_mut())
        .expect("it has a type")
        .shape = None;
    let mut of_ints = alone("Relu", &[]);
    of_ints.graph().input[0] = value("x", 7, &OPEN);
    vec![
        ("opset", Builder::new(6, 3)),
        ("no_graph", no_graph),
        ("operator", alone("NonZero", &[])),
        ("quantised", alone("QLinearConv", &[])),
        ("domain", foreign),
        ("function", function),
        ("unknown_attribute", alone("Relu", &[("slope", Attribute::Float(1.0))])),
        ("missing_value", node(start(), "Conv", &["w"], &[])),
        ("later_value", start().node("Relu", &["a"], "a", &[]).output("a")),
        ("made_twice", alone("Relu", &[]).node("Tanh", &["x"], "y", &[])),
        ("second_result", second),
        ("nothing_to_read", start().node("Relu", &[""], "y", &[]).output("y")),
        ("sparse", sparse),
        ("untyped_input", untyped),
        ("shapeless_input", shapeless),
        ("input_of_integers", of_ints),
        ("input_of_two_axes", declared(alone("Relu", &[]), &[None, Some(3)])),
        ("output_is_constant", start().floats("w", &[3]).output("w")),
        ("features_as_output", declared(alone("Flatten", &[]), &[None, Some(3), Some(7), Some(7)])),
    ]
}

fn of_values() -> Vec<(&'static str, Builder)> {
    let lengths = start()
        .node("Shape", &["x"], "s", &[])
        .ints("three", &[3], &[1, 2, 3])
        .node("Add", &["s", "three"], "y", &[])
        .output("y");
    let axes = pooled().node("Add", &["x", "f"], "y", &[]).output("y");
    let joined = pooled().node("Concat", &["x", "f"], "y", &[("axis", int(1))]).output("y");
    let stack = start().ints("a", &[1], &[0]).node("Unsqueeze", &["x", "a"], "u", &[]);
    let summed = |axes: i64| {
        let model = stack.clone().ints("at", &[1], &[axes]);
        model.node("ReduceSum", &["u", "at"], "y", &[]).output("y")
    };
    vec![
        ("slopes_of_prelu", node(start().floats("s", &[2]), "PRelu", &["s"], &[])),
        (
            "where_of_other_values",
            start()
                .floats("t", &[])
                .node("Greater", &["x", "t"], "c", &[])
                .node("Where", &["c", "x", "t"], "y", &[])
                .output("y"),
        ),
        ("numbers_of_rows", node(start().floats("c", &[1, 1, 4]), "Sub", &["c"], &[])),
        ("exponents", node(start().floats("e", &[3, 1, 1]), "Pow", &["e"], &[])),
        ("lists_of_other_lengths", lengths),
        ("sum_of_other_axes", axes),
        ("concat_of_other_axes", joined),
        ("concat_of_rows", node(start(), "Concat", &["x"], &[("axis", int(2))])),
        ("concat_of_features", pooled().node("Concat", &["f", "f"], "y", &[("axis", int(2))]).output("y")),
        (
            "product_of_features_with_more_axes",
            pooled()
                .tensor(float_tensor("two", &[1, 1, 1], &[2.0]))
                .node("Mul", &["f", "two"], "y", &[])
                .output("y"),
        ),
        ("tile_of_rows", node(start().ints("r", &[4], &[1, 1, 2, 1]), "Tile", &["r"], &[])),
        (
            "stack_of_another_axis",
            stack.clone().node("Concat", &["u", "u"], "y", &[("axis", int(1))]).output("y"),
        ),
        (
            "stack_with_an_image",
            stack.clone().node("Concat", &["u", "x"], "y", &[("axis", int(0))]).output("y"),
        ),
        ("sum_over_another_axis", summed(2)),
        ("sum_over_the_batch", node(start().ints("a", &[1], &[0]), "ReduceSum", &["a"], &[])),
        (
            "sum_of_features_alone",
            pooled()
                .ints("a", &[1], &[1])
                .node("ReduceSum", &["f", "a"], "y", &[("keepdims", int(0))])
                .output("y"),
        ),
        (
            "stack_that_is_dropped",
            stack
                .clone()
                .node("Concat", &["u", "u"], "v", &[("axis", int(0))])
                .node("Squeeze", &["v", "a"], "y", &[])
                .output("y"),
        ),
        (
            "dropout_in_training",
            node(start().floats("r", &[]).ints("t", &[], &[1]), "Dropout", &["r", "t"], &[]),
        ),
        ("cast_to_integers", alone("Cast", &[("to", int(7))])),
        (
            "cast_of_sizes_to_text",
            start().node("Shape", &["x"], "s", &[]).node("Cast", &["s"], "y", &[("to", int(8))]).output("y"),
        ),
        ("constant_of_nothing", start().node("Constant", &[], "y", &[]).output("y")),
        ("constant_of_text", start().node("Constant", &[], "y", &[("value_string", text("a"))]).output("y")),
        ("constant_of_another_type", start().node("Constant", &[], "y", &[("value", int(1))]).output("y")),
        ("attribute_of_another_type", conv(&[("group", text("two"))])),
        ("flag_that_is_none", alone("MaxPool", &[("kernel_shape", ints(&[2, 2])), ("ceil_mode", int(2))])),
    ]
}

/// The errors of models whose bias of 16 bytes lies beside them, by what their external data says.
fn beside() -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.bin"), [0; 24]).unwrap();
    let path = folder.path().join("m.onnx");
    let model = |keys: &[(&str, &str)]| {
        node(start().floats("w", &[4, 3, 1, 1]).tensor(outside("b", &[4], keys)), "Conv", &["w", "b"], &[])
    };
    let words = |keys: &[(&str, &str)]| {
        fs::write(&path, model(keys).bytes()).unwrap();
        read(&path).unwrap_err().to_string()
    };
    vec![
        ("file_missing", words(&[("location", "no.bin")])),
        ("file_outside", words(&[("location", "../w.bin")])),
        ("file_too_short", words(&[("location", "w.bin"), ("offset", "16")])),
        ("file_offset", words(&[("location", "w.bin"), ("offset", "-1")])),
        ("file_of_no_folder", model(&[("location", "w.bin")]).read().unwrap_err().to_string()),
        ("not_a_file", read(folder.path()).unwrap_err().to_string()),
        ("not_there", read(folder.path().join("no.onnx")).unwrap_err().to_string()),
        ("no_messages", from_bytes(b"no model".as_slice(), None).unwrap_err().to_string()),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ui")
}

#[test]
fn every_refusal_is_in_the_words_of_its_text() {
    let mut said = beside();
    for (name, model) in models() {
        match model.read().and_then(|read| read.weights.parameters::<f32>().map(|_| read.graph)) {
            Err(error) => said.push((name, error.to_string())),
            Ok(graph) => panic!("{name} is read: {:?}", graph.nodes()),
        }
    }
    let names: BTreeSet<String> = said.iter().map(|(name, _)| format!("onnx_{name}.txt")).collect();
    assert_eq!(names.len(), said.len(), "a name is there twice");
    let is_blessed = std::env::var_os("BLESS").is_some();
    for (name, words) in said {
        let path = folder().join(format!("onnx_{name}.txt"));
        let words = format!("{words}\n");
        if is_blessed {
            fs::write(&path, &words).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(words, wanted, "{name}");
    }
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with("onnx_") || names.contains(&name), "{name} is the text of no model");
    }
}
