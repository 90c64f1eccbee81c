//! From a network to JSON.

use serde_json::{Map, Value, json};
use tiled_kernel::Activation;
use tiled_tensor::{OutOfMemory, refusable};

use super::json::quoted;
use crate::{Graph, Op, Upsample, UpsampleMode, UpsampleTo, ValueId};

/// The text of a network, one input or node a line.
pub(super) fn graph(graph: &Graph) -> Result<String, OutOfMemory> {
    let mut text = Text(String::new());
    text.add("{\n  \"inputs\": [")?;
    for (place, input) in graph.inputs().iter().enumerate() {
        text.line(place)?;
        text.add(&json!({"name": input.name, "channels": input.channels}).to_string())?;
    }
    text.end(graph.inputs().len())?;
    text.add("],\n  \"nodes\": [")?;
    for (place, node) in graph.nodes().iter().enumerate() {
        text.line(place)?;
        text.add(&format!(
            "{{\"name\":{},\"op\":{},\"inputs\":",
            quoted(&node.name),
            quoted(node.op.name())
        ))?;
        text.names(graph, &node.inputs)?;
        if let Value::Object(mut attributes) = attributes(graph, &node.op) {
            for shared in &node.shared {
                let key = shared.kind.suffix();
                let name = format!("{}.{key}", graph.nodes()[shared.node].name);
                attributes.insert(key.to_owned(), name.into());
            }
            for (key, value) in attributes {
                text.add(&format!(",{}:{value}", quoted(&key)))?;
            }
        }
        text.add("}")?;
    }
    text.end(graph.nodes().len())?;
    text.add("],\n  \"outputs\": ")?;
    text.names(graph, graph.outputs())?;
    text.add("\n}\n")?;
    Ok(text.0)
}

/// A text that grows where memory is had.
struct Text(String);

impl Text {
    fn add(&mut self, more: &str) -> Result<(), OutOfMemory> {
        if self.0.capacity() - self.0.len() < more.len() {
            let wanted = (self.0.len() + more.len()).max(2 * self.0.capacity());
            refusable(|| self.0.try_reserve(more.len())).map_err(|_| OutOfMemory::of::<u8>(wanted))?;
        }
        self.0.push_str(more);
        Ok(())
    }

    /// Begins the line of an entry of a list.
    fn line(&mut self, place: usize) -> Result<(), OutOfMemory> {
        self.add(if place == 0 { "\n    " } else { ",\n    " })
    }

    /// Ends the last line of a list of so many.
    fn end(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.add(if count == 0 { "" } else { "\n  " })
    }

    /// The names of values as a list.
    fn names(&mut self, graph: &Graph, values: &[ValueId]) -> Result<(), OutOfMemory> {
        self.add("[")?;
        for (place, value) in values.iter().enumerate() {
            self.add(if place == 0 { "" } else { "," })?;
            self.add(&quoted(graph.name(*value)))?;
        }
        self.add("]")
    }
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
            "padding": padding(pool.padding),
            "dilation": pool.dilation,
            "ceil_mode": pool.ceil_mode,
        }),
        Op::AvgPool2d(pool) => json!({
            "kernel_size": pool.kernel_size,
            "stride": pool.stride,
            "padding": padding(pool.padding),
            "ceil_mode": pool.ceil_mode,
            "count_include_pad": pool.count_include_pad,
        }),
        Op::BatchNorm(norm) => json!({
            "eps": norm.eps,
            "momentum": norm.momentum,
            "affine": norm.affine,
            "track_running_stats": norm.track_running_stats,
        }),
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
