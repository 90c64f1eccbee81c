//! Values that are one number everywhere and as large as an image: channels of padding, and constants of computed sizes.
//!
//! A network has no constant as large as an image. A channel of a value that is there becomes one: `threshold` puts the number in
//! place of all that is not above the largest number. A NaN stays one. No gradient flows through it.

use tiled_graph::{Activation, Op, PadWith, Slice};

use crate::Reason;
use crate::import::numbers::{Num, Numbers, whole};
use crate::import::site::{Site, is_small, node_name};
use crate::import::value::{Constant, Image, Value};

/// The channels of such a value at most.
const MOST_CHANNELS: i64 = 1 << 8;

/// One channel as large as a value that is this number everywhere.
fn channel(site: &mut Site<'_>, plan: usize, value: f64) -> Result<usize, Reason> {
    let name = format!("{}.filled", node_name(site.node));
    let first = match site.plans.get(plan).channels {
        1 => plan,
        _ => {
            let op = Op::Slice(Slice { begin: 0, end: Some(1) });
            site.plans.node(&format!("{name}.slice"), op, vec![plan], Vec::new())?
        }
    };
    let op = Op::Activation(Activation::Threshold { threshold: f64::MAX, value });
    site.plans.node(&name, op, vec![first], Vec::new())
}

/// So many channels as large as a value; `None` of none and of more than there are.
fn channels(site: &mut Site<'_>, plan: usize, value: f64, count: i64) -> Result<Option<usize>, Reason> {
    if !(1..=MOST_CHANNELS).contains(&count) {
        return Ok(None);
    }
    let one = channel(site, plan, value)?;
    match count {
        1 => Ok(Some(one)),
        _ => site.add(Op::Concat, (0..count).map(|_| one).collect()).map(Some),
    }
}

/// A value with channels of a number before and behind its own, some of which are removed where that is below zero; `None` of other
/// padding.
pub(super) fn padded(
    site: &mut Site<'_>,
    plan: usize,
    sides: [Num; 2],
    with: PadWith,
) -> Result<Option<usize>, Reason> {
    let known = sides.map(|side| side.known(&site.plans.extents).and_then(whole));
    let (PadWith::Constant(value), [Some(before), Some(after)]) = (with, known) else { return Ok(None) };
    if ![before, after].into_iter().all(is_small) || before.max(after) > MOST_CHANNELS {
        return Ok(None);
    }
    let channels = i64::try_from(site.plans.get(plan).channels).unwrap_or(i64::MAX);
    let (begin, end) = ((-before).max(0), channels - (-after).max(0));
    let name = format!("{}.kept", node_name(site.node));
    let kept = match [begin, end] {
        [begin, end] if begin >= end => return Ok(None),
        [0, end] if end == channels => plan,
        [begin, end] => {
            let op = Op::Slice(Slice { begin, end: Some(end) });
            site.plans.node(&name, op, vec![plan], Vec::new())?
        }
    };
    if before <= 0 && after <= 0 {
        return Ok(Some(kept));
    }
    let filled = channel(site, plan, value)?;
    let all = (0..before).map(|_| filled).chain([kept]).chain((0..after).map(|_| filled)).collect();
    site.add(Op::Concat, all).map(Some)
}

/// A value of four axes as large as another, whatever the image; `None` of other shapes.
pub(super) fn of_shape(site: &mut Site<'_>, shape: &Numbers, value: f64) -> Result<Option<Value>, Reason> {
    let [batch, count, height, width] = *shape.items.as_slice() else { return Ok(None) };
    let is_batch = batch == Num::Known(1.0) || (batch != Num::Known(0.0) && site.plans.is_batch(batch));
    let count = count.known(&site.plans.extents).and_then(whole);
    let (Some(like), Some(count)) = (site.plans.like([height, width]).filter(|_| is_batch), count) else {
        return Ok(None);
    };
    let plan = channels(site, like, value, count)?;
    Ok(plan.map(|plan| Value::Image(Image { plan, flat: false })))
}

/// The whole number that a channel was filled with; `None` of other values.
pub(super) fn number_of(site: &Site<'_>, plan: usize) -> Option<i64> {
    match site.plans.get(plan).op.as_deref() {
        Some(Op::Activation(Activation::Threshold { threshold, value })) if *threshold == f64::MAX => {
            whole(*value)
        }
        _ => None,
    }
}

/// Lets constants among the operands that are one number everywhere, and as large as a value among them, be values.
pub(super) fn settle(site: &mut Site<'_>) -> Result<(), Reason> {
    let is_image = |operand: &Option<Value>| match operand {
        Some(Value::Image(Image { plan, flat: false })) => Some(*plan),
        _ => None,
    };
    let Some(like) = site.operands.iter().find_map(is_image) else { return Ok(()) };
    for position in 0..site.operands.len() {
        let Some(Value::Constant(constant)) = &site.operands[position] else { continue };
        let constant = constant.clone();
        if let Some(count) = count(site, &constant, like).filter(|count| *count <= MOST_CHANNELS)
            && let Some(value) = number(site, &constant)?
            && let Some(plan) = channels(site, like, value, count)?
        {
            site.operands[position] = Some(Value::Image(Image { plan, flat: false }));
        }
    }
    Ok(())
}

/// The channels of a constant that is as large as a value.
fn count(site: &Site<'_>, constant: &Constant, like: usize) -> Option<i64> {
    let [batch, channels, height, width] = *constant.shape.as_ref() else { return None };
    let is_batch = batch > 0 && site.plans.is_batch(Num::Known(batch as f64));
    let is_as_large = site.plans.get(like).extents == Some([height, width]);
    i64::try_from(channels).ok().filter(|_| is_batch && is_as_large)
}

/// The number that all elements of a constant are.
fn number(site: &mut Site<'_>, constant: &Constant) -> Result<Option<f64>, Reason> {
    if let Some(value) = site.tensors.filled(constant.tensor) {
        return Ok(Some(value));
    }
    let _room = site.tensors.room(constant.shape.iter().product(), size_of::<f64>())?;
    let values = site.values(constant)?;
    let first = values.first().copied();
    Ok(first.filter(|first| values.iter().all(|value| value.to_bits() == first.to_bits())))
}
