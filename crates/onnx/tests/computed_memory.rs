//! What importing a model takes that standardises its weights: at most four times its file and 64 MiB.
//!
//! One test alone, so that nothing else in the process takes memory meanwhile.

mod peak;

use prost::Message;
use prost::bytes::Bytes;
use tiled_onnx::proto::{
    DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TensorTypeProto, TypeProto, ValueInfoProto,
};

const CHANNELS: i64 = 512;

/// So many convolutions of 512 channels, each with a weight of 9 MiB that is without its mean and of deviation 1.
fn model(layers: usize) -> Vec<u8> {
    let dims =
        [None, Some(CHANNELS), None, None].map(|dim_value| DimensionProto { dim_value, dim_param: None });
    let shape = Some(TensorShapeProto { dim: dims.to_vec() });
    let of = TypeProto { tensor_type: Some(TensorTypeProto { elem_type: Some(1), shape }) };
    let value = |name: &str| ValueInfoProto { name: Some(name.into()), r#type: Some(of.clone()) };
    let tensor = |name: String, dims: &[i64], data_type, raw: Vec<u8>| TensorProto {
        name: Some(name),
        dims: dims.to_vec(),
        data_type: Some(data_type),
        raw_data: Some(Bytes::from(raw)),
        ..TensorProto::default()
    };
    let mut graph = GraphProto {
        input: vec![value("x0")],
        output: vec![value(&format!("x{layers}"))],
        ..GraphProto::default()
    };
    let axes = [1_i64, 2, 3].iter().flat_map(|axis| axis.to_le_bytes()).collect();
    graph.initializer.push(tensor("axes".to_owned(), &[3], 7, axes));
    for layer in 0..layers {
        let elements = CHANNELS * CHANNELS * 9;
        let weight = (0..elements).flat_map(|place| ((place % 1013) as f32).to_le_bytes()).collect();
        graph.initializer.push(tensor(format!("w{layer}"), &[CHANNELS, CHANNELS, 3, 3], 1, weight));
        for (op, inputs, output) in [
            ("ReduceMean", ["w", "axes"], "mean"),
            ("Sub", ["w", "mean"], "centred"),
            ("Mul", ["centred", "centred"], "squares"),
            ("ReduceMean", ["squares", "axes"], "variance"),
            ("Sqrt", ["variance", ""], "root"),
            ("Div", ["centred", "root"], "standard"),
            ("Conv", ["x", "standard"], "y"),
        ] {
            let named = |name: &str| if name == "axes" { name.to_owned() } else { format!("{name}{layer}") };
            let output = if op == "Conv" { format!("x{}", layer + 1) } else { named(output) };
            graph.node.push(NodeProto {
                input: inputs.iter().filter(|name| !name.is_empty()).map(|name| named(name)).collect(),
                output: vec![output],
                op_type: Some(op.to_owned()),
                ..NodeProto::default()
            });
        }
    }
    let opset = OperatorSetIdProto { domain: None, version: Some(18) };
    ModelProto { graph: Some(graph), opset_import: vec![opset], ..ModelProto::default() }.encode_to_vec()
}

#[test]
fn standardising_weights_takes_at_most_four_times_the_file() {
    if let Some(model) = peak::read_within_four_times(model(6)) {
        assert_eq!(model.graph.nodes().len(), 6);
    }
}
