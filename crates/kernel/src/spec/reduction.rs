//! Computations from the whole image to a few numbers, taken share by share.

use super::Conv;

/// A sum or maximum over a domain of pixels. The shares given to a backend are disjoint and cover the domain.
///
/// All but [`Reduction::ConvWeight`] are *exact*: the result does not depend on how the domain was cut,
/// because sums are kept without rounding ([`crate::ExactSum`]) and ties of a maximum go to the first position.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Reduction {
    /// From `[x, gy]` over the domain of `gy`: gradient with respect to the weights, OIHW, summed in floating
    /// point in a fixed order within a share and from share to share.
    ConvWeight(Conv),
    /// From `[v]`: `Σ v` per channel. Slots: C.
    ChannelSum,
    /// From `[v]`: `Σ v` per image and channel. Slots: N·C.
    ImageSum,
    /// From `[x]`: `Σ x` and `Σ x²` per channel. Slots: C sums, then C sums of squares.
    Moments,
    /// From `[g, x]`; parameter mean `[C]`: `Σ g` and `Σ g·(x − mean[c])` per channel (difference and product
    /// each rounded to the element type). Slots: C, then C.
    CentredDot,
    /// From `[g, x]`: `Σ g·x` per channel, the product rounded to the element type. Slots: C.
    ChannelDot,
    /// [`Reduction::Moments`] per image and channel. Slots: N·C sums, then N·C sums of squares.
    ImageMoments,
    /// [`Reduction::CentredDot`] per image and channel; parameter mean `[n][c]`. Slots: N·C, then N·C.
    ImageCentredDot,
    /// From `[x]`: the maximum per image and channel with its first position in row-major order; NaN wins.
    ImageMax,
    /// From `[v]`: `Σ v`, one slot.
    Sum,
    /// From `[p, t]`: `Σ (p − t)²`, the difference and its square rounded to the element type. One slot.
    SquaredError,
    /// From `[p, t]` per pixel: `Σ −log softmax(p)[class]` and the number of pixels that count, or
    /// `Σ −Σ_c t[c]·log softmax(p)[c]` and the number of pixels for probabilities; see
    /// [`crate::Kernel::CrossEntropyBackward`]. A pixel's loss is rounded as the backend computes it, the sum
    /// over pixels is not. Two slots.
    CrossEntropy,
}

impl Reduction {
    /// The name, as it stands in plans and messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ConvWeight(_) => "conv2d_backward_weight",
            Self::ChannelSum => "channel_sum",
            Self::ImageSum => "image_sum",
            Self::Moments => "moments",
            Self::CentredDot => "centred_dot",
            Self::ChannelDot => "channel_dot",
            Self::ImageMoments => "image_moments",
            Self::ImageCentredDot => "image_centred_dot",
            Self::ImageMax => "image_max",
            Self::Sum => "sum",
            Self::SquaredError => "squared_error",
            Self::CrossEntropy => "cross_entropy",
        }
    }

    /// The exact sums that it keeps for a domain of this batch size and channel count; zero where it keeps
    /// none ([`Reduction::ConvWeight`], [`Reduction::ImageMax`]).
    #[must_use]
    pub const fn slots(&self, batch: usize, channels: usize) -> usize {
        match self {
            Self::ConvWeight(_) | Self::ImageMax => 0,
            Self::ChannelSum | Self::ChannelDot => channels,
            Self::ImageSum => batch * channels,
            Self::Moments | Self::CentredDot => 2 * channels,
            Self::ImageMoments | Self::ImageCentredDot => 2 * batch * channels,
            Self::Sum | Self::SquaredError => 1,
            Self::CrossEntropy => 2,
        }
    }

    /// Floating-point operations for one element of the domain (a multiply-add counts two).
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate of arithmetic; channel counts are far below 2^53"
    )]
    pub fn flops_per_element(&self) -> f64 {
        match self {
            Self::ConvWeight(conv) => 2.0 * conv.weight_len() as f64 / conv.out_channels as f64,
            Self::ChannelSum | Self::ImageSum | Self::ImageMax | Self::Sum => 1.0,
            Self::ChannelDot => 2.0,
            Self::Moments | Self::ImageMoments | Self::SquaredError => 3.0,
            Self::CentredDot | Self::ImageCentredDot | Self::CrossEntropy => 4.0,
        }
    }
}
