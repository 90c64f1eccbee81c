//! Comparisons of sizes and what is chosen by them: `expand` of PyTorch's older exporter writes −1 for what stays, and takes it away
//! again by `Equal` and `Where`. They leave no node. Comparisons of values with a number are masks, or the choices that an activation makes.

use std::rc::Rc;

use tiled_graph::{Activation, Elementwise, Op, Operand, WithOperand};

use super::{activation, adaptive};
use crate::Reason;
use crate::import::extents::Extents;
use crate::import::numbers::{Binary, Num, Numbers};
use crate::import::site::{Site, node_name};
use crate::import::value::{Above, Image, Value};

pub(super) fn equal(site: &mut Site<'_>) -> Result<Value, Reason> {
    compared(site, |least, most| of_bounds(least == 0 && most == Some(0), least > 0 || below(most, 0)))
}

pub(super) fn greater(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(above) = above(site, [0, 1], true)? {
        return Ok(above);
    }
    if let Some(above) = below_number(site, [1, 0], true)? {
        return Ok(above);
    }
    compared(site, |least, most| of_bounds(least > 0, below(most, 1)))
}

pub(super) fn greater_or_equal(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(above) = above(site, [1, 0], false)? {
        return Ok(above);
    }
    if let Some(above) = below_number(site, [0, 1], false)? {
        return Ok(above);
    }
    compared(site, |least, most| of_bounds(least >= 0, below(most, 0)))
}

pub(super) fn less(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(above) = above(site, [1, 0], true)? {
        return Ok(above);
    }
    if let Some(above) = below_number(site, [0, 1], true)? {
        return Ok(above);
    }
    compared(site, |least, most| of_bounds(below(most, 0), least >= 0))
}

pub(super) fn less_or_equal(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(above) = above(site, [0, 1], false)? {
        return Ok(above);
    }
    if let Some(above) = below_number(site, [1, 0], false)? {
        return Ok(above);
    }
    compared(site, |least, most| of_bounds(below(most, 1), least > 0))
}

pub(super) fn and(site: &mut Site<'_>) -> Result<Value, Reason> {
    let (a, b) = (site.numbers(0)?, site.numbers(1)?);
    of_pairs(site, &a, &b, |a, b, extents| {
        Ok(match (truth(a, extents), truth(b, extents)) {
            (Some(false), _) | (_, Some(false)) => number(false),
            (Some(true), Some(true)) => number(true),
            _ => Num::Open,
        })
    })
}

pub(super) fn or(site: &mut Site<'_>) -> Result<Value, Reason> {
    let (a, b) = (site.numbers(0)?, site.numbers(1)?);
    of_pairs(site, &a, &b, |a, b, extents| {
        Ok(match (truth(a, extents), truth(b, extents)) {
            (Some(true), _) | (_, Some(true)) => number(true),
            (Some(false), Some(false)) => number(false),
            _ => Num::Open,
        })
    })
}

/// Whether each of some sizes is another number than zero, as scripted models cast a comparison for an `If`.
pub(super) fn truths(site: &mut Site<'_>) -> Result<Value, Reason> {
    let numbers = site.numbers(0)?;
    let is = |item: &Num| truth(*item, &site.plans.extents).map_or(Num::Open, number);
    let items = numbers.items.iter().map(is).collect();
    Ok(Value::Numbers(Rc::new(Numbers { items, is_integer: true, ..*numbers })))
}

pub(super) fn not(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Value::Above(above) = *site.operand(0)? {
        return Ok(Value::Above(Above { is_above: !above.is_above, ..above }));
    }
    let numbers = site.numbers(0)?;
    let inverse = |item: &Num| truth(*item, &site.plans.extents).map_or(Num::Open, |is| number(!is));
    let items = numbers.items.iter().map(inverse).collect();
    Ok(Value::Numbers(Rc::new(Numbers { items, ..*numbers })))
}

/// Element by element, by conditions that are the same for every image.
pub(super) fn choose(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Value::Above(above) = *site.operand(0)? {
        return of_values(site, above);
    }
    if let Some(made) = adaptive::filled(site)? {
        return Ok(made);
    }
    if let Some(made) = decided(site)? {
        return Ok(made);
    }
    let lists = [site.numbers(0)?, site.numbers(1)?, site.numbers(2)?];
    let len = lists.iter().map(|list| list.items.len()).find(|len| *len != 1).unwrap_or(1);
    for (position, list) in lists.iter().enumerate() {
        if list.items.len() != len && list.items.len() != 1 {
            return site.wrong(position, LENGTH);
        }
    }
    let mut items = Vec::with_capacity(len);
    for place in 0..len {
        let [condition, a, b] = [0, 1, 2].map(|list: usize| at(&lists[list], place));
        items.push(match truth(condition, &site.plans.extents) {
            Some(true) => a,
            Some(false) => b,
            None if a == b => a,
            None => return site.wrong(0, "conditions that do not depend on the image"),
        });
    }
    let [condition, a, b] = lists;
    let is_scalar = condition.is_scalar && a.is_scalar && b.is_scalar;
    let (is_integer, is_double) = (a.is_integer && b.is_integer, a.is_double || b.is_double);
    Ok(Value::Numbers(Rc::new(Numbers { items, is_scalar, is_integer, is_double })))
}

/// The value that one known condition chooses, as `torch.lerp` has it of its weight; `None` of other conditions, and where the other
/// operand makes it larger.
fn decided(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_value = |site: &Site<'_>, position| matches!(site.operand(position), Ok(Value::Image(_)));
    if !site.is_numbers(0) || !(is_value(site, 1) || is_value(site, 2)) {
        return Ok(None);
    }
    let condition = site.numbers(0)?;
    let [condition] = condition.items.as_slice() else { return Ok(None) };
    let (chosen, other) = match truth(*condition, &site.plans.extents) {
        Some(true) => (1, 2),
        Some(false) => (2, 1),
        None => return Ok(None),
    };
    let Value::Image(image) = *site.operand(chosen)? else { return Ok(None) };
    let is_as_large = match *site.operand(other)? {
        Value::Image(Image { plan, flat }) => {
            let channels = [plan, image.plan].map(|plan| site.plans.get(plan).channels);
            flat == image.flat && channels[0] == channels[1] && site.plans.are_as_large(plan, image.plan)
        }
        _ => site.scalar(other)?.is_some(),
    };
    Ok(is_as_large.then_some(Value::Image(image)))
}

/// Where a value is above a number, or is not; `None` of other operands. The positions are those of the two.
fn above(site: &mut Site<'_>, [image, number]: [usize; 2], is_above: bool) -> Result<Option<Value>, Reason> {
    let (Value::Image(image), Some(number)) = (site.operand(image)?.clone(), site.scalar(number)?) else {
        return Ok(None);
    };
    Ok(Some(Value::Above(Above { image, number, is_above })))
}

/// Where a value is below a number, or is not: where −x is above minus that; `None` of other operands.
fn below_number(
    site: &mut Site<'_>,
    [image, number]: [usize; 2],
    is_below: bool,
) -> Result<Option<Value>, Reason> {
    let (Value::Image(image), Some(number)) = (site.operand(image)?.clone(), site.scalar(number)?) else {
        return Ok(None);
    };
    let name = format!("{}.negated", node_name(site.node));
    let plan = site.plans.node(&name, Op::Activation(Activation::Neg), vec![image.plan], Vec::new())?;
    let image = Image { plan, ..image };
    Ok(Some(Value::Above(Above { image, number: -number, is_above: is_below })))
}

/// The value where it, or a multiple of it, is above a number, and elsewhere softplus of it; or elsewhere a number.
fn of_values(site: &mut Site<'_>, above: Above) -> Result<Value, Reason> {
    const EXPECTED: &str = "softplus of the value that is compared";
    let (kept, other) = if above.is_above { (1, 2) } else { (2, 1) };
    let (Image { plan: compared, flat }, threshold) = (above.image, above.number);
    if let (Some(kept), Some(other)) = (site.scalar(kept)?, site.scalar(other)?) {
        let is_mask = [kept, other] == [1.0, 0.0] || [kept, other] == [0.0, 1.0];
        let above = Above { is_above: kept == 1.0, ..above };
        if is_mask {
            return Ok(Value::Image(Image { plan: site.plans.mask(above, node_name(site.node))?, flat }));
        }
    }
    let x = site.value(kept)?;
    // where x is no number, x is kept
    if !above.is_above
        && x == above.image
        && let Some(value) = site.scalar(other)?
    {
        let made = Op::Activation(Activation::Threshold { threshold, value });
        return Ok(Value::Image(Image { plan: site.add(made, vec![x.plan])?, flat }));
    }
    let Value::Image(Image { plan: bent, flat: is_flat }) = *site.operand(other)? else {
        return site.wrong(other, EXPECTED);
    };
    let (softplus, beta) = with_number(site, bent, Elementwise::Div).unwrap_or((bent, 1.0));
    let is_bent = {
        let is_softplus =
            site.plans.get(softplus).op.as_deref() == Some(&Op::Activation(activation::SOFTPLUS));
        let is_of_compared = is_softplus && site.plans.get(softplus).inputs.first() == compared;
        let line =
            if beta == 1.0 { Some((compared, 1.0)) } else { with_number(site, compared, Elementwise::Mul) };
        is_of_compared && line == Some((x.plan, beta)) && x.flat == flat && is_flat == flat
    };
    if !is_bent {
        return site.wrong(other, EXPECTED);
    }
    let made = Op::Activation(Activation::Softplus { beta, threshold });
    Ok(Value::Image(Image { plan: site.add(made, vec![x.plan])?, flat }))
}

/// What a value is a function of with a number, and the number.
fn with_number(site: &Site<'_>, plan: usize, wanted: Elementwise) -> Option<(usize, f64)> {
    let planned = site.plans.get(plan);
    match planned.op.as_deref() {
        Some(Op::WithOperand(WithOperand {
            function,
            operand: Operand::Number(number),
            reversed: false,
        })) if *function == wanted => Some((planned.inputs.first(), *number)),
        _ => None,
    }
}

/// Whether differences meet a condition, told by the least and the most that they are; where they are without end, by nothing.
fn compared(site: &mut Site<'_>, is_met: impl Fn(i64, Option<i64>) -> Option<bool>) -> Result<Value, Reason> {
    let (a, b) = (site.numbers(0)?, site.numbers(1)?);
    of_pairs(site, &a, &b, |a, b, extents| {
        let met = match a.combined(Binary::Sub, b, false, extents)? {
            // what is below zero by less than one is below zero
            Num::Known(difference) => match difference {
                0.0 => is_met(0, Some(0)),
                0.0.. => is_met(1, Some(1)),
                _ => is_met(-1, Some(-1)),
            },
            Num::Extent(difference) => {
                let (least, most) = extents.bounds(difference);
                is_met(least, most).or_else(|| extents.known(difference).and_then(|of| is_met(of, Some(of))))
            }
            Num::Area(_) | Num::Sum(_) | Num::Quotient(..) | Num::Open => None,
        };
        Ok(met.map_or(Num::Open, number))
    })
}

/// One of each list, or one of a list with the only one of the other.
fn of_pairs(
    site: &mut Site<'_>,
    a: &Numbers,
    b: &Numbers,
    made: impl Fn(Num, Num, &mut Extents) -> Result<Num, Reason>,
) -> Result<Value, Reason> {
    let len = match (a.items.len(), b.items.len()) {
        (a, b) if a == b || b == 1 => a,
        (1, b) => b,
        _ => return site.wrong(1, LENGTH),
    };
    let extents = &mut site.plans.extents;
    let items = (0..len).map(|place| made(at(a, place), at(b, place), extents)).collect::<Result<_, _>>()?;
    let is_scalar = a.is_scalar && b.is_scalar;
    Ok(Value::Numbers(Rc::new(Numbers { is_scalar, ..Numbers::whole(items) })))
}

/// A place of a list, of which one number stands for all.
fn at(list: &Numbers, place: usize) -> Num {
    list.items[if list.items.len() == 1 { 0 } else { place }]
}

fn truth(item: Num, extents: &Extents) -> Option<bool> {
    item.known(extents).map(|number| number != 0.0)
}

fn number(is: bool) -> Num {
    Num::Known(f64::from(u8::from(is)))
}

/// Whether what is at most this is below a bound.
fn below(most: Option<i64>, bound: i64) -> bool {
    most.is_some_and(|most| most < bound)
}

/// What holds always, never, or for some images alone.
fn of_bounds(always: bool, never: bool) -> Option<bool> {
    (always || never).then_some(always)
}

const LENGTH: &str = "as many numbers as the other";
