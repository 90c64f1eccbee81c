//! Networks of the literature, as PyTorch's model collections build them.

use tiled_kernel::Activation;

use super::builder::Builder;
use crate::{BatchNorm, Conv2d, Graph, GraphError, Linear, MaxPool2d, Op, ValueId};

/// The trunk of a VGG: per stage 3×3 convolutions of these channels with ReLU, then a 2×2 max pooling.
///
/// Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014.
pub(super) fn vgg(stages: &[&[usize]]) -> Result<Graph, GraphError> {
    let mut net = Builder::new(3)?;
    let mut convs = 0;
    for (stage, channels) in stages.iter().enumerate() {
        for out_channels in *channels {
            convs += 1;
            net.conv(&format!("conv{convs}"), Conv2d::new(*out_channels, [3, 3]).padded([1, 1]))?;
            net.relu(&format!("relu{convs}"))?;
        }
        net.max_pool(&format!("pool{}", stage + 1), MaxPool2d::new([2, 2]))?;
    }
    net.finish()
}

/// The trunk of Darknet-19: 18 convolutions, each with batch norm and a leaky ReLU of slope 0.1, and 5 max poolings.
///
/// Redmon, Farhadi, "YOLO9000: better, faster, stronger", 2016, table 6, without its last convolution and pooling.
pub(super) fn darknet19() -> Result<Graph, GraphError> {
    const STAGES: [&[(usize, i64)]; 6] = [
        &[(32, 3)],
        &[(64, 3)],
        &[(128, 3), (64, 1), (128, 3)],
        &[(256, 3), (128, 1), (256, 3)],
        &[(512, 3), (256, 1), (512, 3), (256, 1), (512, 3)],
        &[(1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3)],
    ];
    let mut net = Builder::new(3)?;
    let mut convs = 0;
    for (stage, layers) in STAGES.into_iter().enumerate() {
        if stage > 0 {
            net.max_pool(&format!("pool{stage}"), MaxPool2d::new([2, 2]))?;
        }
        for (out_channels, kernel) in layers {
            convs += 1;
            let conv = Conv2d::new(*out_channels, [*kernel; 2]).padded([*kernel / 2; 2]);
            net.conv(&format!("conv{convs}"), Conv2d { bias: false, ..conv })?;
            net.push(&format!("bn{convs}"), Op::BatchNorm(BatchNorm::default()))?;
            let leaky = Activation::LeakyRelu { slope: 0.1 };
            net.push(&format!("leaky{convs}"), Op::Activation(leaky))?;
        }
    }
    net.finish()
}

/// ResNet-18 with its head of 1000 classes; nodes named as torchvision names its modules, `_` for `.`.
///
/// He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015.
pub(super) fn resnet18() -> Result<Graph, GraphError> {
    let mut net = Builder::new(3)?;
    let stem = Conv2d { stride: [2, 2], bias: false, ..Conv2d::new(64, [7, 7]).padded([3, 3]) };
    net.conv("conv1", stem)?;
    net.push("bn1", Op::BatchNorm(BatchNorm::default()))?;
    net.relu("relu1")?;
    let pool = MaxPool2d { stride: [2, 2], ..MaxPool2d::new([3, 3]).padded([1, 1]) };
    net.max_pool("maxpool", pool)?;
    for (layer, channels) in [(1, 64), (2, 128), (3, 256), (4, 512)] {
        for block in 0..2 {
            let stride = if layer > 1 && block == 0 { 2 } else { 1 };
            residual_block(&mut net, &format!("layer{layer}_{block}"), channels, stride)?;
        }
    }
    net.push("avgpool", Op::GlobalAvgPool)?;
    net.push("fc", Op::Linear(Linear::new(1000)))?;
    net.finish()
}

/// Two 3×3 convolutions and the way around them; a 1×1 convolution there where the stride is above 1.
fn residual_block(net: &mut Builder, name: &str, channels: usize, stride: i64) -> Result<(), GraphError> {
    let input = net.last;
    normalised(net, &format!("{name}_conv1"), &format!("{name}_bn1"), channels, 3, stride)?;
    net.relu(&format!("{name}_relu1"))?;
    let main = normalised(net, &format!("{name}_conv2"), &format!("{name}_bn2"), channels, 3, 1)?;
    let around = if stride == 1 {
        input
    } else {
        net.last = input;
        let names = [format!("{name}_downsample_0"), format!("{name}_downsample_1")];
        normalised(net, &names[0], &names[1], channels, 1, stride)?
    };
    net.join(&format!("{name}_add"), Op::Add, &[main, around])?;
    net.relu(&format!("{name}_relu2"))?;
    Ok(())
}

fn normalised(
    net: &mut Builder,
    conv: &str,
    norm: &str,
    channels: usize,
    kernel: i64,
    stride: i64,
) -> Result<ValueId, GraphError> {
    let padded = Conv2d::new(channels, [kernel; 2]).padded([kernel / 2; 2]);
    net.conv(conv, Conv2d { stride: [stride; 2], bias: false, ..padded })?;
    net.push(norm, Op::BatchNorm(BatchNorm::default()))
}
