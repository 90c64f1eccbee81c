//! Channels that are assigned, as in `x[:, :4] = f(x[:, :4])`: FasterNet's partial convolution, PLKSR. The value becomes one of the
//! channels that stay and of those that are assigned, in the order that they have.
//!
//! Which they are is an index over the images, the channels and maybe rows and columns, or over the channels alone where exporters
//! put these first. Of all axes but the channels it covers everything.

use tiled_graph::{Op, Slice};

use super::{filled, grid, permuted};
use crate::Reason;
use crate::import::grid::{Coordinate, Grid, is_same};
use crate::import::numbers::{Num, whole};
use crate::import::site::{Site, node_name};
use crate::import::value::{Constant, Image, Permuted, Value};

pub(super) const SCATTER_ELEMENTS: &[&str] = &["axis", "reduction"];

/// What is wanted of an index.
const WHOLE: &str = "an index of some channels, each once, with all images, rows and columns";

const AS_LARGE: &str = "a value of as many channels as are assigned, with all rows and columns";

/// Some of the elements by an index that has coordinates for each.
pub(super) fn by_coordinates(site: &mut Site<'_>) -> Result<Value, Reason> {
    is_assigned(site)?;
    let data = permuted::image(site, 0)?;
    few_channels(site, data.plan)?;
    let Some(index) = grid::index(site, 1)? else { return site.wrong(1, WHOLE) };
    let Some(places) = channels(site, data, &index) else { return site.wrong(1, WHOLE) };
    let updates = updates(site, data)?;
    let plan = assigned(site, data.plan, updates, &places)?;
    let order = data.order;
    Ok(match site.operand(0)? {
        Value::Permuted(_) => Value::Permuted(Permuted { plan, order }),
        _ => Value::Image(Image { plan, flat: false }),
    })
}

/// Some of the channels by an index that has the channel of each element.
pub(super) fn by_elements(site: &mut Site<'_>) -> Result<Value, Reason> {
    is_assigned(site)?;
    let axis = site.int("axis", 0)?;
    if axis != 1 && axis != -3 {
        return Err(Reason::Attribute { name: "axis", expected: "1, the channels", got: axis.to_string() });
    }
    let plan = site.image(0)?;
    few_channels(site, plan)?;
    let data = Permuted { plan, order: [0, 1, 2, 3] };
    let places = match site.operand(1)?.clone() {
        Value::Constant(constant) => channels_of_elements(site, plan, &constant)?,
        Value::Image(Image { plan: index, flat: false }) => filled::number_of(site, index)
            .filter(|_| site.plans.get(index).channels == 1 && is_as_large(site, index, plan))
            .and_then(|place| permuted::places_of(&[place], site.plans.get(plan).channels)),
        _ => None,
    };
    let Some(places) = places else { return site.wrong(1, WHOLE) };
    let updates = updates(site, data)?;
    let plan = assigned(site, plan, updates, &places)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

/// Refuses anything other than new values in the place of the old ones.
fn is_assigned(site: &Site<'_>) -> Result<(), Reason> {
    match site.text("reduction", "none")? {
        none if none == "none" => Ok(()),
        got => Err(Reason::Attribute { name: "reduction", expected: "none", got }),
    }
}

/// Refuses more channels than a list is made of.
fn few_channels(site: &Site<'_>, plan: usize) -> Result<(), Reason> {
    match site.plans.get(plan).channels {
        0..=MOST_CHANNELS => Ok(()),
        _ => site.wrong(0, "a value of at most 65536 channels"),
    }
}

/// The channels of an index, where it covers all of the other axes and no channel twice.
fn channels(site: &Site<'_>, data: Permuted, index: &Grid) -> Option<Vec<i64>> {
    let channels = site.plans.get(data.plan).channels;
    let mut places: Vec<i64> = (0..i64::try_from(channels).ok()?).collect();
    if index.coordinates.len() != index.extents.len() || index.coordinates.len() > data.order.len() {
        return None;
    }
    for (place, coordinate) in index.coordinates.iter().enumerate() {
        let Coordinate { axis, numbers } = coordinate;
        // one number has no axis
        let is_along = *axis == place || numbers.count() == Num::Known(1.0);
        if !is_along || !is_same(numbers.count(), index.extents[place], &site.plans.extents) {
            return None;
        }
        if data.order[place] == 1 {
            places = permuted::places_of(&numbers.all(channels, &site.plans.extents)?, channels)?;
            continue;
        }
        let is_all = match data.order[place] {
            0 => is_same(numbers.count(), site.plans.extent(data.plan, 0), &site.plans.extents),
            axis => site.plans.is_extent(numbers.count(), data.plan, axis),
        };
        if !is_all || !numbers.counts_up() {
            return None;
        }
    }
    is_distinct(&places).then_some(places)
}

/// The channels of a constant as large as an image that has one number for each of its channels; `None` of others.
fn channels_of_elements(
    site: &mut Site<'_>,
    plan: usize,
    constant: &Constant,
) -> Result<Option<Vec<i64>>, Reason> {
    let [images, count, height, width] = *constant.shape else { return Ok(None) };
    let extent = |extent: usize| Num::Known(extent as f64);
    let is_whole = is_same(extent(images), site.plans.extent(plan, 0), &site.plans.extents)
        && site.plans.is_extent(extent(height), plan, 2)
        && site.plans.is_extent(extent(width), plan, 3);
    let channels = site.plans.get(plan).channels;
    if !is_whole || !(1..=channels).contains(&count) || constant.transposed {
        return Ok(None);
    }
    let _room = site.tensors.room(constant.shape.iter().product(), size_of::<f64>())?;
    let values = site.values(constant)?;
    let pixels = height * width;
    let firsts: Vec<f64> = values.iter().step_by(pixels).take(count).copied().collect();
    let is_of_channel = |(place, value): (usize, &f64)| firsts.get(place / pixels % count) == Some(value);
    let is_same = values.iter().enumerate().all(is_of_channel);
    let places: Option<Vec<i64>> = firsts.into_iter().map(whole).collect::<Option<_>>().filter(|_| is_same);
    let places = places.and_then(|places| permuted::places_of(&places, channels));
    Ok(places.filter(|places| is_distinct(places)))
}

fn is_distinct(places: &[i64]) -> bool {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// What is assigned: a value whose axes stand as those of the other, or one number everywhere.
fn updates(site: &mut Site<'_>, data: Permuted) -> Result<usize, Reason> {
    if let Value::Constant(constant) = site.operand(2)? {
        // where all elements are one number, their order is any
        let Ok(extents) = <[usize; 4]>::try_from(&*constant.shape) else { return site.wrong(2, AS_LARGE) };
        let mut shape = extents;
        data.order.iter().zip(extents).for_each(|(axis, extent)| shape[*axis] = extent);
        let Some(turned) = constant.reshaped(&shape) else { return site.wrong(2, AS_LARGE) };
        let given = std::mem::take(&mut site.operands);
        let like = Value::Image(Image { plan: data.plan, flat: false });
        site.operands = vec![Some(like), Some(Value::Constant(turned))];
        let settled = filled::settle(site);
        let made = std::mem::replace(&mut site.operands, given);
        settled?;
        return match made.get(1) {
            Some(Some(Value::Image(Image { plan, .. }))) => Ok(*plan),
            _ => site.wrong(2, "a value of the network, or a constant that is one number everywhere"),
        };
    }
    let updates = permuted::image(site, 2)?;
    if updates.order != data.order || !is_as_large(site, updates.plan, data.plan) {
        return site.wrong(2, AS_LARGE);
    }
    Ok(updates.plan)
}

/// Whether a value has the rows and columns of another.
fn is_as_large(site: &Site<'_>, plan: usize, like: usize) -> bool {
    let is_extent = |axis| site.plans.is_extent(site.plans.extent(plan, axis), like, axis);
    is_extent(2) && is_extent(3)
}

/// Channels of one value or the other, from one to another.
struct Part {
    is_assigned: bool,
    begin: i64,
    end: i64,
}

/// A value with channels of another at these places.
fn assigned(site: &mut Site<'_>, plan: usize, updates: usize, places: &[i64]) -> Result<usize, Reason> {
    if site.plans.get(updates).channels != places.len() {
        return site.wrong(2, AS_LARGE);
    }
    let channels = site.plans.get(plan).channels;
    let mut sources: Vec<Option<i64>> = vec![None; channels];
    for (place, channel) in (0..).zip(places) {
        if let Some(source) = usize::try_from(*channel).ok().and_then(|channel| sources.get_mut(channel)) {
            *source = Some(place);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    for (channel, source) in (0..).zip(sources) {
        let (is_assigned, from) = (source.is_some(), source.unwrap_or(channel));
        match parts.last_mut() {
            Some(last) if last.is_assigned == is_assigned && last.end == from => last.end += 1,
            _ => parts.push(Part { is_assigned, begin: from, end: from + 1 }),
        }
    }
    if parts.len() > MOST_PARTS {
        return site
            .wrong(1, "an index of few runs of channels: at most 64 of those that are assigned or stay");
    }
    let name = node_name(site.node).to_owned();
    let mut joined = Vec::new();
    for Part { is_assigned, begin, end } in parts {
        let source = if is_assigned { updates } else { plan };
        let is_all = begin == 0 && usize::try_from(end) == Ok(site.plans.get(source).channels);
        let op = Op::Slice(Slice { begin, end: Some(end) });
        joined.push(match is_all {
            true => source,
            false => site.plans.node(&format!("{name}.slice"), op, vec![source], Vec::new())?,
        });
    }
    match *joined.as_slice() {
        [one] => Ok(one),
        _ => site.add(Op::Concat, joined),
    }
}

/// Runs of channels that are joined at most: each is a node.
const MOST_PARTS: usize = 64;

/// The channels of a value some of which are assigned, at most.
const MOST_CHANNELS: usize = 1 << 16;
