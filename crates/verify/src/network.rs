//! Random networks over every operator.

use tiled::graph::{
    Activation, AdaptivePool2d, AvgPool2d, BatchNorm, ChannelShuffle, Conv2d, ConvTranspose2d, Coordinates,
    Cubic, Dropout, Dropout2d, Elementwise, Filter, Graph, GroupNorm, InstanceNorm, LayerNorm, Linear,
    LocalResponseNorm, MaxPool2d, Op, Operand, Pad, PadWith, PaddingMode, ParamKind, PartPooling,
    PixelShuffle, PixelUnshuffle, Prelu, ResizeMode, RmsNorm, Shapes, Slice, Split, SplitSize,
    StochasticDepth, StochasticDepthMode, Upsample, UpsampleTo, ValueId, WithOperand, infer, params,
};

use super::draw::Draw;

/// A network with the sizes of its inputs.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) graph: Graph,
    pub(super) shapes: Shapes,
}

/// The most nodes of a network.
pub(super) const MAX_NODES: usize = 12;
/// The most elements of a value: what keeps a case below a tenth of a second.
const MAX_VALUE: usize = 120_000;

/// Draws a network of one to [`MAX_NODES`] nodes with one to three inputs and outputs.
pub(super) fn network(draw: &mut Draw) -> Network {
    loop {
        if let Some(network) = Growing::new(draw).grow() {
            return network;
        }
    }
}

/// A network that grows node by node; a node that does not fit is thrown away.
struct Growing<'d> {
    draw: &'d mut Draw,
    graph: Graph,
    batch: usize,
    extents: Vec<[usize; 2]>,
    shapes: Vec<[usize; 4]>,
}

impl<'d> Growing<'d> {
    fn new(draw: &'d mut Draw) -> Self {
        let batch = draw.pick(&[1, 1, 1, 2, 2, 3]);
        let mut growing = Self { draw, graph: Graph::new(), batch, extents: Vec::new(), shapes: Vec::new() };
        let first = growing.image();
        for place in 0..growing.draw.pick(&[1, 1, 1, 1, 2, 2, 3]) {
            let extents = if place == 0 || growing.draw.chance(60) { first } else { growing.image() };
            let channels = growing.draw.pick(&[1, 1, 2, 3, 3, 4, 5, 8, 9, 17]);
            let added = growing.graph.add_input(&format!("x{place}"), channels);
            debug_assert!(added.is_ok(), "invariant: inputs come first and have names of their own");
            growing.extents.push(extents);
            growing.shapes.push([batch, channels, extents[0], extents[1]]);
        }
        growing
    }

    /// The height and width of an input: mostly odd and not square, at times a line or a point.
    fn image(&mut self) -> [usize; 2] {
        let [height, width] = match self.draw.below(10) {
            0 => [self.draw.between(1, 4), self.draw.between(1, 120)],
            1 => [self.draw.between(1, 120), self.draw.between(1, 4)],
            _ => [self.draw.between(5, 80), self.draw.between(5, 80)],
        };
        [height, width].map(|extent| usize::try_from(extent).unwrap_or(1))
    }

    fn grow(mut self) -> Option<Network> {
        let nodes = 1 + self.draw.below(MAX_NODES);
        let head = self.draw.chance(20) && nodes >= 3;
        let body = if head { nodes - 2 } else { nodes };
        let mut tries = 0;
        while self.graph.nodes().len() < body && tries < 20 * MAX_NODES {
            tries += 1;
            self.node(body);
        }
        let head = if head { self.head() } else { None };
        self.finish(head)
    }

    /// A global pooling and a linear layer over the last image.
    fn head(&mut self) -> Option<ValueId> {
        let of = (0..self.graph.values()).rev().find(|value| self.shapes[*value][2..] != [1, 1])?;
        let pool = if self.draw.chance(70) { Op::GlobalAvgPool } else { Op::GlobalMaxPool };
        let pooled = self.push(pool, &[ValueId(of)])?;
        let linear = Linear { bias: self.draw.chance(70), ..Linear::new(2 + self.draw.below(5)) };
        self.push(Op::Linear(linear), &[pooled])
    }

    /// Adds a node, or nothing where what was drawn does not fit.
    fn node(&mut self, limit: usize) -> Option<ValueId> {
        let x = self.operand();
        let channels = self.graph.channels(x);
        let op = match self.draw.below(60) {
            0..=4 => Op::Conv2d(self.conv2d(channels)),
            5..=6 => Op::ConvTranspose2d(self.conv_transpose2d(channels)),
            7..=8 => Op::MaxPool2d(self.max_pool2d()),
            9..=10 => Op::AvgPool2d(self.avg_pool2d()),
            11..=12 => Op::BatchNorm(self.batch_norm()),
            13..=15 | 36..=41 => Op::Activation(self.activation()),
            16 => Op::Dropout(Dropout { p: self.draw.pick(&[0.0, 0.2, 0.5, 0.9]) }),
            17..=18 | 58 => Op::Upsample(self.upsample(x)),
            59 => Op::AdaptivePool2d(self.adaptive_pool2d()),
            19 if self.draw.chance(50) => Op::GlobalAvgPool,
            19 => Op::GlobalMaxPool,
            20 if self.shapes[x.0][2..] == [1, 1] => {
                Op::Linear(Linear { bias: self.draw.chance(70), ..Linear::new(1 + self.draw.below(6)) })
            }
            20 if self.draw.chance(30) => Op::Linear(self.linear_of_image(x)?),
            20..=21 => return self.residual(x, limit),
            26..=27 | 42..=43 => return self.again(),
            28..=29 => return self.arithmetic(x),
            30..=31 => Op::WithOperand(self.with_operand()),
            32 => {
                let num_parameters = if self.draw.chance(50) { channels } else { 1 };
                Op::Prelu(Prelu { num_parameters, init: self.draw.pick(&[0.25, -0.5]) })
            }
            33 => self.drop_whole(),
            34..=35 => return self.bounded(x, limit),
            44..=47 => self.norm(channels),
            48 if self.draw.chance(50) => Op::Softmax,
            48 => Op::LogSoftmax,
            49 => Op::LocalResponseNorm(self.local_response_norm()),
            50..=51 => self.part(channels)?,
            52..=54 => self.shuffle(x)?,
            55..=56 => Op::Pad(self.pad(x)),
            57 if self.draw.chance(25) => Op::ArgMax,
            57 => Op::Pad(self.pad(x)),
            kind => return self.join(x, kind),
        };
        self.push(op, &[x])
    }

    /// An operand, more often a late one.
    fn operand(&mut self) -> ValueId {
        let count = self.graph.values();
        if self.draw.chance(50) {
            return ValueId(count - 1 - self.draw.below(count.min(2)));
        }
        ValueId(self.draw.below(count))
    }

    /// A sum, product or concatenation of `x` and values of its shape, itself among them.
    fn join(&mut self, x: ValueId, kind: usize) -> Option<ValueId> {
        let shape = self.shapes[x.0];
        let op = match kind {
            22 => Op::Mul,
            23 => Op::Add,
            _ => Op::Concat,
        };
        let fits = |other: &[usize; 4]| {
            other[2..] == shape[2..] && (matches!(op, Op::Concat) || other[1] == shape[1])
        };
        let others: Vec<ValueId> =
            (0..self.shapes.len()).filter(|value| fits(&self.shapes[*value])).map(ValueId).collect();
        let distinct: Vec<ValueId> = others.iter().copied().filter(|value| *value != x).collect();
        let count = match op {
            Op::Concat if self.draw.chance(10) => 9,
            _ => self.draw.pick(&[2, 2, 2, 3]),
        };
        let mut operands = vec![x];
        while operands.len() < count {
            let from = if distinct.is_empty() || self.draw.chance(15) { &others } else { &distinct };
            let next = self.draw.pick(from);
            let place = self.draw.below(operands.len() + 1);
            operands.insert(place, next);
        }
        self.push(op, &operands)
    }

    /// A function of `x` and another value, either of which may stand for the channels or pixels of the other.
    fn arithmetic(&mut self, x: ValueId) -> Option<ValueId> {
        let [_, channels, height, width] = self.shapes[x.0];
        let fits = |[_, c, h, w]: &[usize; 4]| {
            (*c == channels || *c == 1 || channels == 1)
                && ([*h, *w] == [height, width] || [*h, *w] == [1, 1] || [height, width] == [1, 1])
        };
        let others: Vec<ValueId> =
            (0..self.shapes.len()).filter(|value| fits(&self.shapes[*value])).map(ValueId).collect();
        let is_spread = |value: &ValueId| self.shapes[value.0] != self.shapes[x.0];
        let spread: Vec<ValueId> = others.iter().copied().filter(is_spread).collect();
        let from = if spread.is_empty() || self.draw.chance(30) { &others } else { &spread };
        let other = self.draw.pick(from);
        let op = match self.draw.below(6) {
            0 => Op::Add,
            1 => Op::Mul,
            2 => Op::Minimum,
            3 => Op::Maximum,
            _ => Op::Sub,
        };
        let operands = if self.draw.chance(50) { [x, other] } else { [other, x] };
        self.push(op, &operands)
    }

    /// A function of a value and a number or a parameter; divisors are numbers away from zero.
    fn with_operand(&mut self) -> WithOperand {
        use Elementwise::{Add, Div, Maximum, Minimum, Mul, Sub};
        let function = self.draw.pick(&[Add, Mul, Sub, Div, Minimum, Maximum]);
        let number = Operand::Number(self.draw.pick(&[0.75, -1.5, 2.0]));
        let operand = if self.draw.chance(50) && function != Div { Operand::Weight } else { number };
        WithOperand { function, operand, reversed: function != Div && self.draw.chance(40) }
    }

    fn drop_whole(&mut self) -> Op {
        let p = self.draw.pick(&[0.2, 0.5]);
        match self.draw.below(3) {
            0 => Op::StochasticDepth(StochasticDepth { p, mode: StochasticDepthMode::Row }),
            1 => Op::StochasticDepth(StochasticDepth { p, mode: StochasticDepthMode::Batch }),
            _ => Op::Dropout2d(Dropout2d { p }),
        }
    }

    /// Functions that are steep somewhere, or not defined, of values between 0.5 and 1.5.
    fn bounded(&mut self, x: ValueId, limit: usize) -> Option<ValueId> {
        if self.graph.nodes().len() + 3 > limit {
            return None;
        }
        let between = self.push(Op::Activation(Activation::Sigmoid), &[x])?;
        let (function, operand) = (Elementwise::Add, Operand::Number(0.5));
        let above = Op::WithOperand(WithOperand { function, operand, reversed: false });
        let above = self.push(above, &[between])?;
        let function = Elementwise::Div;
        let op = match self.draw.below(14) {
            0 => return self.push(Op::Div, &[x, above]),
            1 => Op::WithOperand(WithOperand { function, operand, reversed: true }),
            2 => Op::WithOperand(WithOperand { function, operand: Operand::Weight, reversed: true }),
            3 | 7 => Op::Activation(Activation::Exp),
            4 | 8 => Op::Activation(Activation::Log),
            5 | 9 | 10 => Op::Activation(Activation::Sqrt),
            6 | 11 => Op::Activation(Activation::Reciprocal),
            _ => {
                let exponent = self.draw.pick(&[-2.0, 3.0, 1.5, -0.5]);
                Op::Activation(Activation::Pow { exponent })
            }
        };
        self.push(op, &[above])
    }

    /// A branch that keeps the shape, and the sum or product with what it starts from.
    fn residual(&mut self, x: ValueId, limit: usize) -> Option<ValueId> {
        if self.graph.nodes().len() + 2 > limit {
            return None;
        }
        let channels = self.graph.channels(x);
        let op = match self.draw.below(4) {
            // squeeze and excite: the whole image decides a factor for each channel
            0 => {
                if self.graph.nodes().len() + 3 > limit || self.shapes[x.0][2..] == [1, 1] {
                    return None;
                }
                let pooled = self.push(Op::GlobalAvgPool, &[x])?;
                if self.draw.chance(50) {
                    return self.push(Op::Mul, &[x, pooled]);
                }
                let like = Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Like(x) };
                let wide = self.push(Op::Upsample(like), &[pooled])?;
                return self.push(Op::Mul, &[x, wide]);
            }
            1 => Op::Conv2d(Conv2d::new(channels, [3, 1]).padded([1, 0])),
            2 => Op::Conv2d(Conv2d {
                groups: channels,
                dilation: [2, 2],
                ..Conv2d::new(channels, [3, 3]).padded([2, 2])
            }),
            _ => Op::Conv2d(Conv2d::new(channels, [3, 3]).padded([1, 1])),
        };
        let branch = self.push(op, &[x])?;
        let join = if self.draw.chance(75) { Op::Add } else { Op::Mul };
        let operands = if self.draw.chance(50) { [x, branch] } else { [branch, x] };
        self.push(join, &operands)
    }

    fn conv2d(&mut self, channels: usize) -> Conv2d {
        let draw = &mut *self.draw;
        let kernel_size = draw.pair(&[1, 2, 3, 3, 3, 3, 4, 5]);
        let dilation = draw.pair(&[1, 1, 1, 2, 3]);
        let mut stride = draw.pair(&[1, 1, 1, 2, 3]);
        let reach: [i64; 2] = std::array::from_fn(|axis| dilation[axis] * (kernel_size[axis] - 1));
        let padding = match draw.below(5) {
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
        let (groups, out_channels) = groups(draw, channels);
        let bias = draw.chance(60);
        Conv2d { out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode }
    }

    fn conv_transpose2d(&mut self, channels: usize) -> ConvTranspose2d {
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

    fn max_pool2d(&mut self) -> MaxPool2d {
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

    fn avg_pool2d(&mut self) -> AvgPool2d {
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

    fn batch_norm(&mut self) -> BatchNorm {
        BatchNorm {
            eps: self.draw.pick(&[1e-5, 1e-3]),
            momentum: self.draw.pick(&[Some(0.1), Some(0.3), None]),
            affine: self.draw.chance(70),
            track_running_stats: self.draw.chance(80),
        }
    }

    /// A norm of each image, or of each pixel.
    fn norm(&mut self, channels: usize) -> Op {
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

    fn local_response_norm(&mut self) -> LocalResponseNorm {
        LocalResponseNorm {
            size: self.draw.pick(&[1, 2, 3, 5, 5]),
            alpha: self.draw.pick(&[1e-4, 0.5, 2.0]),
            beta: self.draw.pick(&[0.5, 0.75, 1.5]),
            k: self.draw.pick(&[1.0, 2.0]),
        }
    }

    fn activation(&mut self) -> Activation {
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

    fn adaptive_pool2d(&mut self) -> AdaptivePool2d {
        let pooling = self.draw.pick(&[PartPooling::Mean, PartPooling::Max]);
        let sizes = [None, Some(1), Some(2), Some(3), Some(7), Some(11)];
        let output_size = [(); 2].map(|()| self.draw.pick(&sizes));
        AdaptivePool2d { pooling, output_size }
    }

    fn upsample(&mut self, x: ValueId) -> Upsample {
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
    fn linear_of_image(&mut self, x: ValueId) -> Option<Linear> {
        let features: usize = self.shapes[x.0][1..].iter().product();
        let bias = self.draw.chance(70);
        let out_features = 1 + self.draw.below(6);
        (features <= 6000).then_some(Linear { out_features, in_features: Some(features), bias })
    }

    /// Some of the channels.
    fn part(&mut self, channels: usize) -> Option<Op> {
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
    fn shuffle(&mut self, x: ValueId) -> Option<Op> {
        let [_, channels, height, width] = self.shapes[x.0];
        let to_pixels: Vec<i64> = [(2, 4), (3, 9), (4, 16)]
            .into_iter()
            .filter(|(_, square)| channels.is_multiple_of(*square))
            .map(|(factor, _)| factor)
            .collect();
        let to_channels: Vec<i64> = [(1, 1), (2, 2), (3, 3)]
            .into_iter()
            .filter(|(_, factor)| height.is_multiple_of(*factor) && width.is_multiple_of(*factor))
            .map(|(factor, _)| factor)
            .collect();
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

    /// Rows and columns added or removed.
    fn pad(&mut self, x: ValueId) -> Pad {
        let [_, _, height, width] = self.shapes[x.0];
        let with = self.draw.pick(&[
            PadWith::Constant(0.0),
            PadWith::Constant(-0.75),
            PadWith::Reflect,
            PadWith::Replicate,
            PadWith::Circular,
        ]);
        let crops = self.draw.chance(40);
        let padding = [height, width].map(|extent| {
            let extent = i64::try_from(extent).unwrap_or(1);
            let least = if crops { -((extent - 1) / 2).min(4) } else { 0 };
            [self.draw.between(least, 3), self.draw.between(least, 3)]
        });
        Pad { padding, with }
    }

    /// An operator that stands in the network once more, over all or some of its parameters.
    fn again(&mut self) -> Option<ValueId> {
        let specs = params(&self.graph);
        if specs.is_empty() {
            return None;
        }
        let before = self.draw.pick(&specs.iter().map(|spec| spec.node).collect::<Vec<_>>());
        let node = self.graph.nodes()[before].clone();
        let channels = self.graph.channels(node.inputs[0]);
        let fitting: Vec<ValueId> = (0..self.graph.values())
            .map(ValueId)
            .filter(|value| self.graph.channels(*value) == channels)
            .collect();
        let operand = self.draw.pick(&fitting);
        let own = specs.iter().filter(|spec| spec.node == before).map(|spec| spec.kind);
        let mut kinds: Vec<ParamKind> = own.collect();
        kinds.retain(|_| self.draw.chance(80));
        let names: Vec<String> =
            kinds.iter().map(|kind| format!("{}.{}", node.name, kind.suffix())).collect();
        let shared: Vec<(ParamKind, &str)> =
            kinds.into_iter().zip(names.iter().map(String::as_str)).collect();
        self.push_sharing(node.op, &[operand], &shared)
    }

    /// Adds a node where the network stays valid and small.
    fn push(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        self.push_sharing(op, operands, &[])
    }

    fn push_sharing(
        &mut self,
        op: Op,
        operands: &[ValueId],
        shared: &[(ParamKind, &str)],
    ) -> Option<ValueId> {
        let mut graph = self.graph.clone();
        let name = format!("n{}", self.graph.nodes().len());
        let value = graph.add_node_sharing(&name, op, operands, shared).ok()?;
        graph.set_outputs(&[value]).ok()?;
        let shapes = infer(&graph, self.batch, &self.extents).ok()?;
        if shapes.elements(value) > MAX_VALUE {
            return None;
        }
        self.shapes.push(shapes.shape(value));
        self.graph = graph;
        Some(value)
    }

    /// Chooses outputs: the head first, then values that nothing reads, then perhaps one that is read.
    fn finish(mut self, head: Option<ValueId>) -> Option<Network> {
        let first_node = self.graph.inputs().len();
        let is_read = |value: &ValueId| self.graph.nodes().iter().any(|node| node.inputs.contains(value));
        let mut ends: Vec<ValueId> = (first_node..self.graph.values())
            .map(ValueId)
            .filter(|value| !is_read(value) && Some(*value) != head)
            .collect();
        let mut outputs: Vec<ValueId> = head.into_iter().collect();
        let most = 1 + self.draw.below(3);
        while outputs.len() < most && !ends.is_empty() {
            let place = if self.draw.chance(60) { ends.len() - 1 } else { self.draw.below(ends.len()) };
            outputs.push(ends.remove(place));
        }
        let another = ValueId(self.draw.below(self.graph.values()));
        if self.draw.chance(15) && outputs.len() < 3 && !outputs.contains(&another) {
            outputs.push(another);
        }
        self.graph.set_outputs(&outputs).ok()?;
        let shapes = infer(&self.graph, self.batch, &self.extents).ok()?;
        Some(Network { graph: self.graph, shapes })
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
                graph.nodes().iter().flat_map(|node| &node.inputs).filter(|input| input.0 == value).count()
                    > 1
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
        assert!(seen.len() >= 71, "{} features seen", seen.len());
    }
}
