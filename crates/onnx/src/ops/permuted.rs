//! Batches of images whose axes stand in another order that does not begin with the batch, as PyTorch's newer exporter puts the
//! channels first where a list says which of them are read or assigned.

use std::rc::Rc;

use super::{grid, part};
use crate::Reason;
use crate::import::grid::{Coordinate, is_same};
use crate::import::site::Site;
use crate::import::value::{Image, Last, Order, Permuted, Value};

/// The axes as they stand in a batch of images.
const PLAIN: [usize; 4] = [0, 1, 2, 3];

/// A value with its axes in another order, or in their own again; `None` of other values and orders.
pub(super) fn transposed(site: &mut Site<'_>, order: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Some(order) = order.and_then(permutation) else { return Ok(None) };
    let (plan, now) = match site.operand(0)? {
        Value::Permuted(Permuted { plan, order: before }) => (*plan, order.map(|axis| before[axis])),
        Value::Image(Image { flat: false, .. }) | Value::Form(_) if order[0] != 0 => (site.image(0)?, order),
        _ => return Ok(None),
    };
    let image = Value::Image(Image { plan, flat: false });
    let with_channels_last = |value, order| Some(Value::Last(Last { value: Rc::new(value), order }));
    Ok(match now {
        PLAIN => Some(image),
        [0, 2, 3, 1] => with_channels_last(image, Order::Plain),
        [0, 3, 2, 1] => with_channels_last(image, Order::Turned),
        [0, ..] => None,
        order => Some(Value::Permuted(Permuted { plan, order })),
    })
}

/// Channels by their places, where they stand first, as in `x[:, [2, 1, 0]]`; `None` of other values.
pub(super) fn gathered(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    const EXPECTED: &str = "a list of channels that there are, C×1";
    let Value::Permuted(Permuted { plan, order }) = *site.operand(0)? else { return Ok(None) };
    let index = grid::index(site, 1)?;
    let channels = site.plans.get(plan).channels;
    let extents = &site.plans.extents;
    let places = match index.as_ref().map(|index| (index.coordinates.as_slice(), index.extents.as_slice())) {
        // one number may stand for several
        Some(([Coordinate { numbers, .. }], [count]))
            if order[0] == 1 && is_same(numbers.count(), *count, extents) =>
        {
            numbers.all(MOST_PLACES, extents)
        }
        _ => None,
    };
    let Some(places) = places.and_then(|places| places_of(&places, channels)) else {
        return site.wrong(1, EXPECTED);
    };
    match part::picked(site, plan, &places)? {
        Some(plan) => Ok(Some(Value::Permuted(Permuted { plan, order }))),
        None => site.wrong(1, "a few channels"),
    }
}

/// A value of four axes, and how they stand.
pub(super) fn image(site: &mut Site<'_>, position: usize) -> Result<Permuted, Reason> {
    match *site.operand(position)? {
        Value::Permuted(permuted) => Ok(permuted),
        _ => Ok(Permuted { plan: site.image(position)?, order: PLAIN }),
    }
}

/// Places from the start or, below zero, from the end, of channels that there are.
pub(super) fn places_of(places: &[i64], channels: usize) -> Option<Vec<i64>> {
    let channels = i64::try_from(channels).ok()?;
    let place = |place: &i64| if *place < 0 { place.saturating_add(channels) } else { *place };
    let places: Vec<i64> = places.iter().map(place).collect();
    places.iter().all(|place| (0..channels).contains(place)).then_some(places)
}

/// Each of four axes once.
fn permutation(order: &[i64]) -> Option<[usize; 4]> {
    let order = <[i64; 4]>::try_from(order).ok()?;
    let mut sorted = order;
    sorted.sort_unstable();
    let order = order.map(|axis| usize::try_from(axis).unwrap_or_default());
    (sorted == [0, 1, 2, 3]).then_some(order)
}

/// The channels that a list names, at most.
const MOST_PLACES: usize = 1 << 16;
