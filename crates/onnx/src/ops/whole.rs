//! Whole numbers that are values of the network: class numbers, and masks of an integer type.
//!
//! They run as floats, which hold them as they are: moved, compared, added and multiplied. What ONNX would cut to a whole number, a
//! quotient or a mean, is refused, and so is what leaves their type, which would start again from its other end.

use std::rc::Rc;

use tiled_graph::Op;

use super::of_floats;
use super::operator::Operator;
use crate::Reason;
use crate::import::extents::Extents;
use crate::import::numbers::Numbers;
use crate::import::site::Site;
use crate::import::value::{Image, Last, Value, Whole};
use crate::tensor::{is_float, type_name};

/// What a node makes of operands of which some may be whole numbers.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Value, Reason> {
    let mut given: Vec<Option<Whole>> = vec![None; site.operands.len()];
    for (operand, given) in site.operands.iter_mut().zip(&mut given) {
        if let Some(Value::Whole(whole)) = operand {
            let Whole { value, .. } = &**whole;
            let floats = match &**value {
                Value::Padded(padded) => {
                    Value::Image(Image { plan: site.plans.padded(padded)?, flat: false })
                }
                other => other.clone(),
            };
            *given = Some(Whole::clone(whole));
            *operand = Some(floats);
        }
    }
    let Some(first) = given.iter().position(Option::is_some) else {
        let chosen = chosen(operator, site);
        let value = of_floats(operator, site)?;
        return Ok(match made_of_floats(operator, site, chosen, &value)? {
            Some((range, to)) => wrapped(&value, range, to),
            None => value,
        });
    };
    let to = given[first].as_ref().map_or(INT64, |whole| whole.to);
    match operator.name {
        "Cast" => cast(operator, site, &given[first]),
        "Shape" | "Size" => of_floats(operator, site),
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => of_floats(operator, site),
        name if moves(name) || is_nearest(site) => {
            let range = union(site, &given, first)?;
            Ok(wrapped(&of_floats(operator, site)?, range, to))
        }
        "Add" | "Mul" | "Sub" => {
            let range = combined(site, &given, operator.name)?;
            if !(range[0] >= limits(to)[0] && range[1] <= limits(to)[1]) {
                return Err(wrong(&given, first, "whole numbers that stay below 2²⁴ and in their type"));
            }
            Ok(wrapped(&of_floats(operator, site)?, range, to))
        }
        _ => Err(wrong(&given, first, "floats, of which nothing is cut to whole numbers")),
    }
}

/// The least and the most of what a node makes of floats or of truths, and its type, where those are whole numbers.
fn made_of_floats(
    operator: &Operator,
    site: &Site<'_>,
    chosen: Option<i32>,
    made: &Value,
) -> Result<Option<([f64; 2], i32)>, Reason> {
    let Some(plan) = plan(made) else { return Ok(None) };
    Ok(match operator.name {
        "ArgMax" => {
            let planned = site.plans.get(plan);
            let is_arg_max = matches!(planned.op.as_deref(), Some(Op::ArgMax));
            let of = if is_arg_max { site.plans.get(planned.inputs.first()) } else { planned };
            Some(([0.0, of.channels.saturating_sub(1) as f64], INT64))
        }
        "Cast" => {
            let to = to(site)?;
            is_integer(to).then_some(([0.0, 1.0], to))
        }
        "Where" => chosen.map(|to| ([0.0, 1.0], to)),
        _ => None,
    })
}

/// The type of the constants that a node chooses from, where they are whole numbers.
fn chosen(operator: &Operator, site: &Site<'_>) -> Option<i32> {
    let of = |position| match site.operands.get(position).and_then(Option::as_ref) {
        Some(Value::Constant(constant)) => Some(site.tensors.type_of(constant.tensor)),
        Some(Value::Numbers(numbers)) if numbers.is_integer => Some(INT64),
        _ => None,
    };
    // both have one type, which computed numbers do not tell
    let (first, second) = (of(1)?, of(2)?);
    let to = if first == INT64 { second } else { first };
    (operator.name == "Where" && is_integer(to)).then_some(to)
}

fn cast(operator: &Operator, site: &mut Site<'_>, given: &Option<Whole>) -> Result<Value, Reason> {
    let to = to(site)?;
    let Some(Whole { range, .. }) = *given else { return of_floats(operator, site) };
    let [least, most] = limits(to);
    if is_float(to) {
        of_floats(operator, site)
    } else if is_integer(to) && range[0] >= least && range[1] <= most {
        Ok(wrapped(site.operand(0)?, range, to))
    } else {
        let expected = "a type of floats, or one that holds all of the whole numbers";
        let bounds =
            if is_integer(to) { format!(" for {} to {}", range[0], range[1]) } else { String::new() };
        let got = format!("{}{bounds}", type_name(to));
        Err(Reason::Attribute { name: "to", expected, got })
    }
}

/// What all operands of a node are between.
fn union(site: &mut Site<'_>, given: &[Option<Whole>], first: usize) -> Result<[f64; 2], Reason> {
    let mut range = given[first].as_ref().map_or([0.0; 2], |whole| whole.range);
    let is_of_values = matches!(site.node.op_type(), "Concat" | "Max" | "Min");
    for position in (0..given.len()).filter(|position| is_of_values && *position != first) {
        let [least, most] = of_operand(site, given, position)?;
        range = [range[0].min(least), range[1].max(most)];
    }
    Ok(range)
}

/// What sums, differences or products of two operands are between.
fn combined(site: &mut Site<'_>, given: &[Option<Whole>], operator: &str) -> Result<[f64; 2], Reason> {
    let [a, b] = [of_operand(site, given, 0)?, of_operand(site, given, 1)?];
    Ok(match operator {
        "Add" => [a[0] + b[0], a[1] + b[1]],
        "Sub" => [a[0] - b[1], a[1] - b[0]],
        _ => {
            let products = [a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]];
            [products.into_iter().fold(f64::MAX, f64::min), products.into_iter().fold(f64::MIN, f64::max)]
        }
    })
}

fn of_operand(site: &mut Site<'_>, given: &[Option<Whole>], position: usize) -> Result<[f64; 2], Reason> {
    if let Some(Some(whole)) = given.get(position) {
        return Ok(whole.range);
    }
    match site.scalar(position)? {
        Some(number) => Ok([number; 2]),
        None => site.wrong(position, "one whole number, or a value of some"),
    }
}

/// Operators whose results are elements of what they read.
fn moves(name: &str) -> bool {
    matches!(
        name,
        "Concat"
            | "DepthToSpace"
            | "Expand"
            | "Flatten"
            | "Gather"
            | "Identity"
            | "Max"
            | "MaxPool"
            | "Min"
            | "ReduceMax"
            | "ReduceMin"
            | "Reshape"
            | "Slice"
            | "SpaceToDepth"
            | "Split"
            | "Squeeze"
            | "Tile"
            | "Transpose"
            | "Unsqueeze"
    )
}

/// Whether a node takes the nearest pixels.
fn is_nearest(site: &Site<'_>) -> bool {
    let mode = site.attribute("mode").map(|mode| mode.s.as_deref().unwrap_or_default());
    matches!(site.node.op_type(), "Resize" | "Upsample") && mode.is_none_or(|mode| mode == b"nearest")
}

/// A value of whole numbers; what is no value is left as it is.
fn wrapped(value: &Value, range: [f64; 2], to: i32) -> Value {
    match value {
        Value::Several(values) => {
            Value::Several(values.iter().map(|value| wrapped(value, range, to)).collect())
        }
        Value::Second(_) | Value::Refused => value.clone(),
        _ => Value::Whole(Rc::new(Whole { value: Rc::new(value.clone()), range, to })),
    }
}

fn wrong(given: &[Option<Whole>], position: usize, expected: &'static str) -> Reason {
    let got = given[position].as_ref().map_or_else(String::new, Whole::describe);
    Reason::Operand { position, expected, got }
}

/// The number of a value of the network.
fn plan(value: &Value) -> Option<usize> {
    match value {
        Value::Image(Image { plan, .. }) | Value::Plane(plan) => Some(*plan),
        Value::Last(Last { value, .. }) => plan(value),
        _ => None,
    }
}

/// The type that a node casts to.
pub(super) fn to(site: &Site<'_>) -> Result<i32, Reason> {
    Ok(i32::try_from(site.int("to", 0)?).unwrap_or_default())
}

/// The least and the most that floats and an integer type both hold as they are.
const fn limits(to: i32) -> [f64; 2] {
    match to {
        2 => [0.0, 255.0],
        3 => [-128.0, 127.0],
        4 => [0.0, 65535.0],
        5 => [-32768.0, 32767.0],
        12 | 13 => [0.0, EXACT],
        _ => [-EXACT, EXACT],
    }
}

/// Up to this f32 holds whole numbers.
const EXACT: f64 = 16_777_216.0;

/// Refuses numbers that are beyond a type of 8 or 16 bits, in which runtimes do not agree on what they become.
pub(super) fn check_small_type(numbers: &Numbers, to: i32, extents: &Extents) -> Result<(), Reason> {
    let [least, most] = limits(to);
    let is_beyond = |number: &f64| !(least..=most).contains(&number.trunc());
    let mut known = numbers.items.iter().filter_map(|item| item.known(extents));
    match known.find(is_beyond).filter(|_| matches!(to, 2..=5)) {
        Some(number) => {
            let got = format!("{} for {number}", type_name(to));
            Err(Reason::Attribute { name: "to", expected: "a type that holds the numbers", got })
        }
        None => Ok(()),
    }
}

/// Types of whole numbers of `TensorProto.DataType`.
pub(super) const fn is_integer(to: i32) -> bool {
    matches!(to, 2..=7 | 12 | 13)
}

const INT64: i32 = 7;
