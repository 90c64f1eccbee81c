//! That random networks use everything.

use std::collections::BTreeMap;

use tiled::graph::{Coordinates, Filter, PadTarget, PadWith, PaddingMode, Placement, SplitSize};

use super::*;

/// What a node exercises, by name.
fn features(op: &Op) -> Vec<&'static str> {
    let mut features = vec![op.name()];
    let mut note = |claim: bool, name: &'static str| features.extend(claim.then_some(name));
    match op {
        Op::Conv2d(conv) => {
            note(conv.stride != [1, 1], "conv2d stride");
            note(conv.dilation != [1, 1], "conv2d dilation");
            note(conv.groups > 1, "conv2d groups");
            note(conv.groups > 1 && conv.groups == conv.out_channels, "conv2d depthwise");
            note(conv.padding.iter().any(|[before, after]| before != after), "conv2d asymmetric");
            note(conv.padding_mode == PaddingMode::Reflect, "conv2d reflect");
            note(conv.padding_mode == PaddingMode::Replicate, "conv2d replicate");
            note(!conv.bias, "conv2d without bias");
            note(conv.out_channels > 16, "conv2d of many channels");
        }
        Op::ConvTranspose2d(conv) => {
            note(conv.output_padding != [0, 0], "conv_transpose2d output_padding");
            note(conv.dilation != [1, 1], "conv_transpose2d dilation");
            note(conv.groups > 1, "conv_transpose2d groups");
            note(conv.padding != [0, 0], "conv_transpose2d padding");
        }
        Op::MaxPool2d(pool) => {
            note(pool.ceil_mode, "max_pool2d ceil_mode");
            note(pool.padding != [[0, 0]; 2], "max_pool2d padding");
            note(pool.padding.iter().any(|[before, after]| before != after), "max_pool2d uneven padding");
            note(pool.dilation != [1, 1], "max_pool2d dilation");
            note(pool.stride[0] < pool.kernel_size[0], "max_pool2d overlapping");
            note(pool.stride[0] > pool.kernel_size[0], "max_pool2d with gaps");
        }
        Op::AvgPool2d(pool) => {
            note(pool.ceil_mode, "avg_pool2d ceil_mode");
            let is_padded = pool.padding != [[0, 0]; 2];
            note(is_padded && pool.count_include_pad, "avg_pool2d with padding counted");
            note(is_padded && !pool.count_include_pad, "avg_pool2d without");
            note(pool.padding.iter().any(|[before, after]| before != after), "avg_pool2d uneven padding");
        }
        Op::BatchNorm(norm) => {
            note(!norm.affine, "batch_norm without weights");
            note(norm.counts_batches(), "batch_norm that counts batches");
            note(!norm.track_running_stats, "batch_norm without running statistics");
        }
        Op::WithOperand(with) => {
            note(with.operand == Operand::Weight, "arithmetic with a weight");
            note(with.operand != Operand::Weight, "arithmetic with a number");
            note(with.reversed, "arithmetic reversed");
        }
        Op::Prelu(prelu) => note(prelu.num_parameters > 1, "prelu per channel"),
        Op::StochasticDepth(depth) => {
            note(depth.mode == StochasticDepthMode::Row, "stochastic_depth of images");
            note(depth.mode == StochasticDepthMode::Batch, "stochastic_depth of batches");
        }
        Op::InstanceNorm(norm) => {
            note(norm.affine, "instance_norm with weights");
            note(norm.track_running_stats, "instance_norm with running statistics");
        }
        Op::GroupNorm(norm) => {
            note(norm.num_groups > 1, "group_norm of several groups");
            note(!norm.affine, "group_norm without weights");
        }
        Op::LayerNorm(norm) => {
            note(!norm.elementwise_affine, "layer_norm without weights");
            note(norm.elementwise_affine && !norm.bias, "layer_norm without bias");
        }
        Op::RmsNorm(norm) => note(!norm.elementwise_affine, "rms_norm without weights"),
        Op::LocalResponseNorm(norm) => {
            note(norm.size.is_multiple_of(2), "local_response_norm of even size");
        }
        Op::Upsample(upsample) => {
            note(upsample.mode == ResizeMode::NEAREST, "nearest");
            note(upsample.mode == ResizeMode::LINEAR, "bilinear");
            note(upsample.mode == ResizeMode::LINEAR_ALIGNED, "align_corners");
            note(matches!(upsample.mode.filter, Filter::Cubic(_)), "bicubic");
            let is_plain = upsample.mode.coordinates != Coordinates::Asymmetric;
            note(upsample.mode != ResizeMode::NEAREST && !is_plain, "asymmetric");
            let is_whole = |scales: [f64; 2]| scales.iter().all(|scale| scale.fract() == 0.0);
            note(matches!(upsample.to, UpsampleTo::Scale(scales) if !is_whole(scales)), "fractions");
            note(matches!(upsample.to, UpsampleTo::Size(_)), "size");
            note(matches!(upsample.to, UpsampleTo::Scale(_)), "scale_factor");
            note(matches!(upsample.to, UpsampleTo::Like(_)), "like");
        }
        Op::AdaptivePool2d(pool) => {
            note(pool.output_size.contains(&None), "adaptive pooling of one axis");
        }
        Op::Slice(slice) => note(slice.begin < 0, "slice from the end"),
        Op::Split(split) => note(matches!(split.split_size, SplitSize::Each(_)), "split of sizes"),
        Op::PadTo(pad) => {
            note(matches!(pad.to, PadTarget::Like(_)), "pad_to like");
            note(matches!(pad.to, PadTarget::Multiple(_)), "pad_to multiple");
            note(matches!(pad.to, PadTarget::Windows { .. }), "pad_to windows");
            note(pad.placement == Placement::Around, "pad_to around");
        }
        Op::PixelShuffle(shuffle) => {
            note(shuffle.upscale_factor[0] != shuffle.upscale_factor[1], "pixel_shuffle of two factors");
        }
        Op::Linear(linear) => note(linear.in_features.is_some(), "linear of an image"),
        Op::Pad(pad) => {
            note(true, pad.with.name());
            note(pad.padding.iter().flatten().any(|side| *side < 0), "crop");
            note(pad.with == PadWith::Constant(-0.75), "pad with a number");
        }
        _ => {}
    }
    features
}

#[test]
fn networks_use_every_operator_and_attribute() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for case in 0..1000 {
        let network = network(&mut Draw::new(1, &format!("case {case}")));
        let graph = &network.graph;
        assert!((1..=MAX_NODES).contains(&graph.nodes().len()), "case {case}");
        let mut note = |claim: bool, name: &'static str| {
            *seen.entry(name).or_default() += usize::from(claim);
        };
        note(graph.inputs().len() > 1, "several inputs");
        note(graph.outputs().len() > 1, "several outputs");
        note(graph.nodes().len() == MAX_NODES, "twelve nodes");
        note(network.shapes.batch() > 1, "batch over one");
        let is_shared = |value: usize| {
            graph.nodes().iter().flat_map(|node| &node.inputs).filter(|input| input.0 == value).count() > 1
        };
        note((0..graph.values()).any(is_shared), "shared values");
        let shares = |kind: ParamKind| {
            graph.nodes().iter().flat_map(|node| &node.shared).any(|shared| shared.kind == kind)
        };
        note(shares(ParamKind::Weight), "shared weights");
        note(shares(ParamKind::Bias), "shared biases");
        note(shares(ParamKind::RunningVar), "shared running statistics");
        let spreads = |values: &[ValueId], channels: bool| {
            let of = |value: &ValueId| network.shapes.shape(*value);
            let differs = |a: [usize; 4], b: [usize; 4]| {
                if channels { a[1] != b[1] } else { a[2..] != b[2..] }
            };
            values.iter().any(|value| differs(of(value), of(&values[0])))
        };
        for node in graph.nodes().iter().filter(|node| !matches!(node.op, Op::Concat)) {
            note(spreads(&node.inputs, true), "planes that are spread");
            note(spreads(&node.inputs, false), "pixels that are spread");
        }
        for node in graph.nodes() {
            features(&node.op).into_iter().for_each(|name| note(true, name));
        }
    }
    eprintln!("{seen:#?}");
    let rare: Vec<_> = seen.iter().filter(|(_, times)| **times < 10).collect();
    assert!(rare.is_empty(), "drawn fewer than ten times: {rare:?}");
    assert!(seen.len() >= 80, "{} features seen", seen.len());
}
