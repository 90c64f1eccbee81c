//! Values side by side along an axis of their own, and what becomes of them over it: `torch.stack(values).sum(0)` is a sum of values.
//!
//! `Unsqueeze` gives each value the axis, `Concat` joins them along it, and a reduction or `Squeeze` takes it away again.

use std::rc::Rc;

use tiled_graph::Elementwise;

use super::arithmetic::{divided, of_values};
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Image, Stacked, Value};

/// Axes of a stack of images.
const RANK: i64 = 5;

/// A value with an axis of its own; `None` where that is not an axis beside its four.
pub(super) fn alone(site: &mut Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let (Image { plan, flat: false }, Some([axis])) = (site.value(0)?, axes) else { return Ok(None) };
    let axis = place(*axis).filter(|axis| (0..RANK).contains(axis));
    Ok(axis.map(|axis| Value::Stacked(Rc::new(Stacked { axis, values: vec![plan] }))))
}

/// Stacks one after another along their axis; `None` where there is none among the operands.
pub(super) fn joined(site: &Site<'_>, axis: i64) -> Result<Option<Value>, Reason> {
    let Some(first) = site.operands.iter().flatten().find_map(stacked) else { return Ok(None) };
    if place(axis) != Some(first.axis) {
        let got = axis.to_string();
        return Err(Reason::Attribute { name: "axis", expected: "the axis that Unsqueeze has added", got });
    }
    let mut values = Vec::new();
    for position in 0..site.operands.len() {
        match site.operand(position)? {
            Value::Stacked(stacked) if stacked.axis == first.axis => values.extend(&stacked.values),
            _ => return site.wrong(position, "a value with the axis that the others have"),
        }
    }
    Ok(Some(Value::Stacked(Rc::new(Stacked { axis: first.axis, values }))))
}

/// The one value of a stack without the axis; `None` where the operand is no stack.
pub(super) fn dropped(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Some(stacked) = stacked(site.operand(0)?) else { return Ok(None) };
    match (stacked.values.as_slice(), axes) {
        ([plan], Some([axis])) if place(*axis) == Some(stacked.axis) => {
            Ok(Some(Value::Image(Image { plan: *plan, flat: false })))
        }
        _ => site.wrong(0, "one value with the axis that is dropped"),
    }
}

/// What a reduction makes of the values of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduced {
    Sum,
    Mean,
    Max,
}

/// The values of a stack, reduced over its axis; `None` where the operand is no stack.
pub(super) fn reduced(site: &mut Site<'_>, reduced: Reduced) -> Result<Option<Value>, Reason> {
    let Some(stacked) = stacked(site.operand(0)?).cloned() else { return Ok(None) };
    let axes = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    if !matches!(axes.as_slice(), [axis] if place(*axis) == Some(stacked.axis)) {
        let (expected, got) = ("the axis of the stack", format!("{axes:?}"));
        return Err(Reason::Attribute { name: "axes", expected, got });
    }
    let values: Vec<Image> = stacked.values.iter().map(|plan| Image { plan: *plan, flat: false }).collect();
    let function = match reduced {
        Reduced::Sum | Reduced::Mean => Elementwise::Add,
        Reduced::Max => Elementwise::Maximum,
    };
    let made = match values.as_slice() {
        [one] => *one,
        _ => of_values(site, function, &values)?,
    };
    let made = if reduced == Reduced::Mean { divided(site, made, values.len())? } else { made };
    Ok(Some(if site.flag("keepdims", true)? {
        Value::Stacked(Rc::new(Stacked { axis: stacked.axis, values: vec![made.plan] }))
    } else {
        Value::Image(made)
    }))
}

fn stacked(value: &Value) -> Option<&Stacked> {
    match value {
        Value::Stacked(stacked) => Some(stacked),
        _ => None,
    }
}

/// An axis of a stack, counted from the first.
fn place(axis: i64) -> Option<i64> {
    if axis < 0 { axis.checked_add(RANK) } else { Some(axis) }
}
