//! Constants, and operators that leave what they read as it is.

use std::rc::Rc;

use super::{choice, elements, filled, grid, whole};
use crate::Reason;
use crate::import::numbers::{MAX_NUMBERS, Num, Numbers, Rounding, whole};
use crate::import::site::{DOUBLE, Site, node_name};
use crate::import::value::{Image, Value};
use crate::tensor::{is_float, of_floats, of_ints, type_name};

pub(super) const CONSTANT: &[&str] = &["value", "value_float", "value_floats", "value_int", "value_ints"];

pub(super) fn constant(site: &mut Site<'_>) -> Result<Value, Reason> {
    let name = node_name(site.node).to_owned();
    let [given] = site.node.attribute.as_slice() else {
        let got = format!("one of {} attributes", site.node.attribute.len());
        return Err(Reason::Attribute { name: "value", expected: "the only one", got });
    };
    let len = |len: usize| vec![i64::try_from(len).unwrap_or(i64::MAX)];
    let proto = match given.name() {
        "value_float" => of_floats(&name, Vec::new(), given.f.into_iter().collect()),
        "value_int" => of_ints(&name, Vec::new(), given.i.into_iter().collect()),
        "value_floats" => of_floats(&name, len(given.floats.len()), given.floats.clone()),
        "value_ints" => of_ints(&name, len(given.ints.len()), given.ints.clone()),
        _ => match &given.t {
            Some(tensor) => {
                let mut tensor = (**tensor).clone();
                tensor.name.get_or_insert(name);
                tensor
            }
            None => {
                let got = "of another type".to_owned();
                return Err(Reason::Attribute { name: "value", expected: "a tensor", got });
            }
        },
    };
    site.new_constant(proto)
}

pub(super) fn identity(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.operand(0).cloned()
}

/// Identity in evaluation, which a model is exported for.
pub(super) fn dropout(site: &mut Site<'_>) -> Result<Value, Reason> {
    if site.has(2) && site.number(2)? != 0.0 {
        return site.wrong(2, "no training mode");
    }
    site.operand(0).cloned()
}

/// Types of elements are those of a run: casts between floats leave nothing.
pub(super) fn cast(site: &mut Site<'_>) -> Result<Value, Reason> {
    let to = whole::to(site)?;
    let is_integer = whole::is_integer(to);
    let tensor = match site.operand(0)? {
        Value::Constant(constant) => Some(constant.tensor),
        _ => None,
    };
    let is_float_constant =
        tensor.is_some_and(|tensor| site.tensors.check(tensor).is_ok_and(|stored| !stored.is_integer()));
    if site.is_numbers(0) && !(is_float_constant && is_float(to)) {
        if to == BOOL {
            return choice::truths(site);
        }
        if !is_integer && !is_float(to) {
            let got = type_name(to).to_owned();
            return Err(Reason::Attribute { name: "to", expected: "a type of numbers", got });
        }
        let numbers = site.numbers(0)?;
        let made = if is_integer {
            whole::check_small_type(&numbers, to, &site.plans.extents)?;
            numbers.rounded(Rounding::Trunc, &mut site.plans.extents)?
        } else {
            Numbers::clone(&numbers)
        };
        return Ok(Value::Numbers(Rc::new(Numbers { is_integer, is_double: to == DOUBLE, ..made })));
    }
    if let Value::Above(above) = *site.operand(0)? {
        return if to == BOOL {
            Ok(Value::Above(above))
        } else if is_integer || is_float(to) {
            let (plan, flat) = (site.plans.mask(above, node_name(site.node))?, above.image.flat);
            Ok(Value::Image(Image { plan, flat }))
        } else {
            let got = type_name(to).to_owned();
            Err(Reason::Attribute { name: "to", expected: "a type of numbers", got })
        };
    }
    if is_float(to) {
        return site.operand(0).cloned();
    }
    Err(Reason::Attribute { name: "to", expected: "a type of floats", got: type_name(to).to_owned() })
}

/// `TensorProto.DataType`.
const BOOL: i32 = 9;

/// A constant of floats that are all one number, or a list of one whole number; of computed sizes a value; nothing where an extent of
/// four is zero.
pub(super) fn constant_of_shape(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(empty) = Value::empty(&site.numbers(0)?.items) {
        return Ok(empty);
    }
    let computed = match site.operand(0)? {
        Value::Numbers(numbers) => Some(Rc::clone(numbers)),
        _ => None,
    };
    let (value, is_integer) = match site.attribute("value").and_then(|attribute| attribute.t.clone()) {
        None => (0.0, false),
        Some(tensor) => {
            let constant = site.new_constant(*tensor)?;
            site.operands.push(Some(constant));
            let position = site.operands.len() - 1;
            (site.number(position)?, site.numbers(position)?.is_integer)
        }
    };
    if let Some(shape) = computed.filter(|_| !is_integer)
        && let Some(made) = filled::of_shape(site, &shape, value)?
    {
        return Ok(made);
    }
    let dims = site.whole(0)?;
    if !is_integer {
        return site.new_filled(dims, value).map(Value::Constant);
    }
    let len = match dims.as_slice() {
        [] => 1,
        [len] => usize::try_from(*len).unwrap_or(usize::MAX),
        _ => return site.wrong(0, "one extent, of whole numbers"),
    };
    if len > MAX_NUMBERS {
        return site.wrong(0, "a few whole numbers");
    }
    let items = vec![Num::Known(value); len];
    Ok(Value::Numbers(Rc::new(Numbers { is_scalar: dims.is_empty(), ..Numbers::whole(items) })))
}

/// `start, start + step, …` below the limit.
pub(super) fn range(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = elements::range(site)? {
        return Ok(made);
    }
    if let Some(made) = grid::range(site)? {
        return Ok(made);
    }
    let (start, limit, step) = (site.number(0)?, site.number(1)?, site.number(2)?);
    let is = |site: &mut Site<'_>, of: fn(&Numbers) -> bool| {
        [0, 1, 2].map(|position| site.numbers(position).is_ok_and(|numbers| of(&numbers)))
    };
    let is_integer = is(site, |numbers| numbers.is_integer) == [true; 3];
    let is_double = is(site, |numbers| numbers.is_double).contains(&true);
    let len = whole(((limit - start) / step).ceil().max(0.0)).and_then(|len| usize::try_from(len).ok());
    match len {
        Some(len) if len <= MAX_NUMBERS && step != 0.0 => {
            let items = (0..len).map(|place| Num::Known(start + place as f64 * step)).collect();
            Ok(Value::Numbers(Rc::new(Numbers { items, is_scalar: false, is_integer, is_double })))
        }
        _ => site.wrong(1, "a limit that gives a few numbers"),
    }
}
