//! Values whose pixels are one axis, N×C×(H·W), as `x.flatten(2)` has them: what folds each channel to one number, a softmax over all
//! pixels, sums weighed by one, and a matrix that mixes the channels.
//!
//! A softmax over all pixels is `exp(x − m)/Σ exp(x − m)` with the largest value m of the channel: two numbers of the whole image.
//! The context of an image is weighed by it (Cao et al., "GCNet: Non-local networks meet squeeze-excitation networks and beyond", 2019,
//! section 3.3): x·softmax(k), a sum over the pixels for each channel.

use tiled_graph::{Activation, Conv2d, Elementwise, Op, ParamKind};

use super::arithmetic::of_values;
use super::last;
use crate::Reason;
use crate::import::numbers::Num;
use crate::import::site::Site;
use crate::import::value::{Constant, Grouped, Image, Last, Lined, Lines, Order, Value};

/// Whether an axis of three is that of the pixels.
pub(super) const fn is_of_pixels(axis: i64) -> bool {
    matches!(axis, 2 | -1)
}

/// One number of each channel, by operators over height and width; `None` of other values and axes.
pub(super) fn reduced(site: &mut Site<'_>, axes: &[i64], ops: &[Op]) -> Result<Option<Value>, Reason> {
    let Some(plan) = site.plans.lines(site.operand(0)?) else { return Ok(None) };
    if !matches!(axes, [axis] if is_of_pixels(*axis)) {
        return Ok(None);
    }
    let keeps = site.flag("keepdims", true)?;
    let plan = site.chain(ops, plan)?;
    Ok(Some(if keeps { Value::Row(plan) } else { Value::Image(Image { plan, flat: true }) }))
}

/// Over the pixels of each channel; `None` of other values and axes.
pub(super) fn softmax(site: &mut Site<'_>, axis: i64) -> Result<Option<Value>, Reason> {
    let Some(plan) = site.plans.lines(site.operand(0)?).filter(|_| is_of_pixels(axis)) else {
        return Ok(None);
    };
    let image = |plan: usize| Image { plan, flat: false };
    let largest = site.add(Op::GlobalMaxPool, vec![plan])?;
    let below = of_values(site, Elementwise::Sub, &[image(plan), image(largest)])?;
    let power = site.add(Op::Activation(Activation::Exp), vec![below.plan])?;
    let sum = site.add(Op::GlobalSumPool, vec![power])?;
    let share = of_values(site, Elementwise::Div, &[image(power), image(sum)])?;
    let groups = site.plans.get(share.plan).channels;
    Ok(Some(Value::Grouped(Grouped { plan: share.plan, groups })))
}

/// An axis of one before the channels, or behind the pixels of one channel; `None` of other values and axes.
pub(super) fn unsqueezed(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Some(plan) = site.plans.lines(site.operand(0)?) else { return Ok(None) };
    let axes = match axes {
        Some([1 | -3]) => Lines::Rows,
        Some([3 | -1]) if site.plans.get(plan).channels == 1 => Lines::Column,
        _ => return Ok(None),
    };
    Ok(Some(Value::Lined(Lined { plan, axes })))
}

/// Sums over all pixels, weighed by another value of one channel, or channels mixed by a matrix; `None` of other values.
pub(super) fn product(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let sums = |plan| Value::Lined(Lined { plan, axes: Lines::Sums });
    let (a, b) = (site.operand(0)?.clone(), site.operand(1)?.clone());
    match (&a, &b) {
        (Value::Lined(Lined { plan, axes: Lines::Rows }), Value::Lined(Lined { plan: weights, axes })) => {
            match axes {
                Lines::Column => weighed(site, [*plan, *weights]).map(|plan| Some(sums(plan))),
                _ => site.wrong(1, last::PIXELS_APART),
            }
        }
        (_, Value::Last(Last { order: Order::Joined, .. })) => {
            let (Some(plan), Some((weights, _))) = (site.plans.lines(&a), last::image(site, 1)?) else {
                return Ok(None);
            };
            match site.plans.get(weights).channels {
                1 => weighed(site, [plan, weights]).map(|plan| Some(Value::Row(plan))),
                _ => Ok(None),
            }
        }
        (Value::Constant(_), _) => match site.plans.lines(&b) {
            Some(plan) => mixed(site, plan).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// A sum for each channel of one value, each pixel times that of the other.
fn weighed(site: &mut Site<'_>, values: [usize; 2]) -> Result<usize, Reason> {
    if !site.plans.are_as_large(values[0], values[1]) {
        return site.wrong(1, "a value of as many pixels");
    }
    let product = of_values(site, Elementwise::Mul, &values.map(|plan| Image { plan, flat: false }))?;
    site.add(Op::GlobalSumPool, vec![product.plan])
}

/// A convolution of one tap, whose weight is the matrix.
fn mixed(site: &mut Site<'_>, plan: usize) -> Result<Value, Reason> {
    let (weight, [outputs, inputs]) = site.constant_of::<2>(0, "a constant of two axes")?;
    let op = Op::Conv2d(Conv2d { bias: false, ..Conv2d::new(outputs, [1, 1]) });
    let weight = Constant { shape: [outputs, inputs, 1, 1].into(), ..weight };
    let plan = site.add_with(op, plan, vec![(ParamKind::Weight, weight)])?;
    Ok(Value::Grouped(Grouped { plan, groups: outputs }))
}

/// Sums as a value of one pixel; `None` of other values.
pub(super) fn reshaped(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Lined(Lined { plan, axes: Lines::Sums }) = *site.operand(0)? else { return Ok(None) };
    let shape = site.numbers(1)?;
    let channels = site.plans.get(plan).channels as f64;
    let is = |item: f64, wanted: f64| item == -1.0 || item == wanted;
    let known: Option<Vec<f64>> =
        shape.items.iter().skip(1).map(|it| it.known(&site.plans.extents)).collect();
    let is_open = |item: &Num| *item == Num::Known(-1.0);
    let one_is_open = shape.items.iter().filter(|item| is_open(item)).count() < 2;
    let is_batch = |item: &Num| is_open(item) || site.plans.is_batch(*item);
    let is_batch = one_is_open && shape.items.first().is_some_and(is_batch);
    match known.as_deref() {
        Some(&[c]) if is_batch && is(c, channels) => Ok(Some(Value::Image(Image { plan, flat: true }))),
        Some(&[c, 1.0, 1.0]) if is_batch && is(c, channels) => {
            Ok(Some(Value::Image(Image { plan, flat: false })))
        }
        _ => site.wrong(1, "the batch, the channels, and one pixel or none"),
    }
}
