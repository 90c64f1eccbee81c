//! Axes that are joined, dropped and added: of values of one pixel, of constants and of sizes they leave no node.

use std::rc::Rc;

use tiled_graph::Op;

use super::{
    adaptive, beside, elements, filled, groups, lanes, last, permuted, pixels, plane, repeated, response,
    row, shuffle, stack, table,
};
use crate::Reason;
use crate::import::extents::Extents;
use crate::import::numbers::{MAX_NUMBERS, Num, Numbers};
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Order, Value};

/// Of values along the channels or an axis that they have for it, of sizes along their one axis.
pub(super) fn concat(site: &mut Site<'_>) -> Result<Value, Reason> {
    let axis = site.int("axis", 0)?;
    let count = site.operands.len();
    if (0..count).all(|position| site.is_numbers(position)) && matches!(axis, 0 | -1) {
        let parts = (0..count).map(|position| site.numbers(position)).collect::<Result<Vec<_>, _>>()?;
        if parts.iter().map(|part| part.items.len()).sum::<usize>() > MAX_NUMBERS {
            return site.wrong(0, "a few numbers");
        }
        let items = parts.iter().flat_map(|part| part.items.iter().copied()).collect();
        let is_integer = parts.iter().all(|part| part.is_integer);
        let is_double = parts.iter().any(|part| part.is_double);
        return Ok(Value::Numbers(Rc::new(Numbers { items, is_scalar: false, is_integer, is_double })));
    }
    if let Some(made) = stack::joined(site, axis)? {
        return Ok(made);
    }
    filled::settle(site)?;
    // what has no channels adds none, as encoders have it for a level that they leave out
    let is_kept = |position: &usize| {
        !matches!(axis, 1 | -3) || !site.operand(*position).is_ok_and(Value::has_no_channels)
    };
    let mut kept: Vec<usize> = (0..count).filter(is_kept).collect();
    if kept.is_empty() {
        kept = (0..count).collect();
    }
    if let Some(made) = beside::joined(site, axis)? {
        return Ok(made);
    }
    let values = kept.iter().map(|position| site.value(*position)).collect::<Result<Vec<Image>, _>>()?;
    let flat = values.first().is_some_and(|value| value.flat);
    if let Some(place) = values.iter().position(|value| value.flat != flat) {
        return site.wrong(kept[place], "of as many axes as the others");
    }
    let rank = if flat { 2 } else { 4 };
    if axis != 1 && axis != 1 - rank {
        return Err(Reason::Attribute { name: "axis", expected: "1, the channels", got: axis.to_string() });
    }
    if let [one] = values.as_slice() {
        return Ok(Value::Image(*one));
    }
    let plan = site.add(Op::Concat, values.iter().map(|value| value.plan).collect())?;
    Ok(Value::Image(Image { plan, flat }))
}

/// Drops height and width, whose pixels become features.
pub(super) fn flatten(site: &mut Site<'_>) -> Result<Value, Reason> {
    let axis = site.int("axis", 1)?;
    if axis != 1 && axis != -3 {
        return Err(Reason::Attribute { name: "axis", expected: "1, the channels", got: axis.to_string() });
    }
    let Image { plan, .. } = site.value(0)?;
    features(site, plan)?;
    Ok(Value::Image(Image { plan, flat: true }))
}

/// To the batch and the features, with or without height and width of one pixel; of sizes to a list or a number. To more axes it
/// is the first half of a shuffle, and from those the second.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Value::Constant(constant) = site.operand(0)? {
        let constant = constant.clone();
        let (shape, keeps_zeros) = (site.whole(1)?, site.flag("allowzero", false)?);
        let shape = target(&constant.shape, &shape, keeps_zeros);
        return match shape.and_then(|shape| constant.reshaped(&shape)) {
            Some(shaped) => Ok(Value::Constant(shaped)),
            None => site.wrong(1, "a shape of as many elements"),
        };
    }
    for rule in [
        table::reshape,
        last::reshaped,
        row::reshaped,
        pixels::reshaped,
        groups::reshape,
        response::reshape,
        elements::reshape,
        plane::reshaped,
    ] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    if site.is_numbers(0) {
        let numbers = site.numbers(0)?;
        let is_scalar = match site.whole(1)?.as_slice() {
            [] if numbers.items.len() == 1 => true,
            [-1] => false,
            [len] if usize::try_from(*len) == Ok(numbers.items.len()) => false,
            _ => return site.wrong(1, "a shape of one axis"),
        };
        return Ok(Value::Numbers(Rc::new(Numbers { is_scalar, ..Numbers::clone(&numbers) })));
    }
    if let Value::Folded(folded) = site.operand(0)? {
        let folded = Rc::clone(folded);
        return shuffle::unfolded(site, &folded);
    }
    for rule in [shuffle::halved, repeated::joined, stack::joined_pixels, stack::apart, row::divided] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    let Image { plan, flat } = site.value(0)?;
    let shape = site.numbers(1)?;
    if !flat && shape.items.len() > 4 {
        return shuffle::folded(site, plan, &shape);
    }
    let channels = site.plans.get(plan).channels as f64;
    let is_kept =
        |item: &Num, axis: usize| *item == Num::Known(0.0) || site.plans.is_extent(*item, plan, axis);
    let is_batch = |item: &Num| *item == Num::Known(-1.0) || site.plans.is_batch(*item);
    let is_channels = |item: &Num| matches!(item, Num::Known(0.0 | -1.0)) || *item == Num::Known(channels);
    let is_one =
        |item: &Num| matches!(item, Num::Known(-1.0 | 1.0)) || matches!(item, Num::Known(0.0) if !flat);
    let open = shape.items.iter().filter(|item| **item == Num::Known(-1.0)).count();
    match shape.items.as_slice() {
        _ if open > 1 => site.wrong(1, "a shape with one -1"),
        // as many images as there are: of two this is one
        [Num::Known(1.0), ..] if open == 1 && site.plans.extents.known(Extents::BATCH).is_none() => {
            site.wrong(1, "the batch as it is left open, not one image of what all of them have")
        }
        [batch, now] if is_batch(batch) => {
            let all = features(site, plan)? as f64;
            let is_all = match now {
                Num::Known(0.0) => all == channels,
                now => *now == Num::Known(-1.0) || now.known(&site.plans.extents) == Some(all),
            };
            if is_all {
                return Ok(Value::Image(Image { plan, flat: true }));
            }
            site.wrong(1, "the batch and all features")
        }
        [batch, now, height, width]
            if !flat && is_batch(batch) && is_channels(now) && is_kept(height, 2) && is_kept(width, 3) =>
        {
            Ok(Value::Image(Image { plan, flat }))
        }
        [batch, now, height, width]
            if is_batch(batch) && is_channels(now) && is_one(height) && is_one(width) =>
        {
            of_pixel(site, plan)?;
            Ok(Value::Image(Image { plan, flat: false }))
        }
        // one channel stands anywhere
        [batch, height, width, Num::Known(1.0)]
            if !flat
                && channels == 1.0
                && is_batch(batch)
                && site.plans.is_extent(*height, plan, 2)
                && site.plans.is_extent(*width, plan, 3) =>
        {
            Ok(last::of_image(plan, Order::Plain))
        }
        [batch, now, _] if !flat && is_batch(batch) && is_channels(now) => site.wrong(1, last::PIXELS_APART),
        _ => site.wrong(1, "the batch, the channels, and one pixel or none"),
    }
}

/// Drops height and width of one pixel, or the axis of one channel; of a list of one number its axis.
pub(super) fn squeeze(site: &mut Site<'_>) -> Result<Value, Reason> {
    let axes = axes(site)?;
    if site.is_numbers(0) {
        let numbers = site.numbers(0)?;
        return match (axes.as_deref(), numbers.items.len()) {
            (None | Some([0 | -1]), 1) => {
                Ok(Value::Numbers(Rc::new(Numbers { is_scalar: true, ..Numbers::clone(&numbers) })))
            }
            _ => site.wrong(0, "one size"),
        };
    }
    for rule in [stack::dropped, response::dropped, shuffle::dropped] {
        if let Some(made) = rule(site, axes.as_deref())? {
            return Ok(made);
        }
    }
    if let Some(made) = row::squeezed(site, axes.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = plane::squeezed(site, axes.as_deref())? {
        return Ok(made);
    }
    let plan = site.image(0)?;
    match axes.as_deref() {
        Some([1 | -3]) if site.plans.get(plan).channels == 1 => Ok(Value::Plane(plan)),
        Some([2 | -2, 3 | -1] | [3 | -1, 2 | -2]) => {
            of_pixel(site, plan)?;
            Ok(Value::Image(Image { plan, flat: true }))
        }
        _ => Err(wrong_axes(axes.as_deref())),
    }
}

/// Adds height and width of one pixel; to a number an axis, to an image one that others are stacked along.
pub(super) fn unsqueeze(site: &mut Site<'_>) -> Result<Value, Reason> {
    let axes = axes(site)?;
    if let Value::Constant(constant) = site.operand(0)? {
        let shape = axes.as_deref().and_then(|axes| with_axes(&constant.shape, axes));
        return match shape.and_then(|shape| constant.reshaped(&shape)) {
            Some(constant) => Ok(Value::Constant(constant)),
            None => Err(wrong_axes(axes.as_deref())),
        };
    }
    if site.is_numbers(0) {
        let numbers = site.numbers(0)?;
        return match (axes.as_deref(), numbers.is_scalar) {
            (Some([0 | -1]), true) => {
                Ok(Value::Numbers(Rc::new(Numbers { is_scalar: false, ..Numbers::clone(&numbers) })))
            }
            _ => site.wrong(0, "one size"),
        };
    }
    if let Some(made) = elements::unsqueeze(site, axes.as_deref())? {
        return Ok(made);
    }
    if let (Value::Plane(plan), Some([1 | -3])) = (site.operand(0)?, axes.as_deref()) {
        return Ok(Value::Image(Image { plan: *plan, flat: false }));
    }
    if let Some(made) = row::unsqueezed(site, axes.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = pixels::unsqueezed(site, axes.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = stack::alone(site, axes.as_deref())? {
        return Ok(made);
    }
    match (site.value(0)?, axes.as_deref()) {
        (Image { plan, flat: true }, Some([2 | -2, 3 | -1] | [3 | -1, 2 | -2])) => {
            of_pixel(site, plan)?;
            Ok(Value::Image(Image { plan, flat: false }))
        }
        _ => Err(wrong_axes(axes.as_deref())),
    }
}

/// Of constants of two axes, of folded ones in a shuffle, of channels to the end and back, and where nothing moves.
pub(super) fn transpose(site: &mut Site<'_>) -> Result<Value, Reason> {
    let order = site.ints("perm")?;
    let is_sorted =
        order.as_ref().is_some_and(|order| order.iter().zip(0..).all(|(axis, place)| *axis == place));
    if let Some(made) = adaptive::turned(site, order.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = permuted::transposed(site, order.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = row::transposed(site, order.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = last::transposed(site, order.as_deref())? {
        return Ok(made);
    }
    if let Some(made) = lanes::turned(site, order.as_deref())? {
        return Ok(made);
    }
    match site.operand(0)? {
        Value::Constant(constant) => match (constant.shape.as_ref(), order.as_deref()) {
            ([rows, columns], None | Some([1, 0])) => Ok(Value::Constant(Constant {
                shape: [*columns, *rows].into(),
                transposed: !constant.transposed,
                ..*constant
            })),
            _ if is_sorted => Ok(Value::Constant(constant.clone())),
            _ => site.wrong(0, "a constant of two axes"),
        },
        Value::Grouped(_) => site.wrong(0, last::PIXELS_APART),
        Value::Table(table) if matches!(order.as_deref(), None | Some([1, 0])) => {
            Ok(Value::Table(Rc::new(table.transposed())))
        }
        value @ Value::Image(_) if is_sorted => Ok(value.clone()),
        Value::Folded(folded) => match order.as_deref().and_then(|order| folded.permuted(order)) {
            Some(folded) => Ok(Value::Folded(Rc::new(folded))),
            None => site.wrong(0, "an order of its axes that leaves the batch first"),
        },
        _ => {
            let expected = "the axes as they are, the channels last and back, or height and width of one row or column changed over";
            let name = "perm";
            let got = order.map_or("missing".to_owned(), |order| format!("{order:?}"));
            Err(Reason::Attribute { name, expected, got })
        }
    }
}

/// Attributes before version 13, an operand since.
pub(super) fn axes(site: &mut Site<'_>) -> Result<Option<Vec<i64>>, Reason> {
    if site.has(1) { site.whole(1).map(Some) } else { site.ints("axes") }
}

pub(super) fn wrong_axes(axes: Option<&[i64]>) -> Reason {
    let got = axes.map_or("missing".to_owned(), |axes| format!("{axes:?}"));
    Reason::Attribute { name: "axes", expected: "height and width, 2 and 3", got }
}

/// Channels times pixels.
fn features(site: &Site<'_>, plan: usize) -> Result<usize, Reason> {
    let planned = site.plans.get(plan);
    let Some([height, width]) = planned.extents else {
        return Err(Reason::OpenSize { what: "the number of features" });
    };
    let features = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(planned.channels));
    features.ok_or(Reason::OpenSize { what: "the number of features" })
}

fn of_pixel(site: &Site<'_>, plan: usize) -> Result<(), Reason> {
    match site.plans.get(plan).extents {
        Some([1, 1]) => Ok(()),
        Some([height, width]) => {
            let got = format!("an image of {height}×{width}");
            Err(Reason::Operand { position: 0, expected: "a value of one pixel", got })
        }
        None => Err(Reason::OpenSize { what: "the number of features" }),
    }
}

/// The shape of as many elements that is wanted of a constant, with at most one extent left open; 0 is the extent that it has, unless
/// zeros are kept.
pub(super) fn target(of: &[usize], shape: &[i64], keeps_zeros: bool) -> Option<Vec<usize>> {
    let elements: usize = of.iter().product();
    let extent = |(place, extent): (usize, &i64)| match extent {
        0 if !keeps_zeros => of.get(place).copied(),
        -1 => Some(1),
        extent => usize::try_from(*extent).ok(),
    };
    let mut target: Vec<usize> = shape.iter().enumerate().map(extent).collect::<Option<_>>()?;
    let known = target.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))?;
    let mut open = (0..shape.len()).filter(|place| shape[*place] == -1);
    if let Some(place) = open.next() {
        target[place] = elements.checked_div(known)?;
    }
    let product = target.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))?;
    (open.next().is_none() && product == elements).then_some(target)
}

/// A shape with axes of one added.
pub(super) fn with_axes(shape: &[usize], axes: &[i64]) -> Option<Vec<usize>> {
    let rank = shape.len() + axes.len();
    let signed = i64::try_from(rank).ok().filter(|rank| *rank <= 8)?;
    let place = |axis: &i64| usize::try_from(if *axis < 0 { axis + signed } else { *axis }).ok();
    let mut places: Vec<usize> = axes.iter().map(place).collect::<Option<_>>()?;
    places.sort_unstable();
    let mut target = shape.to_vec();
    for place in places {
        if place > target.len() {
            return None;
        }
        target.insert(place, 1);
    }
    Some(target)
}
