//! Pooling, over windows and over the whole image.

use tiled_graph::{AvgPool2d, MaxPool2d, Op};

use super::response;
use super::window::windows;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Image, Value};

pub(super) const MAX: &[&str] =
    &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"];

pub(super) const AVERAGE: &[&str] =
    &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"];

/// `storage_order` is about the positions of the maxima, which nobody can read.
pub(super) fn max(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let windows = windows(site, None)?;
    let op = MaxPool2d {
        kernel_size: windows.kernel,
        stride: windows.stride,
        padding: windows.padding(site.plans.get(plan).extents)?,
        dilation: windows.dilation,
        ceil_mode: site.flag("ceil_mode", false)?,
    };
    unary(site, Op::MaxPool2d(op), plan, false)
}

pub(super) fn average(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = response::averaged(site)? {
        return Ok(made);
    }
    let plan = site.image(0)?;
    let windows = windows(site, None)?;
    if windows.dilation != [1, 1] {
        let got = format!("{:?}", windows.dilation);
        return Err(Reason::Attribute { name: "dilations", expected: "1, of averages", got });
    }
    let op = AvgPool2d {
        kernel_size: windows.kernel,
        stride: windows.stride,
        padding: windows.padding(site.plans.get(plan).extents)?,
        ceil_mode: site.flag("ceil_mode", false)?,
        count_include_pad: site.flag("count_include_pad", false)?,
    };
    unary(site, Op::AvgPool2d(op), plan, false)
}

pub(super) fn global_average(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    unary(site, Op::GlobalAvgPool, plan, false)
}

pub(super) fn global_max(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    unary(site, Op::GlobalMaxPool, plan, false)
}

fn unary(site: &mut Site<'_>, op: Op, plan: usize, flat: bool) -> Result<Value, Reason> {
    let plan = site.add(op, vec![plan])?;
    Ok(Value::Image(Image { plan, flat }))
}
