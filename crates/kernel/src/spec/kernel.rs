//! Computations from regions of inputs to a region of an output.

use tiled_geometry::{Padding, Resize};

use super::{
    Activation, Algorithm, Arithmetic, Conv, Dropped, Epilogue, LocalResponse, PixelNorm, Pool, Spread,
};

/// A computation of one output from at most [`crate::MAX_INPUTS`] inputs, element by element in global coordinates.
///
/// Inputs and parameters are listed in order; parameters are vectors in the layouts named here, but for those of [`Kernel::Scatter`].
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Kernel {
    /// Convolution of `[x]`, or of `[x, added]` where the epilogue has a sum; parameters: weight OIHW, then a bias
    /// `[out_channels]`, a and b where the epilogue has them.
    Conv2d {
        /// The geometry.
        conv: Conv,
        /// How the sums are computed.
        algorithm: Algorithm,
        /// What follows them.
        epilogue: Epilogue,
    },
    /// Gradient of a convolution with respect to its input, from `[gy]`; parameters: weight OIHW, then a bias
    /// `[in_channels]` where the epilogue has one. With the bias it is the transposed convolution.
    Conv2dBackwardInput {
        /// The geometry of the convolution whose gradient it is.
        conv: Conv,
        /// What follows the sums.
        epilogue: Epilogue,
    },
    /// Maximum over the window of `[x]`, padding never chosen; NaN wins. Negative infinity where a window is all
    /// padding.
    MaxPool2d(Pool),
    /// From `[gy, x]`: each `gy` goes to the first maximum of its window in row-major order; NaN wins. Of several
    /// NaN it is the first as well, where PyTorch takes the last.
    MaxPool2dBackward(Pool),
    /// Mean over the window of `[x]`: the sum divided by the number of taps in the image, or where
    /// [`Pool::counts_padding`] in the image and its padding on both sides. Zero where a window is all padding.
    AvgPool2d(Pool),
    /// From `[gy]`: each `gy`, divided by its divisor, goes to its whole window.
    AvgPool2dBackward(Pool),
    /// The function of `[x]`.
    Activation(Activation),
    /// From `[gy, saved]`: `gy` times the derivative; `saved` is the output of the activation where
    /// [`Activation::differentiates_from_output`], else its input.
    ActivationBackward(Activation),
    /// `[a, b]`: the sum.
    Add,
    /// `[a, b]`: the product.
    Mul,
    /// The function of the operands, in this order; those that are inputs in the order of the inputs. A function of
    /// two leaves the third out.
    Arithmetic {
        /// The function.
        function: Arithmetic,
        /// Where the values of each operand come from.
        operands: [Spread; 3],
    },
    /// The sum over the channels of `[x]`, in one order for each number of channels: one channel.
    SumChannels,
    /// The largest of the channels of `[x]` at each pixel, −0 as +0; NaN where one is. One channel.
    MaxChannels,
    /// From `[gy, x]`: each `gy` goes to the first maximum among the channels of its pixel; NaN wins.
    MaxChannelsBackward,
    /// The inputs one after another along the channels.
    Concat,
    /// The channels `begin ..` of `[x]`, as many as the output has.
    Slice {
        /// The first channel.
        begin: usize,
    },
    /// Gradient of a slice, from `[gy]`: the channels `begin ..` are those of `gy`, the others zero.
    SliceBackward {
        /// The first channel.
        begin: usize,
    },
    /// The channel of a group and the group change places: `y[k·groups + g] = x[g·(channels/groups) + k]` of `[x]`. Its
    /// gradient is the same over `channels/groups` groups.
    ChannelShuffle {
        /// The groups, which divide the channels.
        groups: usize,
    },
    /// Channels become pixels: `y[c, i·r + u, j·s + v] = x[(c·r + u)·s + v, i, j]` of `[x]`, where r and s are the factors.
    PixelShuffle {
        /// The factors of height and of width.
        factor: [i64; 2],
    },
    /// Pixels become channels, the inverse of [`Kernel::PixelShuffle`] and its gradient, as it is of this.
    PixelUnshuffle {
        /// The factors of height and of width.
        factor: [i64; 2],
    },
    /// The channel with the largest of `[x]` at each pixel, as a number: the first maximum; the first NaN wins. One channel.
    ArgMax,
    /// Mean over a part of `[x]`, height and width, the sum in `f64` and in row-major order.
    AdaptiveAvgPool2d([Resize; 2]),
    /// From `[gy]`: each `gy`, divided by the elements of its part, goes to all of it; the sum in `f64` and in row-major order.
    AdaptiveAvgPool2dBackward([Resize; 2]),
    /// Maximum over a part of `[x]`, height and width; NaN wins.
    AdaptiveMaxPool2d([Resize; 2]),
    /// From `[gy, x]`: each `gy` goes to the first maximum of its part, as in [`Kernel::MaxPool2dBackward`].
    AdaptiveMaxPool2dBackward([Resize; 2]),
    /// Resampling of `[x]`, height and width: along each axis the sum of what [`crate::Taps`] says, each by its weight.
    Resize([Resize; 2]),
    /// Gradient of resampling, from `[gy]`.
    ResizeBackward([Resize; 2]),
    /// Reflect, replicate or circular padding of `[x]`, height and width.
    Pad([Padding; 2]),
    /// Gradient of padding, from `[gy]`: each input sums, in row-major order, what showed it.
    PadBackward([Padding; 2]),
    /// `[x]` moved by `before` rows and columns, and a constant where it does not reach: padding where the numbers are above
    /// zero, a crop where they are below. Its gradient moves back, with zeros.
    PadConstant {
        /// Rows and columns added before; below zero, as many removed.
        before: [i64; 2],
        /// Height and width of `x`.
        input: [i64; 2],
        /// The constant.
        value: f64,
    },
    /// `x·a[c] + b[c]` of `[x]` (one rounding); parameters a, b: for each channel, or `[n][c]`, for each channel of each image.
    /// Normalisation once its statistics are known.
    ChannelAffine {
        /// What is applied to the result.
        activation: Option<Activation>,
    },
    /// `g·a[c] + (x·b[c] + d[c])` of `[g, x]` (one rounding each); parameters a, b, d, as many as of
    /// [`Kernel::ChannelAffine`]. Gradient of normalisation by the statistics of its input.
    ChannelCombine,
    /// Of `[x]`, `e^x[c]/Σe^x[i]` over the channels i of each pixel, or its logarithm.
    Softmax {
        /// Whether it is the logarithm.
        log: bool,
    },
    /// From `[gy, y]`: `y[c]·(gy[c] − Σ gy[i]·y[i])`, of the logarithm `gy[c] − e^y[c]·Σ gy[i]`. Gradient of softmax.
    SoftmaxBackward {
        /// Whether y is the logarithm.
        log: bool,
    },
    /// `(x[c] − μ)/√(σ² + ε)` of `[x]`, statistics over the channels of each pixel.
    PixelNorm(PixelNorm),
    /// From `[gy, x]`, with `x̂` what the norm makes of x: `(gy[c] − Σgy/C − x̂[c]·Σ(gy·x̂)/C)/√(σ² + ε)`, without the first sum
    /// where it is not centred.
    PixelNormBackward(PixelNorm),
    /// `x[c]·s[c]^(−β)` of `[x]`.
    LocalResponse(LocalResponse),
    /// From `[gy, x]`: `gy[c]·s[c]^(−β) − 2αβ/size·x[c]·Σ gy[i]·x[i]·s[i]^(−β−1)` over the channels i whose sums read c.
    LocalResponseBackward(LocalResponse),
    /// `scale·v[n,c,0,0]` everywhere, of `[v]` with one pixel: gradient of a global mean.
    Broadcast {
        /// The factor.
        scale: f64,
    },
    /// `v[n,c,0,0]` at one position of each channel and zero elsewhere, of `[v]` with one pixel; parameter: the extrema
    /// `[n][c]` that [`crate::Reduction::ImageMax`] has found. Gradient of a global maximum.
    Scatter,
    /// `[x]` with each element zeroed with this probability and scaled by `1/(1−p)` otherwise. Which ones
    /// depends on the seed and the global position alone, through [`crate::Kernel::keeps`].
    Dropout {
        /// The probability of zeroing, below one.
        probability: f64,
        /// The seed.
        seed: u64,
        /// What is zeroed as one.
        dropped: Dropped,
    },
    /// `(p − t)·scale` of `[p, t]`: gradient of the squared error with `scale` twice the weight of an element.
    DifferenceScaled {
        /// The factor.
        scale: f64,
    },
    /// `(softmax(p)[c] − t)·scale` of `[p, t]` per pixel: gradient of cross-entropy. `t` has one channel with the
    /// class (a whole number; negative: ignored, gradient zero; no channel of `p`: NaN), or as many channels as
    /// `p` with probabilities, taken to sum to one.
    CrossEntropyBackward {
        /// The factor.
        scale: f64,
    },
    /// A constant; no inputs.
    Fill {
        /// The value.
        value: f64,
    },
}

impl Kernel {
    /// A convolution by plain sums.
    #[must_use]
    pub const fn conv2d(conv: Conv, epilogue: Epilogue) -> Self {
        Self::Conv2d { conv, algorithm: Algorithm::Direct, epilogue }
    }

    /// A function of two operands.
    #[must_use]
    pub const fn arithmetic(function: Arithmetic, [a, b]: [Spread; 2]) -> Self {
        Self::Arithmetic { function, operands: [a, b, Spread::Whole] }
    }

    /// What follows its sums in the same call; `None` where it has no sums.
    #[must_use]
    pub const fn epilogue(&self) -> Option<&Epilogue> {
        match self {
            Self::Conv2d { epilogue, .. } | Self::Conv2dBackwardInput { epilogue, .. } => Some(epilogue),
            _ => None,
        }
    }

    /// The same with another epilogue, where it has one.
    #[must_use]
    pub const fn with_epilogue(self, epilogue: Epilogue) -> Self {
        match self {
            Self::Conv2d { conv, algorithm, .. } => Self::Conv2d { conv, algorithm, epilogue },
            Self::Conv2dBackwardInput { conv, .. } => Self::Conv2dBackwardInput { conv, epilogue },
            other => other,
        }
    }

    /// The name, as it stands in plans and messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Conv2d { algorithm: Algorithm::Direct, .. } => "conv2d",
            Self::Conv2d { algorithm: Algorithm::Winograd, .. } => "conv2d_winograd",
            Self::Conv2dBackwardInput { .. } => "conv2d_backward_input",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::MaxPool2dBackward(_) => "max_pool2d_backward",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::AvgPool2dBackward(_) => "avg_pool2d_backward",
            Self::Activation(_) => "activation",
            Self::ActivationBackward(_) => "activation_backward",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Arithmetic { function, .. } => function.name(),
            Self::SumChannels => "sum_channels",
            Self::MaxChannels => "max_channels",
            Self::MaxChannelsBackward => "max_channels_backward",
            Self::Concat => "concat",
            Self::Slice { .. } => "slice",
            Self::SliceBackward { .. } => "slice_backward",
            Self::ChannelShuffle { .. } => "channel_shuffle",
            Self::PixelShuffle { .. } => "pixel_shuffle",
            Self::PixelUnshuffle { .. } => "pixel_unshuffle",
            Self::ArgMax => "argmax",
            Self::AdaptiveAvgPool2d(_) => "adaptive_avg_pool2d",
            Self::AdaptiveAvgPool2dBackward(_) => "adaptive_avg_pool2d_backward",
            Self::AdaptiveMaxPool2d(_) => "adaptive_max_pool2d",
            Self::AdaptiveMaxPool2dBackward(_) => "adaptive_max_pool2d_backward",
            Self::Resize(_) => "upsample",
            Self::ResizeBackward(_) => "upsample_backward",
            Self::Pad(_) => "pad",
            Self::PadBackward(_) => "pad_backward",
            Self::PadConstant { .. } => "pad_constant",
            Self::ChannelAffine { .. } => "channel_affine",
            Self::ChannelCombine => "channel_combine",
            Self::Softmax { log: false } => "softmax",
            Self::Softmax { log: true } => "log_softmax",
            Self::SoftmaxBackward { log: false } => "softmax_backward",
            Self::SoftmaxBackward { log: true } => "log_softmax_backward",
            Self::PixelNorm(_) => "pixel_norm",
            Self::PixelNormBackward(_) => "pixel_norm_backward",
            Self::LocalResponse(_) => "local_response",
            Self::LocalResponseBackward(_) => "local_response_backward",
            Self::Broadcast { .. } => "broadcast",
            Self::Scatter => "scatter",
            Self::Dropout { .. } => "dropout",
            Self::DifferenceScaled { .. } => "mse_backward",
            Self::CrossEntropyBackward { .. } => "cross_entropy_backward",
            Self::Fill { .. } => "fill",
        }
    }

    /// The grid that outputs are computed on: a region is computed whole to multiples of this, clipped to the output, and
    /// needs what that needs.
    #[must_use]
    pub fn grain(&self) -> i64 {
        match self {
            Self::Conv2d { algorithm: Algorithm::Winograd, conv, .. } => 4 * conv.dilation(),
            _ => 1,
        }
    }

    /// Floating-point operations for one element of the output (a multiply-add counts two), borders ignored.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate of arithmetic; channel counts are far below 2^53"
    )]
    pub fn flops_per_element(&self) -> f64 {
        let taps = |pool: &Pool| pool.windows.iter().map(|w| w.kernel() as f64).product::<f64>();
        let shrinks = |parts: &[Resize; 2]| {
            parts.iter().map(|part| part.input() as f64 / part.output() as f64).product::<f64>().max(1.0)
        };
        match self {
            Self::Conv2d { conv, algorithm, epilogue } => {
                let sum = 2.0 * conv.weight_len() as f64 / conv.out_channels as f64;
                algorithm.share_of_products() * sum + epilogue.flops_per_element()
            }
            Self::Conv2dBackwardInput { conv, epilogue } => {
                let strides: f64 = conv.windows.iter().map(|w| w.stride() as f64).product();
                let sum = 2.0 * conv.weight_len() as f64 / conv.in_channels as f64 / strides;
                sum + epilogue.flops_per_element()
            }
            Self::MaxPool2d(pool) | Self::AvgPool2d(pool) => taps(pool),
            Self::MaxPool2dBackward(pool) | Self::AvgPool2dBackward(pool) => {
                let strides: f64 = pool.windows.iter().map(|w| w.stride() as f64).product();
                2.0 * taps(pool) / strides
            }
            Self::AdaptiveAvgPool2d(parts) | Self::AdaptiveMaxPool2d(parts) => shrinks(parts),
            Self::AdaptiveAvgPool2dBackward(_) => 2.0,
            Self::AdaptiveMaxPool2dBackward(_) => 4.0,
            Self::Resize(_) | Self::ResizeBackward(_) => 8.0,
            Self::ChannelAffine { .. } | Self::DifferenceScaled { .. } => 2.0,
            Self::ChannelCombine | Self::CrossEntropyBackward { .. } => 4.0,
            Self::Softmax { .. } | Self::SoftmaxBackward { .. } => 4.0,
            Self::PixelNorm(_) => 6.0,
            Self::PixelNormBackward(_) => 12.0,
            Self::LocalResponse(local) => 2.0 * local.size as f64 + 4.0,
            Self::LocalResponseBackward(local) => 6.0 * local.size as f64 + 12.0,
            Self::Concat
            | Self::Slice { .. }
            | Self::SliceBackward { .. }
            | Self::ChannelShuffle { .. }
            | Self::PixelShuffle { .. }
            | Self::PixelUnshuffle { .. }
            | Self::Pad(_)
            | Self::PadConstant { .. }
            | Self::Fill { .. } => 0.0,
            _ => 1.0,
        }
    }

    /// Whether dropout with this seed and probability keeps the element at this global position.
    ///
    /// The position is hashed (splitmix64 finaliser; Steele, Lea, Flood, "Fast splittable pseudorandom number
    /// generators", 2014), so that the mask is the same under every tiling.
    #[must_use]
    pub fn keeps(seed: u64, probability: f64, [n, c]: [usize; 2], [y, x]: [i64; 2]) -> bool {
        let mix = |mut z: u64| {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let plane = mix(mix(seed ^ n as u64) ^ c as u64);
        let bits = mix(mix(plane ^ y.cast_unsigned()) ^ x.cast_unsigned());
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in f64")]
        let uniform = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        uniform >= probability
    }
}
