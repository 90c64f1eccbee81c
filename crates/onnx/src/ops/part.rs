//! Parts of values: slices of channels, rows and columns, splits, and which channel is the largest.

use tiled_graph::{MaxPool2d, Op, Pad, PadWith, Slice};

use crate::Reason;
use crate::import::numbers::{Num, whole};
use crate::import::site::{Site, is_small, node_name};
use crate::import::value::{End, Image, Side, Value};

/// Cuts channels, rows and columns, at known places or at those that follow from the size of the image. Of rows and columns every
/// n-th may be taken, forward.
pub(super) fn slice(site: &mut Site<'_>) -> Result<Value, Reason> {
    let (starts, ends) = (listed(site, 1, "starts")?, listed(site, 2, "ends")?);
    let axes = if site.has(3) { Some(site.whole(3)?) } else { site.ints("axes")? };
    let axes = axes.unwrap_or_else(|| (0..).take(starts.len()).collect());
    if ends.len() != starts.len() || axes.len() != starts.len() {
        return site.wrong(0, "a start and an end for each axis");
    }
    let Image { mut plan, flat } = site.value(0)?;
    if flat && site.plans.get(plan).extents != Some([1, 1]) {
        return site.wrong(0, "a value of one pixel or of four axes");
    }
    let rank = if flat { 2 } else { 4 };
    if let ([1 | -3], [start], [end]) = (axes.as_slice(), starts.as_slice(), ends.as_slice()) {
        let nth = every_nth(site, plan, [*start, *end])?;
        let empty = match &nth {
            Some(places) => places.is_empty().then(|| without_channels(site, plan)).flatten(),
            None => are_none(site, plan, [*start, *end]).then(|| without_channels(site, plan)).flatten(),
        };
        match (empty, nth) {
            (Some(empty), _) if !flat => return Ok(empty),
            (_, Some(places)) => {
                let Some(plan) = picked(site, plan, &places)? else { return site.wrong(4, "a few channels") };
                return Ok(Value::Image(Image { plan, flat }));
            }
            _ => {}
        }
    }
    check_once(&axes, rank)?;
    let stride = steps(site, &axes, rank)?;
    if let ([axis], [start], [end], [1, 1], false) = (&axes[..], &starts[..], &ends[..], stride, flat)
        && let Some(made) = at_end(site, plan, if *axis < 0 { *axis + rank } else { *axis }, [*start, *end])
    {
        return Ok(made);
    }
    let mut padding = [[0_i64; 2]; 2];
    // what follows from the size of the image, along height and width
    let mut sized: [Option<[Num; 2]>; 2] = [None; 2];
    for ((start, end), axis) in starts.into_iter().zip(ends).zip(axes) {
        let axis = if axis < 0 { axis + rank } else { axis };
        let known = [start, end].map(|place| place.known(&site.plans.extents).and_then(whole));
        match (axis, known) {
            (1, [Some(start), Some(end)]) => plan = of_channels(site, plan, start, end)?,
            (2 | 3, [Some(start), Some(end)]) if !flat => {
                let axis = if axis == 2 { 0 } else { 1 };
                let extent = site.plans.get(plan).extents.map(|extents| signed(extents[axis]));
                padding[axis] = cut(start, end, extent)?;
            }
            (2 | 3, _) if !flat => sized[if axis == 2 { 0 } else { 1 }] = Some([start, end]),
            (_, [Some(0), Some(i64::MAX)]) => {}
            (got, [Some(_), Some(_)]) => {
                let (expected, got) = ("channels, rows or columns, 1 to 3", got.to_string());
                return Err(Reason::Attribute { name: "axes", expected, got });
            }
            _ => return Err(Reason::OpenSize { what: "what is cut" }),
        }
    }
    if padding != [[0; 2]; 2] {
        plan = site.add(Op::Pad(Pad { padding, with: PadWith::Constant(0.0) }), vec![plan])?;
    }
    if sized != [None; 2] {
        let whole = [2, 3].map(|axis| [Num::Known(0.0), site.plans.extent(plan, axis)]);
        plan = super::sized::crop(site, plan, [0, 1].map(|axis| sized[axis].unwrap_or(whole[axis])))?;
    }
    if stride != [1, 1] {
        // windows of one pixel have that for their maximum, a NaN too: ⌈n/s⌉ of them, as many as the steps
        plan = site.add(Op::MaxPool2d(MaxPool2d { stride, ..MaxPool2d::new([1, 1]) }), vec![plan])?;
    }
    Ok(Value::Image(Image { plan, flat }))
}

/// Refuses axes of which one is named twice.
pub(super) fn check_once(axes: &[i64], rank: i64) -> Result<(), Reason> {
    let place = |axis: &i64| if *axis < 0 { axis.saturating_add(rank) } else { *axis };
    let is_again = |at: usize| axes[..at].iter().any(|before| place(before) == place(&axes[at]));
    if (1..axes.len().min(8)).any(is_again) {
        return Err(Reason::Attribute { name: "axes", expected: "each axis once", got: format!("{axes:?}") });
    }
    Ok(())
}

/// Numbers that are attributes at first and operands later.
pub(super) fn listed(site: &mut Site<'_>, position: usize, name: &'static str) -> Result<Vec<Num>, Reason> {
    if site.has(position) {
        return Ok(site.numbers(position)?.items.clone());
    }
    Ok(site.ints(name)?.unwrap_or_default().into_iter().map(|number| Num::Known(number as f64)).collect())
}

/// Rows or columns at an end of a value of open size, of which the numbers of a slice say how many; `None` where they say otherwise.
fn at_end(site: &Site<'_>, plan: usize, axis: i64, [start, end]: [Num; 2]) -> Option<Value> {
    let known = [start, end].map(|place| place.known(&site.plans.extents).and_then(whole));
    let ([Some(start), Some(end)], None) = (known, site.plans.get(plan).extents) else { return None };
    let (side, count) = match (start, end) {
        (0, 1..=0x7fff_fffe) if is_small(end) => (Side::First, end),
        (..0, i64::MAX | 0x7fff_ffff) if is_small(start) => (Side::Last, -start),
        _ => return None,
    };
    matches!(axis, 2 | 3).then_some(Value::End(End { plan, axis, side, count }))
}

/// What is left of a value where no channel is.
fn without_channels(site: &Site<'_>, plan: usize) -> Option<Value> {
    let [n, h, w] = [0, 2, 3].map(|axis| site.plans.extent(plan, axis));
    Value::empty(&[n, Num::Known(0.0), h, w])
}

/// Whether no channel is between two places.
fn are_none(site: &Site<'_>, plan: usize, places: [Num; 2]) -> bool {
    let known = places.map(|place| place.known(&site.plans.extents).and_then(whole));
    let [Some(start), Some(end)] = known else { return false };
    let [start, end] = within(signed(site.plans.get(plan).channels), [start, end]);
    start >= end
}

/// Places from the start or, below zero, from the end, within so many.
fn within(count: i64, places: [i64; 2]) -> [i64; 2] {
    places.map(|place| (if place < 0 { place.saturating_add(count) } else { place }).clamp(0, count))
}

/// The steps over height and width; over other axes there are none but 1.
fn steps(site: &mut Site<'_>, axes: &[i64], rank: i64) -> Result<[i64; 2], Reason> {
    const EXPECTED: &str = "steps of 1, or forward over rows and columns";
    let mut stride = [1, 1];
    if !site.has(4) {
        return Ok(stride);
    }
    let given = site.whole(4)?;
    if given.len() != axes.len() {
        return site.wrong(4, EXPECTED);
    }
    for (step, axis) in given.into_iter().zip(axes) {
        match (if *axis < 0 { axis.saturating_add(rank) } else { *axis }, step) {
            (_, 1) => {}
            (axis @ (2 | 3), 2..) if rank == 4 => stride[if axis == 2 { 0 } else { 1 }] = step,
            _ => return site.wrong(4, EXPECTED),
        }
    }
    Ok(stride)
}

/// Channels by their places, as in `x[:, [2, 1, 0]]`; of one place alone the channel without its axis. `None` of other values and axes.
pub(super) fn gather(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Image(Image { plan, flat }) = *site.operand(0)? else { return Ok(None) };
    let axis = site.int("axis", 0)?;
    if axis != 1 && axis != if flat { -1 } else { -3 } {
        return Ok(None);
    }
    if flat && site.plans.get(plan).extents != Some([1, 1]) {
        return site.wrong(0, "a value of one pixel or of four axes");
    }
    let (is_scalar, places) = (site.numbers(1)?.is_scalar, site.whole(1)?);
    let channels = signed(site.plans.get(plan).channels);
    let place = |place: &i64| if *place < 0 { place.saturating_add(channels) } else { *place };
    let places: Vec<i64> = places.iter().map(place).collect();
    if !places.iter().all(|place| (0..channels).contains(place)) {
        return site.wrong(1, "channels that there are");
    }
    let Some(picked) = picked(site, plan, &places)? else { return site.wrong(1, "a few channels") };
    match (is_scalar, flat) {
        (true, true) => site.wrong(1, "a list of channels"),
        (true, false) => Ok(Some(Value::Plane(picked))),
        (false, _) => Ok(Some(Value::Image(Image { plan: picked, flat }))),
    }
}

/// The places of every n-th channel, from one to another, forward or backward; `None` of steps that are 1 or not given.
fn every_nth(site: &mut Site<'_>, plan: usize, places: [Num; 2]) -> Result<Option<Vec<i64>>, Reason> {
    if !site.has(4) {
        return Ok(None);
    }
    let step = site.whole(4)?;
    let known = places.map(|place| place.known(&site.plans.extents).and_then(whole));
    let ([step], [Some(start), Some(end)]) = (step.as_slice(), known) else { return Ok(None) };
    let channels = signed(site.plans.get(plan).channels);
    let from = |place: i64| if place < 0 { place.saturating_add(channels) } else { place };
    Ok(match (*step, usize::try_from(step.unsigned_abs())) {
        (2.., Ok(step)) => {
            Some((from(start).clamp(0, channels)..from(end).clamp(0, channels)).step_by(step).collect())
        }
        (..=-1, Ok(step)) => {
            // backward a start is a channel, and an end before all of them is minus one
            let (start, end) = (from(start).clamp(0, channels - 1), from(end).clamp(-1, channels - 1));
            Some((end + 1..=start).rev().step_by(step).collect())
        }
        _ => None,
    })
}

/// Channels at these places one after another: slices, joined. `None` of none and of more than a few slices.
pub(super) fn picked(site: &mut Site<'_>, plan: usize, places: &[i64]) -> Result<Option<usize>, Reason> {
    let mut runs: Vec<[i64; 2]> = Vec::new();
    for place in places {
        if let Some([_, end]) = runs.last_mut()
            && *end == *place
        {
            *end += 1;
        } else if runs.len() == MOST_RUNS {
            return Ok(None);
        } else {
            runs.push([*place, place + 1]);
        }
    }
    match *runs.as_slice() {
        [] => Ok(None),
        [[start, end]] => of_channels(site, plan, start, end).map(Some),
        _ => {
            let name = node_name(site.node).to_owned();
            let mut parts = Vec::new();
            for [begin, end] in runs {
                let op = Op::Slice(Slice { begin, end: Some(end) });
                parts.push(site.plans.node(&format!("{name}.slice"), op, vec![plan], Vec::new())?);
            }
            site.add(Op::Concat, parts).map(Some)
        }
    }
}

/// Runs of channels that are joined at most: each is a node.
const MOST_RUNS: usize = 64;

/// The channels from `start` to `end`, which are cut to those that there are.
fn of_channels(site: &mut Site<'_>, plan: usize, start: i64, end: i64) -> Result<usize, Reason> {
    let channels = signed(site.plans.get(plan).channels);
    match within(channels, [start, end]) {
        [0, end] if end == channels => Ok(plan),
        [begin, end] => site.add(Op::Slice(Slice { begin, end: Some(end) }), vec![plan]),
    }
}

/// What is removed before and after an axis, as numbers not above zero.
fn cut(start: i64, end: i64, extent: Option<i64>) -> Result<[i64; 2], Reason> {
    let open = Reason::OpenSize { what: "what is cut" };
    let before = match (start, extent) {
        (0.., None) if is_small(start) => start,
        (..0, None) | (_, None) => return Err(open),
        (start, Some(extent)) => {
            (if start < 0 { start.saturating_add(extent) } else { start }).clamp(0, extent)
        }
    };
    let after = match (end, extent) {
        (_, Some(extent)) => {
            extent - (if end < 0 { end.saturating_add(extent) } else { end }).clamp(0, extent)
        }
        // exporters write the end of an axis as one of these
        (i64::MAX | 0x7fff_ffff, None) => 0,
        (..0, None) if is_small(end) => -end,
        (_, None) => return Err(open),
    };
    Ok([-before, -after])
}

/// Parts of the channels: as many as there are results, or of the sizes that are given.
pub(super) fn split(site: &mut Site<'_>) -> Result<Value, Reason> {
    let Image { plan, flat } = site.value(0)?;
    let axis = site.int("axis", 0)?;
    let rank = if flat { 2 } else { 4 };
    if axis != 1 && axis != 1 - rank {
        return Err(Reason::Attribute { name: "axis", expected: "1, the channels", got: axis.to_string() });
    }
    if flat && site.plans.get(plan).extents != Some([1, 1]) {
        return site.wrong(0, "a value of one pixel or of four axes");
    }
    let channels = signed(site.plans.get(plan).channels);
    let names: Vec<String> = site.node.output.clone();
    let parts = site.int("num_outputs", signed(names.len()))?;
    let given = if site.has(1) { Some(site.whole(1)?) } else { site.ints("split")? };
    let sizes = match given {
        Some(sizes) => sizes,
        None if parts == signed(names.len()) && parts > 0 => {
            let size = channels.saturating_add(parts - 1) / parts;
            (0..parts).map(|part| size.min(channels - part * size)).collect()
        }
        None => {
            let (expected, got) = ("as many as there are results", parts.to_string());
            return Err(Reason::Attribute { name: "num_outputs", expected, got });
        }
    };
    let sum = sizes.iter().try_fold(0_i64, |sum, size| sum.checked_add(*size));
    if sum != Some(channels) || sizes.len() != names.len() || sizes.iter().any(|size| *size < 1) {
        let (expected, got) =
            ("sizes of at least 1, one for each result, that sum to the channels", format!("{sizes:?}"));
        return Err(Reason::Attribute { name: "split", expected, got });
    }
    let (mut values, mut begin) = (Vec::with_capacity(sizes.len()), 0);
    for (size, name) in sizes.into_iter().zip(names) {
        let op = Op::Slice(Slice { begin, end: Some(begin + size) });
        let plan = site.plans.node(&name, op, vec![plan], Vec::new())?;
        values.push(Value::Image(Image { plan, flat }));
        begin += size;
    }
    Ok(Value::Several(values.into()))
}

/// Class numbers, with an axis of one channel or without.
pub(super) fn arg_max(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.only("select_last_index", 0, 0, "0, the first maximum")?;
    let plan = site.image(0)?;
    let axis = site.int("axis", 0)?;
    if axis != 1 && axis != -3 {
        return Err(Reason::Attribute { name: "axis", expected: "1, the channels", got: axis.to_string() });
    }
    let keeps = site.flag("keepdims", true)?;
    let plan = site.add(Op::ArgMax, vec![plan])?;
    Ok(if keeps { Value::Image(Image { plan, flat: false }) } else { Value::Plane(plan) })
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
