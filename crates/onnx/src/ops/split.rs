//! Attention over parts of the channels, which ResNeSt and SKNet take apart, N×R×C×H×W: the weights of the parts are a softmax over them,
//! and the weighted parts are added.

use std::rc::Rc;

use tiled_graph::{Activation, Elementwise, Op};

use super::arithmetic::of_values;
use super::stack::{along, stacked};
use super::{arithmetic, norm, pixels};
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Image, Stacked, Value};

/// Over the values of a stack, or over channels.
pub(super) fn softmax(site: &mut Site<'_>) -> Result<Value, Reason> {
    let axis = site.int("axis", if site.opset < 13 { 1 } else { -1 })?;
    if let Some(made) = pixels::softmax(site, axis)? {
        return Ok(made);
    }
    // before version 13 all axes from this one on are one
    let weights = if site.opset < 13 { None } else { weights(site, axis)? };
    match weights {
        Some(made) => Ok(made),
        None => norm::softmax(site),
    }
}

/// Of the values of two stacks, or of two values.
pub(super) fn mul(site: &mut Site<'_>) -> Result<Value, Reason> {
    match product(site)? {
        Some(made) => Ok(made),
        None => arithmetic::mul(site),
    }
}

/// The weights of the values of a stack, `exp(xᵢ − m)/Σ exp(xⱼ − m)` with m the largest of them; `None` where the operand is no stack.
fn weights(site: &mut Site<'_>, axis: i64) -> Result<Option<Value>, Reason> {
    if !matches!(site.operand(0)?, Value::Stacked(_) | Value::Folded(_)) {
        return Ok(None);
    }
    let Some(stacked) = along(site, 0, axis)? else {
        let (expected, got) = ("the axis of the stack", axis.to_string());
        return Err(Reason::Attribute { name: "axis", expected, got });
    };
    let image = |plan: usize| Image { plan, flat: false };
    let values: Vec<Image> = stacked.values.iter().map(|plan| image(*plan)).collect();
    let largest = match values.as_slice() {
        [one] => *one,
        _ => of_values(site, Elementwise::Maximum, &values)?,
    };
    let mut powers = Vec::new();
    for value in values {
        let less = of_values(site, Elementwise::Sub, &[value, largest])?;
        powers.push(image(site.add(Op::Activation(Activation::Exp), vec![less.plan])?));
    }
    let sum = match powers.as_slice() {
        [one] => *one,
        _ => of_values(site, Elementwise::Add, &powers)?,
    };
    let mut weights = Vec::new();
    for power in powers {
        weights.push(of_values(site, Elementwise::Div, &[power, sum])?.plan);
    }
    Ok(Some(Value::Stacked(Rc::new(Stacked { values: weights, ..stacked }))))
}

/// The products of the values of two stacks; `None` where neither operand is one.
fn product(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_stack = |value: &Value| matches!(value, Value::Stacked(_) | Value::Folded(_));
    if !(0..2).all(|position| site.operand(position).is_ok_and(is_stack)) {
        return Ok(None);
    }
    // channels that are taken apart are, behind the batch
    let axis = [0, 1].into_iter().find_map(|position| stacked(site.operand(position).ok()?).map(|s| s.axis));
    let axis = axis.unwrap_or(1);
    let (Some(a), Some(b)) = (along(site, 0, axis)?, along(site, 1, axis)?) else {
        return site.wrong(1, "a stack along the axis of the other");
    };
    if (a.rank, a.values.len()) != (b.rank, b.values.len()) {
        return site.wrong(1, "a stack of as many values as the other");
    }
    let mut values = Vec::new();
    for (a, b) in a.values.iter().zip(&b.values) {
        let pair = [*a, *b].map(|plan| Image { plan, flat: false });
        values.push(of_values(site, Elementwise::Mul, &pair)?.plan);
    }
    Ok(Some(Value::Stacked(Rc::new(Stacked { values, ..a }))))
}
