//! The operators of the format: their keys, and how their attributes are read.

use tiled_kernel::Activation;

use super::fields::{Fields, both, pair};
use super::json::Json;
use crate::{
    AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, GraphError, Linear, MaxPool2d, Op, PaddingMode,
    Upsample, UpsampleMode, UpsampleTo, ValueId,
};

/// Finds the value of a name that stands before the node.
pub(super) type Find<'a> = &'a dyn Fn(&str) -> Result<ValueId, GraphError>;

/// An operator of the format.
#[derive(Debug)]
pub(super) struct Operator {
    /// The name.
    pub(super) name: &'static str,
    /// The keys beyond those of every node.
    pub(super) keys: &'static [&'static str],
    /// Reads the attributes, with PyTorch's defaults for those that are not there.
    pub(super) read: fn(&Fields<'_>, Find<'_>) -> Result<Op, GraphError>,
}

/// All operators of the format.
pub(super) const OPERATORS: [Operator; 21] = [
    Operator {
        name: "conv2d",
        keys: &[
            "in_channels",
            "out_channels",
            "kernel_size",
            "stride",
            "padding",
            "dilation",
            "groups",
            "weight",
            "bias",
            "padding_mode",
        ],
        read: conv2d,
    },
    Operator {
        name: "conv_transpose2d",
        keys: &[
            "in_channels",
            "out_channels",
            "kernel_size",
            "stride",
            "padding",
            "output_padding",
            "groups",
            "weight",
            "bias",
            "dilation",
        ],
        read: conv_transpose2d,
    },
    Operator {
        name: "max_pool2d",
        keys: &["kernel_size", "stride", "padding", "dilation", "ceil_mode"],
        read: max_pool2d,
    },
    Operator {
        name: "avg_pool2d",
        keys: &["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"],
        read: avg_pool2d,
    },
    Operator {
        name: "batch_norm",
        keys: &[
            "num_features",
            "eps",
            "momentum",
            "affine",
            "track_running_stats",
            "weight",
            "bias",
            "running_mean",
            "running_var",
            "num_batches_tracked",
        ],
        read: batch_norm,
    },
    Operator { name: "relu", keys: &[], read: |_, _| Ok(Op::Activation(Activation::Relu)) },
    Operator { name: "leaky_relu", keys: &["negative_slope"], read: leaky_relu },
    Operator { name: "sigmoid", keys: &[], read: |_, _| Ok(Op::Activation(Activation::Sigmoid)) },
    Operator { name: "tanh", keys: &[], read: |_, _| Ok(Op::Activation(Activation::Tanh)) },
    Operator { name: "silu", keys: &[], read: |_, _| Ok(Op::Activation(Activation::Silu)) },
    Operator { name: "gelu", keys: &["approximate"], read: gelu },
    Operator { name: "add", keys: &[], read: |_, _| Ok(Op::Add) },
    Operator { name: "mul", keys: &[], read: |_, _| Ok(Op::Mul) },
    Operator { name: "concat", keys: &[], read: |_, _| Ok(Op::Concat) },
    Operator {
        name: "upsample",
        keys: &["size", "scale_factor", "like", "mode", "align_corners"],
        read: upsample,
    },
    Operator { name: "global_avg_pool", keys: &[], read: |_, _| Ok(Op::GlobalAvgPool) },
    Operator { name: "global_max_pool", keys: &[], read: |_, _| Ok(Op::GlobalMaxPool) },
    Operator { name: "linear", keys: &["in_features", "out_features", "weight", "bias"], read: linear },
    Operator { name: "dropout", keys: &["p"], read: dropout },
    // What PyTorch calls the global poolings.
    Operator {
        name: "adaptive_avg_pool2d",
        keys: &["output_size"],
        read: |fields, _| adaptive(fields, Op::GlobalAvgPool),
    },
    Operator {
        name: "adaptive_max_pool2d",
        keys: &["output_size"],
        read: |fields, _| adaptive(fields, Op::GlobalMaxPool),
    },
];

fn conv2d(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let default = Conv2d::new(fields.required_count("out_channels")?, fields.required_pair("kernel_size")?);
    let modes = [PaddingMode::Zeros, PaddingMode::Reflect, PaddingMode::Replicate].map(|m| (m.name(), m));
    let expected = "\"zeros\", \"reflect\" or \"replicate\"";
    let conv = Conv2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        dilation: fields.pair("dilation")?.unwrap_or(default.dilation),
        groups: fields.count("groups")?.unwrap_or(default.groups),
        bias: fields.bias(default.bias)?,
        padding_mode: fields.choice("padding_mode", expected, &modes, default.padding_mode)?,
        ..default
    };
    let padding = match fields.get("padding") {
        None => default.padding,
        Some(json) => conv_padding(fields, &conv, json)?,
    };
    Ok(Op::Conv2d(Conv2d { padding, ..conv }))
}

/// Padding as a number, a pair, two pairs of before and after, `"valid"` or `"same"`.
fn conv_padding(fields: &Fields<'_>, conv: &Conv2d, json: &Json) -> Result<[[i64; 2]; 2], GraphError> {
    let expected =
        "a whole number, a pair [height, width], [[top, bottom], [left, right]], \"same\" or \"valid\"";
    let wrong = || fields.wrong("padding", expected, json);
    match json {
        Json::Text(text) if text == "valid" => Ok([[0, 0]; 2]),
        Json::Text(text) if text == "same" => same_padding(fields, conv),
        _ => sides(json).ok_or_else(wrong),
    }
}

/// Padding as a number, a pair, or two pairs of before and after.
fn sides(json: &Json) -> Option<[[i64; 2]; 2]> {
    if let Json::List(items) = json
        && let [Json::List(height), Json::List(width)] = items.as_slice()
    {
        return Some([both(height)?, both(width)?]);
    }
    pair(json).map(|sides| sides.map(|side| [side; 2]))
}

/// `d·(k − 1)` in all, the larger half behind, as in PyTorch.
fn same_padding(fields: &Fields<'_>, conv: &Conv2d) -> Result<[[i64; 2]; 2], GraphError> {
    if let Some(stride) = conv.stride.into_iter().find(|stride| *stride != 1) {
        return Err(GraphError::SameNeedsStrideOne { place: fields.place().clone(), stride });
    }
    let windows = conv.windows();
    let windows = windows.map_err(|reason| GraphError::Geometry { place: fields.place().clone(), reason })?;
    Ok(windows.map(|window| [window.extent() / 2, window.extent() - window.extent() / 2]))
}

fn conv_transpose2d(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let default =
        ConvTranspose2d::new(fields.required_count("out_channels")?, fields.required_pair("kernel_size")?);
    Ok(Op::ConvTranspose2d(ConvTranspose2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        padding: fields.pair("padding")?.unwrap_or(default.padding),
        output_padding: fields.pair("output_padding")?.unwrap_or(default.output_padding),
        dilation: fields.pair("dilation")?.unwrap_or(default.dilation),
        groups: fields.count("groups")?.unwrap_or(default.groups),
        bias: fields.bias(default.bias)?,
        ..default
    }))
}

fn upsample(fields: &Fields<'_>, find: Find<'_>) -> Result<Op, GraphError> {
    const TARGETS: [&str; 3] = ["size", "scale_factor", "like"];
    let targets: Vec<&str> = TARGETS.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let to = match targets.as_slice() {
        ["size"] => UpsampleTo::Size(fields.required_pair("size")?),
        ["scale_factor"] => UpsampleTo::Scale(fields.required_pair("scale_factor")?),
        ["like"] => UpsampleTo::Like(find(fields.text("like")?)?),
        _ => {
            let (place, keys) = (fields.place().clone(), TARGETS.map(str::to_owned).to_vec());
            let got = targets.into_iter().map(str::to_owned).collect();
            return Err(GraphError::ExclusiveKeys { place, keys, got });
        }
    };
    let bilinear = fields.choice(
        "mode",
        "\"nearest\" or \"bilinear\"",
        &[("nearest", false), ("bilinear", true)],
        false,
    )?;
    let align_corners = match fields.get("align_corners") {
        Some(Json::Null) => false,
        _ => fields.flag("align_corners", false)?,
    };
    let mode = match (bilinear, fields.get("align_corners")) {
        (true, _) => UpsampleMode::Bilinear { align_corners },
        (false, Some(json @ Json::Bool(true))) => {
            return Err(fields.wrong("align_corners", "mode \"bilinear\"", json));
        }
        (false, _) => UpsampleMode::Nearest,
    };
    Ok(Op::Upsample(Upsample { mode, to }))
}

fn pool_padding(fields: &Fields<'_>) -> Result<Option<[[i64; 2]; 2]>, GraphError> {
    let expected = "a whole number, a pair [height, width] or [[top, bottom], [left, right]]";
    let read = |json| sides(json).ok_or_else(|| fields.wrong("padding", expected, json));
    fields.get("padding").map(read).transpose()
}

fn max_pool2d(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let default = MaxPool2d::new(fields.required_pair("kernel_size")?);
    Ok(Op::MaxPool2d(MaxPool2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        padding: pool_padding(fields)?.unwrap_or(default.padding),
        dilation: fields.pair("dilation")?.unwrap_or(default.dilation),
        ceil_mode: fields.flag("ceil_mode", default.ceil_mode)?,
        ..default
    }))
}

fn avg_pool2d(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let default = AvgPool2d::new(fields.required_pair("kernel_size")?);
    Ok(Op::AvgPool2d(AvgPool2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        padding: pool_padding(fields)?.unwrap_or(default.padding),
        ceil_mode: fields.flag("ceil_mode", default.ceil_mode)?,
        count_include_pad: fields.flag("count_include_pad", default.count_include_pad)?,
        ..default
    }))
}

fn batch_norm(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let default = BatchNorm::default();
    Ok(Op::BatchNorm(BatchNorm {
        eps: fields.number("eps", default.eps)?,
        momentum: fields.number_or_null("momentum", default.momentum)?,
        affine: fields.flag("affine", default.affine)?,
        track_running_stats: fields.flag("track_running_stats", default.track_running_stats)?,
    }))
}

fn leaky_relu(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    Ok(Op::Activation(Activation::LeakyRelu { slope: fields.number("negative_slope", 0.01)? }))
}

fn gelu(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let choices = [("none", Activation::Gelu), ("tanh", Activation::GeluTanh)];
    fields.choice("approximate", "\"none\" or \"tanh\"", &choices, Activation::Gelu).map(Op::Activation)
}

fn linear(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let default = Linear::new(fields.required_count("out_features")?);
    Ok(Op::Linear(Linear { bias: fields.bias(default.bias)?, ..default }))
}

fn dropout(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    Ok(Op::Dropout(Dropout { p: fields.number("p", Dropout::default().p)? }))
}

fn adaptive(fields: &Fields<'_>, global: Op) -> Result<Op, GraphError> {
    if fields.required_pair("output_size")? == [1, 1] {
        return Ok(global);
    }
    let reason = "its windows grow with the image, unless output_size is 1";
    Err(GraphError::CannotTile { place: fields.place().clone(), reason })
}

#[cfg(test)]
mod tests {
    use super::OPERATORS;

    #[test]
    fn the_documentation_has_every_operator_and_key() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/network-format.md");
        let page = std::fs::read_to_string(page).expect("the page is in the repository");
        for operator in &OPERATORS {
            for word in [operator.name].iter().chain(operator.keys) {
                assert!(page.contains(&format!("`{word}`")), "{} lacks `{word}`", operator.name);
            }
        }
    }
}
