//! Elements that are gathered from a list of all of them, as an exporter writes a view with strides: of a pooled value N×C×1×1, whose
//! list holds C elements for each image, element `n·C + c` at place n, c, which is the value itself.

use crate::Reason;
use crate::import::extents::Extents;
use crate::import::numbers::Num;
use crate::import::site::Site;
use crate::import::value::{Image, Places, Value};

/// All elements of a value of one pixel; `None` of other values and shapes.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Image(Image { plan, .. }) = *site.operand(0)? else { return Ok(None) };
    let is_list = site.is_numbers(1) && site.numbers(1)?.items.as_slice() == [Num::Known(-1.0)];
    let is_pixel = site.plans.get(plan).extents == Some([1, 1]);
    Ok((is_list && is_pixel).then_some(Value::Elements(plan)))
}

/// The numbers of the images, from zero on; `None` of other ranges.
pub(super) fn range(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let is_batch = site.numbers(1)?.items.as_slice() == [Num::Extent(Extents::BATCH)];
    let is_each = site.scalar(0)? == Some(0.0) && site.scalar(2)? == Some(1.0);
    let places = Places { of_image: 1.0, has_axes: false, channels: 1 };
    Ok((is_batch && is_each).then_some(Value::Places(places)))
}

/// As many places from one image to the next.
pub(super) fn product(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    for (position, other) in [(0, 1), (1, 0)] {
        let Value::Places(places @ Places { channels: 1, .. }) = *site.operand(position)? else { continue };
        if let Some(factor) = site.scalar(other)? {
            let of_image = places.of_image * factor;
            return Ok(Some(Value::Places(Places { of_image, ..places })));
        }
    }
    Ok(None)
}

/// Images along the first of four axes.
pub(super) fn unsqueeze(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Value::Places(places @ Places { has_axes: false, .. }) = *site.operand(0)? else { return Ok(None) };
    let is_first = axes == Some(&[1, 2, 3]);
    Ok(is_first.then_some(Value::Places(Places { has_axes: true, ..places })))
}

/// The same with the numbers of the channels along the second axis, or with zeros.
pub(super) fn sum(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    for (position, other) in [(0, 1), (1, 0)] {
        let Value::Places(places) = *site.operand(position)? else { continue };
        if site.scalar(other)? == Some(0.0) {
            return Ok(Some(Value::Places(places)));
        }
        let Value::Constant(constant) = site.operand(other)?.clone() else { continue };
        let [1, channels, 1, 1] = *constant.shape else { continue };
        if places.has_axes && places.channels == 1 && counts_up(&site.values(&constant)?) {
            return Ok(Some(Value::Places(Places { channels, ..places })));
        }
    }
    Ok(None)
}

/// The elements in the order that they have; `None` of other operands than a list of elements.
pub(super) fn gather(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    const EXPECTED: &str = "the places of all elements in their order, N×C×1×1";
    let Value::Elements(plan) = *site.operand(0)? else { return Ok(None) };
    let channels = site.plans.get(plan).channels;
    let is_itself = match site.operand(1)?.clone() {
        Value::Places(places) => {
            places.has_axes && places.channels == channels && places.of_image == channels as f64
        }
        Value::Constant(constant) => {
            let batch = site.plans.extents.known(Extents::BATCH);
            let [images, of_image, 1, 1] = *constant.shape else { return site.wrong(1, EXPECTED) };
            of_image == channels && i64::try_from(images).ok() == batch && counts_up(&site.values(&constant)?)
        }
        _ => false,
    };
    if is_itself { Ok(Some(Value::Image(Image { plan, flat: false }))) } else { site.wrong(1, EXPECTED) }
}

/// Whether numbers are 0, 1, 2, …
fn counts_up(values: &[f64]) -> bool {
    values.iter().enumerate().all(|(place, value)| *value == place as f64)
}
