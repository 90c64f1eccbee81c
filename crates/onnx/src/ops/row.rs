//! Values one row high in three axes, N×C×W: how models run a convolution along the channels of a pooled value.
//!
//! The channels of a value of one pixel become the columns of one channel, and these channels again, by the shuffles of pixels
//! whose factors are 1 and C.

use tiled_graph::{Conv2d, Op, ParamKind, PixelShuffle, PixelUnshuffle};

use super::operator::Operator;
use super::window::group;
use crate::Reason;
use crate::import::numbers::{Num, Numbers, whole};
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Value};

/// The same for functions of single elements, which run on the value with its height; `None` where no operand is a row.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_row = |operand: &Option<Value>| matches!(operand, Some(Value::Row(_)));
    if !site.operands.iter().any(is_row) || !operator.is_of_elements() {
        return Ok(None);
    }
    for position in 0..site.operands.len() {
        let replaced = match &site.operands[position] {
            Some(Value::Row(plan)) => Value::Image(Image { plan: *plan, flat: false }),
            Some(Value::Constant(constant)) if constant.shape.iter().product::<usize>() == 1 => continue,
            Some(Value::Constant(_) | Value::Image(_)) => {
                return site.wrong(position, "a value of as many axes as the others, or a number");
            }
            _ => continue,
        };
        site.operands[position] = Some(replaced);
    }
    Ok(Some(match (operator.rule)(site)? {
        Value::Image(Image { plan, .. }) => Value::Row(plan),
        other => other,
    }))
}

/// A value one row high without its height, and a row without the axis of one channel or column; `None` of other values.
pub(super) fn squeezed(site: &mut Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let [axis] = *axes.unwrap_or_default() else { return Ok(None) };
    match *site.operand(0)? {
        Value::Image(Image { plan, flat: false }) => {
            let is_one = match axis {
                2 | -2 => matches!(site.plans.get(plan).extents, Some([1, _])),
                3 | -1 => site.plans.get(plan).extents == Some([1, 1]),
                _ => false,
            };
            Ok(is_one.then_some(Value::Row(plan)))
        }
        Value::Row(plan) => match (axis, shape(site, plan)) {
            (2 | -1, [_, 1]) => Ok(Some(Value::Image(Image { plan, flat: true }))),
            (1 | -2, [1, _]) => {
                let plan = to_channels(site, plan)?;
                Ok(Some(Value::Image(Image { plan, flat: true })))
            }
            _ => site.wrong(0, "an axis of one"),
        },
        _ => Ok(None),
    }
}

/// A value of two axes with one beside them, and a row with its height; `None` of other values.
pub(super) fn unsqueezed(site: &mut Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let [axis] = *axes.unwrap_or_default() else { return Ok(None) };
    match *site.operand(0)? {
        Value::Image(Image { plan, flat: true }) if site.plans.get(plan).extents == Some([1, 1]) => {
            match axis {
                1 | -2 => Ok(Some(Value::Row(to_columns(site, plan)?))),
                2 | -1 => Ok(Some(Value::Row(plan))),
                _ => Ok(None),
            }
        }
        Value::Row(plan) => match (axis, shape(site, plan)) {
            (2 | -2, _) | (3 | -1, [_, 1]) => Ok(Some(Value::Image(Image { plan, flat: false }))),
            _ => site.wrong(0, "an axis beside one of one"),
        },
        _ => Ok(None),
    }
}

/// Channels and columns in each other's place, where there is one of either; `None` of other values.
pub(super) fn transposed(site: &mut Site<'_>, order: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Value::Row(plan) = *site.operand(0)? else { return Ok(None) };
    match (order, shape(site, plan)) {
        (Some([0, 1, 2]), _) | (Some([0, 2, 1]), [1, 1]) => Ok(Some(Value::Row(plan))),
        (Some([0, 2, 1]), [1, _]) => Ok(Some(Value::Row(to_channels(site, plan)?))),
        (Some([0, 2, 1]), [_, 1]) => Ok(Some(Value::Row(to_columns(site, plan)?))),
        _ => site.wrong(0, "one channel or one column, which change places"),
    }
}

/// A value of one pixel as a row, and a row as one; `None` of other values and shapes.
pub(super) fn reshaped(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let (plan, [channels, columns]) = match *site.operand(0)? {
        Value::Image(Image { plan, .. }) if site.plans.get(plan).extents == Some([1, 1]) => {
            (plan, [site.plans.get(plan).channels, 1])
        }
        Value::Row(plan) => (plan, shape(site, plan)),
        _ => return Ok(None),
    };
    let is_row = matches!(site.operand(0)?, Value::Row(_));
    let given = site.numbers(1)?;
    // so an exporter writes a norm of groups
    if !is_row && given.items.first() == Some(&Num::Known(0.0)) {
        return Ok(None);
    }
    let Some(wanted) = resolved(site, &given, channels * columns) else {
        return if is_row { site.wrong(1, EXPECTED) } else { Ok(None) };
    };
    let pixel = |site: &mut Site<'_>| match [channels, columns] {
        [_, 1] => Ok(plan),
        [1, _] => to_channels(site, plan),
        _ => site.wrong(1, EXPECTED),
    };
    Ok(Some(match wanted.as_slice() {
        [c, w] if [*c, *w] == [channels, columns] => Value::Row(plan),
        [1, _] => {
            let pixel = pixel(site)?;
            Value::Row(to_columns(site, pixel)?)
        }
        [_, 1] => Value::Row(pixel(site)?),
        // an image keeps its rules
        _ if !is_row => return Ok(None),
        [_, 1, 1] => Value::Image(Image { plan: pixel(site)?, flat: false }),
        [_] => Value::Image(Image { plan: pixel(site)?, flat: true }),
        _ => return site.wrong(1, EXPECTED),
    }))
}

const EXPECTED: &str = "the batch and all elements along one axis";

/// A line of pixels, of which one is a line too, whose channels and pixels are divided otherwise: the softmax over some groups of
/// the channels of a pooled value reads them so; `None` of other values and shapes.
pub(super) fn divided(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Image(Image { plan, .. }) = *site.operand(0)? else { return Ok(None) };
    let Some([height, width]) = site.plans.get(plan).extents.filter(|extents| extents.contains(&1)) else {
        return Ok(None);
    };
    let shape = [site.plans.get(plan).channels, height, width];
    let Some(elements) = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))
    else {
        return Ok(None);
    };
    let given = site.numbers(1)?;
    let (wanted, flat) = match resolved(site, &given, elements).as_deref() {
        Some([channels]) => ([*channels, 1, 1], true),
        Some([channels, height, width]) => ([*channels, *height, *width], false),
        _ => return Ok(None),
    };
    let factors = |[_, height, width]: [usize; 3]| match [height, width].map(i64::try_from) {
        [Ok(height), Ok(width)] => [height, width],
        _ => [0, 0],
    };
    if wanted == shape || shape[1..] == wanted[1..] || !wanted[1..].contains(&1) {
        return Ok(None);
    }
    let (apart, joined) = (factors(shape), factors(wanted));
    let mut ops = Vec::new();
    if apart != [1, 1] {
        ops.push(Op::PixelUnshuffle(PixelUnshuffle { downscale_factor: apart }));
    }
    if joined != [1, 1] {
        ops.push(Op::PixelShuffle(PixelShuffle { upscale_factor: joined }));
    }
    Ok(Some(Value::Image(Image { plan: site.chain(&ops, plan)?, flat })))
}

/// The extents behind the batch of a shape of so many elements for each image.
fn resolved(site: &Site<'_>, given: &Numbers, elements: usize) -> Option<Vec<usize>> {
    let (batch, rest) = given.items.split_first()?;
    let is_open = |item: &Num| *item == Num::Known(-1.0);
    if given.items.iter().filter(|item| is_open(item)).count() > 1 || rest.len() > 3 {
        return None;
    }
    if !is_open(batch) && !site.plans.is_batch(*batch) {
        return None;
    }
    let mut wanted = Vec::new();
    for item in rest {
        match item.known(&site.plans.extents) {
            Some(-1.0) => wanted.push(0),
            Some(extent) => {
                let extent = whole(extent).and_then(|extent| usize::try_from(extent).ok());
                wanted.push(extent.filter(|extent| (1..=elements).contains(extent))?);
            }
            None => return None,
        }
    }
    let known = wanted
        .iter()
        .filter(|extent| **extent > 0)
        .try_fold(1_usize, |product, extent| product.checked_mul(*extent))?;
    if let Some(open) = wanted.iter_mut().find(|extent| **extent == 0) {
        *open = elements / known;
    }
    let product = wanted.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))?;
    (product == elements).then_some(wanted)
}

/// A convolution along the columns: one of images whose kernel is one row high; `None` where the operand is no row.
pub(super) fn conv(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Row(plan) = *site.operand(0)? else { return Ok(None) };
    let (weight, [outputs, of_group, kernel]) = site.constant_of::<3>(1, "a constant of three axes")?;
    if site.text("auto_pad", "NOTSET")? != "NOTSET" {
        let (expected, got) = ("NOTSET, of rows", site.text("auto_pad", "NOTSET")?);
        return Err(Reason::Attribute { name: "auto_pad", expected, got });
    }
    let one = |site: &Site<'_>, name: &'static str| match site.small_ints(name)?.as_deref() {
        None => Ok(1),
        Some([number]) => Ok(*number),
        Some(got) => {
            Err(Reason::Attribute { name, expected: "one whole number, of rows", got: format!("{got:?}") })
        }
    };
    let padding = match site.small_ints("pads")?.as_deref() {
        None => [0, 0],
        Some([before, after]) => [*before, *after],
        Some(got) => {
            let (expected, got) = ("two whole numbers, of rows", format!("{got:?}"));
            return Err(Reason::Attribute { name: "pads", expected, got });
        }
    };
    let kernel = i64::try_from(kernel).unwrap_or(i64::MAX);
    if site.attribute("kernel_shape").is_some() && one(site, "kernel_shape")? != kernel {
        let (expected, got) = ("that of the weight", format!("{:?}", site.ints("kernel_shape")?));
        return Err(Reason::Attribute { name: "kernel_shape", expected, got });
    }
    let op = Op::Conv2d(Conv2d {
        stride: [1, one(site, "strides")?],
        dilation: [1, one(site, "dilations")?],
        padding: [[0, 0], padding],
        groups: group(site)?,
        bias: site.has(2),
        ..Conv2d::new(outputs, [1, kernel])
    });
    let shape = [outputs, of_group, 1, weight.shape[2]];
    let Some(weight) = weight.reshaped(&shape) else { return site.wrong(1, "a constant of three axes") };
    let mut params: Vec<(ParamKind, Constant)> = vec![(ParamKind::Weight, weight)];
    if site.has(2) {
        params.push((ParamKind::Bias, site.constant(2)?));
    }
    Ok(Some(Value::Row(site.add_with(op, plan, params)?)))
}

/// Channels and columns.
fn shape(site: &Site<'_>, plan: usize) -> [usize; 2] {
    let planned = site.plans.get(plan);
    [planned.channels, planned.extents.map_or(1, |[_, width]| width)]
}

/// The channels of a value of one pixel as columns of one channel.
fn to_columns(site: &mut Site<'_>, plan: usize) -> Result<usize, Reason> {
    let [channels, _] = shape(site, plan);
    if channels == 1 {
        return Ok(plan);
    }
    let upscale_factor = [1, i64::try_from(channels).unwrap_or(i64::MAX)];
    site.add(Op::PixelShuffle(PixelShuffle { upscale_factor }), vec![plan])
}

/// The columns of one channel as channels.
fn to_channels(site: &mut Site<'_>, plan: usize) -> Result<usize, Reason> {
    let [_, columns] = shape(site, plan);
    if columns == 1 {
        return Ok(plan);
    }
    let downscale_factor = [1, i64::try_from(columns).unwrap_or(i64::MAX)];
    site.add(Op::PixelUnshuffle(PixelUnshuffle { downscale_factor }), vec![plan])
}
