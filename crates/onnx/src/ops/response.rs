//! Local response norm as PyTorch's exporters write it: squares in five axes, N×1×C×H×W, which are padded and averaged along the
//! channels, then `x/(k + α·mean)^β`.

use tiled_graph::{LocalResponseNorm, Op};

use crate::Reason;
use crate::import::numbers::Num;
use crate::import::site::Site;
use crate::import::value::{Image, Responding, Response, Value};

/// Squares to five axes, and their means back to four; `None` of other values and shapes.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let (plan, is_squares) = match site.operand(0)? {
        Value::Image(Image { plan, flat: false }) => match square_of(site, *plan) {
            Some(x) => (x, true),
            None => return Ok(None),
        },
        Value::Response(Response { plan, step: Responding::Mean { has_axis: false, .. } }) => (*plan, false),
        _ => return Ok(None),
    };
    let shape = site.numbers(1)?;
    let channels = Num::Known(site.plans.get(plan).channels as f64);
    let is = |item: &Num, axis| *item == Num::Known(-1.0) || site.plans.is_extent(*item, plan, axis);
    let is_batch = |item: &Num| *item == Num::Known(-1.0) || site.plans.is_batch(*item);
    let open = shape.items.iter().filter(|item| **item == Num::Known(-1.0)).count();
    Ok(match (is_squares, shape.items.as_slice()) {
        _ if open > 1 => None,
        (true, [n, one, c, h, w])
            if is_batch(n) && *one == Num::Known(1.0) && *c == channels && is(h, 2) && is(w, 3) =>
        {
            let step = Responding::Squares { padding: [0, 0] };
            Some(Value::Response(Response { plan, step }))
        }
        (false, [n, c, h, w]) if is_batch(n) && *c == channels && is(h, 2) && is(w, 3) => {
            Some(site.operand(0)?.clone())
        }
        _ => None,
    })
}

/// The value that this one is the square of.
fn square_of(site: &Site<'_>, plan: usize) -> Option<usize> {
    let square = |form: &crate::import::form::Form| form.is_square().then(|| form.x()).flatten();
    site.plans.get(plan).forms.iter().find_map(square)
}

/// The extents of a step: five, or four once the axis is dropped.
pub(super) fn extents(site: &Site<'_>, Response { plan, step }: &Response) -> Vec<Num> {
    let (has_axis, more) = match *step {
        Responding::Squares { padding: [before, after] } => (true, before.saturating_add(after)),
        Responding::Mean { has_axis, .. } => (has_axis, 0),
    };
    let channels = site.plans.get(*plan).channels as f64 + more as f64;
    let [batch, height, width] = [0, 2, 3].map(|axis| site.plans.extent(*plan, axis));
    let axis = has_axis.then_some(Num::Known(1.0));
    std::iter::once(batch).chain(axis).chain([Num::Known(channels), height, width]).collect()
}

/// Squares with zeros before and behind the channels.
pub(super) fn padded(squares: Response, pads: &[i64]) -> Option<Value> {
    let Responding::Squares { padding: [before, after] } = squares.step else { return None };
    let [0, 0, more, 0, 0, 0, 0, behind, 0, 0] = *pads else { return None };
    let padding = [before.checked_add(more)?, after.checked_add(behind)?];
    (more >= 0 && behind >= 0)
        .then_some(Value::Response(Response { step: Responding::Squares { padding }, ..squares }))
}

/// Their means along the channels, as many as there are channels.
pub(super) fn averaged(site: &Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Response(Response { plan, step: Responding::Squares { padding } }) = *site.operand(0)? else {
        return Ok(None);
    };
    let kernel = site.small_ints("kernel_shape")?.unwrap_or_default();
    let strides = site.small_ints("strides")?.unwrap_or_else(|| vec![1; 3]);
    let pads = site.small_ints("pads")?.unwrap_or_else(|| vec![0; 6]);
    let is_plain = strides == [1; 3] && pads == [0; 6] && site.text("auto_pad", "NOTSET")? == "NOTSET";
    match *kernel.as_slice() {
        // as PyTorch has it: of an even size one more before
        [size, 1, 1] if is_plain && size > 0 && padding == [size / 2, (size - 1) / 2] => {
            let step = Responding::Mean { size, has_axis: true, alpha: 1.0, k: 0.0, beta: None };
            Ok(Some(Value::Response(Response { plan, step })))
        }
        _ => site.wrong(0, "squares padded for means of as many channels as there are"),
    }
}

/// The means without the axis that was added; `None` of other values.
pub(super) fn dropped(site: &Site<'_>, axes: Option<&[i64]>) -> Result<Option<Value>, Reason> {
    let Value::Response(Response { plan, step: Responding::Mean { size, has_axis: true, alpha, k, beta } }) =
        *site.operand(0)?
    else {
        return Ok(None);
    };
    let step = Responding::Mean { size, has_axis: false, alpha, k, beta };
    Ok(matches!(axes, Some([1 | -4])).then_some(Value::Response(Response { plan, step })))
}

/// The means times α, which stands before k.
pub(super) fn product(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    with_number(site, |step, factor| match step {
        Responding::Mean { size, has_axis, alpha, k: 0.0, beta: None } => {
            Some(Responding::Mean { size, has_axis, alpha: alpha * factor, k: 0.0, beta: None })
        }
        _ => None,
    })
}

/// The same and k.
pub(super) fn sum(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    with_number(site, |step, number| match step {
        Responding::Mean { size, has_axis, alpha, k, beta: None } => {
            Some(Responding::Mean { size, has_axis, alpha, k: k + number, beta: None })
        }
        _ => None,
    })
}

/// A rule of means and a number, on either side.
fn with_number(
    site: &mut Site<'_>,
    rule: impl Fn(Responding, f64) -> Option<Responding>,
) -> Result<Option<Value>, Reason> {
    for (position, other) in [(0, 1), (1, 0)] {
        let Value::Response(Response { plan, step }) = *site.operand(position)? else { continue };
        if let Some(number) = site.scalar(other)?
            && let Some(step) = rule(step, number)
        {
            return Ok(Some(Value::Response(Response { plan, step })));
        }
    }
    Ok(None)
}

/// All of that to the power β.
pub(super) fn raised(site: &Site<'_>, exponent: f64) -> Result<Option<Value>, Reason> {
    Ok(match *site.operand(0)? {
        Value::Response(Response {
            plan,
            step: Responding::Mean { size, has_axis, alpha, k, beta: None },
        }) => {
            let step = Responding::Mean { size, has_axis, alpha, k, beta: Some(exponent) };
            Some(Value::Response(Response { plan, step }))
        }
        _ => None,
    })
}

/// The value by that power: the norm.
pub(super) fn quotient(site: &mut Site<'_>) -> Result<Option<Value>, Reason> {
    let Value::Response(Response { plan, step }) = *site.operand(1)? else { return Ok(None) };
    let (
        Value::Image(Image { plan: of, flat: false }),
        Responding::Mean { size, has_axis: false, alpha, k, beta },
    ) = (site.operand(0)?, step)
    else {
        return Ok(None);
    };
    if *of != plan {
        return site.wrong(0, "the value whose squares were averaged");
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let op = Op::LocalResponseNorm(LocalResponseNorm { size, alpha, beta: beta.unwrap_or(1.0), k });
    let plan = site.add(op, vec![plan])?;
    Ok(Some(Value::Image(Image { plan, flat: false })))
}
