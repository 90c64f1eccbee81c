//! Shuffles of channels and pixels: operators of their own, and the three that exporters write for one.
//!
//! `Reshape` takes axes apart, `Transpose` moves the parts, and another `Reshape` joins them:
//!
//! | shuffle | apart | moved |
//! |---|---|---|
//! | channels | n, g, c/g, h, w | n, c/g, g, h, w |
//! | to pixels | n, c, r, r, h, w | n, c, h, r, w, r |
//! | to pixels, depth first | n, r, r, c, h, w | n, c, h, r, w, r |
//! | to channels | n, c, h, r, w, r | n, c, r, r, h, w |
//! | to channels, depth first | n, c, h, r, w, r | n, r, r, c, h, w |
//!
//! Of an image of open size height and width are taken apart one after the other, and what is joined has axes of one.

use std::rc::Rc;

use tiled_graph::{ChannelShuffle, Op, PixelShuffle, PixelUnshuffle};

use super::stack::stacked;
use crate::Reason;
use crate::import::numbers::{Num, Numbers, whole};
use crate::import::site::Site;
use crate::import::value::{Folded, Image, Part, Stacked, Value};

/// The first `Reshape`.
pub(super) fn folded(site: &mut Site<'_>, plan: usize, shape: &Numbers) -> Result<Value, Reason> {
    const EXPECTED: &str = "a shape that takes channels apart, or height and width into blocks";
    let known: Vec<Option<i64>> =
        shape.items.iter().map(|item| item.known(&site.plans.extents).and_then(whole)).collect();
    let block = known.get(3).copied().flatten().filter(|block| *block > 0);
    let of_blocks = match block.filter(|_| known.len() == 6) {
        Some(block) => site.plans.parts(plan, block)?,
        None => None,
    };
    let planned = site.plans.get(plan);
    let (channels, extents) = (signed(planned.channels), planned.extents.map(|extents| extents.map(signed)));
    let is_part = |item: &Num, axis: usize| {
        let declared = item.known(&site.plans.extents).and_then(whole).zip(block);
        let declared = declared.and_then(|(count, block)| count.checked_mul(block));
        of_blocks.is_some_and(|parts| parts[axis - 2] == *item)
            || (declared.is_some() && declared == extents.map(|extents| extents[axis - 2]))
    };
    let is_kept = |item: &Num, axis: usize| site.plans.is_extent(*item, plan, axis);
    let items = shape.items.as_slice();
    let is_batch = items.first().is_some_and(|item| *item == Num::Known(-1.0) || site.plans.is_batch(*item));
    let part = |axis, place, extent| Part { axis, place, extent };
    let blocks = || -> Option<Vec<Part>> {
        let [_, Some(c), _, Some(r), _, Some(s)] = known.as_slice() else { return None };
        let [_, _, height, _, width, _] = items else { return None };
        let is_whole = *c == channels && *r == *s && is_part(height, 2) && is_part(width, 3);
        is_whole.then(|| {
            vec![
                part(1, 0, Some(*c)),
                part(2, 0, None),
                part(2, 1, Some(*r)),
                part(3, 0, None),
                part(3, 1, Some(*s)),
            ]
        })
    };
    let of_channels = || -> Option<Vec<Part>> {
        let [_, factors @ .., height, width] = items else { return None };
        if factors.len() > 3 || !is_kept(height, 2) || !is_kept(width, 3) {
            return None;
        }
        let mut factors: Vec<i64> = known[1..=factors.len()].iter().copied().collect::<Option<_>>()?;
        let mut product = factors.iter().filter(|factor| **factor != -1);
        let product = product.try_fold(1_i64, |product, factor| product.checked_mul(*factor))?;
        if let Some(open) = factors.iter_mut().find(|factor| **factor == -1) {
            *open = channels.checked_div(product)?;
        }
        let all = factors.iter().try_fold(1_i64, |product, factor| product.checked_mul(*factor));
        let is_all = all == Some(channels) && factors.iter().all(|factor| *factor > 0);
        let parts = factors.into_iter().enumerate().map(|(place, factor)| part(1, place, Some(factor)));
        is_all.then(|| parts.chain([part(2, 0, None), part(3, 0, None)]).collect())
    };
    match of_channels().or_else(blocks) {
        Some(parts) if is_batch => Ok(Value::Folded(Rc::new(Folded { plan, parts }))),
        _ => site.wrong(1, EXPECTED),
    }
}

/// The height of a value taken apart into blocks, where `Unsqueeze` has added the axis for it; `None` of other values.
///
/// So an exporter writes a shuffle to channels of an image of open size: height first, then width.
pub(super) fn halved(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some(&Stacked { axis: 3, rank: 5, ref values }) = stacked(site.operand(0)?) else { return Ok(None) };
    let ([plan], true) = (values.as_slice(), site.is_numbers(1)) else { return Ok(None) };
    let (plan, shape) = (*plan, site.numbers(1)?);
    let [n, c, _, Num::Known(block), w] = shape.items.as_slice() else { return Ok(None) };
    let Some(block) = whole(*block).filter(|block| *block > 0) else { return Ok(None) };
    let blocks = site.plans.parts(plan, block)?.map(|parts| parts[0]);
    let channels = site.plans.get(plan).channels;
    let is_height = shape.items[2] == Num::Known(-1.0) || blocks == Some(shape.items[2]);
    let is_channels = matches!(c, Num::Known(0.0)) || *c == Num::Known(channels as f64);
    let is_width = matches!(w, Num::Known(0.0)) || site.plans.is_extent(*w, plan, 3);
    if !site.plans.is_batch(*n) || !is_channels || !is_height || !is_width {
        return Ok(None);
    }
    let part = |axis, place, extent| Part { axis, place, extent };
    let parts =
        vec![part(1, 0, Some(signed(channels))), part(2, 0, None), part(2, 1, Some(block)), part(3, 0, None)];
    Ok(Some(Value::Folded(Rc::new(Folded { plan, parts }))))
}

/// The width of such a value taken apart too; `None` of other values and shapes.
fn quartered(folded: &Folded, shape: &Numbers) -> Option<Value> {
    let [kept @ .., Num::Known(-1.0), Num::Known(block)] = shape.items.as_slice() else { return None };
    let is_half = folded.order() == [(1, 0), (2, 0), (2, 1), (3, 0)] && kept == [Num::Known(0.0); 4];
    let block = whole(*block).filter(|block| is_half && folded.parts[2].extent == Some(*block))?;
    let mut parts = folded.parts.clone();
    parts.push(Part { axis: 3, place: 1, extent: Some(block) });
    Some(Value::Folded(Rc::new(Folded { plan: folded.plan, parts })))
}

/// Drops axes of one; `None` of other values.
pub(super) fn dropped(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let (Value::Folded(folded), Some(axes)) = (site.operand(0)?, axes) else { return Ok(None) };
    let rank = signed(folded.parts.len()) + 1;
    let mut parts: Vec<Option<Part>> = folded.parts.iter().copied().map(Some).collect();
    for axis in axes {
        let place = if *axis < 0 { axis.saturating_add(rank) } else { *axis } - 1;
        let part = usize::try_from(place).ok().and_then(|place| parts.get_mut(place));
        match part {
            Some(part @ Some(Part { extent: Some(1), .. })) => *part = None,
            _ => return site.wrong(0, "an axis of one"),
        }
    }
    let parts: Vec<Part> = parts.into_iter().flatten().collect();
    let plan = folded.plan;
    let is_image = parts.iter().map(|part| part.axis).eq(1..=3)
        && parts[0].extent == Some(signed(site.plans.get(plan).channels))
        && parts[1..].iter().all(|part| part.extent.is_none());
    Ok(Some(match is_image {
        true => Value::Image(Image { plan, flat: false }),
        false => Value::Folded(Rc::new(Folded { plan, parts })),
    }))
}

/// The second `Reshape`.
pub(super) fn unfolded(site: &mut Site<'_>, folded: &Folded) -> Result<Value, Reason> {
    let shape = site.numbers(1)?;
    if let Some(made) = quartered(folded, &shape) {
        return Ok(made);
    }
    let channels = folded.extents(1);
    let ops = match (folded.order().as_slice(), channels.as_slice()) {
        ([(1, 1), (1, 0), (2, 0), (3, 0)], [groups, _]) => channel_shuffle(*groups).into_iter().collect(),
        ([(1, 0), (2, 0), (1, 1), (3, 0), (1, 2)], [_, r, s]) if r == s => vec![to_pixels(*r)],
        ([(1, 2), (2, 0), (1, 0), (3, 0), (1, 1)], [r, s, _]) if r == s => {
            channel_shuffle(r * s).into_iter().chain([to_pixels(*r)]).collect()
        }
        ([(1, 0), (2, 1), (3, 1), (2, 0), (3, 0)], [_]) => {
            folded.extents(2).last().map(|block| to_channels(*block)).into_iter().collect()
        }
        ([(2, 1), (3, 1), (1, 0), (2, 0), (3, 0)], [channels]) => {
            let blocks = folded.extents(2).last().map(|block| to_channels(*block)).into_iter();
            blocks.chain(channel_shuffle(*channels)).collect()
        }
        _ => return site.wrong(0, "axes in the order of a shuffle of channels or pixels"),
    };
    let plan = site.chain(&ops, folded.plan)?;
    let is_unshuffled = matches!(ops.first(), Some(Op::PixelUnshuffle(_)));
    if let [n, c, Num::Known(1.0), Num::Known(1.0), h, w] = shape.items[..]
        && is_unshuffled
    {
        // axes of one where those of a block were, and zeros for the blocks that are left
        let kept = |item, axis| if item == Num::Known(0.0) { site.plans.extent(plan, axis) } else { item };
        let shape = Numbers { items: vec![n, c, kept(h, 2), kept(w, 3)], ..Numbers::clone(&shape) };
        if site.plans.is_shape_of(&shape, plan) {
            let part = |axis, place, extent| Part { axis, place, extent };
            let channels = Some(signed(site.plans.get(plan).channels));
            let parts = vec![
                part(1, 0, channels),
                part(1, 1, Some(1)),
                part(1, 2, Some(1)),
                part(2, 0, None),
                part(3, 0, None),
            ];
            return Ok(Value::Folded(Rc::new(Folded { plan, parts })));
        }
    }
    if !site.plans.is_shape_of(&shape, plan) {
        return site.wrong(1, "the shape of the shuffled value");
    }
    Ok(Value::Image(Image { plan, flat: false }))
}

/// Depth first, or column, row and depth as of PyTorch's shuffle.
pub(super) fn depth_to_space(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let factor = blocksize(site)?;
    let ops = match site.text("mode", "DCR")?.as_str() {
        "DCR" => channel_shuffle(factor * factor).into_iter().chain([to_pixels(factor)]).collect(),
        "CRD" => vec![to_pixels(factor)],
        got => {
            return Err(Reason::Attribute { name: "mode", expected: "DCR or CRD", got: got.to_owned() });
        }
    };
    let plan = site.chain(&ops, plan)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

pub(super) fn space_to_depth(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let channels = signed(site.plans.get(plan).channels);
    let ops = match site.text("mode", "DCR")?.as_str() {
        "DCR" => std::iter::once(to_channels(blocksize(site)?)).chain(channel_shuffle(channels)).collect(),
        "CRD" => vec![to_channels(blocksize(site)?)],
        got => {
            return Err(Reason::Attribute { name: "mode", expected: "DCR or CRD", got: got.to_owned() });
        }
    };
    let plan = site.chain(&ops, plan)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

fn blocksize(site: &Site<'_>) -> Result<i64, Reason> {
    match site.int("blocksize", 0)? {
        factor @ 1..=0x10_0000 => Ok(factor),
        got => {
            let (expected, got) = ("from 1 to 2^20", got.to_string());
            Err(Reason::Attribute { name: "blocksize", expected, got })
        }
    }
}

/// `None` of groups that leave the channels as they are.
fn channel_shuffle(groups: i64) -> Option<Op> {
    let groups = usize::try_from(groups).ok().filter(|groups| *groups > 1)?;
    Some(Op::ChannelShuffle(ChannelShuffle { groups }))
}

const fn to_pixels(factor: i64) -> Op {
    Op::PixelShuffle(PixelShuffle { upscale_factor: [factor, factor] })
}

const fn to_channels(factor: i64) -> Op {
    Op::PixelUnshuffle(PixelUnshuffle { downscale_factor: [factor, factor] })
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
