//! Sizes of values and what is picked from them: they leave no node.

use std::rc::Rc;

use super::{adaptive, elements, grid, part, plane, response, table};
use crate::Reason;
use crate::import::extents::Extents;
use crate::import::numbers::{Binary, Num, Numbers, Rounding};
use crate::import::site::Site;
use crate::import::value::{Image, Part, Places, Stacked, Value};

/// The extents of a value: batch, channels, height, width.
pub(super) fn shape(site: &mut Site<'_>) -> Result<Value, Reason> {
    let items = extents(site)?;
    part_of_shape(site, items)
}

/// Their product.
pub(super) fn size(site: &mut Site<'_>) -> Result<Value, Reason> {
    let mut product = Num::Known(1.0);
    for extent in extents(site)? {
        product = product.combined(Binary::Mul, extent, true, &mut site.plans.extents)?;
    }
    Ok(Value::Numbers(Rc::new(Numbers { is_scalar: true, ..Numbers::whole(vec![product]) })))
}

fn extents(site: &mut Site<'_>) -> Result<Vec<Num>, Reason> {
    Ok(match site.operand(0)? {
        Value::Constant(constant) => constant.shape.iter().map(|extent| Num::Known(*extent as f64)).collect(),
        Value::Computed(computed) => computed.shape.iter().map(|extent| Num::Known(*extent as f64)).collect(),
        Value::Grid(grid) => grid::shape(grid),
        Value::Places(Places { has_axes: false, .. }) => vec![Num::Extent(Extents::BATCH)],
        Value::Plane(plan) => plane::shape(site, *plan),
        Value::Empty(extents) => extents.to_vec(),
        Value::Numbers(numbers) if numbers.is_scalar => Vec::new(),
        Value::Numbers(numbers) => vec![Num::Known(numbers.items.len() as f64)],
        Value::Stacked(_) | Value::Grouped(_) | Value::Folded(_) => of_other_axes(site)?,
        Value::Response(step) => response::extents(site, step),
        _ => {
            let Image { plan, flat } = match site.operand(0)? {
                Value::Form(forms) => match forms.first().and_then(|form| Some((form.x()?, form.flat))) {
                    Some((plan, flat)) => Image { plan, flat },
                    None => return site.wrong(0, "a value of the network"),
                },
                _ => site.value(0)?,
            };
            let planned = site.plans.get(plan);
            let features = match planned.extents {
                Some([height, width]) if flat => planned.channels as f64 * height as f64 * width as f64,
                _ => planned.channels as f64,
            };
            let mut items = vec![site.plans.extent(plan, 0), Num::Known(features)];
            if !flat {
                items.extend([2, 3].map(|axis| site.plans.extent(plan, axis)));
            }
            items
        }
    })
}

/// The extents of a value of other than four axes.
fn of_other_axes(site: &mut Site<'_>) -> Result<Vec<Num>, Reason> {
    let image = |site: &Site<'_>, plan: usize| {
        let [n, h, w] = [0, 2, 3].map(|axis| site.plans.extent(plan, axis));
        [n, Num::Known(site.plans.get(plan).channels as f64), h, w]
    };
    match site.operand(0)? {
        Value::Stacked(stack) if stack.rank == Stacked::OF_IMAGES => {
            let (at, count) = (usize::try_from(stack.axis).unwrap_or_default(), stack.values.len());
            let mut items = image(site, stack.values[0]).to_vec();
            items.insert(at.min(items.len()), Num::Known(count as f64));
            Ok(items)
        }
        Value::Folded(folded) => {
            let is_whole = |axis| folded.parts.iter().filter(|part| part.axis == axis).count() == 1;
            let extent = |part: &Part| match part.extent {
                Some(extent) => Some(Num::Known(extent as f64)),
                None => is_whole(part.axis).then(|| site.plans.extent(folded.plan, part.axis)),
            };
            let parts: Option<Vec<Num>> = folded.parts.iter().map(extent).collect();
            match parts {
                Some(parts) => Ok(std::iter::once(site.plans.extent(folded.plan, 0)).chain(parts).collect()),
                None => site.wrong(0, "a value of the network"),
            }
        }
        value => match site.plans.lines(value) {
            Some(plan) => {
                let [n, c, h, w] = image(site, plan);
                Ok(vec![n, c, h.combined(Binary::Mul, w, true, &mut site.plans.extents)?])
            }
            None => site.wrong(0, "a value of the network"),
        },
    }
}

/// The extents from one to another that a node asks for.
pub(super) fn part_of_shape(site: &Site<'_>, items: Vec<Num>) -> Result<Value, Reason> {
    let rank = signed(items.len());
    let start = bounded(site.int("start", 0)?, rank);
    let end = bounded(site.int("end", rank)?, rank);
    let items = items.get(start..end).unwrap_or_default().to_vec();
    Ok(Value::Numbers(Rc::new(Numbers::whole(items))))
}

pub(super) fn gather(site: &mut Site<'_>) -> Result<Value, Reason> {
    for rule in [elements::gather, adaptive::selected] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    if let Some(made) = part::gather(site)? {
        return Ok(made);
    }
    site.only("axis", 0, 0, "0, of sizes, or 1, of channels")?;
    let (from, which) = (site.numbers(0)?, site.numbers(1)?);
    let len = signed(from.items.len());
    let mut items = Vec::new();
    for index in site.whole(1)? {
        let index = if index < 0 { index.saturating_add(len) } else { index };
        match usize::try_from(index).ok().and_then(|index| from.items.get(index)) {
            Some(item) => items.push(*item),
            None => return site.wrong(1, "indices of the sizes that there are"),
        }
    }
    Ok(Value::Numbers(Rc::new(Numbers { items, is_scalar: which.is_scalar, ..*from })))
}

/// Attributes before version 10, operands since.
pub(super) fn slice(site: &mut Site<'_>) -> Result<Value, Reason> {
    if matches!(site.operand(0)?, Value::Image(_) | Value::Form(_)) {
        return part::slice(site);
    }
    if let Some(made) = table::reversed(site)? {
        return Ok(made);
    }
    let from = site.numbers(0)?;
    let given = |site: &mut Site<'_>, position: usize, name: &'static str| {
        if site.has(position) { site.whole(position).map(Some) } else { site.ints(name) }
    };
    let axes = given(site, 3, "axes")?.unwrap_or_else(|| vec![0]);
    let steps = if site.has(4) { site.whole(4)? } else { vec![1] };
    let (starts, ends) = (given(site, 1, "starts")?, given(site, 2, "ends")?);
    let len = signed(from.items.len());
    match (starts.as_deref(), ends.as_deref(), axes.as_slice(), steps.as_slice()) {
        (Some([start]), Some([end]), [0 | -1], [step]) if *step > 0 => {
            let step = usize::try_from(*step).unwrap_or(usize::MAX);
            let part = from.items.get(bounded(*start, len)..bounded(*end, len)).unwrap_or_default();
            let items = part.iter().step_by(step).copied().collect();
            Ok(Value::Numbers(Rc::new(Numbers { items, is_scalar: false, ..*from })))
        }
        _ => site.wrong(0, "sizes that are cut along their one axis, forward"),
    }
}

pub(super) fn floor(site: &mut Site<'_>) -> Result<Value, Reason> {
    rounded(site, Rounding::Floor)
}

pub(super) fn ceil(site: &mut Site<'_>) -> Result<Value, Reason> {
    rounded(site, Rounding::Ceil)
}

fn rounded(site: &mut Site<'_>, rounding: Rounding) -> Result<Value, Reason> {
    let numbers = site.numbers(0)?;
    Ok(Value::Numbers(Rc::new(numbers.rounded(rounding, &mut site.plans.extents)?)))
}

/// A place from the start or, below zero, from the end, within the list.
fn bounded(place: i64, len: i64) -> usize {
    let place = if place < 0 { place.saturating_add(len) } else { place };
    usize::try_from(place.clamp(0, len)).unwrap_or_default()
}

fn signed(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
