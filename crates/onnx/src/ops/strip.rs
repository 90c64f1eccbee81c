//! Reductions over height or width alone: the first of two that are one over both, or a value of one row or one column.

use std::cell::Cell;
use std::rc::Rc;

use tiled_graph::{Activation, Op, PartPooling};

use super::layout;
use super::operator::Operator;
use crate::Reason;
use crate::import::numbers::Num;
use crate::import::site::{Site, node_name};
use crate::import::strip::to_one;
use crate::import::value::{Halfway, Image, Value};

/// A reduction of an image over one of its axes, 2 or 3; `None` of one that is none.
pub(super) fn reduced(site: &mut Site<'_>, plan: usize, axis: i64) -> Result<Option<Value>, Reason> {
    let (operator, keeps) = (site.node.op_type(), site.flag("keepdims", true)?);
    if let Some(op) = of_both(operator) {
        let (operator, name) = (operator.to_owned(), node_name(site.node).to_owned());
        let halfway = Halfway { plan, axis, keeps, op, operator, name, made: Cell::new(None) };
        return Ok(Some(Value::Halfway(Rc::new(halfway))));
    }
    if operator != "ReduceMin" || !keeps {
        return Ok(None);
    }
    let negated = Op::Activation(Activation::Neg);
    let pool = Op::AdaptivePool2d(to_one(PartPooling::Max, usize::from(axis == 3)));
    let plan = site.chain(&[negated.clone(), pool, negated], plan)?;
    Ok(Some(Value::Image(Image { plan, flat: false })))
}

/// What a node makes of a value that is reduced over one axis where it goes on with the other; of what any other node reads the value
/// becomes one of the network.
pub(super) fn made(operator: &Operator, site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if let Some(Some(Value::Halfway(halfway))) = site.operands.first() {
        let halfway = Rc::clone(halfway);
        let made = match operator.name {
            "Div" => by_extent(site, &halfway)?,
            "Unsqueeze" => with_axis(site, &halfway)?,
            name if name.starts_with("Reduce") => finished(site, &halfway)?,
            _ => None,
        };
        if made.is_some() {
            return Ok(made);
        }
    }
    for operand in site.operands.iter_mut().flatten() {
        if let Value::Halfway(halfway) = operand
            && halfway.keeps
        {
            let plan = site.plans.reduced(halfway)?;
            *operand = Value::Image(Image { plan, flat: false });
        }
    }
    Ok(None)
}

/// The second of two reductions, which is that over both: of a mean but for roundings.
fn finished(site: &mut Site<'_>, halfway: &Halfway) -> Result<Option<Value>, Reason> {
    let given = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    let Halfway { plan, axis, keeps, .. } = *halfway;
    let (rank, other) = if keeps { (4, 5 - axis) } else { (3, 2) };
    let is_other = matches!(*given, [axis] if axis == other || axis == other - rank);
    match of_both(site.node.op_type()) {
        Some(op) if op == halfway.op && is_other && site.flag("keepdims", true)? == keeps => {
            let plan = site.add(op, vec![plan])?;
            Ok(Some(Value::Image(Image { plan, flat: !keeps })))
        }
        _ if keeps => Ok(None),
        _ => site.wrong(0, "the same reduction over the other of height and width"),
    }
}

/// A sum over an axis by its extent is the mean, also where the model declares the extent.
fn by_extent(site: &mut Site<'_>, halfway: &Halfway) -> Result<Option<Value>, Reason> {
    let extent = match site.operand(1)? {
        Value::Numbers(numbers) if numbers.items.len() == 1 => numbers.items.first().copied(),
        _ => site.scalar(1)?.map(Num::Known),
    };
    let axis = if halfway.axis == 2 { 2 } else { 3 };
    // of more axes it would give them to the sum
    let is_wider = match site.operand(1)? {
        Value::Constant(constant) => constant.shape.len() > if halfway.keeps { 4 } else { 3 },
        _ => false,
    };
    let is_extent =
        !is_wider && extent.is_some_and(|extent| site.plans.is_extent(extent, halfway.plan, axis));
    if halfway.op != Op::GlobalSumPool || !is_extent {
        return Ok(None);
    }
    let mean = Halfway { op: Op::GlobalAvgPool, made: Cell::new(None), ..halfway.clone() };
    Ok(Some(Value::Halfway(Rc::new(mean))))
}

/// The axis with one row or column, where the reduction has dropped it.
fn with_axis(site: &mut Site<'_>, halfway: &Halfway) -> Result<Option<Value>, Reason> {
    let axes = layout::axes(site)?;
    let Some([axis]) = axes.as_deref() else { return Ok(None) };
    let is_axis = *axis == halfway.axis || axis.saturating_add(4) == halfway.axis;
    if halfway.keeps || !is_axis {
        return Ok(None);
    }
    Ok(Some(Value::Halfway(Rc::new(Halfway { keeps: true, ..halfway.clone() }))))
}

/// The operator over height and width that one over each of them makes too, where it is one.
fn of_both(operator: &str) -> Option<Op> {
    match operator {
        "ReduceSum" => Some(Op::GlobalSumPool),
        "ReduceMean" => Some(Op::GlobalAvgPool),
        "ReduceMax" => Some(Op::GlobalMaxPool),
        _ => None,
    }
}
