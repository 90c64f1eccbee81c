//! Pooling, over windows and over the whole image.

use std::rc::Rc;

use tiled_graph::{AvgPool2d, MaxPool2d, Op, PadWith};

use super::response;
use super::window::{Pads, Windows, signed, windows};
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Image, Padded, Value};

pub(super) const MAX: &[&str] =
    &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"];

pub(super) const AVERAGE: &[&str] =
    &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"];

/// `storage_order` is about the positions of the maxima, which nobody can read.
pub(super) fn max(site: &mut Site<'_>) -> Result<Value, Reason> {
    let windows = windows(site, None)?;
    if let Value::Padded(padded) = site.operand(0)? {
        let padded = Rc::clone(padded);
        if is_own(&padded, windows) && !site.flag("ceil_mode", false)? {
            let op = MaxPool2d {
                stride: windows.stride,
                padding: padded.pad.padding,
                ..MaxPool2d::new(windows.kernel)
            };
            return unary(site, Op::MaxPool2d(op), padded.plan, false);
        }
    }
    let plan = site.image(0)?;
    if is_global(site, plan, windows)? {
        return unary(site, Op::GlobalMaxPool, plan, false);
    }
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
    if is_global(site, plan, windows)? {
        return unary(site, Op::GlobalAvgPool, plan, false);
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

/// Whether padding is what a maximum pads by itself: numbers below all others, in no window alone.
fn is_own(padded: &Padded, windows: Windows) -> bool {
    let is_lowest = matches!(padded.pad.with, PadWith::Constant(value) if value <= LOWEST);
    let sides = padded.pad.padding.iter().zip(windows.kernel);
    let is_at_most_half = sides.flat_map(|(sides, kernel)| sides.map(|side| side >= 0 && side <= kernel / 2));
    let has_none = windows.pads == Pads::Given([[0; 2]; 2]) && windows.dilation == [1, 1];
    is_lowest && has_none && is_at_most_half.min() == Some(true)
}

/// Negative infinity, and what exporters write for it: the lowest numbers of single precision.
const LOWEST: f64 = -3e38;

/// Whether a window is the whole image as the model declares it: what an exporter leaves of `avg_pool2d(x, x.shape[2:])`.
///
/// Windows of two or three halve images, and that of a deep layer may be left with as many rows and columns where the
/// declared size is small: they stay windows.
fn is_global(site: &Site<'_>, plan: usize, windows: Windows) -> Result<bool, Reason> {
    let extents = site.plans.get(plan).extents;
    let is_whole = extents.map(signed) == Some(windows.kernel) && windows.dilation == [1, 1];
    let is_large = windows.kernel.iter().any(|extent| *extent > LARGEST_HALVING);
    Ok(is_whole && is_large && windows.padding(extents)? == [[0; 2]; 2])
}

/// The windows that networks halve images by have at most so many rows and columns.
const LARGEST_HALVING: i64 = 3;

fn unary(site: &mut Site<'_>, op: Op, plan: usize, flat: bool) -> Result<Value, Reason> {
    let plan = site.add(op, vec![plan])?;
    Ok(Value::Image(Image { plan, flat }))
}
