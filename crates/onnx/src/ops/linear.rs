//! Linear layers over values of two axes, also over all features of an image of known size: `Gemm`, and `MatMul`, whose sum with numbers is its bias.

use tiled_graph::{Conv2d, Elementwise, Linear, Op, ParamKind};

use super::arithmetic::of_values;
use super::{last, pixels};
use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Constant, Image, Last, Order, Value};

/// `x·W + b`, or `x·Wᵀ + b`.
pub(super) fn gemm(site: &mut Site<'_>) -> Result<Value, Reason> {
    for name in ["alpha", "beta"] {
        let factor = site.float(name, 1.0)?;
        if factor != 1.0 && (name == "alpha" || site.has(2)) {
            return Err(Reason::Attribute { name, expected: "1", got: factor.to_string() });
        }
    }
    site.only("transA", 0, 0, "0")?;
    let is_transposed = site.flag("transB", false)?;
    let plan = flat(site)?;
    let weight = weight(site, is_transposed)?;
    let bias = if site.has(2) { Some(bias(site, weight.shape[0])?) } else { None };
    linear(site, plan, weight, bias)
}

pub(super) fn mat_mul(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = pixels::product(site)? {
        return Ok(made);
    }
    let is_joined = |position: usize| {
        let operand = site.operands.get(position);
        matches!(operand, Some(Some(Value::Grouped(_) | Value::Last(Last { order: Order::Joined, .. }))))
    };
    if is_joined(1) || (is_joined(0) && !matches!(site.operand(1)?, Value::Constant(_))) {
        return site.wrong(usize::from(is_joined(1)), last::PIXELS_APART);
    }
    if let Some(made) = outer(site)? {
        return Ok(made);
    }
    if let Some((plan, order)) = last::image(site, 0)? {
        return Ok(last::of_image(pointwise(site, plan)?, order));
    }
    let plan = flat(site)?;
    let weight = weight(site, false)?;
    linear(site, plan, weight, None)
}

/// A column times a row, N×C×H×1 by N×C×1×W: all their products; `None` of other values.
fn outer(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let (Value::Image(a), Value::Image(b)) = (site.operand(0)?, site.operand(1)?) else { return Ok(None) };
    let (a, b) = (*a, *b);
    let is_outer =
        !a.flat && !b.flat && site.plans.is_always_one(a.plan, 3) && site.plans.is_always_one(b.plan, 2);
    if !is_outer {
        return Ok(None);
    }
    of_values(site, Elementwise::Mul, &[a, b]).map(|made| Some(Value::Image(made)))
}

/// Over the channels of every pixel: a convolution of one tap.
fn pointwise(site: &mut Site<'_>, plan: usize) -> Result<usize, Reason> {
    let weight = weight(site, false)?;
    let [outputs, inputs] = [weight.shape[0], weight.shape[1]];
    let op = Op::Conv2d(Conv2d { bias: false, ..Conv2d::new(outputs, [1, 1]) });
    let weight = Constant { shape: [outputs, inputs, 1, 1].into(), ..weight };
    site.add_with(op, plan, vec![(ParamKind::Weight, weight)])
}

fn linear(
    site: &mut Site<'_>,
    plan: usize,
    weight: Constant,
    bias: Option<Constant>,
) -> Result<Value, Reason> {
    let is_pixel = site.plans.get(plan).extents == Some([1, 1]);
    let in_features = (!is_pixel).then(|| weight.shape[1]);
    let op = Op::Linear(Linear { out_features: weight.shape[0], in_features, bias: bias.is_some() });
    let bias = bias.map(|bias| (ParamKind::Bias, bias));
    let params = std::iter::once((ParamKind::Weight, weight)).chain(bias).collect();
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat: true }))
}

fn flat(site: &mut Site<'_>) -> Result<usize, Reason> {
    match site.value(0)? {
        Image { plan, flat: true } => Ok(plan),
        Image { flat: false, .. } => site.wrong(0, "a value of two axes, N×C"),
    }
}

/// A network's weight has a row for each output; ONNX's a column, unless it is transposed.
fn weight(site: &Site<'_>, is_transposed: bool) -> Result<Constant, Reason> {
    let (constant, [rows, columns]) = site.constant_of::<2>(1, "a constant of two axes")?;
    if is_transposed {
        return Ok(constant);
    }
    Ok(Constant { shape: [columns, rows].into(), transposed: !constant.transposed, ..constant })
}

/// A number for each output.
fn bias(site: &Site<'_>, outputs: usize) -> Result<Constant, Reason> {
    let constant = site.constant(2)?;
    match (constant.shape.as_ref(), constant.reshaped(&[outputs])) {
        ([len], Some(bias)) | ([1, len], Some(bias)) if *len == outputs => Ok(bias),
        _ => site.wrong(2, "a constant with a number for each output"),
    }
}
