//! `conv2d`: `y[o, i, j] = b[o] + Σ w[o, c, u, v]·x[c, i·s + u·d − p, j·s + v·d − p]`, c over the channels of o's group.

use serde_json::{Value, json};
use tiled_geometry::{AxisMap, GeometryError, PadMode, Padding, Window};
use tiled_kernel::{Conv, Epilogue, Kernel, Reduction};
use tiled_tensor::OutOfMemory;

use super::check::{count, weight};
use super::operator::{Applied, Format, Operator, Values};
use super::windowed::{check_groups, check_padding, located, outputs, read_padding, windows, write_padding};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::format::json::Json;
use crate::lower::builder::{Flowing, Lowering, Site, edge, identity};
use crate::lower::unary::Unary;
use crate::params::own::{InputAxis, Own, weight_and_bias};
use crate::plan::error::PlanError;
use crate::program::{Edge, NodeId, NodeKind, Param, ParamId};
use crate::shapes::Shapes;

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
    ///
    /// ```
    /// use tiled_geometry::Window;
    /// use tiled_graph::Conv2d;
    /// let conv = Conv2d { stride: [2, 1], ..Conv2d::new(8, [3, 5]).padded([1, 2]) };
    /// assert_eq!(conv.windows()?, [Window::new(3, 2, 1, 1)?, Window::new(5, 1, 1, 2)?]);
    /// # Ok::<(), tiled_geometry::GeometryError>(())
    /// ```
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

    /// How an operator of its own pads; `None` of zeros, which the convolution itself takes for what lies outside.
    const fn pad_mode(self) -> Option<PadMode> {
        match self {
            Self::Zeros => None,
            Self::Reflect => Some(PadMode::Reflect),
            Self::Replicate => Some(PadMode::Replicate),
        }
    }
}

pub(super) static FORMAT: Format = Format {
    name: "conv2d",
    arity: Arity::Exactly(1),
    keys: &[
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "weight",
        "bias",
        "padding_mode",
    ],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<Conv2d, GraphError> {
    let default = Conv2d::new(fields.required_count("out_channels")?, fields.required_pair("kernel_size")?);
    let modes = [PaddingMode::Zeros, PaddingMode::Reflect, PaddingMode::Replicate].map(|m| (m.name(), m));
    let expected = "\"zeros\", \"reflect\" or \"replicate\"";
    let conv = Conv2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        dilation: fields.pair("dilation")?.unwrap_or(default.dilation),
        groups: fields.count("groups")?.unwrap_or(default.groups),
        bias: fields.bias(default.bias)?,
        padding_mode: fields.choice("padding_mode", expected, &modes, default.padding_mode)?,
        ..default
    };
    let padding = match fields.get("padding") {
        None => default.padding,
        Some(json) => padding(fields, &conv, json)?,
    };
    Ok(Conv2d { padding, ..conv })
}

/// Padding as a number, a pair, two pairs of before and after, `"valid"` or `"same"`.
fn padding(fields: &Fields<'_>, conv: &Conv2d, json: &Json) -> Result<[[i64; 2]; 2], GraphError> {
    let expected =
        "a whole number, a pair [height, width], [[top, bottom], [left, right]], \"same\" or \"valid\"";
    let wrong = || fields.wrong("padding", expected, json);
    match json {
        Json::Text(text) if text == "valid" => Ok([[0, 0]; 2]),
        Json::Text(text) if text == "same" => same_padding(fields, conv),
        _ => read_padding(json).ok_or_else(wrong),
    }
}

/// `d·(k − 1)` in all, the larger half behind, as in PyTorch.
fn same_padding(fields: &Fields<'_>, conv: &Conv2d) -> Result<[[i64; 2]; 2], GraphError> {
    if let Some(stride) = conv.stride.into_iter().find(|stride| *stride != 1) {
        return Err(GraphError::SameNeedsStrideOne { place: fields.place().clone(), stride });
    }
    let windows = located(fields.place(), conv.windows())?;
    Ok(windows.map(|window| [window.extent() / 2, window.extent() - window.extent() / 2]))
}

impl Operator for Conv2d {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({
            "out_channels": self.out_channels,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": write_padding(self.padding),
            "dilation": self.dilation,
            "groups": self.groups,
            "bias": self.bias,
            "padding_mode": self.padding_mode.name(),
        })
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        located(&at.place, self.windows())?;
        for after in self.padding.map(|side| side[1]) {
            check_padding(&at.place, "padding", after)?;
        }
        count(&at.place, "out_channels", self.out_channels)?;
        check_groups(&at.place, self.groups, at.channels(), self.out_channels)?;
        let [kh, kw] = self.kernel_size.map(kernel_extent);
        weight(&at.place, [self.out_channels, at.channels() / self.groups, kh, kw])?;
        Ok(self.out_channels)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, input| {
            let [before, after] = self.padding[axis];
            if let Some(mode) = self.padding_mode.pad_mode() {
                located(&at.place, Padding::new(mode, input, before, after))?;
            }
            let window = located(&at.place, self.windows())?[axis];
            outputs(&at.place, axis, window, input, after, false)
        })
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let [kh, kw] = self.kernel_size.map(kernel_extent);
        let weight = vec![self.out_channels, channels / self.groups, kh, kw];
        weight_and_bias(
            weight,
            InputAxis { axis: 1, groups: self.groups },
            self.bias.then_some(self.out_channels),
        )
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let mut x = site.x();
        let mut before = self.padding.map(|[before, _]| before);
        if let Some(mode) = self.padding_mode.pad_mode()
            && self.padding.iter().flatten().any(|side| *side > 0)
        {
            x = padded(lowering, &format!("{}.pad", site.name), mode, self.padding, x)?;
            before = [0, 0];
        }
        let (in_channels, input, _) = lowering.described(x);
        let conv = Conv {
            in_channels,
            out_channels: site.channels,
            groups: self.groups,
            windows: windows(self.kernel_size, self.stride, self.dilation, before)?,
            input,
            output: site.extents,
        };
        Ok(Direction::Forward.lower(lowering, site.name, conv, x, self.bias)?)
    }
}

pub(super) fn kernel_extent(kernel: i64) -> usize {
    usize::try_from(kernel).expect("invariant: kernel extents are positive")
}

/// Padding that shows the tensor is an operator of its own.
pub(super) fn padded(
    lowering: &mut Lowering,
    name: &str,
    mode: PadMode,
    padding: [[i64; 2]; 2],
    x: NodeId,
) -> Result<NodeId, PlanError> {
    let (channels, extents, _) = lowering.described(x);
    let axis = |axis: usize| Padding::new(mode, extents[axis], padding[axis][0], padding[axis][1]);
    let paddings = [axis(0)?, axis(1)?];
    let unary = Unary {
        kernel: Kernel::Pad(paddings),
        gradient: Kernel::PadBackward(paddings),
        saved: None,
        maps: paddings.map(AxisMap::Padding),
    };
    Ok(lowering.unary(name, unary, x, channels, paddings.map(Padding::output))?)
}

/// A convolution, or the gradient of one taken as an operator. The gradient of each for its input is the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Transposed,
}

impl Direction {
    /// The kernel, its operand, and the channels and extents of what it makes.
    fn computed(self, conv: Conv, epilogue: Epilogue, operand: NodeId) -> (Kernel, Edge, usize, [i64; 2]) {
        match self {
            Self::Forward => {
                let operand = edge(operand, conv.windows.map(AxisMap::Window), conv.input);
                (Kernel::conv2d(conv, epilogue), operand, conv.out_channels, conv.output)
            }
            Self::Transposed => {
                let operand = edge(operand, conv.windows.map(AxisMap::Touched), conv.output);
                (Kernel::Conv2dBackwardInput { conv, epilogue }, operand, conv.in_channels, conv.input)
            }
        }
    }

    /// Adds it over `x`, with the weight of the node of this name, and its bias where it has one.
    pub(super) fn lower(
        self,
        lowering: &mut Lowering,
        name: &str,
        conv: Conv,
        x: NodeId,
        has_bias: bool,
    ) -> Result<NodeId, OutOfMemory> {
        let weight = lowering.param(name, "weight");
        let bias = has_bias.then(|| lowering.param(name, "bias"));
        let (kernel, operand, channels, extents) = self.computed(conv, Epilogue::of_bias(has_bias), x);
        let params = std::iter::once(weight).chain(bias).map(Param::Network).collect();
        let kind = NodeKind::Compute(kernel);
        let node = lowering.push(name.to_owned(), kind, channels, extents, vec![operand], params)?;
        lowering.wants_grad[node] |= lowering.wants_any([Some(weight), bias]);
        lowering
            .record(name, node, move |lowering, at| self.backward(lowering, at, conv, x, weight, bias))?;
        Ok(node)
    }

    fn backward(
        self,
        lowering: &mut Lowering,
        at: &Flowing<'_>,
        conv: Conv,
        x: NodeId,
        weight: ParamId,
        bias: Option<ParamId>,
    ) -> Result<(), OutOfMemory> {
        lowering.flow(x, |lowering| {
            let other = if self == Self::Forward { Self::Transposed } else { Self::Forward };
            let (kernel, operand, channels, extents) = other.computed(conv, Epilogue::NONE, at.gradient);
            let (kind, params) = (NodeKind::Compute(kernel), vec![Param::Network(weight)]);
            lowering.push(at.named("grad_input"), kind, channels, extents, vec![operand], params)
        })?;
        if lowering.wants(weight) {
            // the transposed convolution reads its gradient where the convolution reads its input
            let (wide, narrow) = if self == Self::Forward { (x, at.gradient) } else { (at.gradient, x) };
            let window = edge(wide, conv.windows.map(AxisMap::Window), conv.input);
            let operands = vec![window, identity(narrow, conv.output)];
            let (name, reduction) = (at.named("grad_weight"), Reduction::ConvWeight(conv));
            let reduction =
                lowering.reduce(name, reduction, conv.out_channels, conv.output, operands, Vec::new())?;
            lowering.param_grad(weight, reduction)?;
        }
        if let Some(bias) = bias.filter(|bias| lowering.wants(*bias)) {
            let (channels, extents, _) = lowering.described(at.gradient);
            let (name, operands) = (at.named("grad_bias"), vec![identity(at.gradient, extents)]);
            let reduction =
                lowering.reduce(name, Reduction::ChannelSum, channels, extents, operands, Vec::new())?;
            lowering.param_grad(bias, reduction)?;
        }
        Ok(())
    }
}
