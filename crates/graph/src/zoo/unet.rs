//! A U-Net for every size of image.

use super::builder::Builder;
use crate::{Conv2d, Graph, GraphError, MaxPool2d, Op, ResizeMode, Upsample, UpsampleTo};

/// A U-Net: down with two convolutions a level and max pooling between, up with bilinear upsampling to the extents of
/// the skip, a convolution and the concatenation of both; 1×1 to `out_channels` at the end.
///
/// Upsampling to the skip rather than by two lets odd sizes through: a pooling drops the last row, which the
/// upsampling restores. Ronneberger, Fischer, Brox, "U-Net: convolutional networks for biomedical image
/// segmentation", 2015, with padding and bilinear upsampling.
pub(super) fn unet(levels: &[usize], out_channels: usize) -> Result<Graph, GraphError> {
    let mut net = Builder::new(3)?;
    let mut skips = Vec::new();
    for (level, channels) in (1..).zip(levels) {
        if level > 1 {
            net.max_pool(&format!("pool{}", level - 1), MaxPool2d::new([2, 2]))?;
        }
        twice(&mut net, &format!("down{level}"), *channels)?;
        skips.push((level, *channels, net.last));
    }
    skips.pop();
    for (level, channels, skip) in skips.into_iter().rev() {
        let mode = ResizeMode::LINEAR;
        net.push(&format!("up{level}"), Op::Upsample(Upsample { mode, to: UpsampleTo::Like(skip) }))?;
        let up = net.conv(&format!("up{level}_conv"), Conv2d::new(channels, [3, 3]).padded([1, 1]))?;
        net.join(&format!("cat{level}"), Op::Concat, &[skip, up])?;
        twice(&mut net, &format!("merge{level}"), channels)?;
    }
    net.conv("head", Conv2d::new(out_channels, [1, 1]))?;
    net.finish()
}

fn twice(net: &mut Builder, name: &str, channels: usize) -> Result<(), GraphError> {
    for half in ["a", "b"] {
        net.conv(&format!("{name}{half}"), Conv2d::new(channels, [3, 3]).padded([1, 1]))?;
        net.relu(&format!("{name}{half}_relu"))?;
    }
    Ok(())
}
