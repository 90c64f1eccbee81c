//! Convolutions, transposed convolutions, and padding, which the convolution behind it takes over where it can.

use std::cell::Cell;
use std::rc::Rc;

use tiled_graph::{Conv2d, ConvTranspose2d, Op, Pad, PadWith, PaddingMode, ParamKind};

use super::window::{Odd, Pads, Windows, group, signed, windows};
use super::{filled, part, response, row, sized};
use crate::Reason;
use crate::import::numbers::{Num, whole};
use crate::import::site::{Site, is_small, node_name};
use crate::import::value::{Constant, Image, Padded, Value};

pub(super) const CONV: &[&str] = &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];

pub(super) const CONV_TRANSPOSE: &[&str] =
    &["auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"];

pub(super) fn conv(site: &mut Site<'_>) -> Result<Value, Reason> {
    if let Some(made) = row::conv(site)? {
        return Ok(made);
    }
    let (weight, [out_channels, _, height, width]) = site.constant_of::<4>(1, WEIGHT)?;
    let windows = windows(site, Some([height, width]))?;
    let before = match site.operand(0)? {
        Value::Padded(padded) => taken_over(padded).map(|mode| (padded.plan, padded.pad.padding, mode)),
        _ => None,
    };
    let own = |site: &Site<'_>, plan: usize, padding: [[i64; 2]; 2]| {
        windows.padding(site.plans.get(plan).extents.map(|extents| with_padding(extents, padding)))
    };
    let (plan, padding, mode) = match before {
        Some((plan, padding, mode))
            if mode == PaddingMode::Zeros || own(site, plan, padding)? == [[0; 2]; 2] =>
        {
            (plan, padding, mode)
        }
        _ => (site.image(0)?, [[0; 2]; 2], PaddingMode::Zeros),
    };
    let (plan, own) = match windows.covered(site.plans.get(plan).extents) {
        Some(to) if padding == [[0; 2]; 2] => (sized::covered(site, plan, to, 0.0)?, [[0; 2]; 2]),
        _ => (plan, own(site, plan, padding)?),
    };
    let total = |axis: usize, side: usize| own[axis][side].saturating_add(padding[axis][side]);
    let op = Conv2d {
        out_channels,
        kernel_size: windows.kernel,
        stride: windows.stride,
        padding: [[total(0, 0), total(0, 1)], [total(1, 0), total(1, 1)]],
        dilation: windows.dilation,
        groups: group(site)?,
        bias: site.has(2),
        padding_mode: mode,
    };
    weighted(site, Op::Conv2d(op), plan, weight)
}

/// What ONNX pads or cuts unevenly is one padding and rows added behind, or cut there by a node of its own.
pub(super) fn conv_transpose(site: &mut Site<'_>) -> Result<Value, Reason> {
    let plan = site.image(0)?;
    let (weight, [_, of_group, height, width]) = site.constant_of::<4>(1, WEIGHT)?;
    let windows = windows(site, Some([height, width]))?;
    let added = site.pair("output_padding")?.unwrap_or([0, 0]);
    let cut = cut(site, plan, windows, added)?;
    let behind = [0, 1].map(|axis| added[axis].saturating_add(cut[axis][0]).saturating_sub(cut[axis][1]));
    let groups = group(site)?;
    let op = ConvTranspose2d {
        out_channels: of_group.saturating_mul(groups),
        kernel_size: windows.kernel,
        stride: windows.stride,
        padding: cut.map(|[before, _]| before),
        output_padding: behind.map(|rows| rows.max(0)),
        dilation: windows.dilation,
        groups,
        bias: site.has(2),
    };
    let made = weighted(site, Op::ConvTranspose2d(op), plan, weight)?;
    match made {
        // more is cut behind than before, as Keras' `same` does where the kernel is odd and the stride even
        Value::Image(Image { plan, flat }) if behind.iter().any(|rows| *rows < 0) => {
            let padding = behind.map(|rows| [0, rows.min(0)]);
            let plan = site.add(Op::Pad(Pad { padding, with: PadWith::Constant(0.0) }), vec![plan])?;
            Ok(Value::Image(Image { plan, flat }))
        }
        made => Ok(made),
    }
}

/// Rows and columns that are cut before and after the whole output `s·(n − 1) + d·(k − 1) + 1`, to which `added` come.
fn cut(site: &Site<'_>, plan: usize, windows: Windows, added: [i64; 2]) -> Result<[[i64; 2]; 2], Reason> {
    let wanted = site.pair("output_shape")?;
    let odd = match (windows.pads, wanted) {
        (Pads::Given(padding), None) => return Ok(padding),
        (Pads::Same(odd), _) => odd,
        // the larger half lies before, unless it is said to lie behind
        (Pads::Given(_), Some(_)) => Odd::Before,
    };
    let mut cut = [[0; 2]; 2];
    for axis in 0..2 {
        let stride = windows.stride[axis];
        let reach = windows.dilation[axis].saturating_mul(windows.kernel[axis] - 1);
        let extent = site.plans.get(plan).extents.map(|extents| signed(extents)[axis]);
        let total = match (wanted, extent) {
            // n·s are wanted, whatever n is
            (None, _) => reach.saturating_add(1 + added[axis]).saturating_sub(stride),
            (Some(wanted), Some(extent)) => {
                let whole = stride
                    .saturating_mul(extent.saturating_sub(1))
                    .saturating_add(reach + 1)
                    .saturating_add(added[axis]);
                whole.saturating_sub(wanted[axis])
            }
            (Some(_), None) => return Err(Reason::OpenSize { what: "the padding of output_shape" }),
        };
        // runtimes do not agree on where it lies that no window reaches
        if total < 0 && wanted.is_none() {
            let expected = "windows that reach as far as the stride, or output_shape";
            let got = format!("{} of {}", reach.saturating_add(1), stride);
            return Err(Reason::Attribute { name: "auto_pad", expected, got });
        }
        // what is more than all of it lies behind
        cut[axis] = if total < 0 { [0, total] } else { odd.halves(total) };
    }
    Ok(cut)
}

/// How a convolution pads the same; `None` where it cannot.
fn taken_over(padded: &Padded) -> Option<PaddingMode> {
    let mode = match padded.pad.with {
        PadWith::Constant(0.0) => PaddingMode::Zeros,
        PadWith::Reflect => PaddingMode::Reflect,
        PadWith::Replicate => PaddingMode::Replicate,
        PadWith::Constant(_) | PadWith::Circular => return None,
    };
    padded.pad.padding.iter().flatten().all(|side| *side >= 0).then_some(mode)
}

/// Padding of rows and columns waits for a convolution, or where it is below all numbers for a max pooling, or becomes a node where something else reads it.
pub(super) fn pad(site: &mut Site<'_>) -> Result<Value, Reason> {
    let value = if site.has(2) { site.number(2)? } else { site.float("value", 0.0)? };
    let with = match site.text("mode", "constant")?.as_str() {
        "constant" => PadWith::Constant(value),
        "reflect" => PadWith::Reflect,
        "edge" => PadWith::Replicate,
        "wrap" => PadWith::Circular,
        got => {
            let expected = "constant, reflect, edge or wrap";
            return Err(Reason::Attribute { name: "mode", expected, got: got.to_owned() });
        }
    };
    let squares = match *site.operand(0)? {
        Value::Response(response) => Some(response),
        _ => None,
    };
    if let Some(squares) = squares {
        let pads = if site.has(1) { site.whole(1)? } else { site.ints("pads")?.unwrap_or_default() };
        let is_zero = with == PadWith::Constant(0.0) && !site.has(3);
        return match response::padded(squares, &pads) {
            Some(made) if is_zero => Ok(made),
            _ => site.wrong(0, "squares with zeros before and behind the channels"),
        };
    }
    let Image { plan, flat } = site.value(0)?;
    let pads: Vec<Num> = if site.has(1) {
        site.numbers(1)?.items.clone()
    } else {
        site.ints("pads")?.unwrap_or_default().into_iter().map(|side| Num::Known(side as f64)).collect()
    };
    if pads.iter().all(|side| *side == Num::Known(0.0)) {
        return Ok(Value::Image(Image { plan, flat }));
    }
    let axes = if site.has(3) { site.whole(3)? } else { vec![0, 1, 2, 3] };
    part::check_once(&axes, 4)?;
    let known = |site: &Site<'_>, side: &Num| {
        side.known(&site.plans.extents).and_then(whole).filter(|side| is_small(*side))
    };
    let wrong = |site: &Site<'_>| {
        let got: Option<Vec<i64>> = pads.iter().map(|side| known(site, side)).collect();
        let (expected, got) = ("before and after of height and width alone", got.unwrap_or_default());
        Err(Reason::Attribute { name: "pads", expected, got: format!("{got:?}") })
    };
    if flat || pads.len() != 2 * axes.len() {
        return wrong(site);
    }
    let mut plan = plan;
    let mut sides = [[Num::Known(0.0); 2]; 2];
    for (place, axis) in axes.iter().enumerate() {
        let given = [pads[place], pads[place + axes.len()]];
        match axis {
            2 | -2 => sides[0] = given,
            3 | -1 => sides[1] = given,
            _ if given == [Num::Known(0.0); 2] => {}
            1 | -3 => match filled::padded(site, plan, given, with)? {
                Some(padded) => plan = padded,
                None => return wrong(site),
            },
            _ => return wrong(site),
        }
    }
    if sides == [[Num::Known(0.0); 2]; 2] {
        return Ok(Value::Image(Image { plan, flat }));
    }
    let mut padding = [[0; 2]; 2];
    for (side, padding) in sides.iter().flatten().zip(padding.iter_mut().flatten()) {
        match (side, known(site, side)) {
            (_, Some(side)) => *padding = side,
            (Num::Known(_), None) => return wrong(site),
            // it follows from the size of the image
            _ if with == PadWith::Constant(f64::NEG_INFINITY) => {
                // no number is below this one, which no other layer than a max pooling gets to see
                let plan = sized::pad(site, plan, sides, PadWith::Constant(f64::MIN))?;
                return Ok(waiting(site, plan, Pad { padding: [[0; 2]; 2], with }));
            }
            _ => {
                let plan = sized::pad(site, plan, sides, with)?;
                return Ok(Value::Image(Image { plan, flat }));
            }
        }
    }
    Ok(waiting(site, plan, Pad { padding, with }))
}

/// A value with padding that another layer may take over.
fn waiting(site: &Site<'_>, plan: usize, pad: Pad) -> Value {
    let name = node_name(site.node).to_owned();
    Value::Padded(Rc::new(Padded { plan, pad, name, made: Cell::new(None) }))
}

/// The operator with its weight and, where there is one, its bias.
fn weighted(site: &mut Site<'_>, op: Op, plan: usize, weight: Constant) -> Result<Value, Reason> {
    let mut params = vec![(ParamKind::Weight, weight)];
    if site.has(2) {
        params.push((ParamKind::Bias, site.constant(2)?));
    }
    let plan = site.add_with(op, plan, params)?;
    Ok(Value::Image(Image { plan, flat: false }))
}

fn with_padding(extents: [usize; 2], padding: [[i64; 2]; 2]) -> [usize; 2] {
    let padded = |axis: usize| signed(extents)[axis].saturating_add(padding[axis].iter().sum());
    [0, 1].map(|axis| usize::try_from(padded(axis)).unwrap_or_default())
}

const WEIGHT: &str = "a constant of four axes: convolutions are of images";
