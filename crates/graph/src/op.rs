//! Operators as they stand in a network: named and defaulted as in PyTorch.
//!
//! Each has a file with all that this crate knows of it: attributes, network format, checks, shapes, parameters, lowering and
//! gradient, in this order. [`Op`] is one of them all: it stands above their files, and none of them reads it.

mod activation;
mod arg_max;
mod batch_norm;
pub(crate) mod check;
mod concat;
mod conv2d;
mod conv_transpose2d;
mod dropout;
mod elementwise;
mod global_pool;
mod linear;
pub(crate) mod operator;
mod pad;
mod pool2d;
mod shuffle;
mod slice;
mod upsample;
mod windowed;

pub use batch_norm::BatchNorm;
pub use conv_transpose2d::ConvTranspose2d;
pub use conv2d::{Conv2d, PaddingMode};
pub use dropout::Dropout;
pub use linear::Linear;
pub use pad::{Pad, PadWith};
pub use pool2d::{AvgPool2d, MaxPool2d};
pub use shuffle::{ChannelShuffle, PixelShuffle, PixelUnshuffle};
pub use slice::{Slice, Split, SplitSize};
pub use upsample::{Upsample, UpsampleMode, UpsampleTo};

use tiled_kernel::Activation;

use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, Find};
use arg_max::ArgMax;
use concat::Concat;
use elementwise::Elementwise;
use global_pool::GlobalPool;
use operator::{Format, Operator};

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
    /// `batch_norm`.
    BatchNorm(BatchNorm),
    /// `relu`, `leaky_relu`, `sigmoid`, `tanh`, `silu`, `gelu`.
    Activation(Activation),
    /// `add` of two or more values of the same shape.
    Add,
    /// `mul` of two or more values of the same shape.
    Mul,
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
    /// `argmax` over the channels: one channel, the number of the largest. It has no gradient.
    ArgMax,
    /// `upsample`.
    Upsample(Upsample),
    /// `global_avg_pool`: mean over the image, N×C×1×1.
    GlobalAvgPool,
    /// `global_max_pool`: maximum over the image, N×C×1×1.
    GlobalMaxPool,
    /// `linear` over all of a value of known size.
    Linear(Linear),
    /// `dropout`: identity in evaluation.
    Dropout(Dropout),
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
            Self::BatchNorm(norm) => norm,
            Self::Activation(activation) => activation,
            Self::Add => &Elementwise::Add,
            Self::Mul => &Elementwise::Mul,
            Self::Concat => &Concat,
            Self::Slice(slice) => slice,
            Self::Split(split) => split,
            Self::ChannelShuffle(shuffle) => shuffle,
            Self::PixelShuffle(shuffle) => shuffle,
            Self::PixelUnshuffle(shuffle) => shuffle,
            Self::Pad(pad) => pad,
            Self::ArgMax => &ArgMax,
            Self::Upsample(upsample) => upsample,
            Self::GlobalAvgPool => &GlobalPool::Mean,
            Self::GlobalMaxPool => &GlobalPool::Max,
            Self::Linear(linear) => linear,
            Self::Dropout(dropout) => dropout,
        }
    }
}

/// Reads the attributes of an operator, with PyTorch's defaults for those that are not there.
pub(crate) type Read = fn(&Fields<'_>, Find<'_>) -> Result<Op, GraphError>;

/// All operators of the network format.
pub(crate) static OPERATORS: [(&Format, Read); 28] = [
    (&conv2d::FORMAT, |fields, _| conv2d::read(fields).map(Op::Conv2d)),
    (&conv_transpose2d::FORMAT, |fields, _| conv_transpose2d::read(fields).map(Op::ConvTranspose2d)),
    (&pool2d::MAX, |fields, _| pool2d::read_max(fields).map(Op::MaxPool2d)),
    (&pool2d::AVG, |fields, _| pool2d::read_avg(fields).map(Op::AvgPool2d)),
    (&batch_norm::FORMAT, |fields, _| batch_norm::read(fields).map(Op::BatchNorm)),
    (&activation::RELU, |_, _| Ok(Op::Activation(Activation::Relu))),
    (&activation::LEAKY_RELU, |fields, _| activation::read_leaky_relu(fields).map(Op::Activation)),
    (&activation::SIGMOID, |_, _| Ok(Op::Activation(Activation::Sigmoid))),
    (&activation::TANH, |_, _| Ok(Op::Activation(Activation::Tanh))),
    (&activation::SILU, |_, _| Ok(Op::Activation(Activation::Silu))),
    (&activation::GELU, |fields, _| activation::read_gelu(fields).map(Op::Activation)),
    (&elementwise::ADD, |_, _| Ok(Op::Add)),
    (&elementwise::MUL, |_, _| Ok(Op::Mul)),
    (&concat::FORMAT, |_, _| Ok(Op::Concat)),
    (&slice::SLICE, |fields, _| slice::read_slice(fields).map(Op::Slice)),
    (&slice::SPLIT, |fields, _| slice::read_split(fields).map(Op::Split)),
    (&shuffle::CHANNEL_SHUFFLE, |fields, _| shuffle::read_channel_shuffle(fields).map(Op::ChannelShuffle)),
    (&shuffle::PIXEL_SHUFFLE, |fields, _| shuffle::read_pixel_shuffle(fields).map(Op::PixelShuffle)),
    (&shuffle::PIXEL_UNSHUFFLE, |fields, _| shuffle::read_pixel_unshuffle(fields).map(Op::PixelUnshuffle)),
    (&pad::FORMAT, |fields, _| pad::read(fields).map(Op::Pad)),
    (&arg_max::FORMAT, |_, _| Ok(Op::ArgMax)),
    (&upsample::FORMAT, |fields, find| upsample::read(fields, find).map(Op::Upsample)),
    (&global_pool::AVG, |_, _| Ok(Op::GlobalAvgPool)),
    (&global_pool::MAX, |_, _| Ok(Op::GlobalMaxPool)),
    (&linear::FORMAT, |fields, _| linear::read(fields).map(Op::Linear)),
    (&dropout::FORMAT, |fields, _| dropout::read(fields).map(Op::Dropout)),
    (&global_pool::ADAPTIVE_AVG, |fields, _| global_pool::adaptive(fields).map(|()| Op::GlobalAvgPool)),
    (&global_pool::ADAPTIVE_MAX, |fields, _| global_pool::adaptive(fields).map(|()| Op::GlobalMaxPool)),
];
