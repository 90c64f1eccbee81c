//! Models of many nodes.

use prost::Message;
use tiled_onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// A model of so many nodes, which are no more than a short one is: activations, sums and convolutions under names as exporters
/// give them. It is written node by node; all of them stand in a branch of one node where that is wanted.
pub(crate) fn model(nodes: usize, is_branch: bool) -> Vec<u8> {
    let dims = [None, Some(4), None, None].map(|dim_value| DimensionProto { dim_value, dim_param: None });
    let shape = Some(TensorShapeProto { dim: dims.to_vec() });
    let of = TypeProto { tensor_type: Some(TensorTypeProto { elem_type: Some(1), shape }) };
    let value = |name: &str| ValueInfoProto { name: Some(name.into()), r#type: Some(of.clone()) };
    let made = |node: usize| match node.checked_sub(1) {
        None => "x".to_owned(),
        Some(node) => format!("/layers.{node}/act/Op_output_0"),
    };
    let mut graph = Vec::new();
    for node in 0..nodes {
        let input = match node % 3 {
            2 => vec![made(node), made(node - 1)],
            _ => vec![made(node)],
        };
        let operator = ["Relu", "Sigmoid", "Add"][node % 3];
        let proto = NodeProto {
            input,
            output: vec![made(node + 1)],
            name: Some(format!("/layers.{node}/act/Op")),
            op_type: Some(operator.to_owned()),
            ..NodeProto::default()
        };
        prost::encoding::message::encode(1, &proto, &mut graph);
    }
    if is_branch {
        graph = within_branch(graph, &made(nodes));
    }
    let ends =
        GraphProto { input: vec![value("x")], output: vec![value(&made(nodes))], ..GraphProto::default() };
    ends.encode(&mut graph).expect("a vector has room");
    let opset = OperatorSetIdProto { domain: None, version: Some(17) };
    let mut file = ModelProto { opset_import: vec![opset], ..ModelProto::default() }.encode_to_vec();
    prost::encoding::encode_key(7, prost::encoding::WireType::LengthDelimited, &mut file);
    prost::encoding::encode_varint(graph.len() as u64, &mut file);
    file.extend(graph);
    file
}

/// The bytes of a graph whose only node takes the branch of these nodes, with an output of the same name.
fn within_branch(mut nodes: Vec<u8>, output: &str) -> Vec<u8> {
    let given = ValueInfoProto { name: Some(output.to_owned()), r#type: None };
    prost::encoding::message::encode(12, &given, &mut nodes);
    let yes = TensorProto { data_type: Some(9), int32_data: vec![1], ..TensorProto::default() };
    let branch = AttributeProto {
        name: Some("then_branch".to_owned()),
        g: Some(nodes.into()),
        ..AttributeProto::default()
    };
    let node = NodeProto {
        input: vec!["yes".to_owned()],
        output: vec![output.to_owned()],
        op_type: Some("If".to_owned()),
        attribute: vec![branch],
        ..NodeProto::default()
    };
    let initializer = vec![TensorProto { name: Some("yes".to_owned()), ..yes }];
    GraphProto { node: vec![node], initializer, ..GraphProto::default() }.encode_to_vec()
}
