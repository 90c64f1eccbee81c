//! What an operator makes of height and width, whatever the image.

use tiled_graph::{Op, PadTarget, PixelShuffle, PixelUnshuffle, Upsample, UpsampleTo, ValueId};
use tiled_tensor::OutOfMemory;

use super::extents::{Extent, Extents};

/// Height and width of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formula {
    /// Of those of the first operand that has more than one pixel.
    Lines([Line; 2]),
    /// The height of another value and the width of one, by their numbers among what is planned.
    Like([usize; 2]),
    /// The least multiples of these that are not below those of the operand.
    Multiples([i64; 2]),
    /// What windows of so many rows and columns cover at these strides, as many as `⌈e/s⌉`, where that is more.
    Windows { size: [i64; 2], stride: [i64; 2] },
    /// They are the same for every image.
    Numbers([i64; 2]),
    /// Nothing is said of them.
    Unknown,
}

/// `floor((times·e + plus)/divisor)` of an extent e.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    times: i64,
    plus: i64,
    divisor: i64,
}

impl Line {
    const SAME: Self = Self { times: 1, plus: 0, divisor: 1 };

    /// The same number for every extent.
    const fn number(number: i64) -> Self {
        Self { times: 0, plus: number, divisor: 1 }
    }

    /// The number of windows, `floor((e + padding − reach − 1)/stride) + 1`, or the quotient rounded up.
    const fn windows(
        kernel: i64,
        stride: i64,
        dilation: i64,
        padding: [i64; 2],
        is_up: bool,
    ) -> Option<Self> {
        let Some(reach) = dilation.checked_mul(kernel - 1) else { return None };
        let Some(padded) = padding[0].checked_add(padding[1]) else { return None };
        let Some(plus) = padded.checked_sub(reach) else { return None };
        let Some(plus) = plus.checked_sub(1) else { return None };
        let more = if is_up { 2 * stride - 1 } else { stride };
        // a window that begins behind the image and the padding before it is left out, which no formula says
        if is_up && stride + padding[1] > reach + 1 {
            return None;
        }
        match plus.checked_add(more) {
            Some(plus) => Some(Self { times: 1, plus, divisor: stride }),
            None => None,
        }
    }

    /// The extent that it makes of another.
    pub(crate) fn applied(self, extents: &mut Extents, of: Extent) -> Result<Option<Extent>, OutOfMemory> {
        extents.linear(of, self.times, self.plus, self.divisor)
    }
}

/// What an operator makes of height and width.
pub(crate) fn of(op: &Op) -> Formula {
    let lines = |line: &dyn Fn(usize) -> Option<Line>| match (line(0), line(1)) {
        (Some(height), Some(width)) => Formula::Lines([height, width]),
        _ => Formula::Unknown,
    };
    match op {
        Op::Activation(_)
        | Op::BatchNorm(_)
        | Op::InstanceNorm(_)
        | Op::GroupNorm(_)
        | Op::LayerNorm(_)
        | Op::RmsNorm(_)
        | Op::LocalResponseNorm(_)
        | Op::Softmax
        | Op::LogSoftmax
        | Op::Dropout(_)
        | Op::Prelu(_)
        | Op::WithOperand(_)
        | Op::Concat
        | Op::Slice(_)
        | Op::Split(_)
        | Op::ChannelShuffle(_)
        | Op::ArgMax
        | Op::ChannelMax
        | Op::ChannelMean
        | Op::ChannelSum
        | Op::Add
        | Op::Mul
        | Op::Sub
        | Op::Div
        | Op::Minimum
        | Op::Maximum => Formula::Lines([Line::SAME; 2]),
        Op::Conv2d(conv) => lines(&|axis| {
            let (kernel, dilation) = (conv.kernel_size[axis], conv.dilation[axis]);
            Line::windows(kernel, conv.stride[axis], dilation, conv.padding[axis], false)
        }),
        Op::MaxPool2d(pool) => lines(&|axis| {
            let (kernel, dilation) = (pool.kernel_size[axis], pool.dilation[axis]);
            Line::windows(kernel, pool.stride[axis], dilation, pool.padding[axis], pool.ceil_mode)
        }),
        Op::AvgPool2d(pool) => lines(&|axis| {
            Line::windows(pool.kernel_size[axis], pool.stride[axis], 1, pool.padding[axis], pool.ceil_mode)
        }),
        Op::AdaptivePool2d(pool) => {
            lines(&|axis| Some(pool.output_size[axis].map_or(Line::SAME, Line::number)))
        }
        // s·(n − 1) + d·(k − 1) + 1 − 2p and what is added
        Op::ConvTranspose2d(conv) => lines(&|axis| {
            let reach = conv.dilation[axis].checked_mul(conv.kernel_size[axis] - 1)?;
            let whole = reach.checked_add(1)?.checked_add(conv.output_padding[axis])?;
            let plus =
                whole.checked_sub(conv.padding[axis].checked_mul(2)?)?.checked_sub(conv.stride[axis])?;
            Some(Line { times: conv.stride[axis], plus, divisor: 1 })
        }),
        Op::Pad(pad) => lines(&|axis| {
            let [before, after] = pad.padding[axis];
            Some(Line { plus: before.checked_add(after)?, ..Line::SAME })
        }),
        Op::PixelShuffle(PixelShuffle { upscale_factor }) => {
            lines(&|axis| Some(Line { times: upscale_factor[axis], ..Line::SAME }))
        }
        Op::PixelUnshuffle(PixelUnshuffle { downscale_factor }) => {
            lines(&|axis| Some(Line { divisor: downscale_factor[axis], ..Line::SAME }))
        }
        Op::PadTo(pad) => match pad.to {
            PadTarget::Multiple(multiple) => Formula::Multiples(multiple),
            PadTarget::Windows { size, stride } => Formula::Windows { size, stride },
            PadTarget::Like(like) => Formula::Like(like.map(|ValueId(like)| like)),
        },
        Op::GlobalAvgPool | Op::GlobalMaxPool | Op::GlobalSumPool | Op::Linear(_) => Formula::Numbers([1, 1]),
        Op::Upsample(Upsample { to, .. }) => match *to {
            UpsampleTo::Like(ValueId(like)) => Formula::Like([like, like]),
            UpsampleTo::Size(size) => Formula::Numbers(size),
            UpsampleTo::Scale(scales) => lines(&|axis| {
                let times = super::numbers::whole(scales[axis])?;
                Some(Line { times, ..Line::SAME })
            }),
        },
        _ => Formula::Unknown,
    }
}
