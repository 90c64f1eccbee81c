//! Networks and weights from ONNX files.

use prost::Message;
use tiled::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

use crate::bed::{Bed, CONV_NET};

/// The network of [`CONV_NET`] with weights: `c1`, three channels to four, then this operator.
fn model(last: &str) -> Vec<u8> {
    model_of(last, 4)
}

/// The same with so many channels.
fn model_of(last: &str, channels: i64) -> Vec<u8> {
    sized(last, channels, [None, None])
}

/// The same of this size.
fn sized(last: &str, channels: i64, [height, width]: [Option<i64>; 2]) -> Vec<u8> {
    let text = |text: &str| Some(text.to_owned());
    let tensor = |name: &str, dims: &[i64]| TensorProto {
        name: text(name),
        dims: dims.to_vec(),
        data_type: Some(1),
        float_data: (0..dims.iter().product::<i64>()).map(|place| place as f32 / 64.0 - 0.5).collect(),
        ..TensorProto::default()
    };
    let dim = [None, Some(3), height, width].map(|dim_value| DimensionProto { dim_value, dim_param: None });
    let tensor_type =
        Some(TensorTypeProto { elem_type: Some(1), shape: Some(TensorShapeProto { dim: dim.to_vec() }) });
    let pads = AttributeProto { name: text("pads"), ints: vec![1; 4], ..AttributeProto::default() };
    let node = |op: &str, input: &[&str], output: &str, attribute| NodeProto {
        input: input.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.to_owned()],
        op_type: text(op),
        attribute,
        ..NodeProto::default()
    };
    let sizes = TensorProto {
        name: text("sizes"),
        dims: vec![4],
        data_type: Some(7),
        int64_data: vec![1, channels, 32, 48],
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: vec![
            node("Conv", &["x", "c1.weight", "c1.bias"], "c", vec![pads]),
            node(last, if last == "Resize" { &["c", "", "", "sizes"] } else { &["c"] }, "y", Vec::new()),
        ],
        initializer: vec![tensor("c1.weight", &[channels, 3, 3, 3]), tensor("c1.bias", &[channels]), sizes],
        input: vec![ValueInfoProto { name: text("x"), r#type: Some(TypeProto { tensor_type }) }],
        output: vec![ValueInfoProto { name: text("y"), r#type: None }],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: None, version: Some(17) }];
    ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}

/// The network of [`model`] with another convolution of the image that is added, in the place of the last operator.
fn branched() -> Vec<u8> {
    let mut model = ModelProto::decode(&*model("Add")).expect("a model");
    let graph = model.graph.as_mut().expect("it has one");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    graph.node[1].input = names(&["c", "d"]);
    graph.node.insert(
        1,
        NodeProto {
            input: names(&["x", "c2.weight"]),
            output: names(&["d"]),
            op_type: Some("Conv".to_owned()),
            ..NodeProto::default()
        },
    );
    graph.initializer.push(TensorProto {
        name: Some("c2.weight".to_owned()),
        dims: vec![4, 3, 1, 1],
        float_data: (0..12_u8).map(|place| f32::from(place) / 8.0).collect(),
        data_type: Some(1),
        ..TensorProto::default()
    });
    model.encode_to_vec()
}

/// Convolutions of 512 channels, whose weights are 28 MB of the file.
pub(crate) fn of_many_weights() -> Vec<u8> {
    of_convolutions(4)
}

/// So many convolutions of 512 channels, each but the first with 9 MB of weights.
pub(crate) fn of_convolutions(count: u16) -> Vec<u8> {
    let text = |text: &str| Some(text.to_owned());
    let dim = [None, Some(3), None, None].map(|dim_value| DimensionProto { dim_value, dim_param: None });
    let tensor_type =
        Some(TensorTypeProto { elem_type: Some(1), shape: Some(TensorShapeProto { dim: dim.to_vec() }) });
    let pads = AttributeProto { name: text("pads"), ints: vec![1; 4], ..AttributeProto::default() };
    let (mut node, mut initializer) = (Vec::new(), Vec::new());
    for place in 0..count {
        let channels = if place == 0 { 3 } else { 512_u16 };
        let weight = format!("c{place}.weight");
        node.push(NodeProto {
            input: vec![if place == 0 { "x".to_owned() } else { format!("y{}", place - 1) }, weight.clone()],
            output: vec![format!("y{place}")],
            op_type: text("Conv"),
            attribute: vec![pads.clone()],
            ..NodeProto::default()
        });
        let elements = (0..512 * usize::from(channels) * 9).map(|at| (at % 17) as f32 / 4096.0 - 0.002);
        initializer.push(TensorProto {
            name: Some(weight),
            dims: vec![512, channels.into(), 3, 3],
            data_type: Some(1),
            raw_data: Some(elements.flat_map(f32::to_le_bytes).collect()),
            ..TensorProto::default()
        });
    }
    let graph = GraphProto {
        node,
        initializer,
        input: vec![ValueInfoProto { name: text("x"), r#type: Some(TypeProto { tensor_type }) }],
        output: vec![ValueInfoProto { name: Some(format!("y{}", count - 1)), r#type: None }],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: None, version: Some(17) }];
    ModelProto { graph: Some(graph), opset_import, ..ModelProto::default() }.encode_to_vec()
}

#[test]
fn a_model_runs_with_its_weights_as_what_it_is_converted_to() {
    let bed = Bed::new();
    bed.write("m.onnx", &model("Relu"));
    bed.random_npy("x.npy", &[3, 20, 30]);
    bed.succeeds(&["run", "--net", "m.onnx", "--input", "x.npy", "--output", "a.npy", "--grid", "2x3"]);
    let told = bed.says(&["convert", "m.onnx", "--net", "n.json", "--weights", "w.safetensors"]);
    assert!(told.starts_with("2 nodes, 112 parameters\n"), "{told}");
    let run =
        ["run", "--net", "n.json", "--weights", "w.safetensors", "--input", "x.npy", "--output", "b.npy"];
    bed.succeeds(&run);
    assert!(bed.read("a.npy") == bed.read("b.npy"));
    // the names are those of the modules: other weights fit too
    bed.succeeds(&[
        "run",
        "--net",
        "m.onnx",
        "--weights",
        "random:1",
        "--input",
        "x.npy",
        "--output",
        "c.npy",
    ]);
    assert!(bed.read("a.npy") != bed.read("c.npy"));
}

#[test]
fn convolutions_that_are_added_are_converted_to_one() {
    let bed = Bed::new();
    bed.write("m.onnx", &branched());
    bed.random_npy("x.npy", &[3, 20, 30]);
    let convert = ["convert", "m.onnx", "--dtype", "f64", "--net", "n.json", "--weights", "w.safetensors"];
    let told = bed.says(&[&convert[..], &["--merge"]].concat());
    assert!(told.starts_with("1 nodes, 112 parameters, convolutions merged: 1\n"), "{told}");
    let run = ["run", "--dtype", "f64", "--input", "x.npy", "--grid", "2x3"];
    bed.succeeds(&[&run[..], &["--net", "m.onnx", "--output", "a.npy"]].concat());
    let merged = ["--net", "n.json", "--weights", "w.safetensors", "--output", "b.npy"];
    bed.succeeds(&[&run[..], &merged].concat());
    let values = |name: &str| -> Vec<f64> {
        let bytes = bed.read(name);
        let values = bytes[bytes.len() - 8 * 4 * 20 * 30..].chunks_exact(8);
        values.map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8"))).collect()
    };
    let (a, b) = (values("a.npy"), values("b.npy"));
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-13) && a.iter().any(|a| a.abs() > 0.1));
}

#[test]
fn the_commands_of_the_page_your_model_run_as_they_stand() {
    let bed = Bed::new();
    bed.write("model.onnx", &model_of("Sigmoid", 3));
    let photo = image::RgbImage::from_fn(50, 37, |x, y| {
        image::Rgb([x * 5, y * 6, x + y].map(|value| u8::try_from(value).expect("a byte")))
    });
    photo.save(bed.path("photo.jpg")).expect("the folder is writable");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/your-model.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let commands = page.lines().filter_map(|line| line.strip_prefix("    tiled "));
    let commands: Vec<Vec<&str>> = commands.map(|command| command.split_whitespace().collect()).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    for command in &commands {
        bed.succeeds(command);
    }
    for name in ["mask.png", "classes.png", "net.json", "weights.safetensors"] {
        assert!(bed.names().iter().any(|made| made == name), "{name} is not there");
    }
}

#[test]
fn a_model_is_planned_printed_differentiated_and_trained() {
    let bed = Bed::new();
    bed.write("m.onnx", &model("Sigmoid"));
    bed.random_npy("x.npy", &[3, 20, 30]);
    bed.random_npy("t.npy", &[4, 20, 30]);
    bed.succeeds(&["plan", "--net", "m.onnx", "--input", "3x20x30"]);
    assert!(bed.says(&["net", "m.onnx"]).contains("\"sigmoid\""));
    bed.succeeds(&["grad", "--net", "m.onnx", "--input", "x.npy", "--grad-weights", "g.safetensors"]);
    // training begins with the weights of the model
    let train = ["train", "--net", "m.onnx", "--input", "x.npy", "--target", "t.npy", "--steps", "1"];
    let own = bed.json(&[&train[..], &["--save", "w.safetensors"]].concat());
    bed.succeeds(&["convert", "m.onnx", "--net", "n.json", "--weights", "v.safetensors"]);
    let given = bed.json(&[&train[..], &["--weights", "v.safetensors", "--save", "u.safetensors"]].concat());
    assert_eq!(own["losses"], given["losses"]);
    assert!(bed.read("w.safetensors") == bed.read("u.safetensors"));
}

#[test]
fn models_that_are_not_read_are_told_by_file_and_node() {
    let bed = Bed::new();
    let plan = ["plan", "--net", "m.onnx", "--input", "3x20x30"];
    bed.fails("missing_model", &plan, 2);
    bed.write("m.onnx", b"no model");
    bed.fails("no_model", &plan, 2);
    bed.write("m.onnx", &model("NonZero"));
    bed.fails("unknown_onnx_operator", &plan, 2);
    bed.fails("convert_to_one_file", &["convert", "m.onnx", "--net", "a", "--weights", "a"], 2);
    bed.fails("convert_to_another_format", &["convert", "m.onnx", "--net", "a.npy", "--weights", "w"], 2);
}

#[test]
fn a_conversion_whose_second_file_fails_leaves_both_as_they_were() {
    let bed = Bed::new();
    bed.write("m.onnx", &model_of("Relu", 512));
    bed.write("n.json", b"old");
    bed.write("w.safetensors", b"old");
    // the network has some hundred bytes, the weights 57 kB
    let convert = ["convert", "m.onnx", "--net", "n.json", "--weights", "w.safetensors"];
    bed.fails_limited("disk_full_for_a_conversion", &convert, 1);
    assert!(bed.read("n.json") == b"old" && bed.read("w.safetensors") == b"old");
    bed.succeeds(&convert);
    assert!(bed.read("n.json") != b"old" && bed.read("w.safetensors") != b"old");
}

#[test]
fn a_network_without_parameters_wants_no_weights() {
    let bed = Bed::with_network();
    bed.write("net.json", NO_PARAMETERS.as_bytes());
    bed.succeeds(&["run", "--net", "net.json", "--input", "x.npy", "--output", "y.npy"]);
    bed.succeeds(&["grad", "--net", "net.json", "--input", "x.npy", "--grad-input", "g.npy"]);
    let train = ["train", "--net", "net.json", "--input", "x.npy", "--target", "x.npy", "--steps", "1"];
    let text = bed.says(&train);
    assert!(text.contains("\nwarning: there is no parameter to train\n"), "{text}");
}

const NO_PARAMETERS: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "s", "op": "sigmoid", "inputs": ["x"]}], "outputs": ["s"]}"#;

#[test]
fn a_network_without_weights_wants_them() {
    let bed = Bed::with_network();
    bed.write("net.json", CONV_NET.as_bytes());
    bed.fails("no_weights", &["run", "--net", "net.json", "--input", "x.npy", "--output", "y.npy"], 2);
}

#[test]
fn another_size_than_the_model_declares_is_told() {
    let bed = Bed::new();
    bed.write("m.onnx", &sized("Relu", 4, [Some(16), Some(24)]));
    bed.random_npy("same.npy", &[3, 16, 24]);
    bed.random_npy("other.npy", &[3, 20, 30]);
    let told = |input: &str| bed.says(&["run", "--net", "m.onnx", "--input", input, "--output", "y.npy"]);
    let warning = "warning: input `x` is 20×30, the model declares 16×24: what its exporter worked out of that size holds for it \
                   alone\n";
    assert!(!told("same.npy").contains("warning"), "{}", told("same.npy"));
    assert!(told("other.npy").contains(warning), "{}", told("other.npy"));
    let plan = bed.json(&["plan", "--net", "m.onnx", "--input", "3x20x30"]);
    assert_eq!(plan["remarks"][0], warning.trim_end());
}

#[test]
fn another_size_is_refused_where_images_of_one_size_are_made() {
    let bed = Bed::new();
    bed.write("m.onnx", &sized("Resize", 4, [Some(16), Some(24)]));
    bed.random_npy("same.npy", &[3, 16, 24]);
    bed.random_npy("other.npy", &[3, 20, 30]);
    bed.succeeds(&["run", "--net", "m.onnx", "--input", "same.npy", "--output", "y.npy"]);
    let run = ["run", "--net", "m.onnx", "--input", "other.npy", "--output", "z.npy"];
    bed.fails("other_size", &run, 2);
    assert!(!bed.names().iter().any(|name| name == "z.npy"));
}
