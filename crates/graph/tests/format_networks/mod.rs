//! Random networks: every operator and attribute, whatever their sizes.

use proptest::prelude::*;
use tiled_graph::{
    Activation, AdaptivePool2d, AvgPool2d, BatchNorm, ChannelShuffle, Conv2d, ConvTranspose2d, Coordinates,
    Cubic, Dropout, Dropout2d, Elementwise, Filter, Graph, GroupNorm, InstanceNorm, LayerNorm, Linear,
    LocalResponseNorm, MaxPool2d, Op, Operand, Pad, PadTarget, PadTo, PadWith, PaddingMode, PartPooling,
    PixelShuffle, PixelUnshuffle, Placement, Prelu, ResizeMode, RmsNorm, Rounding, Slice, Split, SplitSize,
    StochasticDepth, StochasticDepthMode, Upsample, UpsampleTo, ValueId, WithOperand,
};

/// A network of one or two inputs and up to 12 nodes.
pub(crate) fn network() -> impl Strategy<Value = Graph> {
    let inputs = prop::collection::vec(1..5_usize, 1..3);
    let nodes =
        prop::collection::vec((operator(), any::<[prop::sample::Index; 3]>(), "[a-zé\" \\\\]{0,4}"), 1..12);
    (inputs, nodes, any::<prop::sample::Index>()).prop_map(|(inputs, nodes, output)| {
        let mut graph = Graph::new();
        for (position, channels) in inputs.iter().enumerate() {
            graph.add_input(&format!("x{position}"), *channels).unwrap();
        }
        for (position, (op, operands, name)) in nodes.into_iter().enumerate() {
            let picked: Vec<ValueId> =
                operands.iter().map(|index| ValueId(index.index(graph.values()))).collect();
            let (op, operands) = fitted(&graph, op, &picked);
            graph.add_node(&format!("{name}n{position}"), op, &operands).unwrap();
        }
        let last = ValueId(graph.values() - 1);
        let other = ValueId(output.index(graph.values()));
        let outputs = if other == last { vec![last] } else { vec![last, other] };
        graph.set_outputs(&outputs).unwrap();
        graph
    })
}

/// The operator with what must fit the channels of its operands made to fit.
fn fitted(graph: &Graph, op: Op, picked: &[ValueId]) -> (Op, Vec<ValueId>) {
    let first = picked[0];
    let channels = graph.channels(first);
    let dividing = |groups: usize| if channels.is_multiple_of(groups) { groups } else { 1 };
    match op {
        Op::Conv2d(conv) => {
            let groups = dividing(conv.groups);
            let out_channels = conv.out_channels * groups;
            (Op::Conv2d(Conv2d { groups, out_channels, ..conv }), vec![first])
        }
        Op::ConvTranspose2d(conv) => {
            let groups = dividing(conv.groups);
            let out_channels = conv.out_channels * groups;
            (Op::ConvTranspose2d(ConvTranspose2d { groups, out_channels, ..conv }), vec![first])
        }
        Op::Upsample(Upsample { mode, to: UpsampleTo::Like(_) }) => {
            (Op::Upsample(Upsample { mode, to: UpsampleTo::Like(picked[1]) }), vec![first])
        }
        Op::PadTo(pad @ PadTo { to: PadTarget::Like(_), .. }) => {
            (Op::PadTo(PadTo { to: PadTarget::Like([picked[1], picked[2]]), ..pad }), vec![first])
        }
        Op::Add | Op::Mul | Op::Minimum | Op::Maximum => (op, vec![first; 3]),
        Op::Sub | Op::Div => (op, vec![first; 2]),
        Op::Concat => (op, picked.to_vec()),
        Op::GroupNorm(norm) => {
            let num_groups = dividing(norm.num_groups);
            (Op::GroupNorm(GroupNorm { num_groups, ..norm }), vec![first])
        }
        Op::Slice(slice) => (Op::Slice(fitted_slice(&slice, channels)), vec![first]),
        Op::Split(split) => {
            let split_size = match split.split_size {
                SplitSize::Every(size) => SplitSize::Every(size),
                SplitSize::Each(_) if channels > 1 => SplitSize::Each(vec![1, channels - 1]),
                SplitSize::Each(_) => SplitSize::Each(vec![1]),
            };
            let parts = match &split_size {
                SplitSize::Every(size) => channels.div_ceil(*size),
                SplitSize::Each(sizes) => sizes.len(),
            };
            (Op::Split(Split { index: split.index % parts, split_size }), vec![first])
        }
        Op::ChannelShuffle(shuffle) => {
            (Op::ChannelShuffle(ChannelShuffle { groups: dividing(shuffle.groups) }), vec![first])
        }
        Op::PixelShuffle(shuffle) => {
            let divides = channels.is_multiple_of(4);
            let upscale_factor = if divides { shuffle.upscale_factor } else { [1, 1] };
            (Op::PixelShuffle(PixelShuffle { upscale_factor }), vec![first])
        }
        Op::Linear(linear) => {
            let in_features = linear.in_features.map(|pixels| pixels * channels);
            (Op::Linear(Linear { in_features, ..linear }), vec![first])
        }
        op => (op, vec![first]),
    }
}

fn norm() -> impl Strategy<Value = Op> {
    let flags = any::<(bool, bool)>();
    prop_oneof![
        (1e-9..1.0_f64, 0.0..=1.0_f64, flags).prop_map(|(eps, momentum, (affine, track_running_stats))| {
            Op::InstanceNorm(InstanceNorm { eps, momentum, affine, track_running_stats })
        }),
        (1..4_usize, 1e-9..1.0_f64, any::<bool>())
            .prop_map(|(num_groups, eps, affine)| { Op::GroupNorm(GroupNorm { num_groups, eps, affine }) }),
        (1e-9..1.0_f64, any::<(bool, bool)>()).prop_map(|(eps, (elementwise_affine, bias))| {
            Op::LayerNorm(LayerNorm { eps, elementwise_affine, bias })
        }),
        (1e-9..1.0_f64, any::<bool>())
            .prop_map(|(eps, elementwise_affine)| Op::RmsNorm(RmsNorm { eps, elementwise_affine })),
        (1..9_usize, 0.0..2.0_f64, 0.1..2.0_f64, 0.5..2.0_f64).prop_map(|(size, alpha, beta, k)| {
            Op::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k })
        }),
        Just(Op::Softmax),
        Just(Op::LogSoftmax),
    ]
}

/// The same ends where there are channels between them, else all channels.
fn fitted_slice(slice: &Slice, channels: usize) -> Slice {
    let count = i64::try_from(channels).unwrap();
    let place = |place: i64| if place < 0 { place + count } else { place };
    let (begin, end) = (place(slice.begin), slice.end.map_or(count, place));
    if 0 <= begin && begin < end && end <= count { slice.clone() } else { Slice { begin: 0, end: None } }
}

fn operator() -> impl Strategy<Value = Op> {
    let activation = prop_oneof![
        Just(Activation::Relu),
        (-1.0..1.0_f64).prop_map(|slope| Activation::LeakyRelu { slope }),
        Just(Activation::Sigmoid),
        Just(Activation::Tanh),
        Just(Activation::Silu),
        Just(Activation::Gelu),
        Just(Activation::GeluTanh),
        (-2.0..2.0_f64, -2.0..2.0_f64).prop_map(|(min, max)| Activation::Clamp { min, max }),
        Just(Activation::Clamp { min: 0.0, max: f64::INFINITY }),
        Just(Activation::Clamp { min: 0.0, max: 6.0 }),
        (-2.0..2.0_f64, -2.0..2.0_f64)
            .prop_map(|(threshold, value)| Activation::Threshold { threshold, value }),
        (0.1..2.0_f64).prop_map(|alpha| Activation::Celu { alpha }),
        (-2.0..2.0_f64).prop_map(|alpha| Activation::Elu { alpha }),
        (0.1..2.0_f64, 1.0..30.0_f64).prop_map(|(beta, threshold)| Activation::Softplus { beta, threshold }),
        (-3.0..3.0_f64).prop_map(|exponent| Activation::Pow { exponent }),
        prop::sample::select(vec![
            Activation::Selu,
            Activation::Softsign,
            Activation::HardSigmoid,
            Activation::HardSwish,
            Activation::Mish,
            Activation::LogSigmoid,
            Activation::Exp,
            Activation::Log,
            Activation::Sqrt,
            Activation::Abs,
            Activation::Neg,
            Activation::Reciprocal,
        ]),
    ];
    let joins =
        prop::sample::select(vec![Op::Add, Op::Mul, Op::Sub, Op::Div, Op::Minimum, Op::Maximum, Op::Concat]);
    let functions = prop::sample::select(vec![Elementwise::Sub, Elementwise::Mul, Elementwise::Maximum]);
    let operand = prop_oneof![(-2.0..2.0_f64).prop_map(Operand::Number), Just(Operand::Weight)];
    let with = (functions, operand, any::<bool>()).prop_map(|(function, operand, reversed)| {
        Op::WithOperand(WithOperand { function, operand, reversed })
    });
    let dropped = prop_oneof![
        (0.0..1.0_f64).prop_map(|p| Op::Dropout2d(Dropout2d { p })),
        (0.0..1.0_f64, prop::sample::select(vec![StochasticDepthMode::Row, StochasticDepthMode::Batch]))
            .prop_map(|(p, mode)| Op::StochasticDepth(StochasticDepth { p, mode })),
        (-1.0..1.0_f64).prop_map(|init| Op::Prelu(Prelu { num_parameters: 1, init })),
    ];
    let heads = prop::sample::select(vec![Op::GlobalAvgPool, Op::GlobalMaxPool, Op::GlobalSumPool]);
    prop_oneof![
        3 => convolution(),
        2 => transposed(),
        2 => pooling(),
        1 => (1e-9..1.0_f64, prop::option::of(0.0..=1.0_f64), any::<bool>(), any::<bool>())
            .prop_map(|(eps, momentum, affine, track_running_stats)| {
                Op::BatchNorm(BatchNorm { eps, momentum, affine, track_running_stats })
            }),
        2 => norm(),
        6 => activation.prop_map(Op::Activation),
        3 => joins,
        1 => with,
        1 => dropped,
        2 => upsampling(),
        1 => heads,
        1 => adaptive(),
        1 => (1..9_usize, prop::option::of(1..40_usize), any::<bool>()).prop_map(
            |(out_features, in_features, bias)| Op::Linear(Linear { out_features, in_features, bias })
        ),
        3 => rearranging(),
        1 => (0.0..1.0_f64).prop_map(|p| Op::Dropout(Dropout { p })),
    ]
}

fn pair(range: std::ops::Range<i64>) -> impl Strategy<Value = [i64; 2]> {
    [range.clone(), range]
}

fn convolution() -> impl Strategy<Value = Op> {
    let modes = vec![PaddingMode::Zeros, PaddingMode::Reflect, PaddingMode::Replicate];
    let sizes = (1..5_usize, pair(1..8), pair(1..5), [pair(0..5), pair(0..5)], pair(1..4));
    let rest = (1..4_usize, any::<bool>(), prop::sample::select(modes));
    (sizes, rest).prop_map(
        |((out_channels, kernel_size, stride, padding, dilation), (groups, bias, padding_mode))| {
            Op::Conv2d(Conv2d {
                out_channels,
                kernel_size,
                stride,
                padding,
                dilation,
                groups,
                bias,
                padding_mode,
            })
        },
    )
}

fn transposed() -> impl Strategy<Value = Op> {
    let sizes = (1..5_usize, pair(1..8), pair(1..5), pair(0..5), pair(1..4));
    (sizes, pair(0..4), 1..4_usize, any::<bool>()).prop_map(
        |((out_channels, kernel_size, stride, padding, dilation), wanted, groups, bias)| {
            let below = |axis: usize| wanted[axis].min(stride[axis].max(dilation[axis]) - 1);
            Op::ConvTranspose2d(ConvTranspose2d {
                out_channels,
                kernel_size,
                stride,
                padding,
                output_padding: [below(0), below(1)],
                dilation,
                groups,
                bias,
            })
        },
    )
}

fn pooling() -> impl Strategy<Value = Op> {
    (pair(1..6), pair(1..4), [pair(0..4), pair(0..4)], pair(1..3), any::<[bool; 3]>()).prop_map(
        |(kernel_size, stride, wanted, dilation, [is_max, ceil_mode, count_include_pad])| {
            let padding = [0, 1].map(|axis| wanted[axis].map(|side| side.min(kernel_size[axis] / 2)));
            if is_max {
                Op::MaxPool2d(MaxPool2d { kernel_size, stride, padding, dilation, ceil_mode })
            } else {
                Op::AvgPool2d(AvgPool2d { kernel_size, stride, padding, ceil_mode, count_include_pad })
            }
        },
    )
}

/// To one pixel it has another name.
fn adaptive() -> impl Strategy<Value = Op> {
    (prop::option::of(1..9_i64), prop::option::of(2..9_i64), any::<bool>()).prop_map(
        |(height, width, is_max)| {
            let pooling = if is_max { PartPooling::Max } else { PartPooling::Mean };
            Op::AdaptivePool2d(AdaptivePool2d { pooling, output_size: [height, width] })
        },
    )
}

fn padding_shows() -> impl Strategy<Value = PadWith> {
    prop_oneof![
        (-2.0..2.0_f64).prop_map(PadWith::Constant),
        Just(PadWith::Reflect),
        Just(PadWith::Replicate),
        Just(PadWith::Circular),
    ]
}

fn pad_target() -> impl Strategy<Value = PadTarget> {
    prop_oneof![
        pair(1..40).prop_map(PadTarget::Multiple),
        (pair(1..40), pair(1..9)).prop_map(|(size, stride)| PadTarget::Windows { size, stride }),
        Just(PadTarget::Like([ValueId(0); 2])),
    ]
}

fn rearranging() -> impl Strategy<Value = Op> {
    let sizes = prop_oneof![
        (1..5_usize).prop_map(SplitSize::Every),
        prop::collection::vec(1..4_usize, 1..4).prop_map(SplitSize::Each),
    ];
    prop_oneof![
        (-4..4_i64, prop::option::of(-3..5_i64)).prop_map(|(begin, end)| Op::Slice(Slice { begin, end })),
        (sizes, 0..3_usize).prop_map(|(split_size, index)| Op::Split(Split { split_size, index })),
        (1..4_usize).prop_map(|groups| Op::ChannelShuffle(ChannelShuffle { groups })),
        pair(1..3).prop_map(|upscale_factor| Op::PixelShuffle(PixelShuffle { upscale_factor })),
        pair(1..3).prop_map(|downscale_factor| Op::PixelUnshuffle(PixelUnshuffle { downscale_factor })),
        ([pair(-3..5), pair(-3..5)], padding_shows())
            .prop_map(|(padding, with)| Op::Pad(Pad { padding, with })),
        (pad_target(), any::<bool>(), padding_shows()).prop_map(|(to, around, with)| {
            let placement = if around { Placement::Around } else { Placement::After };
            Op::PadTo(PadTo { to, placement, with })
        }),
        prop::sample::select(vec![Op::ArgMax, Op::ChannelMax, Op::ChannelMean, Op::ChannelSum]),
    ]
}

fn upsampling() -> impl Strategy<Value = Op> {
    let mode = prop_oneof![
        Just(ResizeMode::NEAREST),
        Just(ResizeMode::NEAREST_EXACT),
        Just(ResizeMode::LINEAR),
        Just(ResizeMode::LINEAR_ALIGNED),
        Just(ResizeMode::CUBIC),
        (any_filter(), any_coordinates())
            .prop_map(|(filter, coordinates)| ResizeMode { filter, coordinates }),
    ];
    let to = prop_oneof![
        pair(1..40).prop_map(UpsampleTo::Size),
        prop::sample::select(vec![[2.0, 2.0], [1.0, 3.0], [0.5, 1.3], [2.75, 1.0]])
            .prop_map(UpsampleTo::Scale),
        Just(UpsampleTo::Like(ValueId(0))),
    ];
    (mode, to).prop_map(|(mode, to)| Op::Upsample(Upsample { mode, to }))
}

fn any_filter() -> impl Strategy<Value = Filter> {
    let rounding =
        prop::sample::select(vec![Rounding::Floor, Rounding::Ceil, Rounding::HalfDown, Rounding::HalfUp]);
    let cubic = (-8000..8000, any::<bool>()).prop_map(|(slope_thousandths, drops_outside)| {
        Filter::Cubic(Cubic { slope_thousandths, drops_outside })
    });
    prop_oneof![rounding.prop_map(Filter::Nearest), Just(Filter::Linear), cubic]
}

fn any_coordinates() -> impl Strategy<Value = Coordinates> {
    prop::sample::select(vec![
        Coordinates::HalfPixel,
        Coordinates::HalfPixelOfSeveral,
        Coordinates::HalfPixelSymmetric,
        Coordinates::AlignCorners,
        Coordinates::Asymmetric,
    ])
}
