//! Reductions over height and width, over the channels of each pixel, and over the axis of a stack.

use std::rc::Rc;

use tiled_graph::{Activation, Op};

use super::adaptive;
use super::broadcast::Fold;
use super::last;
use super::norming;
use super::pixels;
use super::stack::{self, Reduced};
use super::strip;
use crate::Reason;
use crate::import::numbers::{Binary, Num, Numbers};
use crate::import::site::Site;
use crate::import::value::{Image, Order, Value};

pub(super) const REDUCE: &[&str] = &["axes", "keepdims", "noop_with_empty_axes"];

/// The elements that are folded to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Image,
    Channels,
}

pub(super) fn sum(site: &mut Site<'_>) -> Result<Value, Reason> {
    of_stack_or_axes(site, Some(Reduced::Sum), Fold::Sum)
}

pub(super) fn mean(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = stack::reduced(site, Reduced::Mean)? {
        return Ok(made);
    }
    if let Some(made) = adaptive::mean(site)? {
        return Ok(made);
    }
    match norming::mean(site)? {
        Some(made) => Ok(made),
        None => over_axes(site, Fold::Mean),
    }
}

pub(super) fn max(site: &mut Site<'_>) -> Result<Value, Reason> {
    of_stack_or_axes(site, Some(Reduced::Max), Fold::Max)
}

pub(super) fn min(site: &mut Site<'_>) -> Result<Value, Reason> {
    of_stack_or_axes(site, None, Fold::Min)
}

pub(super) fn l1(site: &mut Site<'_>) -> Result<Value, Reason> {
    of_stack_or_axes(site, None, Fold::L1)
}

pub(super) fn l2(site: &mut Site<'_>) -> Result<Value, Reason> {
    of_stack_or_axes(site, None, Fold::L2)
}

pub(super) fn sum_square(site: &mut Site<'_>) -> Result<Value, Reason> {
    of_stack_or_axes(site, None, Fold::SumSquare)
}

/// Of sizes alone: the number of elements along axes.
pub(super) fn prod(site: &mut Site<'_>) -> Result<Value, Reason> {
    let axes = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    let is_whole = matches!(axes.as_slice(), [] | [0 | -1]) && !site.flag("noop_with_empty_axes", false)?;
    if !is_whole || !site.is_numbers(0) {
        return site.wrong(0, "sizes");
    }
    let numbers = site.numbers(0)?;
    let mut product = Num::Known(1.0);
    for item in &numbers.items {
        product = product.combined(Binary::Mul, *item, numbers.is_integer, &mut site.plans.extents)?;
    }
    let is_scalar = numbers.is_scalar || !site.flag("keepdims", true)?;
    Ok(Value::Numbers(Rc::new(Numbers { items: vec![product], is_scalar, ..*numbers })))
}

fn of_stack_or_axes(site: &mut Site<'_>, stacked: Option<Reduced>, fold: Fold) -> Result<Value, Reason> {
    if let Some(reduced) = stacked
        && let Some(made) = stack::reduced(site, reduced)?
    {
        return Ok(made);
    }
    over_axes(site, fold)
}

/// Over height and width, or one of them, or over the channels; axes are attributes at first and operands later.
fn over_axes(site: &mut Site<'_>, fold: Fold) -> Result<Value, Reason> {
    let given = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    if let Some(made) = pixels::reduced(site, &given, &ops(fold, Over::Image))? {
        return Ok(made);
    }
    let last = last::image(site, 0)?;
    let Image { plan, flat } = match last {
        Some((plan, _)) => Image { plan, flat: false },
        None => site.value(0)?,
    };
    let order = last.map(|(_, order)| order);
    let rank = if flat { 2 } else { order.map_or(4, |order| order.last() + 1) };
    let mut axes: Vec<i64> = given.iter().map(|axis| if *axis < 0 { axis + rank } else { *axis }).collect();
    axes.sort_unstable();
    if let ([axis @ (2 | 3)], None, false) = (axes.as_slice(), order, flat)
        && let Some(made) = strip::reduced(site, plan, *axis)?
    {
        return Ok(made);
    }
    let over = match (axes.as_slice(), order, flat) {
        ([2, 3], None, false) => Over::Image,
        ([1, 2], Some(Order::Plain | Order::Turned), _) | ([1], Some(Order::Joined), _) => Over::Image,
        ([1], None, _) => Over::Channels,
        ([axis], Some(order), _) if *axis == order.last() => Over::Channels,
        _ => {
            let (expected, got) = ("height and width, or the channels", format!("{given:?}"));
            return Err(Reason::Attribute { name: "axes", expected, got });
        }
    };
    if let (Over::Channels, true) = (over, flat) {
        site.check_one_pixel(plan)?;
    }
    let plan = site.chain(&ops(fold, over), plan)?;
    Ok(match (site.flag("keepdims", true)?, over, last) {
        (true, _, Some((_, order))) => last::of_image(plan, order),
        (true, _, None) => Value::Image(Image { plan, flat }),
        (false, Over::Image, _) => Value::Image(Image { plan, flat: true }),
        (false, Over::Channels, None | Some((_, Order::Plain))) if !flat => Value::Plane(plan),
        (false, Over::Channels, _) => {
            let (expected, got) = ("1 of the channels", "0".to_owned());
            return Err(Reason::Attribute { name: "keepdims", expected, got });
        }
    })
}

/// The operators that fold, one after another.
fn ops(fold: Fold, over: Over) -> Vec<Op> {
    let negated = Op::Activation(Activation::Neg);
    let square = Op::Activation(Activation::Pow { exponent: 2.0 });
    let (sum, mean, max) = match over {
        Over::Image => (Op::GlobalSumPool, Op::GlobalAvgPool, Op::GlobalMaxPool),
        Over::Channels => (Op::ChannelSum, Op::ChannelMean, Op::ChannelMax),
    };
    match fold {
        Fold::Sum => vec![sum],
        Fold::Mean => vec![mean],
        Fold::Max => vec![max],
        Fold::Min => vec![negated.clone(), max, negated],
        Fold::L1 => vec![Op::Activation(Activation::Abs), sum],
        Fold::L2 => vec![square, sum, Op::Activation(Activation::Sqrt)],
        Fold::SumSquare => vec![square, sum],
    }
}
