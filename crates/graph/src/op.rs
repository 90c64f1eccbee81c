//! Operators as they stand in a network: named and defaulted as in PyTorch.

use tiled_geometry::{GeometryError, Window};
use tiled_kernel::Activation;

use crate::{Arity, ValueId};

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

impl Op {
    /// The name, as in the network format.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Conv2d(_) => "conv2d",
            Self::ConvTranspose2d(_) => "conv_transpose2d",
            Self::MaxPool2d(_) => "max_pool2d",
            Self::AvgPool2d(_) => "avg_pool2d",
            Self::BatchNorm(_) => "batch_norm",
            Self::Activation(Activation::Relu) => "relu",
            Self::Activation(Activation::LeakyRelu { .. }) => "leaky_relu",
            Self::Activation(Activation::Sigmoid) => "sigmoid",
            Self::Activation(Activation::Tanh) => "tanh",
            Self::Activation(Activation::Silu) => "silu",
            Self::Activation(Activation::Gelu | Activation::GeluTanh) => "gelu",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Concat => "concat",
            Self::Upsample(_) => "upsample",
            Self::GlobalAvgPool => "global_avg_pool",
            Self::GlobalMaxPool => "global_max_pool",
            Self::Linear(_) => "linear",
            Self::Dropout(_) => "dropout",
        }
    }

    /// How many operands it takes.
    #[must_use]
    pub const fn arity(&self) -> Arity {
        match self {
            Self::Add | Self::Mul | Self::Concat => Arity::AtLeast(2),
            _ => Arity::Exactly(1),
        }
    }
}

/// Attributes of `conv2d`.
///
/// ```
/// use tiled_graph::Conv2d;
/// let conv = Conv2d::new(16, [3, 3]).padded([1, 1]);
/// assert_eq!((conv.padding, conv.stride, conv.bias), ([[1, 1], [1, 1]], [1, 1], true));
/// assert_eq!(conv.windows()?[0].outputs(64, 1, false), 64);
/// # Ok::<(), tiled_geometry::GeometryError>(())
/// ```
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

impl Conv2d {
    /// A convolution with PyTorch's defaults: stride 1, no padding, dilation 1, one group, a bias.
    #[must_use]
    pub const fn new(out_channels: usize, kernel_size: [i64; 2]) -> Self {
        Self {
            out_channels,
            kernel_size,
            stride: [1, 1],
            padding: [[0, 0], [0, 0]],
            dilation: [1, 1],
            groups: 1,
            bias: true,
            padding_mode: PaddingMode::Zeros,
        }
    }

    /// The same with this padding on both sides of each axis.
    #[must_use]
    pub const fn padded(mut self, [height, width]: [i64; 2]) -> Self {
        self.padding = [[height, height], [width, width]];
        self
    }

    /// The windows of height and width, with the padding before.
    ///
    /// # Errors
    /// Where [`Window::new`] refuses.
    pub fn windows(&self) -> Result<[Window; 2], GeometryError> {
        windows(self.kernel_size, self.stride, self.dilation, self.padding.map(|[before, _]| before))
    }
}

/// What padding shows.
///
/// ```
/// assert_eq!(tiled_graph::PaddingMode::default().name(), "zeros");
/// ```
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

impl PaddingMode {
    /// The name, as in the network format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Reflect => "reflect",
            Self::Replicate => "replicate",
        }
    }
}

/// Attributes of `conv_transpose2d`. Weights are `[in_channels, out_channels/groups, kh, kw]`.
///
/// ```
/// use tiled_graph::ConvTranspose2d;
/// let conv = ConvTranspose2d::new(8, [2, 2]);
/// assert_eq!((conv.stride, conv.output_padding, conv.bias), ([1, 1], [0, 0], true));
/// ```
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

impl ConvTranspose2d {
    /// A transposed convolution with PyTorch's defaults: stride 1, no padding, dilation 1, one group, a bias.
    #[must_use]
    pub const fn new(out_channels: usize, kernel_size: [i64; 2]) -> Self {
        Self {
            out_channels,
            kernel_size,
            stride: [1, 1],
            padding: [0, 0],
            output_padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
            bias: true,
        }
    }

    /// The windows, for height and width, of the convolution whose gradient it is.
    ///
    /// # Errors
    /// Where [`Window::new`] refuses.
    pub fn windows(&self) -> Result<[Window; 2], GeometryError> {
        windows(self.kernel_size, self.stride, self.dilation, self.padding)
    }
}

/// Attributes of `max_pool2d`.
///
/// ```
/// assert_eq!(tiled_graph::MaxPool2d::new([2, 2]).stride, [2, 2]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool2d {
    /// Kernel extents.
    pub kernel_size: [i64; 2],
    /// Strides; the kernel extents by default.
    pub stride: [i64; 2],
    /// Padding as `[before, after]` of height and of width; at most half the kernel.
    pub padding: [[i64; 2]; 2],
    /// Dilations.
    pub dilation: [i64; 2],
    /// Whether a last window that starts inside the input and ends outside counts.
    pub ceil_mode: bool,
}

impl MaxPool2d {
    /// A pooling with PyTorch's defaults: the stride is the kernel, no padding, dilation 1, sizes rounded down.
    #[must_use]
    pub const fn new(kernel_size: [i64; 2]) -> Self {
        Self { kernel_size, stride: kernel_size, padding: [[0, 0]; 2], dilation: [1, 1], ceil_mode: false }
    }

    /// The same with this padding on both sides of each axis.
    #[must_use]
    pub const fn padded(mut self, [height, width]: [i64; 2]) -> Self {
        self.padding = [[height, height], [width, width]];
        self
    }

    /// The windows of height and width.
    ///
    /// # Errors
    /// Where [`Window::new`] refuses.
    pub fn windows(&self) -> Result<[Window; 2], GeometryError> {
        windows(self.kernel_size, self.stride, self.dilation, self.padding.map(|[before, _]| before))
    }
}

/// Attributes of `avg_pool2d`.
///
/// ```
/// assert!(tiled_graph::AvgPool2d::new([2, 2]).count_include_pad);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool2d {
    /// Kernel extents.
    pub kernel_size: [i64; 2],
    /// Strides; the kernel extents by default.
    pub stride: [i64; 2],
    /// Padding as `[before, after]` of height and of width; at most half the kernel.
    pub padding: [[i64; 2]; 2],
    /// Whether a last window that starts inside the input and ends outside counts.
    pub ceil_mode: bool,
    /// Whether padding counts in the divisor.
    pub count_include_pad: bool,
}

impl AvgPool2d {
    /// A pooling with PyTorch's defaults: the stride is the kernel, no padding, sizes rounded down, padding counts.
    #[must_use]
    pub const fn new(kernel_size: [i64; 2]) -> Self {
        Self {
            kernel_size,
            stride: kernel_size,
            padding: [[0, 0]; 2],
            ceil_mode: false,
            count_include_pad: true,
        }
    }

    /// The same with this padding on both sides of each axis.
    #[must_use]
    pub const fn padded(mut self, [height, width]: [i64; 2]) -> Self {
        self.padding = [[height, height], [width, width]];
        self
    }

    /// The windows of height and width.
    ///
    /// # Errors
    /// Where [`Window::new`] refuses.
    pub fn windows(&self) -> Result<[Window; 2], GeometryError> {
        windows(self.kernel_size, self.stride, [1, 1], self.padding.map(|[before, _]| before))
    }
}

/// Attributes of `batch_norm`.
///
/// ```
/// assert_eq!(tiled_graph::BatchNorm::default().momentum, Some(0.1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f64,
    /// The weight of a new statistic in the running one; `None` for the mean of all that there were, 1/n for the n-th.
    pub momentum: Option<f64>,
    /// Whether there are a weight and a bias.
    pub affine: bool,
    /// Whether there are running statistics; without them evaluation uses those of the batch as well.
    pub track_running_stats: bool,
}

impl BatchNorm {
    /// Whether it counts the batches that its running statistics have seen.
    #[must_use]
    pub const fn counts_batches(&self) -> bool {
        self.track_running_stats && self.momentum.is_none()
    }
}

impl Default for BatchNorm {
    /// PyTorch's: `eps` 1e-5, `momentum` 0.1, affine, with running statistics.
    fn default() -> Self {
        Self { eps: 1e-5, momentum: Some(0.1), affine: true, track_running_stats: true }
    }
}

/// Attributes of `upsample`.
///
/// ```
/// use tiled_graph::{Upsample, UpsampleMode, UpsampleTo};
/// let twice = Upsample { mode: UpsampleMode::Nearest, to: UpsampleTo::Scale([2, 2]) };
/// assert_eq!(twice.mode.name(), "nearest");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Upsample {
    /// Nearest or bilinear.
    pub mode: UpsampleMode,
    /// The extents after.
    pub to: UpsampleTo,
}

/// How upsampling interpolates.
///
/// ```
/// assert_eq!(tiled_graph::UpsampleMode::Bilinear { align_corners: true }.name(), "bilinear");
/// ```
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

impl UpsampleMode {
    /// The name, as in the network format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Bilinear { .. } => "bilinear",
        }
    }
}

/// The extents after upsampling.
///
/// ```
/// use tiled_graph::{Graph, Op, Upsample, UpsampleMode, UpsampleTo, infer};
/// let mut graph = Graph::new();
/// let (x, skip) = (graph.add_input("x", 8)?, graph.add_input("skip", 4)?);
/// let like = Upsample { mode: UpsampleMode::Nearest, to: UpsampleTo::Like(skip) };
/// let up = graph.add_node("up", Op::Upsample(like), &[x])?;
/// graph.set_outputs(&[up])?;
/// assert_eq!(infer(&graph, 1, &[[337, 675], [675, 1350]])?.shape(up), [1, 8, 675, 1350]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpsampleTo {
    /// `size`: these extents.
    Size([i64; 2]),
    /// `scale_factor`: whole multiples of the input's extents.
    Scale([i64; 2]),
    /// `like`: the extents of this value, whose elements are not read.
    Like(ValueId),
}

/// Attributes of `linear`. Weights are `[out_features, in_features]`.
///
/// ```
/// assert!(tiled_graph::Linear::new(1000).bias);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Output features.
    pub out_features: usize,
    /// Whether there is a bias.
    pub bias: bool,
}

impl Linear {
    /// A linear layer with a bias, PyTorch's default.
    #[must_use]
    pub const fn new(out_features: usize) -> Self {
        Self { out_features, bias: true }
    }
}

/// Attributes of `dropout`.
///
/// ```
/// assert_eq!(tiled_graph::Dropout::default().p, 0.5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of zeroing an element in training; in `[0, 1)`.
    pub p: f64,
}

impl Default for Dropout {
    /// PyTorch's: `p` 0.5.
    fn default() -> Self {
        Self { p: 0.5 }
    }
}

fn windows(
    kernel: [i64; 2],
    stride: [i64; 2],
    dilation: [i64; 2],
    before: [i64; 2],
) -> Result<[Window; 2], GeometryError> {
    let axis = |a: usize| Window::new(kernel[a], stride[a], dilation[a], before[a]);
    Ok([axis(0)?, axis(1)?])
}
