//! Norms of groups of channels: of their own, and as an instance norm of a value in three axes, N×G×(C/G·H·W), which exporters
//! write for older versions.

use tiled_graph::{GroupNorm, InstanceNorm, Op, ParamKind};

use super::norm::all_are;
use crate::Reason;
use crate::import::numbers::Num;
use crate::import::site::Site;
use crate::import::value::{Constant, Grouped, Image, Value};

pub(super) const GROUP_NORM: &[&str] = &["epsilon", "num_groups", "stash_type"];

/// Weight and bias are of channels, and before version 21 of groups.
pub(super) fn group_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let got = site.int("num_groups", 0)?;
    let Ok(num_groups) = usize::try_from(got) else {
        let (name, expected) = ("num_groups", "a number of groups");
        return Err(Reason::Attribute { name, expected, got: got.to_string() });
    };
    let eps = site.float("epsilon", 1e-5)?;
    let mut params = Vec::new();
    for (position, kind) in [(1, ParamKind::Weight), (2, ParamKind::Bias)] {
        let constant = site.constant(position)?;
        let constant =
            if site.opset < 21 { of_channels(site, plan, num_groups, &constant)? } else { constant };
        params.push((kind, constant));
    }
    let op = Op::GroupNorm(GroupNorm { num_groups, eps, affine: true });
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

/// Of each channel, or of each group where the channels of a value were joined to groups.
pub(super) fn instance_norm(site: &mut Site<'_>) -> Result<Value, Reason> {
    let eps = site.float("epsilon", 1e-5)?;
    let constants = [site.constant(1)?, site.constant(2)?];
    if let Value::Grouped(Grouped { plan, groups }) = *site.operand(0)? {
        let is_plain = all_are(site, &constants[0], 1.0)? && all_are(site, &constants[1], 0.0)?;
        let mut params = Vec::new();
        if !is_plain {
            for (kind, constant) in [ParamKind::Weight, ParamKind::Bias].into_iter().zip(&constants) {
                params.push((kind, of_channels(site, plan, groups, constant)?));
            }
        }
        let op = Op::GroupNorm(GroupNorm { num_groups: groups, eps, affine: !is_plain });
        let plan = site.add_with(op, plan, params)?;
        return Ok(Value::Grouped(Grouped { plan, groups }));
    }
    let plan = site.image(0)?;
    let op = Op::InstanceNorm(InstanceNorm { eps, affine: true, ..InstanceNorm::default() });
    let params = [ParamKind::Weight, ParamKind::Bias].into_iter().zip(constants).collect();
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

/// A number for each group as one for each channel.
fn of_channels(
    site: &mut Site<'_>,
    plan: usize,
    groups: usize,
    constant: &Constant,
) -> Result<Constant, Reason> {
    let channels = site.plans.get(plan).channels;
    if *constant.shape != [groups] || groups == 0 || !channels.is_multiple_of(groups) || groups == channels {
        return Ok(constant.clone());
    }
    let values = site.values(constant)?;
    let values = values.iter().flat_map(|value| std::iter::repeat_n(*value, channels / groups));
    site.new_vector(values.collect())
}

/// `[N, G, −1]` of a batch of images, and back.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    match *site.operand(0)? {
        Value::Image(Image { plan, flat: false }) if site.is_numbers(1) => {
            let shape = site.numbers(1)?;
            let [batch, Num::Known(groups), rest] = shape.items.as_slice() else {
                return Ok(None);
            };
            let channels = site.plans.get(plan).channels;
            // what is left of the elements is the channels of a group and the pixels
            let is_rest = matches!(rest, Num::Open | Num::Area(_) | Num::Known(-1.0))
                || (*groups == channels as f64 && site.plans.is_pixels(*rest, plan));
            if !is_rest {
                return Ok(None);
            }
            let divides = |groups: &usize| channels.is_multiple_of(*groups);
            match (1..=channels).find(|count| *count as f64 == *groups).filter(divides) {
                Some(groups) if site.plans.is_batch(*batch) => {
                    Ok(Some(Value::Grouped(Grouped { plan, groups })))
                }
                _ => Ok(None),
            }
        }
        Value::Grouped(Grouped { plan, .. }) => {
            let shape = site.numbers(1)?;
            let [batch, channels, height, width] = shape.items.as_slice() else {
                return site.wrong(1, "the batch, the channels, height and width");
            };
            let is_open = |item: &Num| *item == Num::Known(-1.0);
            let of_plan = |item: &Num, axis: usize| site.plans.is_extent(*item, plan, axis);
            let is_channels = *channels == Num::Known(site.plans.get(plan).channels as f64);
            let is_image = site.plans.is_batch(*batch)
                && (is_channels || is_open(channels))
                && (of_plan(height, 2) || is_open(height))
                && (of_plan(width, 3) || is_open(width))
                && shape.items.iter().filter(|item| is_open(item)).count() < 2;
            if is_image {
                return Ok(Some(Value::Image(Image { plan, flat: false })));
            }
            site.wrong(1, "the batch, the channels, height and width")
        }
        _ => Ok(None),
    }
}
