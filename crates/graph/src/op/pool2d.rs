//! `max_pool2d`: `y[i, j] = max x[i·s + u·d − p, j·s + v·d − p]`; `avg_pool2d`: the sum of these over their number.

use serde_json::{Value, json};
use tiled_geometry::{AxisMap, GeometryError, Window};
use tiled_kernel::{Kernel, Pool};

use super::operator::{Applied, Format, Operator, Values};
use super::windowed::{check_padding, located, outputs, read_padding, windows, write_padding};
use crate::error::{Arity, Axis, GraphError, Place};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::{Saved, Unary};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

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

pub(super) static MAX: Format = Format {
    name: "max_pool2d",
    arity: Arity::Exactly(1),
    keys: &["kernel_size", "stride", "padding", "dilation", "ceil_mode"],
};

pub(super) static AVG: Format = Format {
    name: "avg_pool2d",
    arity: Arity::Exactly(1),
    keys: &["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"],
};

pub(super) fn read_max(fields: &Fields<'_>) -> Result<MaxPool2d, GraphError> {
    let default = MaxPool2d::new(fields.required_pair("kernel_size")?);
    Ok(MaxPool2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        padding: padding(fields)?.unwrap_or(default.padding),
        dilation: fields.pair("dilation")?.unwrap_or(default.dilation),
        ceil_mode: fields.flag("ceil_mode", default.ceil_mode)?,
        ..default
    })
}

pub(super) fn read_avg(fields: &Fields<'_>) -> Result<AvgPool2d, GraphError> {
    let default = AvgPool2d::new(fields.required_pair("kernel_size")?);
    Ok(AvgPool2d {
        stride: fields.pair("stride")?.unwrap_or(default.stride),
        padding: padding(fields)?.unwrap_or(default.padding),
        ceil_mode: fields.flag("ceil_mode", default.ceil_mode)?,
        count_include_pad: fields.flag("count_include_pad", default.count_include_pad)?,
        ..default
    })
}

fn padding(fields: &Fields<'_>) -> Result<Option<[[i64; 2]; 2]>, GraphError> {
    let expected = "a whole number, a pair [height, width] or [[top, bottom], [left, right]]";
    let read = |json| read_padding(json).ok_or_else(|| fields.wrong("padding", expected, json));
    fields.get("padding").map(read).transpose()
}

impl Operator for MaxPool2d {
    fn format(&self) -> &'static Format {
        &MAX
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": write_padding(self.padding),
            "dilation": self.dilation,
            "ceil_mode": self.ceil_mode,
        })
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        located(&at.place, self.windows())?;
        at_most_half(&at.place, self.padding, self.kernel_size).map(|()| at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, extent| {
            let window = located(&at.place, self.windows())?[axis];
            let count = outputs(&at.place, axis, window, extent, self.padding[axis][1], self.ceil_mode)?;
            // Padding is at most half the kernel, so only a window that starts before the input can jump over all of it.
            let jumps_over = |output: i64| {
                let before = window.padding() - output * window.stride();
                before > 0 && (-before).rem_euclid(window.dilation()) >= extent
            };
            let starting_before = count.unwrap_or(0).min(window.padding() / window.stride() + 1);
            if window.dilation() > extent && (0..starting_before).any(jumps_over) {
                let (place, axis, dilation) = (at.place.clone(), Axis::BOTH[axis], window.dilation());
                return Err(GraphError::EmptyWindow { place, axis, dilation, extent });
            }
            Ok(count)
        })
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, input, _) = lowering.described(site.x());
        let pool = Pool {
            windows: self.windows()?,
            padding_after: self.padding.map(|[_, after]| after),
            input,
            output: site.extents,
            counts_padding: false,
        };
        let unary = Unary {
            kernel: Kernel::MaxPool2d(pool),
            gradient: Kernel::MaxPool2dBackward(pool),
            saved: Some(Saved::Operand),
            maps: pool.windows.map(AxisMap::Window),
        };
        Ok(lowering.unary(site.name, unary, site.x(), channels, site.extents)?)
    }
}

impl Operator for AvgPool2d {
    fn format(&self) -> &'static Format {
        &AVG
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": write_padding(self.padding),
            "ceil_mode": self.ceil_mode,
            "count_include_pad": self.count_include_pad,
        })
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        located(&at.place, self.windows())?;
        at_most_half(&at.place, self.padding, self.kernel_size).map(|()| at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        at.per_axis(known, |axis, extent| {
            let window = located(&at.place, self.windows())?[axis];
            outputs(&at.place, axis, window, extent, self.padding[axis][1], self.ceil_mode)
        })
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let (channels, input, _) = lowering.described(site.x());
        let pool = Pool {
            windows: self.windows()?,
            padding_after: self.padding.map(|[_, after]| after),
            input,
            output: site.extents,
            counts_padding: self.count_include_pad,
        };
        let unary = Unary {
            kernel: Kernel::AvgPool2d(pool),
            gradient: Kernel::AvgPool2dBackward(pool),
            saved: None,
            maps: pool.windows.map(AxisMap::Window),
        };
        Ok(lowering.unary(site.name, unary, site.x(), channels, site.extents)?)
    }
}

/// Padding of a pooling is at most half the kernel.
fn at_most_half(place: &Place, paddings: [[i64; 2]; 2], kernel: [i64; 2]) -> Result<(), GraphError> {
    for ([before, after], kernel) in paddings.into_iter().zip(kernel) {
        check_padding(place, "padding", after)?;
        let padding = before.max(after);
        if padding > kernel / 2 {
            return Err(GraphError::PoolPadding { place: place.clone(), padding, kernel });
        }
    }
    Ok(())
}
