//! Operators as they stand in a network: named and defaulted as in PyTorch.
//!
//! Each has a file with all that this crate knows of it: attributes, network format, checks, shapes, parameters, lowering and
//! gradient, in this order. [`Op`] is one of them all: it stands above their files, and none of them reads it.

mod activation;
mod adaptive_pool2d;
mod arg_max;
mod batch_norm;
mod channel_fold;
pub(crate) mod check;
mod concat;
mod conv2d;
mod conv_transpose2d;
mod drop_whole;
mod dropout;
mod elementwise;
mod global_pool;
mod group_norm;
mod instance_norm;
mod layer_norm;
mod linear;
mod local_response_norm;
mod norm;
pub(crate) mod operator;
mod pad;
mod pad_to;
mod pool2d;
mod prelu;
mod shuffle;
mod slice;
mod softmax;
mod upsample;
mod windowed;

pub use adaptive_pool2d::{AdaptivePool2d, PartPooling};
pub use batch_norm::BatchNorm;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::{Conv2d, PaddingMode};
pub use drop_whole::{Dropout2d, StochasticDepth, StochasticDepthMode};
pub use dropout::Dropout;
pub use elementwise::{Elementwise, Operand, WithOperand};
pub use group_norm::GroupNorm;
pub use instance_norm::InstanceNorm;
pub use layer_norm::{LayerNorm, RmsNorm};
pub use linear::Linear;
pub use local_response_norm::LocalResponseNorm;
pub use pad::{Pad, PadWith};
pub use pad_to::{PadTarget, PadTo, Placement};
pub use pool2d::{AvgPool2d, MaxPool2d};
pub use prelu::Prelu;
pub use shuffle::{ChannelShuffle, PixelShuffle, PixelUnshuffle};
pub use slice::{Slice, Split, SplitSize};
pub use upsample::{Upsample, UpsampleTo};

use tiled_kernel::Activation;

use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, Find};
use arg_max::ArgMax;
use channel_fold::ChannelFold;
use concat::Concat;
use global_pool::GlobalPool;
use operator::{Format, Operator};
use softmax::Softmax;

/// An operator with its attributes. Pairs are height, then width.
///
/// ```
/// use tiled_graph::{Arity, Linear, Op};
/// assert_eq!(Op::Linear(Linear::new(10)).name(), "linear");
/// assert_eq!(Op::Concat.arity(), Arity::AtLeast(2));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `conv2d`.
    Conv2d(Conv2d),
    /// `conv_transpose2d`.
    ConvTranspose2d(ConvTranspose2d),
    /// `max_pool2d`.
    MaxPool2d(MaxPool2d),
    /// `avg_pool2d`.
    AvgPool2d(AvgPool2d),
    /// `adaptive_avg_pool2d` or `adaptive_max_pool2d`.
    AdaptivePool2d(AdaptivePool2d),
    /// `batch_norm`.
    BatchNorm(BatchNorm),
    /// `instance_norm`.
    InstanceNorm(InstanceNorm),
    /// `group_norm`.
    GroupNorm(GroupNorm),
    /// `layer_norm` over the channels of each pixel.
    LayerNorm(LayerNorm),
    /// `rms_norm` over the channels of each pixel.
    RmsNorm(RmsNorm),
    /// `local_response_norm`.
    LocalResponseNorm(LocalResponseNorm),
    /// `softmax` over the channels of each pixel.
    Softmax,
    /// `log_softmax` over the channels of each pixel.
    LogSoftmax,
    /// `relu`, `gelu`, `clamp`, `pow` and the other functions of one element.
    Activation(Activation),
    /// `prelu`.
    Prelu(Prelu),
    /// `add` of two or more values.
    Add,
    /// `mul` of two or more values.
    Mul,
    /// `sub` of two values.
    Sub,
    /// `div` of two values.
    Div,
    /// `minimum` of two or more values.
    Minimum,
    /// `maximum` of two or more values.
    Maximum,
    /// `add`, `mul`, `sub`, `div`, `minimum` or `maximum` of a value and a number or a parameter.
    WithOperand(WithOperand),
    /// `concat` of two or more values along the channels.
    Concat,
    /// `slice`: some of the channels.
    Slice(Slice),
    /// `split`: one part of the channels.
    Split(Split),
    /// `channel_shuffle`.
    ChannelShuffle(ChannelShuffle),
    /// `pixel_shuffle`.
    PixelShuffle(PixelShuffle),
    /// `pixel_unshuffle`.
    PixelUnshuffle(PixelUnshuffle),
    /// `pad`: rows and columns added, or removed.
    Pad(Pad),
    /// `pad_to`: rows and columns added, or removed, up to extents that are wanted.
    PadTo(PadTo),
    /// `argmax` over the channels: one channel, the number of the largest. It has no gradient.
    ArgMax,
    /// `channel_max`: the largest channel of each pixel, one channel.
    ChannelMax,
    /// `channel_mean`: the mean of the channels of each pixel, one channel.
    ChannelMean,
    /// `channel_sum`: the sum of the channels of each pixel, one channel.
    ChannelSum,
    /// `upsample`.
    Upsample(Upsample),
    /// `global_avg_pool`: mean over the image, N×C×1×1.
    GlobalAvgPool,
    /// `global_max_pool`: maximum over the image, N×C×1×1.
    GlobalMaxPool,
    /// `global_sum_pool`: sum over the image, N×C×1×1.
    GlobalSumPool,
    /// `linear` over all of a value of known size.
    Linear(Linear),
    /// `dropout`: identity in evaluation.
    Dropout(Dropout),
    /// `dropout2d`: identity in evaluation.
    Dropout2d(Dropout2d),
    /// `stochastic_depth`: identity in evaluation.
    StochasticDepth(StochasticDepth),
}

impl Op {
    /// The name, as in the network format.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.operator().format().name
    }

    /// How many operands it takes.
    #[must_use]
    pub fn arity(&self) -> Arity {
        self.operator().format().arity
    }

    pub(crate) const fn operator(&self) -> &dyn Operator {
        match self {
            Self::Conv2d(conv) => conv,
            Self::ConvTranspose2d(conv) => conv,
            Self::MaxPool2d(pool) => pool,
            Self::AvgPool2d(pool) => pool,
            Self::AdaptivePool2d(pool) => pool,
            Self::BatchNorm(norm) => norm,
            Self::InstanceNorm(norm) => norm,
            Self::GroupNorm(norm) => norm,
            Self::LayerNorm(norm) => norm,
            Self::RmsNorm(norm) => norm,
            Self::LocalResponseNorm(norm) => norm,
            Self::Softmax => &Softmax::Plain,
            Self::LogSoftmax => &Softmax::Log,
            Self::Activation(activation) => activation,
            Self::Prelu(prelu) => prelu,
            Self::Add => &Elementwise::Add,
            Self::Mul => &Elementwise::Mul,
            Self::Sub => &Elementwise::Sub,
            Self::Div => &Elementwise::Div,
            Self::Minimum => &Elementwise::Minimum,
            Self::Maximum => &Elementwise::Maximum,
            Self::WithOperand(with) => with,
            Self::Concat => &Concat,
            Self::Slice(slice) => slice,
            Self::Split(split) => split,
            Self::ChannelShuffle(shuffle) => shuffle,
            Self::PixelShuffle(shuffle) => shuffle,
            Self::PixelUnshuffle(shuffle) => shuffle,
            Self::Pad(pad) => pad,
            Self::PadTo(pad) => pad,
            Self::ArgMax => &ArgMax,
            Self::ChannelMax => &ChannelFold::Max,
            Self::ChannelMean => &ChannelFold::Mean,
            Self::ChannelSum => &ChannelFold::Sum,
            Self::Upsample(upsample) => upsample,
            Self::GlobalAvgPool => &GlobalPool::Mean,
            Self::GlobalMaxPool => &GlobalPool::Max,
            Self::GlobalSumPool => &GlobalPool::Sum,
            Self::Linear(linear) => linear,
            Self::Dropout(dropout) => dropout,
            Self::Dropout2d(dropout) => dropout,
            Self::StochasticDepth(depth) => depth,
        }
    }
}

/// Reads the attributes of an operator, with PyTorch's defaults for those that are not there.
pub(crate) type Read = fn(&Fields<'_>, Find<'_>) -> Result<Op, GraphError>;

/// All operators of the network format.
pub(crate) static OPERATORS: [(&Format, Read); 67] = [
    (&conv2d::FORMAT, |fields, _| conv2d::read(fields).map(Op::Conv2d)),
    (&conv_transpose2d::FORMAT, |fields, _| conv_transpose2d::read(fields).map(Op::ConvTranspose2d)),
    (&pool2d::MAX, |fields, _| pool2d::read_max(fields).map(Op::MaxPool2d)),
    (&pool2d::AVG, |fields, _| pool2d::read_avg(fields).map(Op::AvgPool2d)),
    (&adaptive_pool2d::AVG, |fields, _| adaptive(fields, PartPooling::Mean, Op::GlobalAvgPool)),
    (&adaptive_pool2d::MAX, |fields, _| adaptive(fields, PartPooling::Max, Op::GlobalMaxPool)),
    (&batch_norm::FORMAT, |fields, _| batch_norm::read(fields).map(Op::BatchNorm)),
    (&instance_norm::FORMAT, |fields, _| instance_norm::read(fields).map(Op::InstanceNorm)),
    (&group_norm::FORMAT, |fields, _| group_norm::read(fields).map(Op::GroupNorm)),
    (&layer_norm::LAYER, |fields, _| layer_norm::read(fields).map(Op::LayerNorm)),
    (&layer_norm::RMS, |fields, _| layer_norm::read_rms(fields).map(Op::RmsNorm)),
    (&local_response_norm::FORMAT, |fields, _| local_response_norm::read(fields).map(Op::LocalResponseNorm)),
    (&softmax::PLAIN, |fields, _| softmax::check_dim(fields).map(|()| Op::Softmax)),
    (&softmax::LOG, |fields, _| softmax::check_dim(fields).map(|()| Op::LogSoftmax)),
    (&activation::RELU, |_, _| Ok(Op::Activation(Activation::Relu))),
    (&activation::LEAKY_RELU, |fields, _| activation::read_leaky_relu(fields).map(Op::Activation)),
    (&activation::SIGMOID, |_, _| Ok(Op::Activation(Activation::Sigmoid))),
    (&activation::TANH, |_, _| Ok(Op::Activation(Activation::Tanh))),
    (&activation::SILU, |_, _| Ok(Op::Activation(Activation::Silu))),
    (&activation::GELU, |fields, _| activation::read_gelu(fields).map(Op::Activation)),
    (&activation::RELU6, |_, _| Ok(Op::Activation(activation::OF_RELU6))),
    (&activation::CLAMP, |fields, _| activation::read_clamp(fields).map(Op::Activation)),
    (&activation::HARDTANH, |fields, _| activation::read_hardtanh(fields).map(Op::Activation)),
    (&activation::THRESHOLD, |fields, _| activation::read_threshold(fields).map(Op::Activation)),
    (&activation::ELU, |fields, _| activation::read_elu(fields).map(Op::Activation)),
    (&activation::SELU, |_, _| Ok(Op::Activation(Activation::Selu))),
    (&activation::CELU, |fields, _| activation::read_celu(fields).map(Op::Activation)),
    (&activation::SOFTPLUS, |fields, _| activation::read_softplus(fields).map(Op::Activation)),
    (&activation::SOFTSIGN, |_, _| Ok(Op::Activation(Activation::Softsign))),
    (&activation::HARDSIGMOID, |_, _| Ok(Op::Activation(Activation::HardSigmoid))),
    (&activation::HARDSWISH, |_, _| Ok(Op::Activation(Activation::HardSwish))),
    (&activation::MISH, |_, _| Ok(Op::Activation(Activation::Mish))),
    (&activation::LOGSIGMOID, |_, _| Ok(Op::Activation(Activation::LogSigmoid))),
    (&activation::EXP, |_, _| Ok(Op::Activation(Activation::Exp))),
    (&activation::LOG, |_, _| Ok(Op::Activation(Activation::Log))),
    (&activation::SQRT, |_, _| Ok(Op::Activation(Activation::Sqrt))),
    (&activation::ABS, |_, _| Ok(Op::Activation(Activation::Abs))),
    (&activation::NEG, |_, _| Ok(Op::Activation(Activation::Neg))),
    (&activation::RECIPROCAL, |_, _| Ok(Op::Activation(Activation::Reciprocal))),
    (&activation::POW, |fields, _| activation::read_pow(fields).map(Op::Activation)),
    (&prelu::FORMAT, |fields, _| prelu::read(fields).map(Op::Prelu)),
    (&elementwise::ADD, |fields, _| arithmetic(fields, Elementwise::Add, Op::Add)),
    (&elementwise::MUL, |fields, _| arithmetic(fields, Elementwise::Mul, Op::Mul)),
    (&elementwise::SUB, |fields, _| arithmetic(fields, Elementwise::Sub, Op::Sub)),
    (&elementwise::DIV, |fields, _| arithmetic(fields, Elementwise::Div, Op::Div)),
    (&elementwise::MINIMUM, |fields, _| arithmetic(fields, Elementwise::Minimum, Op::Minimum)),
    (&elementwise::MAXIMUM, |fields, _| arithmetic(fields, Elementwise::Maximum, Op::Maximum)),
    (&concat::FORMAT, |_, _| Ok(Op::Concat)),
    (&slice::SLICE, |fields, _| slice::read_slice(fields).map(Op::Slice)),
    (&slice::SPLIT, |fields, _| slice::read_split(fields).map(Op::Split)),
    (&shuffle::CHANNEL_SHUFFLE, |fields, _| shuffle::read_channel_shuffle(fields).map(Op::ChannelShuffle)),
    (&shuffle::PIXEL_SHUFFLE, |fields, _| shuffle::read_pixel_shuffle(fields).map(Op::PixelShuffle)),
    (&shuffle::PIXEL_UNSHUFFLE, |fields, _| shuffle::read_pixel_unshuffle(fields).map(Op::PixelUnshuffle)),
    (&pad::FORMAT, |fields, _| pad::read(fields).map(Op::Pad)),
    (&pad_to::FORMAT, |fields, find| pad_to::read(fields, find).map(Op::PadTo)),
    (&arg_max::FORMAT, |_, _| Ok(Op::ArgMax)),
    (&channel_fold::MAX, |_, _| Ok(Op::ChannelMax)),
    (&channel_fold::MEAN, |_, _| Ok(Op::ChannelMean)),
    (&channel_fold::SUM, |_, _| Ok(Op::ChannelSum)),
    (&upsample::FORMAT, |fields, find| upsample::read(fields, find).map(Op::Upsample)),
    (&global_pool::AVG, |_, _| Ok(Op::GlobalAvgPool)),
    (&global_pool::MAX, |_, _| Ok(Op::GlobalMaxPool)),
    (&global_pool::SUM, |_, _| Ok(Op::GlobalSumPool)),
    (&linear::FORMAT, |fields, _| linear::read(fields).map(Op::Linear)),
    (&dropout::FORMAT, |fields, _| dropout::read(fields).map(Op::Dropout)),
    (&drop_whole::DROPOUT2D, |fields, _| drop_whole::read_dropout2d(fields).map(Op::Dropout2d)),
    (&drop_whole::STOCHASTIC_DEPTH, |fields, _| {
        drop_whole::read_stochastic_depth(fields).map(Op::StochasticDepth)
    }),
];

/// Arithmetic of the operands alone, or of the only one and what the keys say.
fn arithmetic(fields: &Fields<'_>, function: Elementwise, alone: Op) -> Result<Op, GraphError> {
    Ok(elementwise::read(fields, function)?.map_or(alone, Op::WithOperand))
}

/// A pooling to a size, or over the whole image where that is one pixel.
fn adaptive(fields: &Fields<'_>, pooling: PartPooling, of_image: Op) -> Result<Op, GraphError> {
    Ok(adaptive_pool2d::read(fields, pooling)?.map_or(of_image, Op::AdaptivePool2d))
}
