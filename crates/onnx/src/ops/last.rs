//! Values whose channels stand last, N×H×W×C, as models have them between two transpositions.
//!
//! Functions of single elements do the same wherever the channels stand: they run on the value with its channels first. Of the
//! others a few know what it means that they stand last.

use std::rc::Rc;

use super::Operator;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Last, Value};

/// Operators that look at each element alone, or at elements of several operands at one place.
const OF_ELEMENTS: [&str; 16] = [
    "Add",
    "Cast",
    "Div",
    "Dropout",
    "Erf",
    "Gelu",
    "Identity",
    "LeakyRelu",
    "Mul",
    "Pow",
    "Relu",
    "Sigmoid",
    "Sqrt",
    "Sub",
    "Swish",
    "Tanh",
];

/// What a node's output stands for, by the rule of its operator.
pub(crate) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Value, Reason> {
    let turned = |operand: &Option<Value>| match operand {
        Some(Value::Last(last)) => Some(last.is_turned),
        _ => None,
    };
    let Some(is_turned) = site.operands.iter().find_map(turned) else { return (operator.rule)(site) };
    if !OF_ELEMENTS.contains(&operator.name) {
        return (operator.rule)(site);
    }
    for position in 0..site.operands.len() {
        let first = match &site.operands[position] {
            Some(Value::Last(last)) if last.is_turned == is_turned => Some(Value::clone(&last.value)),
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
        Value::Image(_) | Value::Form(_) | Value::Norming(_) => with_channels_last(made, is_turned),
        other => other,
    })
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
pub(super) fn transposed(value: &Value, order: Option<&[i64]>) -> Option<Value> {
    match (value, order?) {
        (Value::Image(Image { flat: false, .. }), [0, 2, 3, 1]) => {
            Some(with_channels_last(value.clone(), false))
        }
        (Value::Image(Image { flat: false, .. }), [0, 3, 2, 1]) => {
            Some(with_channels_last(value.clone(), true))
        }
        (Value::Last(Last { value, is_turned: false }), [0, 3, 1, 2])
        | (Value::Last(Last { value, is_turned: true }), [0, 3, 2, 1]) => Some(Value::clone(value)),
        _ => None,
    }
}

pub(super) fn with_channels_last(value: Value, is_turned: bool) -> Value {
    Value::Last(Last { value: Rc::new(value), is_turned })
}

/// The value at this position whose channels stand last, and whether it is turned; `None` where it is another.
pub(super) fn image(site: &Site<'_>, position: usize) -> Result<Option<(usize, bool)>, Reason> {
    let Value::Last(Last { value, is_turned }) = site.operand(position)? else { return Ok(None) };
    match **value {
        Value::Image(Image { plan, flat: false }) => Ok(Some((plan, *is_turned))),
        _ => site.wrong(position, "a value of the network"),
    }
}

/// A value of the network with its channels last.
pub(super) fn of_image(plan: usize, is_turned: bool) -> Value {
    with_channels_last(Value::Image(Image { plan, flat: false }), is_turned)
}
