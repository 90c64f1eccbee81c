//! Operators as they stand in a network: named and defaulted as in PyTorch.

use tiled_kernel::Activation;

/// An operator with its attributes. Pairs are height, then width.
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
    /// `upsample`.
    Upsample(Upsample),
    /// `global_avg_pool`: mean over the image, N×C×1×1.
    GlobalAvgPool,
    /// `global_max_pool`: maximum over the image, N×C×1×1.
    GlobalMaxPool,
    /// `linear` over the channels of a value of one pixel.
    Linear(Linear),
    /// `dropout`: identity in evaluation.
    Dropout(Dropout),
}

/// Attributes of `conv2d`.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2d {
    /// Output channels.
    pub out_channels: usize,
    /// Kernel extents.
    pub kernel_size: [i64; 2],
    /// Strides.
    pub stride: [i64; 2],
    /// Padding as `[before, after]` of height and of width ("same" is resolved when parsed).
    pub padding: [[i64; 2]; 2],
    /// Dilations.
    pub dilation: [i64; 2],
    /// Groups.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// What the padding shows.
    pub padding_mode: PaddingMode,
}

/// What padding shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The mirrored tensor.
    Reflect,
    /// The border repeated.
    Replicate,
}

/// Attributes of `conv_transpose2d`. Weights are `[in_channels, out_channels/groups, kh, kw]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose2d {
    /// Output channels.
    pub out_channels: usize,
    /// Kernel extents.
    pub kernel_size: [i64; 2],
    /// Strides.
    pub stride: [i64; 2],
    /// Padding of the convolution whose gradient this is; removes from both sides of the output.
    pub padding: [i64; 2],
    /// Rows and columns added after the output; smaller than the stride or the dilation.
    pub output_padding: [i64; 2],
    /// Dilations.
    pub dilation: [i64; 2],
    /// Groups.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Attributes of `max_pool2d`.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool2d {
    /// Kernel extents.
    pub kernel_size: [i64; 2],
    /// Strides; the kernel extents by default.
    pub stride: [i64; 2],
    /// Padding on both sides; at most half the kernel.
    pub padding: [i64; 2],
    /// Dilations.
    pub dilation: [i64; 2],
    /// Whether a last window that starts inside the input and ends outside counts.
    pub ceil_mode: bool,
}

/// Attributes of `avg_pool2d`.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool2d {
    /// Kernel extents.
    pub kernel_size: [i64; 2],
    /// Strides; the kernel extents by default.
    pub stride: [i64; 2],
    /// Padding on both sides; at most half the kernel.
    pub padding: [i64; 2],
    /// Whether a last window that starts inside the input and ends outside counts.
    pub ceil_mode: bool,
    /// Whether padding counts in the divisor.
    pub count_include_pad: bool,
}

/// Attributes of `batch_norm`.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f64,
    /// The weight of a new statistic in the running one.
    pub momentum: f64,
    /// Whether there are a weight and a bias.
    pub affine: bool,
}

/// Attributes of `upsample`.
#[derive(Clone, Debug, PartialEq)]
pub struct Upsample {
    /// Nearest or bilinear.
    pub mode: UpsampleMode,
    /// The extents after.
    pub to: UpsampleTo,
}

/// How upsampling interpolates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsampleMode {
    /// `nearest`.
    Nearest,
    /// `bilinear`.
    Bilinear {
        /// Whether corner pixels are aligned.
        align_corners: bool,
    },
}

/// The extents after upsampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpsampleTo {
    /// `size`: these extents.
    Size([i64; 2]),
    /// `scale_factor`: whole multiples of the input's extents.
    Scale([i64; 2]),
}

/// Attributes of `linear`. Weights are `[out_features, in_features]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Attributes of `dropout`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of zeroing an element in training; in `[0, 1)`.
    pub p: f64,
}
