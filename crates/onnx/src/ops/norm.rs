//! Batch normalisation in evaluation, norms and softmax over the channels of each pixel, and the factors of channels after a norm.

use tiled_graph::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LocalResponseNorm, Op, ParamKind, RmsNorm};

use super::last;
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Value};

pub(super) const BATCH_NORM: &[&str] = &["epsilon", "momentum", "spatial", "training_mode"];

/// ONNX's momentum is the weight of the running statistic, that of a network the weight of the new one.
pub(super) fn batch_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.only("training_mode", 0, 0, "0, evaluation")?;
    site.only("spatial", 1, 1, "1, statistics of channels")?;
    // before version 14 the statistics of the batch are further results
    let results = site.node.output.iter().filter(|name| !name.is_empty()).count();
    if site.opset < 14 && results > 1 {
        let got = format!("said by {results} results");
        return Err(Reason::Attribute { name: "training_mode", expected: "0, evaluation", got });
    }
    let Image { plan, flat } = site.value(0)?;
    let kept = site.float("momentum", 0.9)?;
    let op = Op::BatchNorm(BatchNorm {
        eps: site.float("epsilon", 1e-5)?,
        // nine digits: 1 − 0.9 is 0.1
        momentum: Some(((1.0 - kept) * 1e9).round() / 1e9),
        affine: true,
        track_running_stats: true,
    });
    let kinds = [ParamKind::Weight, ParamKind::Bias, ParamKind::RunningMean, ParamKind::RunningVar];
    let mut params = Vec::new();
    for (place, kind) in kinds.into_iter().enumerate() {
        params.push((kind, site.constant(place + 1)?));
    }
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat }))
}

pub(super) const LAYER_NORM: &[&str] = &["axis", "epsilon", "stash_type"];

/// Over the last axis, where that is the channels.
pub(super) fn layer_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    let bias = if site.has(2) { Some(site.constant(2)?) } else { None };
    let eps = site.float("epsilon", 1e-5)?;
    let op = Op::LayerNorm(LayerNorm { eps, elementwise_affine: true, bias: bias.is_some() });
    over_last_axis(site, op, bias)
}

/// The same without means.
pub(super) fn rms_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    let eps = site.float("epsilon", 1e-5)?;
    over_last_axis(site, Op::RmsNorm(RmsNorm { eps, elementwise_affine: true }), None)
}

fn over_last_axis(site: &mut Site<'_>, op: Op, bias: Option<Constant>) -> Result<Value, Reason> {
    let last = last::image(site, 0)?;
    let rank = last.map_or(2, |(_, order)| order.last() + 1);
    let axis = site.int("axis", -1)?;
    if let Value::Image(Image { plan, flat: false }) = *site.operand(0)?
        && site.plans.get(plan).extents == Some([1, 1])
        && matches!(axis, 1 | -3)
    {
        return over_pixel(site, plan, op, bias);
    }
    let plan = match last {
        Some((plan, _)) => plan,
        None => match site.value(0)? {
            Image { plan, flat: true } => plan,
            _ => return site.wrong(0, "a value whose channels are last"),
        },
    };
    if axis != -1 && axis != rank - 1 {
        let (name, expected) = ("axis", "-1, the channels alone");
        return Err(Reason::Attribute { name, expected, got: axis.to_string() });
    }
    let weight = (ParamKind::Weight, site.constant(1)?);
    let params = std::iter::once(weight).chain(bias.map(|bias| (ParamKind::Bias, bias))).collect();
    let plan = site.add_with(op, plan, params)?;
    Ok(match last {
        Some((_, order)) => last::of_image(plan, order),
        None => Value::Image(Image { plan, flat: true }),
    })
}

/// Over all axes but the batch of a value of one pixel, with weights of as many.
fn over_pixel(site: &mut Site<'_>, plan: usize, op: Op, bias: Option<Constant>) -> Result<Value, Reason> {
    let channels = site.plans.get(plan).channels;
    let vector = |constant: Constant| constant.reshaped(&[channels]).unwrap_or(constant);
    let weight = (ParamKind::Weight, vector(site.constant(1)?));
    let params = std::iter::once(weight).chain(bias.map(|bias| (ParamKind::Bias, vector(bias)))).collect();
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

/// Of an odd number of channels, half of them before: of an even one PyTorch has one more before, ONNX behind.
pub(super) fn local_response(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let got = site.int("size", 0)?;
    let size = usize::try_from(got).ok().filter(|size| !size.is_multiple_of(2));
    let Some(size) = size else {
        let (name, expected) = ("size", "an odd number of channels");
        return Err(Reason::Attribute { name, expected, got: got.to_string() });
    };
    let op = Op::LocalResponseNorm(LocalResponseNorm {
        size,
        alpha: site.float("alpha", 1e-4)?,
        beta: site.float("beta", 0.75)?,
        k: site.float("bias", 1.0)?,
    });
    let plan = site.add(op, vec![plan])?;
    Ok(Value::Image(Image { plan, flat: false }))
}

pub(super) fn softmax(site: &mut Site<'_>) -> Result<Value, Reason> {
    over_channels(site, Op::Softmax)
}

pub(super) fn log_softmax(site: &mut Site<'_>) -> Result<Value, Reason> {
    over_channels(site, Op::LogSoftmax)
}

/// Along the channels. Before version 13 all axes from this one on are one, so that images must be of one pixel.
fn over_channels(site: &mut Site<'_>, op: Op) -> Result<Value, Reason> {
    let is_joining = site.opset < 13;
    let axis = site.int("axis", if is_joining { 1 } else { -1 })?;
    let wrong = || Reason::Attribute { name: "axis", expected: "the channels", got: axis.to_string() };
    if let Some((plan, order)) = last::image(site, 0)? {
        // the last axis alone, also before version 13
        if axis != -1 && axis != order.last() {
            return Err(wrong());
        }
        return Ok(last::of_image(site.add(op, vec![plan])?, order));
    }
    let Image { plan, flat } = site.value(0)?;
    if axis != 1 && axis != if flat { -1 } else { -3 } {
        return Err(wrong());
    }
    if flat {
        site.check_one_pixel(plan)?;
    } else if is_joining && site.plans.get(plan).extents != Some([1, 1]) {
        return site.wrong(
            0,
            "a value of one pixel, as height and width are joined to the channels before version 13",
        );
    }
    let plan = site.add(op, vec![plan])?;
    Ok(Value::Image(Image { plan, flat }))
}

/// The product of a norm and a number for each of its channels: its weight, where it has none.
pub(super) fn scaled(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some((plan, weight)) = of_channels(site)? else { return Ok(None) };
    let channels = site.plans.get(plan).channels;
    let Some(op) = site.plans.get(plan).op.as_deref().cloned() else { return Ok(None) };
    let (op, bias) = match op {
        Op::LayerNorm(norm) if !norm.elementwise_affine => {
            (Op::LayerNorm(LayerNorm { elementwise_affine: true, bias: false, ..norm }), None)
        }
        Op::RmsNorm(norm) if !norm.elementwise_affine => {
            (Op::RmsNorm(RmsNorm { elementwise_affine: true, ..norm }), None)
        }
        op => match with_weights(site, plan, op)? {
            Some(op) => (op, Some(site.new_vector(vec![0.0; channels])?)),
            None => return Ok(None),
        },
    };
    again(site, plan, op, weight, bias).map(Some)
}

/// The sum of a norm and a number for each of its channels: its bias, where it has none.
pub(super) fn shifted(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Some((plan, bias)) = of_channels(site)? else { return Ok(None) };
    let planned = site.plans.get(plan);
    let weight = planned.params.iter().find(|(kind, _)| *kind == ParamKind::Weight);
    let (channels, weight) = (planned.channels, weight.map(|(_, weight)| weight.clone()));
    let op = match planned.op.as_deref().cloned() {
        Some(Op::LayerNorm(norm)) if !(norm.elementwise_affine && norm.bias) => {
            Op::LayerNorm(LayerNorm { elementwise_affine: true, bias: true, ..norm })
        }
        Some(op) => match with_bias(site, plan, op)? {
            Some(op) => op,
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    let weight = match weight {
        Some(weight) => weight,
        None => site.new_vector(vec![1.0; channels])?,
    };
    again(site, plan, op, weight, Some(bias)).map(Some)
}

/// An image and a constant of a number for each of its channels.
fn of_channels(site: &Site<'_>) -> Result<Option<(usize, Constant)>, Reason> {
    let (plan, constant) = match (site.operand(0)?, site.operand(1)?) {
        (Value::Image(Image { plan, flat: false }), Value::Constant(constant))
        | (Value::Constant(constant), Value::Image(Image { plan, flat: false })) => (*plan, constant),
        _ => return Ok(None),
    };
    let channels = site.plans.get(plan).channels;
    let is_of_channels = matches!(*constant.shape, [of, 1, 1] | [1, of, 1, 1] if of == channels && of > 1);
    Ok(constant.reshaped(&[channels]).filter(|_| is_of_channels).map(|constant| (plan, constant)))
}

/// A norm of images with a weight and a bias, where it has none or those that change nothing.
fn with_weights(site: &mut Site<'_>, plan: usize, op: Op) -> Result<Option<Op>, Reason> {
    match op {
        Op::InstanceNorm(norm) if !norm.affine => {
            Ok(Some(Op::InstanceNorm(InstanceNorm { affine: true, ..norm })))
        }
        Op::GroupNorm(norm) if !norm.affine => Ok(Some(Op::GroupNorm(GroupNorm { affine: true, ..norm }))),
        Op::InstanceNorm(_) | Op::GroupNorm(_) => {
            let is_plain =
                param_is(site, plan, ParamKind::Weight, 1.0)? && param_is(site, plan, ParamKind::Bias, 0.0)?;
            Ok(is_plain.then_some(op))
        }
        _ => Ok(None),
    }
}

/// A norm of images with a bias, where it has none or one of zeros.
fn with_bias(site: &mut Site<'_>, plan: usize, op: Op) -> Result<Option<Op>, Reason> {
    match op {
        Op::InstanceNorm(InstanceNorm { affine: true, .. })
        | Op::GroupNorm(GroupNorm { affine: true, .. }) => {
            Ok(param_is(site, plan, ParamKind::Bias, 0.0)?.then_some(op))
        }
        op => with_weights(site, plan, op),
    }
}

fn param_is(site: &mut Site<'_>, plan: usize, kind: ParamKind, number: f64) -> Result<bool, Reason> {
    let param = site.plans.get(plan).params.iter().find(|(of, _)| *of == kind);
    match param.map(|(_, constant)| constant.clone()) {
        Some(constant) => all_are(site, &constant, number),
        None => Ok(false),
    }
}

/// Whether a constant is this number everywhere.
pub(super) fn all_are(site: &mut Site<'_>, constant: &Constant, number: f64) -> Result<bool, Reason> {
    Ok(site.values(constant)?.iter().all(|value| *value == number))
}

/// The norm once more with these parameters, under its name: without them it is there for whoever else reads it.
fn again(
    site: &mut Site<'_>,
    plan: usize,
    op: Op,
    weight: Constant,
    bias: Option<Constant>,
) -> Result<Value, Reason> {
    let input = site.plans.get(plan).inputs.first();
    let bias = bias.map(|bias| (ParamKind::Bias, bias));
    let params = std::iter::once((ParamKind::Weight, weight)).chain(bias).collect();
    let plan = site.add_with(op, input, params)?;
    Ok(Value::Image(Image { plan, flat: false }))
}
