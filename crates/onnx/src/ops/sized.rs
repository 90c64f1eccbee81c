//! Padding and crops by amounts that follow from the size of the image: up to a multiple, to what the windows of a layer cover, or
//! to the extents of another value.

use tiled_graph::{Op, Pad, PadTarget, PadTo, PadWith, Placement, ValueId};

use crate::Reason;
use crate::import::extents::Extent;
use crate::import::numbers::{Num, whole};
use crate::import::site::{Site, node_name};

/// What is added to an axis, or removed where it is below zero.
#[derive(Clone, Copy, Debug)]
struct Added {
    before: Extent,
    all: Extent,
    /// The extent that it makes.
    wanted: Extent,
}

/// Pads height and width by these numbers before and after.
pub(super) fn pad(
    site: &mut Site<'_>,
    plan: usize,
    sides: [[Num; 2]; 2],
    with: PadWith,
) -> Result<usize, Reason> {
    const WHAT: &str = "the padding";
    let mut added = Vec::new();
    for (axis, [before, after]) in (2..).zip(sides) {
        let (before, after) = (extent(site, before, WHAT)?, extent(site, after, WHAT)?);
        let own = site.plans.extent(plan, axis);
        let own = extent(site, own, WHAT)?;
        let all = site.plans.extents.sum(before, 1, after)?.ok_or(Reason::OpenSize { what: WHAT })?;
        let wanted = site.plans.extents.sum(own, 1, all)?.ok_or(Reason::OpenSize { what: WHAT })?;
        added.push(Added { before, all, wanted });
    }
    let [height, width] = added[..] else { unreachable!("invariant: there are two axes") };
    match target(site, plan, [height, width])? {
        Some((to, placement)) => site.add(Op::PadTo(PadTo { to, placement, with }), vec![plan]),
        None => site.wrong(1, EXPECTED),
    }
}

/// Pads as `auto_pad` does where that follows from the size of the image: all rows and columns that windows cover.
pub(super) fn covered(site: &mut Site<'_>, plan: usize, to: PadTarget, value: f64) -> Result<usize, Reason> {
    let pad = PadTo { to, placement: Placement::Around, with: PadWith::Constant(value) };
    let name = format!("{}.same", node_name(site.node));
    site.plans.node(&name, Op::PadTo(pad), vec![plan], Vec::new())
}

/// Removes what lies before the first and behind the second of these places along height and width.
pub(super) fn crop(site: &mut Site<'_>, plan: usize, places: [[Num; 2]; 2]) -> Result<usize, Reason> {
    const WHAT: &str = "what is cut";
    let mut added = Vec::new();
    for (axis, [start, end]) in (2..).zip(places) {
        let (start, mut end) = (extent(site, start, WHAT)?, extent(site, end, WHAT)?);
        let own = site.plans.extent(plan, axis);
        let own = extent(site, own, WHAT)?;
        let behind = difference(site, own, end)?;
        let (least, most) = site.plans.extents.bounds(behind);
        if most.is_some_and(|most| most <= 0) {
            end = own;
        } else if least < 0 {
            return Err(Reason::OpenSize { what: WHAT });
        }
        let wanted = difference(site, end, start)?;
        if site.plans.extents.bounds(start).0 < 0 {
            return Err(Reason::OpenSize { what: WHAT });
        }
        let (all, zero) = (difference(site, wanted, own)?, site.plans.extents.number(0)?);
        added.push(Added { before: difference(site, zero, start)?, all, wanted });
    }
    let [height, width] = added[..] else { unreachable!("invariant: there are two axes") };
    let numbers = [height, width].map(|added| {
        let number = |extent: Extent| site.plans.extents.constant(extent);
        let (before, all) = (number(added.before)?, number(added.all)?);
        Some([before, all.checked_sub(before)?])
    });
    let with = PadWith::Constant(0.0);
    let op = match numbers {
        [Some([0, 0]), Some([0, 0])] => return Ok(plan),
        [Some(height), Some(width)] => Op::Pad(Pad { padding: [height, width], with }),
        _ => match target(site, plan, [height, width])? {
            Some((to, placement)) => Op::PadTo(PadTo { to, placement, with }),
            None => return Err(Reason::OpenSize { what: WHAT }),
        },
    };
    site.add(op, vec![plan])
}

/// What names the extents that are wanted, where all is added behind the image, or half of it before.
fn target(
    site: &mut Site<'_>,
    plan: usize,
    added: [Added; 2],
) -> Result<Option<(PadTarget, Placement)>, Reason> {
    let zero = site.plans.extents.number(0)?;
    let mut halves = true;
    for added in added {
        halves &= site.plans.extents.linear(added.all, 1, 0, 2)? == Some(added.before);
    }
    let placement = match added.iter().all(|added| added.before == zero) {
        true => Placement::After,
        false if halves => Placement::Around,
        false => return Ok(None),
    };
    if let [Some(height), Some(width)] =
        [multiple(site, plan, 2, added[0])?, multiple(site, plan, 3, added[1])?]
    {
        return Ok(Some((PadTarget::Multiple([height, width]), placement)));
    }
    if let [Some(height), Some(width)] =
        [windows(site, plan, 2, added[0])?, windows(site, plan, 3, added[1])?]
    {
        let [size, stride] = [0, 1].map(|part| [height[part], width[part]]);
        return Ok(Some((PadTarget::Windows { size, stride }, placement)));
    }
    let like = [2, 3].map(|axis| site.plans.first_along(added[axis - 2].wanted, axis).map(ValueId));
    Ok(match like {
        [Some(height), Some(width)] => Some((PadTarget::Like([height, width]), placement)),
        _ => None,
    })
}

/// The number whose least multiple that is not below an extent is wanted of it.
fn multiple(site: &mut Site<'_>, plan: usize, axis: usize, added: Added) -> Result<Option<i64>, Reason> {
    // up to a multiple of m, at most m − 1 are added
    let Some(most @ 0..) = site.plans.extents.bounds(added.all).1 else { return Ok(None) };
    let own = site.plans.extent(plan, axis);
    let own = extent(site, own, "the extent")?;
    let divisor = most.saturating_add(1);
    let is_it = site.plans.extents.multiple(own, divisor)? == Some(added.wanted);
    Ok(is_it.then_some(divisor))
}

/// The rows of a window and the stride of which `⌈n/s⌉` windows cover what is wanted of an extent n: "same" padding.
fn windows(site: &mut Site<'_>, plan: usize, axis: usize, added: Added) -> Result<Option<[i64; 2]>, Reason> {
    // most is added where the last window begins at the last row: all of its rows but one
    let Some(most @ 0..) = site.plans.extents.bounds(added.all).1 else { return Ok(None) };
    let own = site.plans.extent(plan, axis);
    let own = extent(site, own, "the extent")?;
    let Some(rise @ 1..) = site.plans.extents.rise_in_period(own, added.all) else { return Ok(None) };
    let rows = most.saturating_add(1);
    for stride in (1..=rise.min(MOST_STRIDE)).filter(|stride| rise % stride == 0) {
        if site.plans.extents.windows(own, rows, stride)? == Some(added.wanted) {
            return Ok(Some([rows, stride]));
        }
    }
    Ok(None)
}

/// The largest stride that is looked for: networks have 32 at most.
const MOST_STRIDE: i64 = 64;

/// A number as an extent.
fn extent(site: &mut Site<'_>, number: Num, what: &'static str) -> Result<Extent, Reason> {
    match number {
        Num::Extent(extent) => Ok(extent),
        Num::Known(number) => match whole(number) {
            Some(number) => Ok(site.plans.extents.number(number)?),
            None => Err(Reason::OpenSize { what }),
        },
        Num::Area(_) | Num::Sum(_) | Num::Quotient(..) | Num::Open => Err(Reason::OpenSize { what }),
    }
}

fn difference(site: &mut Site<'_>, a: Extent, b: Extent) -> Result<Extent, Reason> {
    site.plans.extents.sum(a, -1, b)?.ok_or(Reason::OpenSize { what: "what is cut" })
}

const EXPECTED: &str = "as much as makes a multiple of a number, what windows at a stride cover or the extents of another value, after the image or half of it before";
