//! From a network to JSON.

use serde_json::{Map, Value, json};
use tiled_kernel::Activation;

use crate::{Graph, Node, Op, Upsample, UpsampleMode, UpsampleTo};

/// The text of a network, one input or node a line.
pub(super) fn graph(graph: &Graph) -> String {
    let inputs = graph.inputs().iter().map(|input| json!({"name": input.name, "channels": input.channels}));
    let nodes = graph.nodes().iter().map(|entry| node(graph, entry));
    let outputs: Vec<&str> = graph.outputs().iter().map(|output| graph.name(*output)).collect();
    format!(
        "{{\n  \"inputs\": [{}],\n  \"nodes\": [{}],\n  \"outputs\": {}\n}}\n",
        lines(inputs),
        lines(nodes),
        json!(outputs)
    )
}

fn lines(entries: impl Iterator<Item = Value>) -> String {
    let entries: Vec<String> = entries.map(|entry| format!("\n    {entry}")).collect();
    if entries.is_empty() { String::new() } else { format!("{}\n  ", entries.join(",")) }
}

fn node(graph: &Graph, node: &Node) -> Value {
    let inputs: Vec<&str> = node.inputs.iter().map(|input| graph.name(*input)).collect();
    let mut object = Map::new();
    object.insert("name".to_owned(), json!(node.name));
    object.insert("op".to_owned(), json!(node.op.name()));
    object.insert("inputs".to_owned(), json!(inputs));
    if let Value::Object(attributes) = attributes(graph, &node.op) {
        object.extend(attributes);
    }
    Value::Object(object)
}

fn attributes(graph: &Graph, op: &Op) -> Value {
    match op {
        Op::Conv2d(conv) => json!({
            "out_channels": conv.out_channels,
            "kernel_size": conv.kernel_size,
            "stride": conv.stride,
            "padding": padding(conv.padding),
            "dilation": conv.dilation,
            "groups": conv.groups,
            "bias": conv.bias,
            "padding_mode": conv.padding_mode.name(),
        }),
        Op::ConvTranspose2d(conv) => json!({
            "out_channels": conv.out_channels,
            "kernel_size": conv.kernel_size,
            "stride": conv.stride,
            "padding": conv.padding,
            "output_padding": conv.output_padding,
            "groups": conv.groups,
            "bias": conv.bias,
            "dilation": conv.dilation,
        }),
        Op::MaxPool2d(pool) => json!({
            "kernel_size": pool.kernel_size,
            "stride": pool.stride,
            "padding": pool.padding,
            "dilation": pool.dilation,
            "ceil_mode": pool.ceil_mode,
        }),
        Op::AvgPool2d(pool) => json!({
            "kernel_size": pool.kernel_size,
            "stride": pool.stride,
            "padding": pool.padding,
            "ceil_mode": pool.ceil_mode,
            "count_include_pad": pool.count_include_pad,
        }),
        Op::BatchNorm(norm) => json!({"eps": norm.eps, "momentum": norm.momentum, "affine": norm.affine}),
        Op::Activation(Activation::LeakyRelu { slope }) => json!({"negative_slope": slope}),
        Op::Activation(Activation::Gelu) => json!({"approximate": "none"}),
        Op::Activation(Activation::GeluTanh) => json!({"approximate": "tanh"}),
        Op::Upsample(op) => upsample(graph, op),
        Op::Linear(linear) => json!({"out_features": linear.out_features, "bias": linear.bias}),
        Op::Dropout(dropout) => json!({"p": dropout.p}),
        Op::Activation(_) | Op::Add | Op::Mul | Op::Concat | Op::GlobalAvgPool | Op::GlobalMaxPool => {
            Value::Null
        }
    }
}

/// A pair where both sides are alike, as in PyTorch; else before and after of each axis.
fn padding([height, width]: [[i64; 2]; 2]) -> Value {
    if height[0] == height[1] && width[0] == width[1] {
        json!([height[0], width[0]])
    } else {
        json!([height, width])
    }
}

fn upsample(graph: &Graph, upsample: &Upsample) -> Value {
    let (key, target) = match upsample.to {
        UpsampleTo::Size(size) => ("size", json!(size)),
        UpsampleTo::Scale(scale) => ("scale_factor", json!(scale)),
        UpsampleTo::Like(value) => ("like", json!(graph.name(value))),
    };
    let mut object = Map::new();
    object.insert(key.to_owned(), target);
    object.insert("mode".to_owned(), json!(upsample.mode.name()));
    if let UpsampleMode::Bilinear { align_corners } = upsample.mode {
        object.insert("align_corners".to_owned(), json!(align_corners));
    }
    Value::Object(object)
}
