//! Constants in another shape or order, parts of them, and several along an axis.

use ndarray::{Axis, Slice};
use tiled_tensor::zeros;

use super::array::{Array, MAX_AXES, computed, room};
use super::broadcast;
use super::layout;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Constant, Value};

/// The places of axes that are counted from the end below zero; all of them there and none twice.
pub(super) fn axes(given: &[i64], rank: usize) -> Result<Vec<usize>, Reason> {
    let wrong = || {
        let expected = "axes that the constant has, each once";
        let got = format!("{given:?} of {rank} axes");
        Reason::Attribute { name: "axes", expected, got }
    };
    let mut places = Vec::with_capacity(given.len().min(rank));
    for axis in given {
        match place(*axis, rank) {
            Some(place) if !places.contains(&place) => places.push(place),
            _ => return Err(wrong()),
        }
    }
    Ok(places)
}

fn place(axis: i64, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { axis.saturating_add(i64::try_from(rank).ok()?) } else { axis };
    usize::try_from(axis).ok().filter(|axis| *axis < rank)
}

/// Along an axis that all of them have, with the others of one extent.
pub(super) fn concat(site: &mut Site<'_>) -> Result<Value, Reason> {
    let count = site.operands.len();
    let arrays = (0..count).map(|position| Array::of(site, position)).collect::<Result<Vec<_>, _>>()?;
    let mut shape = arrays[0].shape.to_vec();
    let given = site.int("axis", 0)?;
    let Some(axis) = place(given, shape.len()) else {
        let got = format!("{given} of {} axes", shape.len());
        return Err(Reason::Attribute { name: "axis", expected: "an axis that the constants have", got });
    };
    for (position, array) in arrays.iter().enumerate().skip(1) {
        let is_same = |(place, (a, b)): (usize, (&usize, &usize))| place == axis || a == b;
        if array.shape.len() != shape.len() || !shape.iter().zip(&*array.shape).enumerate().all(is_same) {
            let got = format!("a constant of shape {:?} behind one of {:?}", array.shape, arrays[0].shape);
            let expected = "a constant of the same extents along the other axes";
            return Err(Reason::Operand { position, expected, got });
        }
        shape[axis] = shape[axis].saturating_add(array.shape[axis]);
    }
    let elements = arrays.iter().map(|array| array.values().len()).sum();
    let room = room(site, elements, &shape)?;
    let mut values = zeros::<f64>(elements)?;
    let is_double = arrays.iter().any(|array| array.is_double);
    // as many elements of each in turn as there are from the axis on
    let width: usize = shape[axis..].iter().product();
    let mut begin = 0;
    for array in &arrays {
        let part: usize = array.shape[axis..].iter().product();
        for (to, from) in values.chunks_exact_mut(width).zip(array.values().chunks_exact(part)) {
            to[begin..begin + part].copy_from_slice(from);
        }
        begin += part;
    }
    Ok(computed(site, values, room, &shape, is_double))
}

/// To what the shape and that of the constant have in common.
pub(super) fn expand(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    // to the image's size, and to nothing, is no constant
    let wanted = site.numbers(1)?.all_whole(&site.plans.extents).filter(|wanted| !wanted.contains(&0));
    let Some(wanted) = wanted else { return Ok(None) };
    let array = Array::of(site, 0)?;
    let to: Option<Vec<usize>> = wanted.iter().map(|extent| usize::try_from(*extent).ok()).collect();
    let shape = to.and_then(|to| broadcast::shape(&array.shape, &to)).filter(|shape| shape.len() <= MAX_AXES);
    let Some(shape) = shape else {
        let got = format!("{wanted:?} for a constant of shape {:?}", array.shape);
        let expected = "extents that are those of the constant, from the last one on, or one";
        return Err(Reason::Operand { position: 1, expected, got });
    };
    let room = room(site, array.values().len(), &shape)?;
    let values = broadcast::repeated(&array.view()?, &shape)?;
    Ok(Some(computed(site, values, room, &shape, array.is_double)))
}

/// A constant of the file is left to the rule, unless it is a matrix that is seen by its columns.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if is_in_order(site) {
        return Ok(None);
    }
    let (wanted, keeps_zeros) = (site.whole(1)?, site.flag("allowzero", false)?);
    let array = Array::of(site, 0)?;
    match layout::target(&array.shape, &wanted, keeps_zeros) {
        Some(shape) => Ok(Some(array.reshaped(site, shape))),
        None => site.wrong(1, "a shape of as many elements"),
    }
}

/// The same; axes of one are added.
pub(super) fn unsqueeze(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if is_in_order(site) {
        return Ok(None);
    }
    let axes = layout::axes(site)?;
    let array = Array::of(site, 0)?;
    match axes.as_deref().and_then(|axes| layout::with_axes(&array.shape, axes)) {
        Some(shape) => Ok(Some(array.reshaped(site, shape))),
        None => Err(layout::wrong_axes(axes.as_deref())),
    }
}

/// Axes of one are dropped: those that are given, or all of them.
pub(super) fn squeeze(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    if site.is_numbers(0) {
        return Ok(None);
    }
    let given = layout::axes(site)?;
    let shape = seen(site, 0)?;
    let dropped = match &given {
        Some(given) => axes(given, shape.len())?,
        None => (0..shape.len()).filter(|axis| shape[*axis] == 1).collect(),
    };
    if let Some(axis) = dropped.iter().find(|axis| shape[**axis] != 1) {
        let got = format!("{axis} of a constant of shape {shape:?}");
        return Err(Reason::Attribute { name: "axes", expected: "axes of one element", got });
    }
    let kept = (0..shape.len()).filter(|axis| !dropped.contains(axis)).map(|axis| shape[axis]).collect();
    reshaped(site, kept).map(Some)
}

/// Two axes: those before one, and those from it on.
pub(super) fn flatten(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let shape = seen(site, 0)?;
    let given = site.int("axis", 1)?;
    let axis =
        if usize::try_from(given) == Ok(shape.len()) { Some(shape.len()) } else { place(given, shape.len()) };
    let Some(axis) = axis else {
        let got = format!("{given} of {} axes", shape.len());
        return Err(Reason::Attribute { name: "axis", expected: "an axis that the constant has", got });
    };
    let shape = [&shape[..axis], &shape[axis..]].map(|axes| axes.iter().product());
    reshaped(site, shape.to_vec()).map(Some)
}

/// Axes in another order, the reverse one where none is given. A matrix of the file is left to the rule, which sees it by its
/// columns, and so is one whose axes stay.
pub(super) fn transpose(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let shape = seen(site, 0)?;
    let rank = shape.len();
    let given = site.ints("perm")?;
    let order = match &given {
        None => Some((0..rank).rev().collect()),
        Some(given) => axes(given, rank).ok().filter(|order| order.len() == rank),
    };
    let Some(order) = order else {
        let got = format!("{:?} of {rank} axes", given.unwrap_or_default());
        return Err(Reason::Attribute { name: "perm", expected: "each axis of the constant once", got });
    };
    if matches!(site.operand(0)?, Value::Constant(_)) && (rank == 2 || order.is_sorted()) {
        return Ok(None);
    }
    let turned: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
    // elements stay where they are where nothing but axes of one moves
    if order.iter().filter(|axis| shape[**axis] != 1).is_sorted() {
        return reshaped(site, turned).map(Some);
    }
    let array = Array::of(site, 0)?;
    let room = room(site, array.values().len(), &turned)?;
    let values = broadcast::ordered(&array.view()?.permuted_axes(order))?;
    Ok(Some(computed(site, values, room, &turned, array.is_double)))
}

/// Every so many elements between two places along axes, backward where the step is below zero. Attributes before version 10,
/// operands since.
pub(super) fn slice(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let mut list = |position: usize, name: &'static str| {
        if site.has(position) { site.whole(position).map(Some) } else { site.ints(name) }
    };
    let (starts, ends) = (list(1, "starts")?.unwrap_or_default(), list(2, "ends")?.unwrap_or_default());
    let given = list(3, "axes")?.unwrap_or_else(|| (0..).take(starts.len()).collect());
    let steps = list(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    let array = Array::of(site, 0)?;
    let axes = axes(&given, array.shape.len())?;
    let counts = [ends.len(), axes.len(), steps.len()];
    if counts != [starts.len(); 3] || steps.contains(&0) {
        return site.wrong(0, "a start, an end and a step that is not 0 for each axis");
    }
    let mut part = array.view()?;
    for (place, axis) in axes.into_iter().enumerate() {
        part.slice_axis_inplace(
            Axis(axis),
            span(array.shape[axis], starts[place], ends[place], steps[place]),
        );
    }
    let shape = part.shape().to_vec();
    let room = room(site, array.values().len(), &shape)?;
    let values = broadcast::ordered(&part)?;
    Ok(Some(computed(site, values, room, &shape, array.is_double)))
}

/// Of an axis that has some, the elements from `start` on by `step` and before `end`, as a range that is stepped through from its end where the step is below
/// zero.
fn span(len: usize, start: i64, end: i64, step: i64) -> Slice {
    let signed = i64::try_from(len).unwrap_or(i64::MAX).max(1);
    let from_end = |place: i64| if place < 0 { place.saturating_add(signed) } else { place };
    let (start, end) = (from_end(start), from_end(end));
    let [begin, end] = if step > 0 {
        [start.clamp(0, signed), end.clamp(0, signed)]
    } else {
        // from the one behind the end to the start itself
        [end.clamp(-1, signed - 1) + 1, start.clamp(0, signed - 1) + 1]
    };
    let step = step.clamp(-signed, signed);
    let place = |place: i64| isize::try_from(place).unwrap_or(isize::MAX);
    Slice::new(place(begin.min(end)), Some(place(end)), place(step))
}

/// Whether the operand is a constant of the file whose elements are seen in the order that they have there.
fn is_in_order(site: &Site<'_>) -> bool {
    matches!(site.operand(0), Ok(Value::Constant(Constant { transposed: false, .. })))
}

/// The shape of a constant.
pub(super) fn seen(site: &Site<'_>, position: usize) -> Result<Vec<usize>, Reason> {
    match site.operand(position)? {
        Value::Constant(constant) => Ok(constant.shape.to_vec()),
        Value::Computed(computed) => Ok(computed.shape.to_vec()),
        Value::Numbers(numbers) if numbers.is_scalar => Ok(Vec::new()),
        Value::Numbers(numbers) => Ok(vec![numbers.items.len()]),
        _ => site.wrong(position, "a constant"),
    }
}

/// The first operand in a shape of as many elements, unread where it lies in the file in their order.
fn reshaped(site: &mut Site<'_>, shape: Vec<usize>) -> Result<Value, Reason> {
    if let Value::Constant(constant) = site.operand(0)?
        && let Some(constant) = constant.reshaped(&shape)
    {
        return Ok(Value::Constant(constant));
    }
    Ok(Array::of(site, 0)?.reshaped(site, shape))
}
