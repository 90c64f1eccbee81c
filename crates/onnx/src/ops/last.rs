//! Values whose channels stand last, N×H×W×C, as models have them between two transpositions.
//!
//! Functions of single elements do the same wherever the channels stand: they run on the value with its channels first. Of the
//! others a few know what it means that they stand last.

use std::rc::Rc;

use super::Operator;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Value};

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
    let is_last = |operand: &Option<Value>| matches!(operand, Some(Value::Last(_)));
    if !OF_ELEMENTS.contains(&operator.name) || !site.operands.iter().any(is_last) {
        return (operator.rule)(site);
    }
    for position in 0..site.operands.len() {
        let first = match &site.operands[position] {
            Some(Value::Last(value)) => Some(Value::clone(value)),
            Some(Value::Constant(constant)) => Some(Value::Constant(first(constant))),
            Some(Value::Image(_) | Value::Form(_) | Value::Norming(_)) => {
                return site.wrong(position, "a value whose channels are last, as those of the others");
            }
            other => other.clone(),
        };
        site.operands[position] = first;
    }
    let made = (operator.rule)(site)?;
    Ok(match made {
        Value::Image(_) | Value::Form(_) | Value::Norming(_) => Value::Last(Rc::new(made)),
        other => other,
    })
}

/// A constant of as many numbers as channels, with two axes after them.
fn first(constant: &Constant) -> Constant {
    let [ones @ .., channels] = constant.shape.as_ref() else { return constant.clone() };
    if *channels == 1 || ones.len() > 3 || ones.iter().any(|extent| *extent != 1) {
        return constant.clone();
    }
    constant.reshaped(&[*channels, 1, 1]).unwrap_or_else(|| constant.clone())
}

/// The value at this position whose channels stand last; `None` where it is another.
pub(super) fn image(site: &Site<'_>, position: usize) -> Result<Option<usize>, Reason> {
    let Value::Last(value) = site.operand(position)? else { return Ok(None) };
    match **value {
        Value::Image(Image { plan, flat: false }) => Ok(Some(plan)),
        _ => site.wrong(position, "a value of the network"),
    }
}

/// The same value with its channels last.
pub(super) fn of_image(plan: usize) -> Value {
    Value::Last(Rc::new(Value::Image(Image { plan, flat: false })))
}
