//! Values side by side along an axis of their own, and what becomes of them over it: `torch.stack(values).sum(0)` is a sum of values.
//!
//! `Unsqueeze` gives each value the axis, `Concat` joins them along it, and a reduction or `Squeeze` takes it away again. So are parts of
//! the channels that a `Reshape` has taken apart, N×R×C×H×W.

use std::rc::Rc;

use tiled_graph::{ChannelShuffle, Elementwise, Op, Slice};

use super::arithmetic::{divided, of_values};
use crate::Reason;
use crate::import::numbers::{Num, whole};
use crate::import::site::{Site, node_name};
use crate::import::value::{Folded, Image, Part, Stacked, Value};

/// Axes of a stack of images.
const RANK: i64 = Stacked::OF_IMAGES;

/// The parts of the channels that are values of a stack at most.
const MOST_PARTS: i64 = 16;

/// A value with an axis of its own; `None` where that is not an axis beside its four.
pub(super) fn alone(site: &mut Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let (Image { plan, flat: false }, Some([axis])) = (site.value(0)?, axes) else { return Ok(None) };
    let axis = place(*axis, RANK).filter(|axis| (0..RANK).contains(axis));
    Ok(axis.map(|axis| Value::Stacked(Rc::new(Stacked { axis, rank: RANK, values: vec![plan] }))))
}

/// Stacks one after another along their axis; `None` where there is none among the operands.
pub(super) fn joined(site: &mut Site<'_>, axis: i64) -> Result<Option<Value>, Reason> {
    let Some(first) = site.operands.iter().flatten().find_map(stacked).cloned() else { return Ok(None) };
    if place(axis, first.rank) != Some(first.axis) {
        let got = axis.to_string();
        return Err(Reason::Attribute { name: "axis", expected: "the axis that Unsqueeze has added", got });
    }
    // what was joined before is copied: names of one stack are few bytes
    let lens = site.operands.iter().flatten().filter_map(stacked).map(|stacked| stacked.values.len());
    let copied = lens.filter(|len| *len > 1).sum();
    count_copies(site, copied)?;
    let mut values = Vec::new();
    for position in 0..site.operands.len() {
        match site.operand(position)? {
            Value::Stacked(stacked) if (stacked.axis, stacked.rank) == (first.axis, first.rank) => {
                values.extend(&stacked.values);
            }
            _ => return site.wrong(position, "a value with the axis that the others have"),
        }
    }
    Ok(Some(Value::Stacked(Rc::new(Stacked { values, ..first }))))
}

/// Refuses more copies than there may be in all nodes.
pub(super) fn count_copies(site: &mut Site<'_>, count: usize) -> Result<(), Reason> {
    site.plans.expanded = site.plans.expanded.saturating_add(count);
    if site.plans.expanded > MOST_COPIES {
        return site.wrong(0, "at most 262144 values that are copies of others, in all nodes");
    }
    Ok(())
}

/// The copies of all nodes together: a few bytes in a file are as many operands.
const MOST_COPIES: usize = 1 << 18;

/// The one value of a stack without the axis; `None` where the operand is no stack.
pub(super) fn dropped(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Some(stacked) = stacked(site.operand(0)?) else { return Ok(None) };
    match (stacked.values.as_slice(), axes) {
        ([plan], Some([axis])) if stacked.rank == RANK && place(*axis, RANK) == Some(stacked.axis) => {
            Ok(Some(Value::Image(Image { plan: *plan, flat: false })))
        }
        _ => site.wrong(0, "one value with the axis that is dropped"),
    }
}

/// What a reduction makes of the values of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduced {
    Sum,
    Mean,
    Max,
}

/// The values of a stack, reduced over its axis; `None` where the operand is no stack.
pub(super) fn reduced(site: &mut Site<'_>, reduced: Reduced) -> Result<Option<Value>, Reason> {
    if !matches!(site.operand(0)?, Value::Stacked(_) | Value::Folded(_)) {
        return Ok(None);
    }
    let axes = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    let stacked = match axes.as_slice() {
        [axis] => along(site, 0, *axis)?,
        _ => None,
    };
    let Some(stacked) = stacked.filter(|stacked| stacked.rank == RANK) else {
        let (expected, got) = ("the axis of the stack", format!("{axes:?}"));
        return Err(Reason::Attribute { name: "axes", expected, got });
    };
    let values: Vec<Image> = stacked.values.iter().map(|plan| Image { plan: *plan, flat: false }).collect();
    let function = match reduced {
        Reduced::Sum | Reduced::Mean => Elementwise::Add,
        Reduced::Max => Elementwise::Maximum,
    };
    let made = match values.as_slice() {
        [one] => *one,
        _ => of_values(site, function, &values)?,
    };
    let made = if reduced == Reduced::Mean { divided(site, made, values.len())? } else { made };
    Ok(Some(if site.flag("keepdims", true)? {
        Value::Stacked(Rc::new(Stacked { values: vec![made.plan], ..stacked }))
    } else {
        Value::Image(made)
    }))
}

/// Pixels of a stack as one list of features, as one pixel, or beside images, N×R×C×1×1; `None` where the operand is no stack of four axes.
pub(super) fn joined_pixels(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(pixels) = stacked(site.operand(0)?).filter(|stacked| stacked.rank < RANK).cloned() else {
        return Ok(None);
    };
    let shape = site.numbers(1)?;
    let channels = site.plans.get(pixels.values[0]).channels;
    let all = (channels * pixels.values.len()) as f64;
    let is_open = |item: &Num| *item == Num::Known(-1.0);
    let is = |item: &Num, count: f64| is_open(item) || *item == Num::Known(count);
    let is_batch = |item: &Num| is_open(item) || site.plans.is_batch(*item);
    let flat = match shape.items.as_slice() {
        items if items.iter().filter(|item| is_open(item)).count() > 1 => None,
        [n, c] if is_batch(n) && is(c, all) => Some(true),
        [n, c, h, w] if is_batch(n) && is(c, all) && is(h, 1.0) && is(w, 1.0) => Some(false),
        [n, r, c, h, w]
            if is_batch(n)
                && is(r, pixels.values.len() as f64)
                && is(c, channels as f64)
                && is(h, 1.0)
                && is(w, 1.0) =>
        {
            return Ok(Some(Value::Stacked(Rc::new(Stacked { axis: 1, rank: RANK, ..pixels }))));
        }
        _ => None,
    };
    let Some(flat) = flat else { return site.wrong(1, "the batch and all elements along one axis") };
    let plan = match *pixels.values.as_slice() {
        [one] => one,
        _ => site.add(Op::Concat, pixels.values)?,
    };
    Ok(Some(Value::Image(Image { plan, flat })))
}

/// The channels of a pixel taken apart, N×1×R×C; `None` of other values and shapes.
pub(super) fn apart(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Image(Image { plan, .. }) = *site.operand(0)? else { return Ok(None) };
    if site.plans.get(plan).extents != Some([1, 1]) || !site.is_numbers(1) {
        return Ok(None);
    }
    let (shape, channels) = (site.numbers(1)?, site.plans.get(plan).channels);
    let [n, factors @ ..] = shape.items.as_slice() else { return Ok(None) };
    // −1 is nothing, until the others are known
    let known = |item: &Num| match item {
        Num::Known(-1.0) => Some(0),
        Num::Known(factor) => {
            whole(*factor).and_then(|factor| usize::try_from(factor).ok()).filter(|it| *it > 0)
        }
        _ => None,
    };
    let is_batch = *n == Num::Known(-1.0) || site.plans.is_batch(*n);
    let open = factors.iter().filter(|item| **item == Num::Known(-1.0)).count();
    let Some(factors) = factors.iter().map(known).collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let &[one, r, c] = factors.as_slice() else { return Ok(None) };
    let left = channels / one.max(1) / r.max(1) / c.max(1);
    let [one, r, c] = [one, r, c].map(|factor| if factor == 0 { left } else { factor });
    let is_apart = one == 1 && r > 1 && c > 1 && r.checked_mul(c) == Some(channels);
    if !is_batch || open > 1 || (open == 1 && *n == Num::Known(-1.0)) || !is_apart {
        return Ok(None);
    }
    let part = |place, extent: usize| Part { axis: 1, place, extent: i64::try_from(extent).ok() };
    Ok(Some(Value::Folded(Rc::new(Folded { plan, parts: vec![part(0, one), part(1, r), part(2, c)] }))))
}

/// A stack along this axis: it is one, or channels that are taken apart so that its parts lie one after another.
pub(super) fn along(site: &mut Site<'_>, position: usize, axis: i64) -> Result<Option<Stacked>, Reason> {
    let folded = match site.operand(position)? {
        Value::Stacked(stacked) => {
            let is_axis = place(axis, stacked.rank) == Some(stacked.axis);
            return Ok(is_axis.then(|| Stacked::clone(stacked)));
        }
        Value::Folded(folded) => Rc::clone(folded),
        _ => return Ok(None),
    };
    let rank = i64::try_from(folded.parts.len()).unwrap_or(i64::MAX).saturating_add(1);
    let Some(axis) = place(axis, rank).filter(|axis| *axis >= 1) else { return Ok(None) };
    let at = folded.parts.get(place_of(axis)).copied();
    let Some(Part { axis: 1, place: of, extent: Some(count @ 1..=MOST_PARTS) }) = at else { return Ok(None) };
    let of_channels = || folded.parts.iter().filter(|part| part.axis == 1);
    // what stands outside of the parts is one, or what stands inside; the rest keeps its order
    let is_outermost = of_channels().all(|part| part.place >= of || part.extent == Some(1));
    let is_innermost = of_channels().all(|part| part.place <= of || part.extent == Some(1));
    let inner: Vec<usize> = of_channels().map(|part| part.place).filter(|place| *place != of).collect();
    // of images, or of pixels, whose parts are before what is inside, so that one after another they are all channels
    let axes: Vec<usize> = folded.parts.iter().map(|part| part.axis).collect();
    let is_before =
        |part: &Part| part.place <= of || folded.parts.iter().position(|p| p == part) > Some(place_of(axis));
    let is_stack = match axes.as_slice() {
        [1, 1, 2, 3] => folded.parts[2..].iter().all(|part| part.extent.is_none() && part.place == 0),
        [1, 1, 1] => of_channels().all(is_before),
        _ => false,
    };
    let is_image = axes.len() == 4;
    if !(is_outermost || (is_innermost && is_image)) || !inner.is_sorted() || !is_stack {
        return Ok(None);
    }
    let channels = i64::try_from(site.plans.get(folded.plan).channels).unwrap_or(i64::MAX);
    if channels % count != 0 {
        return Ok(None);
    }
    let (size, name) = (channels / count, node_name(site.node).to_owned());
    let mut plan = folded.plan;
    if !is_outermost {
        // each n-th channel is a part: those of one part come to stand one after another
        let groups = usize::try_from(size).unwrap_or(usize::MAX);
        let op = Op::ChannelShuffle(ChannelShuffle { groups });
        plan = site.plans.node(&format!("{name}.shuffle"), op, vec![plan], Vec::new())?;
    }
    let mut values = Vec::new();
    for part in 0..count {
        let op = Op::Slice(Slice { begin: part * size, end: Some((part + 1) * size) });
        values.push(site.plans.node(&format!("{name}.slice"), op, vec![plan], Vec::new())?);
    }
    Ok(Some(Stacked { axis, rank, values }))
}

pub(super) fn stacked(value: &Value) -> Option<&Stacked> {
    match value {
        Value::Stacked(stacked) => Some(stacked),
        _ => None,
    }
}

/// The place of an axis among the parts behind the batch.
fn place_of(axis: i64) -> usize {
    usize::try_from(axis - 1).unwrap_or(usize::MAX)
}

/// An axis of so many, counted from the first.
fn place(axis: i64, rank: i64) -> Option<i64> {
    if axis < 0 { axis.checked_add(rank) } else { Some(axis) }
}
