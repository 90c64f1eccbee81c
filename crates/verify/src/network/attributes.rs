//! Operators with random attributes.

use tiled::graph::{
    Activation, AdaptivePool2d, AvgPool2d, BatchNorm, ChannelShuffle, Conv2d, ConvTranspose2d, Coordinates,
    Cubic, Filter, GroupNorm, InstanceNorm, LayerNorm, Linear, LocalResponseNorm, MaxPool2d, Op, Pad,
    PadTarget, PadTo, PadWith, PaddingMode, PartPooling, PixelShuffle, PixelUnshuffle, Placement, ResizeMode,
    RmsNorm, Slice, Split, SplitSize, Upsample, UpsampleTo, ValueId,
};

use super::Growing;
use crate::draw::Draw;

impl Growing<'_> {
    pub(super) fn conv2d(&mut self, channels: usize) -> Conv2d {
        let draw = &mut *self.draw;
        let kernel_size = draw.pair(&[1, 2, 3, 3, 3, 3, 4, 5]);
        let dilation = draw.pair(&[1, 1, 1, 2, 3]);
        let mut stride = draw.pair(&[1, 1, 1, 2, 3]);
        let reach: [i64; 2] = std::array::from_fn(|axis| dilation[axis] * (kernel_size[axis] - 1));
        let mut padding = match draw.below(5) {
            0 => [[0, 0]; 2],
            1 => reach.map(|reach| [reach / 2, reach / 2]),
            2 => {
                stride = [1, 1];
                reach.map(|reach| [reach / 2, reach - reach / 2])
            }
            3 => [draw.pair(&[0, 1, 2, 3]), draw.pair(&[0, 1, 2, 3])],
            _ => [[draw.between(0, 3), draw.between(0, 3)], [draw.between(0, 3), draw.between(0, 3)]],
        };
        let padding_mode = draw.pick(&[
            PaddingMode::Zeros,
            PaddingMode::Zeros,
            PaddingMode::Reflect,
            PaddingMode::Replicate,
        ]);
        // more of it than a kernel reads, whole columns of tiles
        if padding_mode == PaddingMode::Zeros && draw.chance(5) {
            padding[1] = [draw.between(8, 20), draw.between(0, 20)];
        }
        let (groups, out_channels) = groups(draw, channels);
        let bias = draw.chance(60);
        Conv2d { out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode }
    }

    pub(super) fn conv_transpose2d(&mut self, channels: usize) -> ConvTranspose2d {
        let draw = &mut *self.draw;
        let kernel_size = draw.pair(&[1, 2, 2, 3, 3, 4]);
        let stride = draw.pair(&[1, 2, 2, 3]);
        let dilation = draw.pair(&[1, 1, 1, 2]);
        let padding = draw.pair(&[0, 0, 1, 2]);
        let output_padding: [i64; 2] =
            std::array::from_fn(|axis| draw.between(0, stride[axis].max(dilation[axis]) - 1));
        let (groups, out_channels) = groups(draw, channels);
        let bias = draw.chance(60);
        ConvTranspose2d { out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias }
    }

    pub(super) fn max_pool2d(&mut self) -> MaxPool2d {
        let draw = &mut *self.draw;
        let kernel_size = draw.pair(&[1, 2, 2, 3, 3, 4]);
        MaxPool2d {
            kernel_size,
            stride: draw.pair(&[1, 2, 2, 3]),
            padding: pool_padding(draw, kernel_size),
            dilation: draw.pair(&[1, 1, 1, 2, 3]),
            ceil_mode: draw.chance(50),
        }
    }

    pub(super) fn avg_pool2d(&mut self) -> AvgPool2d {
        let draw = &mut *self.draw;
        let kernel_size = draw.pair(&[1, 2, 2, 3, 3, 4]);
        AvgPool2d {
            kernel_size,
            stride: draw.pair(&[1, 2, 2, 3]),
            padding: pool_padding(draw, kernel_size),
            ceil_mode: draw.chance(50),
            count_include_pad: draw.chance(50),
        }
    }

    pub(super) fn batch_norm(&mut self) -> BatchNorm {
        BatchNorm {
            eps: self.draw.pick(&[1e-5, 1e-3]),
            momentum: self.draw.pick(&[Some(0.1), Some(0.3), None]),
            affine: self.draw.chance(70),
            track_running_stats: self.draw.chance(80),
        }
    }

    /// A norm of each image, or of each pixel.
    pub(super) fn norm(&mut self, channels: usize) -> Op {
        let draw = &mut *self.draw;
        let eps = draw.pick(&[1e-5, 1e-3]);
        match draw.below(4) {
            0 => Op::InstanceNorm(InstanceNorm {
                eps,
                momentum: draw.pick(&[0.1, 0.3]),
                affine: draw.chance(50),
                track_running_stats: draw.chance(40),
            }),
            1 => {
                let divisors: Vec<usize> =
                    (1..=channels).filter(|groups| channels.is_multiple_of(*groups)).collect();
                let num_groups = draw.pick(&divisors);
                Op::GroupNorm(GroupNorm { num_groups, eps, affine: draw.chance(70) })
            }
            2 => Op::LayerNorm(LayerNorm { eps, elementwise_affine: draw.chance(75), bias: draw.chance(75) }),
            _ => Op::RmsNorm(RmsNorm { eps, elementwise_affine: draw.chance(70) }),
        }
    }

    pub(super) fn local_response_norm(&mut self) -> LocalResponseNorm {
        LocalResponseNorm {
            size: self.draw.pick(&[1, 2, 3, 5, 5]),
            alpha: self.draw.pick(&[1e-4, 0.5, 2.0]),
            beta: self.draw.pick(&[0.5, 0.75, 1.5]),
            k: self.draw.pick(&[1.0, 2.0]),
        }
    }

    pub(super) fn activation(&mut self) -> Activation {
        self.draw.pick(&[
            Activation::Relu,
            Activation::Relu,
            Activation::LeakyRelu { slope: 0.1 },
            Activation::LeakyRelu { slope: -0.2 },
            Activation::Sigmoid,
            Activation::Tanh,
            Activation::Silu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Clamp { min: 0.0, max: 6.0 },
            Activation::Clamp { min: -0.5, max: f64::INFINITY },
            Activation::Threshold { threshold: 0.25, value: -0.5 },
            Activation::Elu { alpha: 0.75 },
            Activation::Selu,
            Activation::Celu { alpha: 1.5 },
            Activation::Softplus { beta: 2.0, threshold: 20.0 },
            Activation::Softsign,
            Activation::HardSigmoid,
            Activation::HardSwish,
            Activation::Mish,
            Activation::LogSigmoid,
            Activation::Abs,
            Activation::Neg,
            Activation::Pow { exponent: 2.0 },
        ])
    }

    pub(super) fn adaptive_pool2d(&mut self) -> AdaptivePool2d {
        let pooling = self.draw.pick(&[PartPooling::Mean, PartPooling::Max]);
        let sizes = [None, Some(1), Some(2), Some(3), Some(7), Some(11)];
        let output_size = [(); 2].map(|()| self.draw.pick(&sizes));
        AdaptivePool2d { pooling, output_size }
    }

    pub(super) fn upsample(&mut self, x: ValueId) -> Upsample {
        let dropped = Cubic { slope_thousandths: -500, drops_outside: true };
        let mut mode = self.draw.pick(&[
            ResizeMode::NEAREST,
            ResizeMode::NEAREST_EXACT,
            ResizeMode::LINEAR,
            ResizeMode::LINEAR_ALIGNED,
            ResizeMode::CUBIC,
            ResizeMode::CUBIC_ALIGNED,
            ResizeMode { filter: Filter::Cubic(dropped), coordinates: Coordinates::HalfPixel },
        ]);
        if self.draw.chance(20) {
            mode.coordinates = self.draw.pick(&[
                Coordinates::Asymmetric,
                Coordinates::HalfPixelSymmetric,
                Coordinates::HalfPixelOfSeveral,
            ]);
        }
        let [_, _, height, width] = self.shapes[x.0];
        let to = match self.draw.below(3) {
            0 => UpsampleTo::Scale([(); 2].map(|()| self.draw.pick(&[0.5, 1.0, 1.3, 1.5, 2.0, 2.0, 3.0]))),
            1 => UpsampleTo::Size([height, width].map(|extent| {
                let most = i64::try_from(2 * extent + 1).unwrap_or(1);
                self.draw.between(1, most)
            })),
            _ => UpsampleTo::Like(ValueId(self.draw.below(self.graph.values()))),
        };
        Upsample { mode, to }
    }

    /// A linear layer over all features of a small image.
    pub(super) fn linear_of_image(&mut self, x: ValueId) -> Option<Linear> {
        let features: usize = self.shapes[x.0][1..].iter().product();
        let bias = self.draw.chance(70);
        let out_features = 1 + self.draw.below(6);
        (features <= 6000).then_some(Linear { out_features, in_features: Some(features), bias })
    }

    /// Some of the channels.
    pub(super) fn part(&mut self, channels: usize) -> Option<Op> {
        let count = i64::try_from(channels).ok()?;
        Some(match self.draw.below(3) {
            0 => {
                let begin = self.draw.between(0, count - 1);
                let end = self.draw.between(begin + 1, count);
                let is_last = end == count;
                let begin = if self.draw.chance(30) { begin - count } else { begin };
                Op::Slice(Slice { begin, end: (!is_last).then_some(end) })
            }
            1 => {
                let size = 1 + self.draw.below(channels);
                let index = self.draw.below(channels.div_ceil(size));
                Op::Split(Split { split_size: SplitSize::Every(size), index })
            }
            _ => {
                let first = 1 + self.draw.below(channels);
                let sizes = if first == channels { vec![first] } else { vec![first, channels - first] };
                let index = self.draw.below(sizes.len());
                Op::Split(Split { split_size: SplitSize::Each(sizes), index })
            }
        })
    }

    /// Channels to channels, to pixels, or pixels to channels, where they divide.
    pub(super) fn shuffle(&mut self, x: ValueId) -> Option<Op> {
        let [_, channels, height, width] = self.shapes[x.0];
        let factors = [[1, 1], [2, 2], [3, 3], [4, 4], [1, 2], [3, 1], [1, 5]];
        let divides = |[rows, columns]: [i64; 2], [height, width]: [usize; 2]| {
            let is_whole = |of: usize, by: i64| usize::try_from(by).is_ok_and(|by| of.is_multiple_of(by));
            is_whole(height, rows) && is_whole(width, columns)
        };
        let to_pixels: Vec<[i64; 2]> = factors[1..]
            .iter()
            .copied()
            .filter(|[rows, columns]| divides([1, rows * columns], [height, channels]))
            .collect();
        let to_channels: Vec<[i64; 2]> =
            factors.into_iter().filter(|factor| divides(*factor, [height, width])).collect();
        let kind = if to_pixels.is_empty() { 1 + self.draw.below(2) } else { self.draw.below(3) };
        Some(match kind {
            0 => Op::PixelShuffle(PixelShuffle { upscale_factor: self.draw.pick(&to_pixels) }),
            1 => Op::PixelUnshuffle(PixelUnshuffle { downscale_factor: self.draw.pick(&to_channels) }),
            _ => {
                let groups: Vec<usize> =
                    (1..=channels).filter(|groups| channels.is_multiple_of(*groups)).collect();
                Op::ChannelShuffle(ChannelShuffle { groups: self.draw.pick(&groups) })
            }
        })
    }

    fn pad_with(&mut self) -> PadWith {
        self.draw.pick(&[
            PadWith::Constant(0.0),
            PadWith::Constant(-0.75),
            PadWith::Reflect,
            PadWith::Replicate,
            PadWith::Circular,
        ])
    }

    /// Rows and columns added or removed up to what is wanted.
    pub(super) fn pad_to(&mut self) -> PadTo {
        let to = if self.draw.chance(40) {
            PadTarget::Multiple(self.draw.pick(&[[2, 2], [4, 4], [3, 8], [16, 1], [5, 7]]))
        } else if self.draw.chance(40) {
            let size = self.draw.pick(&[[3, 3], [5, 3], [1, 2], [7, 4]]);
            PadTarget::Windows { size, stride: self.draw.pick(&[[2, 2], [1, 2], [4, 3]]) }
        } else {
            let like = ValueId(self.draw.below(self.graph.values()));
            let other = ValueId(self.draw.below(self.graph.values()));
            PadTarget::Like([like, if self.draw.chance(70) { like } else { other }])
        };
        let placement = if self.draw.chance(60) { Placement::After } else { Placement::Around };
        PadTo { to, placement, with: self.pad_with() }
    }

    /// Rows and columns added or removed.
    pub(super) fn pad(&mut self, x: ValueId) -> Pad {
        let [_, _, height, width] = self.shapes[x.0];
        let with = self.pad_with();
        let crops = self.draw.chance(40);
        let padding = [height, width].map(|extent| {
            let extent = i64::try_from(extent).unwrap_or(1);
            let least = if crops { -((extent - 1) / 2).min(4) } else { 0 };
            [self.draw.between(least, 3), self.draw.between(least, 3)]
        });
        Pad { padding, with }
    }
}

/// Before and after each axis, alike most of the time; at most half the kernel.
fn pool_padding(draw: &mut Draw, kernel: [i64; 2]) -> [[i64; 2]; 2] {
    let is_even = draw.chance(70);
    kernel.map(|kernel| {
        let before = draw.between(0, kernel / 2);
        [before, if is_even { before } else { draw.between(0, kernel / 2) }]
    })
}

/// Groups that divide both channel counts: mostly one, often as many as there are channels.
fn groups(draw: &mut Draw, channels: usize) -> (usize, usize) {
    match draw.below(10) {
        0..=5 => (1, draw.pick(&[1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17])),
        6..=7 => (channels, channels * draw.pick(&[1, 1, 2])),
        _ => {
            let divisors: Vec<usize> =
                (1..=channels).filter(|groups| channels.is_multiple_of(*groups)).collect();
            let groups = draw.pick(&divisors);
            (groups, groups * (1 + draw.below(4)))
        }
    }
}
