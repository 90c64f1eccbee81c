//! Values whose channels stand last, N×H×W×C, as models have them between two transpositions, or N×(H·W)×C, where pixels are joined
//! to one axis.
//!
//! Functions of single elements do the same wherever the channels stand: they run on the value with its channels first. Of the
//! others a few know what it means that they stand last.

use std::rc::Rc;

use super::operator::Operator;
use super::{plane, row, sizes};
use crate::Reason;
use crate::import::numbers::{Num, Numbers};
use crate::import::site::{Site, node_name};
use crate::import::value::{Constant, Grouped, Image, Last, Order, Value};
use crate::proto::NodeProto;

/// What a node's output stands for, by the rule of its operator.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Value, Reason> {
    check_axes(operator, site)?;
    if let Some(made) = row::made(operator, site)? {
        return Ok(made);
    }
    if let Some(made) = plane::made(operator, site)? {
        return Ok(made);
    }
    let order = |operand: &Option<Value>| match operand {
        Some(Value::Last(last)) => Some(last.order),
        _ => None,
    };
    let Some(order) = site.operands.iter().find_map(order) else { return (operator.rule)(site) };
    // padding is taken over by what reads it with its channels first, or by nothing
    for operand in site.operands.iter_mut().flatten().filter(|_| operator.name != "Transpose") {
        if let Value::Last(Last { value, .. }) = operand
            && let Value::Padded(padded) = &**value
        {
            *operand = of_image(site.plans.padded(padded)?, order);
        }
    }
    if let Some(places) = order.places().filter(|_| ALONG_AXES.contains(&operator.name)) {
        return along_axes(operator, site, order, places);
    }
    if !operator.is_of_elements() {
        return (operator.rule)(site);
    }
    for position in 0..site.operands.len() {
        let first = match &site.operands[position] {
            Some(Value::Last(last)) if last.order == order => Some(Value::clone(&last.value)),
            Some(Value::Constant(constant)) => first(constant).map(Value::Constant),
            Some(Value::Last(_) | Value::Image(_) | Value::Form(_) | Value::Norming(_)) => None,
            Some(other) => Some(other.clone()),
            None => continue,
        };
        if first.is_none() {
            return site
                .wrong(position, "a value whose axes are those of the others, or a number for each channel");
        }
        site.operands[position] = first;
    }
    let made = (operator.rule)(site)?;
    Ok(match made {
        Value::Image(_) | Value::Form(_) | Value::Norming(_) => with_channels_last(made, order),
        other => other,
    })
}

/// Refuses constants of more axes than a value of two or three has: what is made of them would have as many, even of one number.
fn check_axes(operator: &Operator, site: &Site<'_>) -> Result<(), Reason> {
    if !operator.is_of_elements() && !operator.is_of_truths() {
        return Ok(());
    }
    let Some(axes) = site.operands.iter().flatten().filter_map(Value::axes).max() else { return Ok(()) };
    let is_wider = |operand: &Option<Value>| match operand {
        Some(Value::Constant(constant)) => constant.shape.len() > axes,
        _ => false,
    };
    match site.operands.iter().position(is_wider) {
        Some(position) if axes < 4 => site.wrong(position, "a constant of no more axes than the value"),
        _ => Ok(()),
    }
}

/// Operators along axes that they name, which do the same wherever those stand.
const ALONG_AXES: [&str; 7] = ["ArgMax", "Concat", "Gather", "Pad", "Shape", "Slice", "Split"];

/// Runs a rule on values with their channels first, with the axes that it names where they stand then.
fn along_axes(
    operator: &Operator,
    site: &mut Site<'_>,
    order: Order,
    places: [usize; 4],
) -> Result<Value, Reason> {
    let moved = |axis: i64| {
        let place = usize::try_from(if axis < 0 { axis + 4 } else { axis }).ok();
        // an axis that there is not is refused by the rule
        place.and_then(|place| places.get(place)).and_then(|place| i64::try_from(*place).ok()).unwrap_or(axis)
    };
    let mut node = site.node.clone();
    for attribute in &mut node.attribute {
        match attribute.name() {
            "axis" => attribute.i = attribute.i.map(moved),
            "axes" => attribute.ints.iter_mut().for_each(|axis| *axis = moved(*axis)),
            "pads" => attribute.ints = sides_moved(&attribute.ints, places),
            _ => {}
        }
    }
    let mut operands = site.operands.clone();
    for (position, operand) in operands.iter_mut().enumerate() {
        match operand {
            Some(Value::Last(last)) if last.order == order => *operand = Some(Value::clone(&last.value)),
            Some(Value::Image(_) | Value::Last(_) | Value::Form(_)) => {
                return site.wrong(position, "a value whose axes are those of the others");
            }
            _ => {}
        }
    }
    let listed = |items: Vec<Num>| Some(Value::Numbers(Rc::new(Numbers::whole(items))));
    let has_axes = site.has(3);
    if has_axes && matches!(operator.name, "Pad" | "Slice") {
        let axes = site.whole(3)?;
        operands[3] = listed(axes.into_iter().map(|axis| Num::Known(moved(axis) as f64)).collect());
    } else if operator.name == "Pad" && site.has(1) {
        operands[1] = listed(sides_moved(&site.numbers(1)?.items, places));
    } else if operator.name == "Slice" && site.attribute("axes").is_none() {
        // the first axes, as many as there are starts
        let starts = if site.has(1) {
            site.numbers(1)?.items.len()
        } else {
            site.ints("starts")?.unwrap_or_default().len()
        };
        operands.resize(operands.len().max(4), None);
        operands[3] = listed((0..starts.min(4)).map(|axis| Num::Known(places[axis] as f64)).collect());
    }
    if operator.name == "Shape" {
        return shape(site, operands, places);
    }
    let Site { opset, plans, tensors, .. } = site;
    let made = (operator.rule)(&mut Site { node: &node, opset: *opset, operands, plans, tensors })?;
    // without the channels' axis it is N×H×W
    if order != Order::Plain && matches!(made, Value::Plane(_)) {
        return site.wrong(0, "a value whose axes are those of the others");
    }
    let last = |made: Value| match made {
        Value::Image(Image { flat: false, .. }) | Value::Form(_) | Value::Norming(_) | Value::Padded(_) => {
            with_channels_last(made, order)
        }
        other => other,
    };
    Ok(match made {
        Value::Several(values) => Value::Several(values.iter().cloned().map(last).collect()),
        made => last(made),
    })
}

/// What is before all axes and after all of them, in the order of the axes of the channels first; as it is where it is not of four axes.
fn sides_moved<V: Copy>(sides: &[V], places: [usize; 4]) -> Vec<V> {
    let mut moved = sides.to_vec();
    if sides.len() == 8 {
        for (axis, place) in places.into_iter().enumerate() {
            moved[place] = sides[axis];
            moved[place + 4] = sides[axis + 4];
        }
    }
    moved
}

/// The extents in the order of the model.
fn shape(site: &mut Site<'_>, operands: Vec<Option<Value>>, places: [usize; 4]) -> Result<Value, Reason> {
    let all = NodeProto { attribute: Vec::new(), ..site.node.clone() };
    let Site { opset, plans, tensors, .. } = site;
    let of_first = &mut Site { node: &all, opset: *opset, operands, plans, tensors };
    let Value::Numbers(first) = sizes::shape(of_first)? else {
        return site.wrong(0, "a value of the network");
    };
    let items = places.iter().filter_map(|place| first.items.get(*place).copied()).collect();
    sizes::part_of_shape(site, items)
}

/// One number, or as many as there are channels with two axes after them; `None` of another constant.
fn first(constant: &Constant) -> Option<Constant> {
    let [ones @ .., channels] = constant.shape.as_ref() else { return Some(constant.clone()) };
    if ones.iter().any(|extent| *extent != 1) || ones.len() > 3 {
        return None;
    }
    if *channels == 1 { Some(constant.clone()) } else { constant.reshaped(&[*channels, 1, 1]) }
}

/// A value with its axes in another order; `None` where it is not the channels that move.
pub(super) fn transposed(site: &Site<'_>, order: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let (value, Some(order)) = (site.operand(0)?, order) else { return Ok(None) };
    Ok(match (value, order) {
        (Value::Image(Image { flat: false, .. }), [0, 2, 3, 1]) => {
            Some(with_channels_last(value.clone(), Order::Plain))
        }
        (Value::Image(Image { flat: false, .. }), [0, 3, 2, 1]) => {
            Some(with_channels_last(value.clone(), Order::Turned))
        }
        (Value::Last(Last { value, order: Order::Plain }), [0, 3, 1, 2])
        | (Value::Last(Last { value, order: Order::Turned }), [0, 3, 2, 1]) => Some(Value::clone(value)),
        // groups of one channel are the channels
        (Value::Grouped(Grouped { plan, groups }), [0, 2, 1])
            if *groups == site.plans.get(*plan).channels =>
        {
            Some(of_image(*plan, Order::Joined))
        }
        (Value::Last(Last { value, order: Order::Joined }), [0, 2, 1]) => match **value {
            Value::Image(Image { plan, flat: false }) => {
                Some(Value::Grouped(Grouped { plan, groups: site.plans.get(plan).channels }))
            }
            _ => None,
        },
        _ => None,
    })
}

/// The features of a pixel as that pixel with its channels last, N×1×1×C, as in Keras' squeeze and excitation; `None` of other values.
fn pixel(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Image(Image { plan, flat: true }) = *site.operand(0)? else { return Ok(None) };
    let channels = site.plans.get(plan).channels as f64;
    let is_pixel = site.plans.get(plan).extents == Some([1, 1]) && channels != 1.0;
    if !is_pixel || !site.is_numbers(1) {
        return Ok(None);
    }
    let shape = site.numbers(1)?;
    let is_open = |item: &Num| *item == Num::Known(-1.0);
    Ok(match shape.items.as_slice() {
        [n, Num::Known(1.0), Num::Known(1.0), c]
            if (is_open(n) || site.plans.is_batch(*n)) && (is_open(c) || *c == Num::Known(channels)) =>
        {
            Some(of_image(plan, Order::Plain))
        }
        _ => None,
    })
}

/// Height and width joined to one axis, or apart again; `None` of other values.
pub(super) fn reshaped(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if let Some(made) = pixel(site)? {
        return Ok(Some(made));
    }
    let Some((plan, order)) = (match site.operand(0)? {
        Value::Last(_) => image(site, 0)?,
        _ => None,
    }) else {
        return Ok(None);
    };
    let shape = site.numbers(1)?;
    let is_open = |item: &Num| *item == Num::Known(-1.0);
    let channels = Num::Known(site.plans.get(plan).channels as f64);
    let is_channels = |item: &Num| is_open(item) || *item == channels;
    let is_extent = |item: &Num, axis: usize| is_open(item) || site.plans.is_extent(*item, plan, axis);
    let is_batch = |item: &Num| is_open(item) || site.plans.is_batch(*item);
    let one_is_open = shape.items.iter().filter(|item| is_open(item)).count() < 2;
    let is_one = |item: &Num| *item == Num::Known(1.0);
    match (order, shape.items.as_slice()) {
        // one channel stands anywhere
        (Order::Plain, [n, one, h, w])
            if site.plans.get(plan).channels == 1
                && one_is_open
                && is_batch(n)
                && is_one(one)
                && is_extent(h, 2)
                && is_extent(w, 3) =>
        {
            Ok(Some(Value::Image(Image { plan, flat: false })))
        }
        (Order::Plain | Order::Joined, [n, pixels, c]) if one_is_open && is_batch(n) && is_channels(c) => {
            // what is left of the elements is the pixels
            let is_left = matches!(pixels, Num::Open | Num::Area(_)) && !is_open(n) && !is_open(c);
            let is_all = is_left || is_open(pixels) || site.plans.is_pixels(*pixels, plan);
            if is_all { Ok(Some(of_image(plan, Order::Joined))) } else { site.wrong(1, PIXELS_APART) }
        }
        (Order::Plain | Order::Joined, [n, h, w, c])
            if one_is_open && is_batch(n) && is_extent(h, 2) && is_extent(w, 3) && is_channels(c) =>
        {
            Ok(Some(of_image(plan, Order::Plain)))
        }
        (Order::Joined, _) => site.wrong(1, PIXELS_APART),
        _ => site.wrong(1, "the pixels and the channels"),
    }
}

/// What is wanted where pixels are joined to one axis and meet each other, as in attention between them.
pub(super) const PIXELS_APART: &str =
    "height and width kept apart: attention, in which every pixel reads every other, cannot be tiled";

pub(super) fn with_channels_last(value: Value, order: Order) -> Value {
    Value::Last(Last { value: Rc::new(value), order })
}

/// The value at this position whose channels stand last, and its order; `None` where it is another.
pub(super) fn image(site: &mut Site<'_>, position: usize) -> Result<Option<(usize, Order)>, Reason> {
    let Value::Last(Last { value, order }) = site.operand(position)? else { return Ok(None) };
    let order = *order;
    match **value {
        Value::Image(Image { plan, flat: false }) => Ok(Some((plan, order))),
        Value::Norming(norming) => Ok(Some((site.plans.settled(norming, node_name(site.node))?, order))),
        _ => site.wrong(position, "a value of the network"),
    }
}

/// A value of the network with its channels last.
pub(super) fn of_image(plan: usize, order: Order) -> Value {
    with_channels_last(Value::Image(Image { plan, flat: false }), order)
}
