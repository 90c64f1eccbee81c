//! Values beside copies of themselves: channels that are repeated one after another or each by itself, rows and columns each by itself.
//!
//! `Tile` repeats the channels. To repeat each one by itself, as `repeat_interleave` does, exporters add an axis behind it by `Unsqueeze`,
//! repeat along that by `Tile` or `Expand`, and join the two by `Reshape`: a [stack](super::stack) of equal values.

use std::rc::Rc;

use tiled_graph::{ChannelShuffle, Op, ResizeMode, Upsample, UpsampleTo};

use super::stack::{count_copies, stacked};
use crate::Reason;
use crate::import::numbers::{Num, whole};
use crate::import::site::Site;
use crate::import::value::{Image, Stacked, Value};

/// The channels of a value so many times, or a stack along its axis.
pub(super) fn tile(site: &mut Site<'_>) -> Result<Value, Reason> {
    const EXPECTED: &str = "at least 1 of the channels, and 1 of the other axes";
    let repeats = site.whole(1)?;
    if let Some(made) = along_stack(site, &repeats)? {
        return Ok(made);
    }
    let Image { plan, flat } = site.value(0)?;
    let count = match (repeats.as_slice(), flat) {
        ([1, count], true) | ([1, count, 1, 1], false) => usize::try_from(*count).ok(),
        _ => None,
    };
    let Some(count) = count.filter(|count| *count > 0) else { return site.wrong(1, EXPECTED) };
    if flat && site.plans.get(plan).extents != Some([1, 1]) {
        return site.wrong(0, "a value of one pixel or of four axes");
    }
    Ok(Value::Image(Image { plan: copies(site, plan, count)?, flat }))
}

/// The one value of a stack so many times along its axis; `None` of other values.
fn along_stack(site: &mut Site<'_>, repeats: &[i64]) -> Result<Option<Value>, Reason> {
    let Some(stack) = images(site)? else { return Ok(None) };
    let is_one = |(axis, count): (i64, &i64)| axis == stack.axis || *count == 1;
    let count = usize::try_from(stack.axis).ok().and_then(|axis| repeats.get(axis)).copied();
    if repeats.len() != 5 || !(0..).zip(repeats).all(is_one) {
        return site.wrong(1, ALONG);
    }
    repeated(site, stack, count)
}

/// The same by the shape that it makes; `None` of other values.
pub(super) fn expanded(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(stack) = images(site)? else { return Ok(None) };
    let shape = site.numbers(1)?;
    let Ok(items) = <[Num; 5]>::try_from(shape.items.as_slice()) else { return site.wrong(1, ALONG) };
    let along = usize::try_from(stack.axis).unwrap_or(usize::MAX);
    let mut axes = [0, 1, 2, 3].into_iter();
    let mut count = None;
    for (place, item) in items.into_iter().enumerate() {
        let stays = item == Num::Known(1.0) || item == Num::Known(-1.0);
        let is_kept = match (place == along).then_some(4).or_else(|| axes.next()) {
            Some(4) => {
                count = item.known(&site.plans.extents).and_then(whole);
                true
            }
            Some(0) => stays || site.plans.is_batch(item),
            Some(1) => stays || item == Num::Known(site.plans.get(stack.values[0]).channels as f64),
            Some(axis) => stays || site.plans.is_extent(item, stack.values[0], axis),
            None => false,
        };
        if !is_kept {
            return site.wrong(1, ALONG);
        }
    }
    repeated(site, stack, count)
}

/// A stack of images.
fn images(site: &Site<'_>) -> Result<Option<Stacked>, Reason> {
    Ok(stacked(site.operand(0)?).filter(|stack| stack.rank == Stacked::OF_IMAGES).cloned())
}

fn repeated(site: &mut Site<'_>, stack: Stacked, count: Option<i64>) -> Result<Option<Value>, Reason> {
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let (Some(count), &[one]) = (count, stack.values.as_slice()) else { return site.wrong(1, ALONG) };
    count_copies(site, count)?;
    Ok(Some(Value::Stacked(Rc::new(Stacked { values: vec![one; count], ..stack }))))
}

const ALONG: &str = "at least 1 along the axis that Unsqueeze has added, and 1 of the other axes";

/// The channels of a value so many times.
pub(super) fn copies(site: &mut Site<'_>, plan: usize, count: usize) -> Result<usize, Reason> {
    if count == 1 {
        return Ok(plan);
    }
    count_copies(site, count)?;
    site.add(Op::Concat, vec![plan; count])
}

/// The axis of a stack of images joined to the one before it or behind it; `None` of other values.
pub(super) fn joined(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(stack) = images(site)? else { return Ok(None) };
    let shape = site.numbers(1)?;
    let count = stack.values.len();
    let values = stack.values;
    let first = values[0];
    let is_repeated = values.iter().all(|value| *value == first);
    let larger = |scale| Op::Upsample(Upsample { mode: ResizeMode::NEAREST, to: UpsampleTo::Scale(scale) });
    let many = count as f64;
    let plan = match stack.axis {
        1 if count > 1 => site.add(Op::Concat, values)?,
        2 if count > 1 => {
            let side_by_side = site.add(Op::Concat, values)?;
            site.add(Op::ChannelShuffle(ChannelShuffle { groups: count }), vec![side_by_side])?
        }
        _ if count == 1 => first,
        3 if is_repeated => site.add(larger([many, 1.0]), vec![first])?,
        4 if is_repeated => site.add(larger([1.0, many]), vec![first])?,
        _ => return site.wrong(0, "values along an axis beside the channels, or one value repeated"),
    };
    if !site.plans.is_shape_of(&shape, plan) {
        return site.wrong(1, "the shape of the values joined along one axis");
    }
    Ok(Some(Value::Image(Image { plan, flat: false })))
}
