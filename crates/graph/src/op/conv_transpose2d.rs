//! `conv_transpose2d`: `y[o, i·s + u·d − p, j·s + v·d − p] += w[c, o, u, v]·x[c, i, j]` from y = b, c over the channels of o's
//! group: the gradient of the convolution with input and output swapped.

use serde_json::{Value, json};
use tiled_geometry::{GeometryError, Window};
use tiled_kernel::Conv;

use super::check::{count, weight};
use super::conv2d::{Direction, kernel_extent};
use super::operator::{Applied, Format, Operator, Values};
use super::windowed::{check_groups, check_padding, located, windows};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::{InputAxis, Own, weight_and_bias};
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

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

pub(super) static FORMAT: Format = Format {
    name: "conv_transpose2d",
    arity: Arity::Exactly(1),
    keys: &[
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "output_padding",
        "groups",
        "weight",
        "bias",
        "dilation",
    ],
};

pub(super) fn read(fields: &Fields<'_>) -> Result<ConvTranspose2d, GraphError> {
    let default =
        ConvTranspose2d::new(fields.required_count("out_channels")?, fields.required_pair("kernel_size")?);
    Ok(ConvTranspose2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        padding: fields.pair("padding")?.unwrap_or(default.padding),
        output_padding: fields.pair("output_padding")?.unwrap_or(default.output_padding),
        dilation: fields.pair("dilation")?.unwrap_or(default.dilation),
        groups: fields.count("groups")?.unwrap_or(default.groups),
        bias: fields.bias(default.bias)?,
        ..default
    })
}

impl Operator for ConvTranspose2d {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({
            "out_channels": self.out_channels,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "output_padding": self.output_padding,
            "groups": self.groups,
            "bias": self.bias,
            "dilation": self.dilation,
        })
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        located(&at.place, self.windows())?;
        for axis in 0..2 {
            let (output_padding, stride, dilation) =
                (self.output_padding[axis], self.stride[axis], self.dilation[axis]);
            check_padding(&at.place, "output_padding", output_padding)?;
            if output_padding >= stride.max(dilation) {
                let place = at.place.clone();
                return Err(GraphError::OutputPadding { place, output_padding, stride, dilation });
            }
        }
        count(&at.place, "out_channels", self.out_channels)?;
        check_groups(&at.place, self.groups, at.channels(), self.out_channels)?;
        let [kh, kw] = self.kernel_size.map(kernel_extent);
        weight(&at.place, [at.channels(), self.out_channels / self.groups, kh, kw])?;
        Ok(self.out_channels)
    }

    /// `(n − 1)·s − 2p + d·(k − 1) + output_padding + 1`.
    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, input| {
            let window = located(&at.place, self.windows())?[axis];
            // no product here exceeds 2^30·2^20, so nothing overflows
            let whole = (input - 1) * window.stride() + window.extent() + 1;
            Ok(Some(whole - 2 * window.padding() + self.output_padding[axis]))
        })
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let [kh, kw] = self.kernel_size.map(kernel_extent);
        let weight = vec![channels, self.out_channels / self.groups, kh, kw];
        weight_and_bias(weight, InputAxis { axis: 0, groups: 1 }, self.bias.then_some(self.out_channels))
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, extents, _) = lowering.described(site.x());
        let conv = Conv {
            in_channels: site.channels,
            out_channels: channels,
            groups: self.groups,
            windows: self.windows()?,
            input: site.extents,
            output: extents,
        };
        Ok(Direction::Transposed.lower(lowering, site.name, conv, site.x(), self.bias)?)
    }
}
