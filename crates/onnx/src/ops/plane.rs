//! Values of one channel in three axes, N×H×W, as depth networks and masks give them.

use super::operator::Operator;
use crate::Reason;
use crate::import::numbers::{Num, Numbers};
use crate::import::site::Site;
use crate::import::value::{Image, Value};

/// A value of one channel without its axis; `None` of other values and axes.
pub(super) fn squeezed(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let (Value::Image(Image { plan, flat: false }), Some([1 | -3])) = (site.operand(0)?, axes) else {
        return Ok(None);
    };
    Ok((site.plans.get(*plan).channels == 1).then_some(Value::Plane(*plan)))
}

/// Functions of single elements, which run on the value with its axis; `None` where no operand is without it.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_plane = |operand: &Option<Value>| matches!(operand, Some(Value::Plane(_)));
    if !site.operands.iter().any(is_plane) || !operator.is_of_elements() {
        return Ok(None);
    }
    for position in 0..site.operands.len() {
        match &site.operands[position] {
            Some(Value::Plane(plan)) => {
                site.operands[position] = Some(Value::Image(Image { plan: *plan, flat: false }));
            }
            Some(Value::Constant(constant)) if constant.shape.iter().product::<usize>() == 1 => {}
            Some(Value::Numbers(_)) | None => {}
            _ => return site.wrong(position, "a value of as many axes as the others, or a number"),
        }
    }
    Ok(Some(match (operator.rule)(site)? {
        Value::Image(Image { plan, .. }) => Value::Plane(plan),
        other => other,
    }))
}

/// The extents: batch, height, width.
pub(super) fn shape(site: &Site<'_>, plan: usize) -> Vec<Num> {
    [0, 2, 3].map(|axis| site.plans.extent(plan, axis)).to_vec()
}

/// A value as large as it is; `None` of other values.
pub(super) fn expanded(site: &Site<'_>, shape: &Numbers) -> Result<Option<Value>, Reason> {
    let Value::Plane(plan) = *site.operand(0)? else { return Ok(None) };
    match shape.items.as_slice() {
        [n, h, w] if is_shape(site, plan, [*n, *h, *w]) => Ok(Some(Value::Plane(plan))),
        _ => site.wrong(1, "the shape that it has"),
    }
}

/// A value of one channel without its axis, given that again by its shape; `None` of other values.
pub(super) fn reshaped(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Plane(plan) = *site.operand(0)? else { return Ok(None) };
    let shape = site.numbers(1)?;
    if !site.plans.is_shape_of(&shape, plan) {
        return site.wrong(1, "the batch, one channel, height and width");
    }
    Ok(Some(Value::Image(Image { plan, flat: false })))
}

/// Whether these are batch, height and width of a value; none of them is left open.
fn is_shape(site: &Site<'_>, plan: usize, [batch, height, width]: [Num; 3]) -> bool {
    site.plans.is_batch(batch)
        && batch != Num::Known(0.0)
        && site.plans.is_extent(height, plan, 2)
        && site.plans.is_extent(width, plan, 3)
}
