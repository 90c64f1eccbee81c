//! Norms of each pixel over its channels that exporters write out: a mean, what is left without it, the mean of its squares, a root
//! and a quotient. A step that something else reads is the value that it is ([`Plans::settled`](crate::import::plan::Plans::settled)).

use tiled_graph::{Activation, LayerNorm, Op, RmsNorm};

use super::activation::activation;
use super::{last, response};
use crate::Reason;
use crate::import::form::Form;
use crate::import::site::Site;
use crate::import::value::{Image, Last, Norming, Step, Value};

/// The mean over the channels of a value, or of squares. They are axis 1, and the last of a value whose channels stand last.
pub(super) fn mean(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let square = |form: &Form| form.is_square().then(|| form.x()).flatten().filter(|_| !form.flat);
    let (value, channels, order) = match site.operand(0)? {
        Value::Last(Last { value, order }) => (Value::clone(value), [order.last(), -1], Some(*order)),
        value => (value.clone(), [1, -3], None),
    };
    let axes = if site.has(1) { site.whole(1)? } else { site.ints("axes")?.unwrap_or_default() };
    if !matches!(axes.as_slice(), [axis] if channels.contains(axis)) || !site.flag("keepdims", true)? {
        return Ok(None);
    }
    let made = match value {
        // a square is no more than a way to the mean of squares
        Value::Image(Image { plan, flat: false }) => match site.plans.get(plan).forms.iter().find_map(square)
        {
            Some(plan) => Norming { plan, step: Step::MeanSquare },
            None => Norming { plan, step: Step::Mean },
        },
        Value::Norming(Norming { plan, step: Step::Squares }) => Norming { plan, step: Step::Variance },
        Value::Form(forms) => match forms.iter().find_map(square) {
            Some(plan) => Norming { plan, step: Step::MeanSquare },
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let made = Value::Norming(made);
    Ok(Some(match order {
        Some(order) => last::with_channels_last(made, order),
        None => made,
    }))
}

/// A value without its mean.
pub(super) fn difference(site: &Site<'_>) -> Result<Option<Value>, Reason> {
    Ok(match (site.operand(0)?, site.operand(1)?) {
        (
            Value::Image(Image { plan, flat: false }),
            Value::Norming(Norming { plan: of, step: Step::Mean }),
        ) if plan == of => Some(Value::Norming(Norming { plan: *plan, step: Step::Centred })),
        _ => None,
    })
}

/// The squares of a value without its mean, as a product.
pub(super) fn product(site: &Site<'_>) -> Result<Option<Value>, Reason> {
    Ok(match (site.operand(0)?, site.operand(1)?) {
        (Value::Norming(a), Value::Norming(b)) if a == b => squares(*a),
        _ => None,
    })
}

/// The same, as a power.
pub(super) fn power(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let of = match site.operand(0)? {
        Value::Norming(norming) => *norming,
        _ => return Ok(None),
    };
    Ok(if site.number(1)? == 2.0 { squares(of) } else { None })
}

fn squares(of: Norming) -> Option<Value> {
    (of.step == Step::Centred).then_some(Value::Norming(Norming { step: Step::Squares, ..of }))
}

/// A mean of squares with something added, so that its root is not zero.
pub(super) fn sum(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    for (position, other) in [(0, 1), (1, 0)] {
        let Value::Norming(Norming { plan, step }) = *site.operand(position)? else { continue };
        let is_centred = match step {
            Step::Variance => true,
            Step::MeanSquare => false,
            _ => continue,
        };
        if let Some(eps) = site.scalar(other)? {
            return Ok(Some(Value::Norming(Norming { plan, step: Step::Guarded { eps, is_centred } })));
        }
    }
    Ok(None)
}

/// The root of a mean of squares, or of a value.
pub(super) fn sqrt(site: &mut Site<'_>) -> Result<Value, Reason> {
    match *site.operand(0)? {
        Value::Norming(Norming { plan, step: Step::Guarded { eps, is_centred } }) => {
            Ok(Value::Norming(Norming { plan, step: Step::Root { eps, is_centred } }))
        }
        _ => match response::raised(site, 0.5)? {
            Some(made) => Ok(made),
            None => activation(site, Activation::Sqrt),
        },
    }
}

/// What is left without the mean by its root mean square, or the value itself: a norm.
pub(super) fn quotient(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Norming(Norming { plan, step: Step::Root { eps, is_centred } }) = *site.operand(1)? else {
        return Ok(None);
    };
    let op = match *site.operand(0)? {
        Value::Norming(Norming { plan: of, step: Step::Centred }) if is_centred && of == plan => {
            Op::LayerNorm(LayerNorm { eps, elementwise_affine: false, bias: false })
        }
        Value::Image(Image { plan: of, flat: false }) if !is_centred && of == plan => {
            Op::RmsNorm(RmsNorm { eps, elementwise_affine: false })
        }
        _ => return Ok(None),
    };
    let plan = site.add(op, vec![plan])?;
    Ok(Some(Value::Image(Image { plan, flat: false })))
}
