//! Sums, products and their inverses: of values of the network, of sizes, and of a value with numbers, where exporters write out
//! an activation.

use std::rc::Rc;

use tiled_graph::{Op, ParamKind};

use super::activation::of_form;
use super::{norm, norming};
use crate::Reason;
use crate::import::form::Form;
use crate::import::numbers::Binary;
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Value};

pub(super) fn add(site: &mut Site<'_>) -> Result<Value, Reason> {
    for rule in [with_bias, norm::shifted, norming::sum] {
        if let Some(made) = rule(site)? {
            return Ok(made);
        }
    }
    binary(site, Binary::Add)
}

pub(super) fn sub(site: &mut Site<'_>) -> Result<Value, Reason> {
    match norming::difference(site)? {
        Some(made) => Ok(made),
        None => binary(site, Binary::Sub),
    }
}

pub(super) fn mul(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = norming::product(site)? {
        return Ok(made);
    }
    match norm::scaled(site)? {
        Some(made) => Ok(made),
        None => binary(site, Binary::Mul),
    }
}

pub(super) fn div(site: &mut Site<'_>) -> Result<Value, Reason> {
    match norming::quotient(site)? {
        Some(made) => Ok(made),
        None => binary(site, Binary::Div),
    }
}

/// `x²` and `x³` as forms.
pub(super) fn pow(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = norming::power(site)? {
        return Ok(made);
    }
    let power = site.number(1)?;
    for form in site.forms(0)?.iter().filter(|form| form.x().is_some()) {
        let square = form.times(form);
        let made = match power {
            2.0 => square,
            3.0 => square.and_then(|square| square.times(form)),
            _ => None,
        };
        if let Some(made) = made {
            return of_form(site, made);
        }
    }
    Err(Reason::Operator)
}

/// A sum of several values; one alone is itself.
pub(super) fn sum(site: &mut Site<'_>) -> Result<Value, Reason> {
    let values: Vec<Image> =
        (0..site.operands.len()).map(|place| site.value(place)).collect::<Result<_, _>>()?;
    match values.as_slice() {
        [] => site.operand(0).cloned(),
        [one] => Ok(Value::Image(*one)),
        all => of_values(site, Op::Add, all),
    }
}

fn binary(site: &mut Site<'_>, binary: Binary) -> Result<Value, Reason> {
    if site.is_numbers(0) && site.is_numbers(1) {
        let (a, b) = (site.numbers(0)?, site.numbers(1)?);
        return match a.combined(binary, &b, site.plans) {
            Some(made) => Ok(Value::Numbers(Rc::new(made))),
            None => site.wrong(1, "as many numbers as the other"),
        };
    }
    let form = combined(&site.forms(0)?, binary, &site.forms(1)?);
    let op = match binary {
        Binary::Add => Some(Op::Add),
        Binary::Mul => Some(Op::Mul),
        Binary::Sub | Binary::Div => None,
    };
    match (op, site.operand(0)?, site.operand(1)?, form) {
        (Some(op), Value::Image(a), Value::Image(b), form)
            if form.as_ref().is_none_or(|form| form.recognised().is_none()) =>
        {
            let made = of_values(site, op, &[*a, *b])?;
            if let Value::Image(Image { plan, .. }) = made {
                site.plans.set_form(plan, form);
            }
            Ok(made)
        }
        (.., Some(form)) => of_form(site, form),
        (None, ..) => Err(Reason::Operator),
        _ => {
            let position = usize::from(matches!(site.operand(0)?, Value::Image(_)));
            site.wrong(position, "a value of the network")
        }
    }
}

/// An operator over values that all have four axes, or all two.
fn of_values(site: &mut Site<'_>, op: Op, values: &[Image]) -> Result<Value, Reason> {
    let flat = values[0].flat;
    if let Some(position) = values.iter().position(|value| value.flat != flat) {
        return site.wrong(position, "of as many axes as the others");
    }
    let plan = site.add(op, values.iter().map(|value| value.plan).collect())?;
    Ok(Value::Image(Image { plan, flat }))
}

/// The first combination of forms that is an activation, else the first of any.
fn combined(a: &[Form], binary: Binary, b: &[Form]) -> Option<Form> {
    let mut first = None;
    for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (a, b))) {
        let made = match binary {
            Binary::Add => a.plus(b),
            Binary::Sub => a.plus(&b.scaled(-1.0)),
            Binary::Mul => a.times(b),
            Binary::Div => {
                b.number().filter(|divisor| *divisor != 0.0).map(|divisor| a.scaled(1.0 / divisor))
            }
        };
        let Some(made) = made.filter(|made| made.x().is_some()) else { continue };
        if made.recognised().is_some() {
            return Some(made);
        }
        first = first.or(Some(made));
    }
    first
}

/// The sum of a convolution or linear layer without bias and a number for each of its channels: its bias.
fn with_bias(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let (value, constant) = match (site.operand(0)?, site.operand(1)?) {
        (Value::Image(value), Value::Constant(constant))
        | (Value::Constant(constant), Value::Image(value)) => (*value, constant.clone()),
        _ => return Ok(None),
    };
    let planned = site.plans.get(value.plan);
    let channels = planned.channels;
    let shape: &[usize] = &constant.shape;
    let is_bias = if value.flat {
        shape == [channels] || shape == [1, channels]
    } else {
        shape == [channels, 1, 1] || shape == [1, channels, 1, 1]
    };
    let op = match &planned.op {
        Some(Op::Conv2d(conv)) if !conv.bias => {
            Op::Conv2d(tiled_graph::Conv2d { bias: true, ..conv.clone() })
        }
        Some(Op::ConvTranspose2d(conv)) if !conv.bias => {
            Op::ConvTranspose2d(tiled_graph::ConvTranspose2d { bias: true, ..conv.clone() })
        }
        Some(Op::Linear(linear)) if !linear.bias => {
            Op::Linear(tiled_graph::Linear { bias: true, ..linear.clone() })
        }
        _ => return Ok(None),
    };
    let Some(bias) = constant.reshaped(&[channels]).filter(|_| is_bias) else { return Ok(None) };
    let inputs = planned.inputs.clone();
    let params: Vec<(ParamKind, Constant)> =
        planned.params.iter().cloned().chain([(ParamKind::Bias, bias)]).collect();
    let plan = site.add_with(op, inputs[0], params)?;
    // the layer without its bias is there for whoever else reads it
    site.plans.rename(plan, value.plan);
    Ok(Some(Value::Image(Image { plan, ..value })))
}
