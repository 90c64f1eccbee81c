//! Rows and columns beside each other, N×C×(H+W)×1, as coordinate attention has them: the mean of each row, N×C×H×1, and behind it that of
//! each column, whose height and width have changed places.
//!
//! Nothing is turned or copied. Each part stays the value that it is, and an operator of single pixels runs on one after another, with
//! the same parameters, until the parts are cut and turned back. So a batch norm is a node for each part: the same in evaluation, while
//! in training each part has the statistics of its own, and each moves the running ones.

use std::rc::Rc;

use super::operator::Operator;
use super::window::windows;
use super::{part, sizes};
use crate::Reason;
use crate::import::numbers::{Binary, Num, whole};
use crate::import::site::Site;
use crate::import::value::{Image, Lane, Lanes, Value};

/// What a node makes of values beside each other; `None` where it reads none.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let lanes = |operand: &Option<Value>| match operand {
        Some(Value::Lanes(lanes)) => Some(Rc::clone(lanes)),
        _ => None,
    };
    let Some(place) = site.operands.iter().position(|operand| lanes(operand).is_some()) else {
        return Ok(None);
    };
    let Some(lanes) = lanes(&site.operands[place]) else { return Ok(None) };
    match operator.name {
        "Concat" => joined(site, &lanes),
        "Shape" => shape(site, &lanes),
        "Slice" if place == 0 => slice(site, &lanes),
        "Split" if place == 0 => split(site, &lanes),
        "Transpose" => turned_back(site, &lanes),
        "BatchNormalization" | "PRelu" => each(operator, site, &lanes),
        "Conv" if place == 0 && is_of_one_tap(site)? => each(operator, site, &lanes),
        _ if operator.is_of_elements() => each(operator, site, &lanes),
        _ => {
            site.wrong(place, "an operator of single pixels, as a convolution of one tap, or its parts apart")
        }
    }
    .map(Some)
}

/// A value of one row or one column whose height and width change places; `None` of other values and orders.
pub(super) fn turned(site: &mut Site<'_>, order: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let value = site.operand(0)?.clone();
    let Some(plan) = plan(&value).filter(|_| order == Some(&CHANGED_OVER[..])) else { return Ok(None) };
    let always = [2, 3].map(|axis| site.plans.is_always_one(plan, axis));
    if always == [true; 2] {
        return Ok(Some(value));
    }
    let one = always.iter().position(|is_one| *is_one).map(|place| place + 2);
    let Some(axis) = one.or_else(|| [2, 3].into_iter().find(|axis| site.plans.is_one(plan, *axis))) else {
        return Ok(None);
    };
    let parts = vec![Lane { value, is_turned: true }];
    Ok(Some(Value::Lanes(Rc::new(Lanes { axis, parts }))))
}

/// The order of axes in which height and width have changed places.
const CHANGED_OVER: [i64; 4] = [0, 1, 3, 2];

/// Values one after another, of which some are beside others already.
fn joined(site: &mut Site<'_>, lanes: &Lanes) -> Result<Value, Reason> {
    check_axis(lanes, site.int("axis", 0)?)?;
    let mut parts: Vec<Lane> = Vec::new();
    for position in 0..site.operands.len() {
        match site.operand(position)? {
            Value::Lanes(other) if other.axis == lanes.axis => parts.extend(other.parts.iter().cloned()),
            Value::Lanes(_) => return site.wrong(position, "a value along the axis of the others"),
            _ => {
                let plan = site.image(position)?;
                if !site.plans.is_one(plan, 5 - lanes.axis) {
                    return site.wrong(position, "a value of one row or one column, as the others are");
                }
                parts.push(Lane { value: Value::Image(Image { plan, flat: false }), is_turned: false });
            }
        }
        let channels = |part: &Lane| Some(site.plans.get(plan(&part.value)?).channels);
        if parts.iter().any(|part| channels(part) != channels(&parts[0])) {
            return site.wrong(position, "as many channels as the first");
        }
        if parts.len() > MOST {
            return site.wrong(position, "at most 16 values beside each other");
        }
    }
    Ok(of_parts(lanes.axis, parts))
}

/// The parts at most: each operator is as many nodes.
const MOST: usize = 16;

/// An operator of single pixels on each part.
fn each(operator: &Operator, site: &mut Site<'_>, lanes: &Lanes) -> Result<Value, Reason> {
    for (position, operand) in site.operands.iter().enumerate() {
        match operand {
            None | Some(Value::Constant(_) | Value::Numbers(_)) => {}
            Some(Value::Lanes(other)) if is_alike(site, lanes, other) => {}
            Some(_) => {
                return site.wrong(position, "the same rows and columns beside each other, or constants");
            }
        }
    }
    let given = site.operands.clone();
    let mut parts = Vec::new();
    for (place, part) in lanes.parts.iter().enumerate() {
        let of_part = |operand: &Option<Value>| match operand {
            Some(Value::Lanes(lanes)) => lanes.parts.get(place).map(|part| part.value.clone()),
            other => other.clone(),
        };
        site.operands = given.iter().map(of_part).collect();
        let value = (operator.rule)(site)?;
        if plan(&value).is_none() {
            return site.wrong(0, "a value of the network");
        }
        parts.push(Lane { value, is_turned: part.is_turned });
    }
    Ok(of_parts(lanes.axis, parts))
}

/// Whether two are made of values that stand the same way and are as large.
fn is_alike(site: &Site<'_>, lanes: &Lanes, other: &Lanes) -> bool {
    let is_same = |(a, b): (&Lane, &Lane)| match (plan(&a.value), plan(&b.value)) {
        (Some(x), Some(y)) => a.is_turned == b.is_turned && site.plans.are_as_large(x, y),
        _ => false,
    };
    (lanes.axis, lanes.parts.len()) == (other.axis, other.parts.len())
        && lanes.parts.iter().zip(&other.parts).all(is_same)
}

/// Whether a convolution reads no more than the pixel that it makes.
fn is_of_one_tap(site: &Site<'_>) -> Result<bool, Reason> {
    let (_, [.., height, width]) =
        site.constant_of::<4>(1, "a constant of four axes: convolutions are of images")?;
    let windows = windows(site, Some([height, width]))?;
    let is_of_one = windows.kernel == [1, 1] && windows.stride == [1, 1];
    Ok(is_of_one && windows.padding(None)? == [[0; 2]; 2])
}

/// Height and width changed over once more, or left as they are.
fn turned_back(site: &Site<'_>, lanes: &Lanes) -> Result<Value, Reason> {
    let order = site.ints("perm")?;
    match order.as_deref() {
        Some([0, 1, 2, 3]) => Ok(of_parts(lanes.axis, lanes.parts.clone())),
        Some(order) if *order == CHANGED_OVER => {
            let turn = |part: &Lane| Lane { is_turned: !part.is_turned, ..part.clone() };
            Ok(of_parts(5 - lanes.axis, lanes.parts.iter().map(turn).collect()))
        }
        _ => {
            let (name, expected) = ("perm", "the axes as they are, or height and width changed over");
            let got = order.map_or("missing".to_owned(), |order| format!("{order:?}"));
            Err(Reason::Attribute { name, expected, got })
        }
    }
}

/// The extents as the model sees them.
fn shape(site: &mut Site<'_>, lanes: &Lanes) -> Result<Value, Reason> {
    let borders = borders(site, lanes)?;
    let Some(plan) = plan(&lanes.parts[0].value) else { return site.wrong(0, "a value of the network") };
    let channels = Num::Known(site.plans.get(plan).channels as f64);
    let mut items = vec![site.plans.extent(plan, 0), channels, Num::Known(1.0), Num::Known(1.0)];
    items[lanes.axis] = borders[lanes.parts.len()];
    sizes::part_of_shape(site, items)
}

/// The parts between two places where one ends and the next begins.
fn slice(site: &mut Site<'_>, lanes: &Lanes) -> Result<Value, Reason> {
    const EXPECTED: &str = "a place where one of the values ends and the next begins";
    let (starts, ends) = (part::listed(site, 1, "starts")?, part::listed(site, 2, "ends")?);
    let axes = if site.has(3) { site.whole(3)? } else { site.ints("axes")?.unwrap_or_default() };
    let (&[start], &[end], &[axis]) = (starts.as_slice(), ends.as_slice(), axes.as_slice()) else {
        return site.wrong(0, "a slice along one axis");
    };
    check_axis(lanes, axis)?;
    if site.has(4) && site.whole(4)? != [1] {
        return site.wrong(4, "steps of 1");
    }
    let borders = borders(site, lanes)?;
    let place = |number: Num| borders.iter().position(|border| is_same(site, *border, number));
    let Some(first) = place(start) else { return site.wrong(1, EXPECTED) };
    let last = match end.known(&site.plans.extents).and_then(whole) {
        // exporters write the end of an axis as one of these
        Some(i64::MAX | 0x7fff_ffff) => Some(lanes.parts.len()),
        _ => place(end),
    };
    match last.and_then(|last| lanes.parts.get(first..last)) {
        Some(parts @ [_, ..]) => Ok(of_parts(lanes.axis, parts.to_vec())),
        _ => site.wrong(2, EXPECTED),
    }
}

/// Each of the parts.
fn split(site: &mut Site<'_>, lanes: &Lanes) -> Result<Value, Reason> {
    check_axis(lanes, site.int("axis", 0)?)?;
    let count = site.node.output.len();
    let mut sizes = part::listed(site, 1, "split")?;
    if sizes.is_empty()
        && i64::try_from(count) == Ok(site.int("num_outputs", i64::try_from(count).unwrap_or(i64::MAX))?)
    {
        let all = borders(site, lanes)?[lanes.parts.len()];
        let Some(all) = all.known(&site.plans.extents) else {
            return Err(Reason::OpenSize { what: "the length of each part" });
        };
        let size = (all / count as f64).ceil();
        sizes = (0..count).map(|place| Num::Known(size.min(all - place as f64 * size))).collect();
    }
    let is_length = |(part, size): (&Lane, &Num)| {
        length(site, lanes, part).is_some_and(|length| is_same(site, length, *size))
    };
    let are_lengths = sizes.len() == lanes.parts.len() && lanes.parts.iter().zip(&sizes).all(is_length);
    if count != sizes.len() || !are_lengths {
        let shown =
            |size: &Num| size.known(&site.plans.extents).map_or("?".to_owned(), |size| size.to_string());
        let got = format!("[{}]", sizes.iter().map(shown).collect::<Vec<_>>().join(", "));
        let expected = "the lengths of the values beside each other";
        return Err(Reason::Attribute { name: "split", expected, got });
    }
    let parts = lanes.parts.iter().map(|part| of_parts(lanes.axis, vec![part.clone()]));
    Ok(Value::Several(parts.collect()))
}

/// Parts along an axis; one alone that is as it was is that value.
fn of_parts(axis: usize, parts: Vec<Lane>) -> Value {
    match parts.as_slice() {
        [Lane { value, is_turned: false }] => value.clone(),
        _ => Value::Lanes(Rc::new(Lanes { axis, parts })),
    }
}

/// Refuses any other axis than that along which the parts lie.
fn check_axis(lanes: &Lanes, axis: i64) -> Result<(), Reason> {
    let place = usize::try_from(if axis < 0 { axis.saturating_add(4) } else { axis });
    if place == Ok(lanes.axis) {
        return Ok(());
    }
    let expected = "that along which rows and columns are beside each other";
    Err(Reason::Attribute { name: "axis", expected, got: axis.to_string() })
}

/// The length of a part along the axis.
fn length(site: &Site<'_>, lanes: &Lanes, part: &Lane) -> Option<Num> {
    let axis = if part.is_turned { 5 - lanes.axis } else { lanes.axis };
    Some(site.plans.extent(plan(&part.value)?, axis))
}

/// Where parts begin and end: one more than there are parts.
fn borders(site: &mut Site<'_>, lanes: &Lanes) -> Result<Vec<Num>, Reason> {
    let mut borders = vec![Num::Known(0.0)];
    let mut end = Num::Known(0.0);
    for part in &lanes.parts {
        let length = length(site, lanes, part).unwrap_or(Num::Open);
        end = end.combined(Binary::Add, length, true, &mut site.plans.extents)?;
        borders.push(end);
    }
    Ok(borders)
}

/// Whether two numbers are the same whatever the image, or as the model declares it.
fn is_same(site: &Site<'_>, a: Num, b: Num) -> bool {
    match (a, b) {
        (Num::Open, _) | (_, Num::Open) => false,
        (Num::Sum([a, b]), Num::Sum([c, d])) => [a, b] == [c, d] || [a, b] == [d, c],
        _ => {
            a == b || {
                let known = a.known(&site.plans.extents);
                known.is_some() && known == b.known(&site.plans.extents)
            }
        }
    }
}

/// The number of an image, or of that which arithmetic is of; `None` of other values.
fn plan(value: &Value) -> Option<usize> {
    match value {
        Value::Image(Image { plan, flat: false }) => Some(*plan),
        Value::Form(forms) => forms.first().filter(|form| !form.flat)?.x(),
        _ => None,
    }
}
