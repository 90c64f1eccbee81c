//! Pooling, over windows and over the whole image.

use tiled_graph::{AvgPool2d, MaxPool2d, Op, PadWith, PartPooling};

use super::window::{Pads, Windows, signed, windows};
use super::{response, sized};
use crate::Reason;
use crate::import::site::Site;
use crate::import::strip::to_one;
use crate::import::value::{Image, Padded, Value};

pub(super) const MAX: &[&str] =
    &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"];

pub(super) const AVERAGE: &[&str] =
    &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"];

/// `storage_order` is about the positions of the maxima, which nobody can read.
pub(super) fn max(site: &mut Site<'_>) -> Result<Value, Reason> {
    let windows = windows(site, None)?;
    let ceil_mode = site.flag("ceil_mode", false)?;
    let before = match site.operand(0)? {
        Value::Padded(padded) if !ceil_mode => own(padded, windows).map(|padding| (padded.plan, padding)),
        _ => None,
    };
    let (plan, padding) = match before {
        Some(before) => before,
        None => {
            let plan = site.image(0)?;
            if is_global(site, plan, windows)? {
                return unary(site, Op::GlobalMaxPool, plan, false);
            }
            if let Some(place) = line(site, plan, windows)? {
                return unary(site, Op::AdaptivePool2d(to_one(PartPooling::Max, place)), plan, false);
            }
            let extents = site.plans.get(plan).extents;
            match windows.covered(extents).filter(|_| windows.dilation == [1, 1]) {
                // every window has a pixel that is not below it: of one that is taken apart all may be padding
                Some(to) => (sized::covered(site, plan, to, f64::MIN)?, [[0; 2]; 2]),
                None => (plan, windows.padding(extents)?),
            }
        }
    };
    let op = MaxPool2d {
        kernel_size: windows.kernel,
        stride: windows.stride,
        padding,
        dilation: windows.dilation,
        ceil_mode,
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
    if let Some(place) = line(site, plan, windows)? {
        return unary(site, Op::AdaptivePool2d(to_one(PartPooling::Mean, place)), plan, false);
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

/// The padding of a maximum's windows together with that of a value that is padded with numbers below all others; `None` where it is
/// padded otherwise, or a window may lie in the padding alone.
fn own(padded: &Padded, windows: Windows) -> Option<[[i64; 2]; 2]> {
    let is_lowest = matches!(padded.pad.with, PadWith::Constant(value) if value <= LOWEST);
    let Pads::Given(given) = windows.pads else { return None };
    let is_below_none = padded.pad.padding.iter().flatten().all(|side| *side >= 0);
    let all = [0, 1]
        .map(|axis| [0, 1].map(|side| given[axis][side].saturating_add(padded.pad.padding[axis][side])));
    let is_at_most_half =
        [0, 1].into_iter().all(|axis| all[axis].into_iter().all(|side| side <= windows.kernel[axis] / 2));
    (is_lowest && is_below_none && windows.dilation == [1, 1] && is_at_most_half).then_some(all)
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

/// The axis, 0 or 1, along which a window is the whole image as the model declares it, where it has one pixel along the other and
/// leaves none out: what an exporter leaves of `adaptive_avg_pool2d(x, (None, 1))`.
fn line(site: &Site<'_>, plan: usize, windows: Windows) -> Result<Option<usize>, Reason> {
    let Some(extents) = site.plans.get(plan).extents.map(signed) else { return Ok(None) };
    let is_plain =
        windows.dilation == [1, 1] && windows.padding(site.plans.get(plan).extents)? == [[0; 2]; 2];
    let is_line = |place: &usize| {
        let (along, across) = (*place, 1 - place);
        windows.kernel[along] == extents[along]
            && windows.kernel[along] > LARGEST_HALVING
            && [windows.kernel[across], windows.stride[across]] == [1, 1]
    };
    Ok([0, 1].into_iter().find(is_line).filter(|_| is_plain))
}

/// The windows that networks halve images by have at most so many rows and columns.
const LARGEST_HALVING: i64 = 3;

fn unary(site: &mut Site<'_>, op: Op, plan: usize, flat: bool) -> Result<Value, Reason> {
    let plan = site.add(op, vec![plan])?;
    Ok(Value::Image(Image { plan, flat }))
}
