//! Functions of every element.

use std::rc::Rc;

use tiled_graph::{Activation, Elementwise, Op, Operand, ParamKind, Prelu, WithOperand};

use crate::Reason;
use crate::import::form::{Form, Function, Recognised};
use crate::import::numbers::{Binary, Num, Numbers};
use crate::import::site::{Site, node_name};
use crate::import::value::{Image, Value};

pub(super) fn relu(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Relu)
}

pub(super) fn leaky_relu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let slope = site.float("alpha", 0.01)?;
    activation(site, Activation::LeakyRelu { slope })
}

pub(super) fn abs(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Abs)
}

pub(super) fn celu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let alpha = site.float("alpha", 1.0)?;
    activation(site, Activation::Celu { alpha })
}

/// Bounds are attributes, then operands from version 11 on; sizes are held between them too.
pub(super) fn clip(site: &mut Site<'_>) -> Result<Value, Reason> {
    let mut bound = |position: usize, name: &'static str, none: f64| {
        if site.has(position) {
            return site.number(position);
        }
        if site.attribute(name).is_some() { site.float(name, 0.0) } else { Ok(none) }
    };
    let min = bound(1, "min", f64::NEG_INFINITY)?;
    let max = bound(2, "max", f64::INFINITY)?;
    if let Value::Numbers(numbers) = site.operand(0)? {
        let (numbers, extents) = (Rc::clone(numbers), &mut site.plans.extents);
        let mut items = Vec::with_capacity(numbers.items.len());
        for item in &numbers.items {
            let mut held = *item;
            for (binary, bound) in [(Binary::Max, min), (Binary::Min, max)] {
                if bound.is_finite() {
                    held = held.combined(binary, Num::Known(bound), numbers.is_integer, extents)?;
                }
            }
            items.push(held);
        }
        return Ok(Value::Numbers(Rc::new(Numbers { items, ..*numbers })));
    }
    activation(site, Activation::Clamp { min, max })
}

pub(super) fn elu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let alpha = site.float("alpha", 1.0)?;
    activation(site, Activation::Elu { alpha })
}

pub(super) fn exp(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Exp)
}

/// `min(max(α·x + β, 0), 1)`; with 1/6 and 1/2 that of PyTorch.
pub(super) fn hard_sigmoid(site: &mut Site<'_>) -> Result<Value, Reason> {
    let (alpha, beta) = (site.float("alpha", 0.2)?, site.float("beta", 0.5)?);
    if (alpha - 1.0 / 6.0).abs() < 1e-7 && beta == 0.5 {
        return activation(site, Activation::HardSigmoid);
    }
    let scaled = with_number(Elementwise::Mul, alpha);
    let moved = with_number(Elementwise::Add, beta);
    let Image { plan, flat } = site.value(0)?;
    let clamped = Op::Activation(Activation::Clamp { min: 0.0, max: 1.0 });
    let plan = site.chain(&[scaled, moved, clamped], plan)?;
    Ok(Value::Image(Image { plan, flat }))
}

pub(super) fn hard_swish(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::HardSwish)
}

pub(super) fn log(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Log)
}

pub(super) fn mish(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Mish)
}

pub(super) fn neg(site: &mut Site<'_>) -> Result<Value, Reason> {
    if site.is_numbers(0) {
        let (numbers, zero) = (site.numbers(0)?, Num::Known(0.0));
        let extents = &mut site.plans.extents;
        let negated =
            |item: &Num| zero.combined(Binary::Sub, *item, numbers.is_integer, extents).map_err(Reason::from);
        let items = numbers.items.iter().map(negated).collect::<Result<_, _>>()?;
        return Ok(Value::Numbers(Rc::new(Numbers { items, ..*numbers })));
    }
    activation(site, Activation::Neg)
}

/// One slope, or one for each channel.
pub(super) fn prelu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let Image { plan, flat } = site.value(0)?;
    let slope = site.constant(1)?;
    let channels = site.plans.get(plan).channels;
    let count: usize = slope.shape.iter().product();
    let is_per_channel = count != 1;
    if is_per_channel && !slope.is_per_channel(channels, flat) {
        return site.wrong(1, "one slope, or one for each channel");
    }
    let Some(slope) = slope.reshaped(&[count]) else {
        return site.wrong(1, "one slope, or one for each channel");
    };
    let op = Op::Prelu(Prelu { num_parameters: count, ..Prelu::default() });
    let plan = site.add_with(op, plan, vec![(ParamKind::Weight, slope)])?;
    Ok(Value::Image(Image { plan, flat }))
}

pub(super) fn reciprocal(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Reciprocal)
}

/// `γ·elu(x)`, with the constants of its authors where none are given.
pub(super) fn selu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let (alpha, gamma) = (site.float("alpha", 1.673_263_2)?, site.float("gamma", 1.050_701)?);
    if (alpha - 1.673_263_2).abs() < 1e-5 && (gamma - 1.050_701).abs() < 1e-5 {
        return activation(site, Activation::Selu);
    }
    let Image { plan, flat } = site.value(0)?;
    let scaled = with_number(Elementwise::Mul, gamma);
    let plan = site.chain(&[Op::Activation(Activation::Elu { alpha }), scaled], plan)?;
    Ok(Value::Image(Image { plan, flat }))
}

pub(super) fn softplus(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, SOFTPLUS)
}

/// From 40 on, `ln(1 + e^x)` is x in every type.
pub(super) const SOFTPLUS: Activation = Activation::Softplus { beta: 1.0, threshold: 40.0 };

pub(super) fn softsign(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Softsign)
}

pub(super) fn thresholded_relu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let threshold = site.float("alpha", 1.0)?;
    activation(site, Activation::Threshold { threshold, value: 0.0 })
}

pub(super) fn gelu(site: &mut Site<'_>) -> Result<Value, Reason> {
    match site.text("approximate", "none")?.as_str() {
        "none" => activation(site, Activation::Gelu),
        "tanh" => activation(site, Activation::GeluTanh),
        got => {
            let (name, expected) = ("approximate", "\"none\" or \"tanh\"");
            Err(Reason::Attribute { name, expected, got: format!("{got:?}") })
        }
    }
}

/// `x·sigmoid(α·x)`.
pub(super) fn swish(site: &mut Site<'_>) -> Result<Value, Reason> {
    let alpha = site.float("alpha", 1.0)?;
    if alpha == 1.0 {
        return activation(site, Activation::Silu);
    }
    let Image { plan, flat } = site.value(0)?;
    let gate = [with_number(Elementwise::Mul, alpha), Op::Activation(Activation::Sigmoid)];
    let gate = site.chain(&gate, plan)?;
    let made = site.add(Op::Mul, vec![plan, gate])?;
    site.plans.rename(made, gate);
    Ok(Value::Image(Image { plan: made, flat }))
}

/// Its operand may be arithmetic too, of which it makes an activation.
pub(super) fn sigmoid(site: &mut Site<'_>) -> Result<Value, Reason> {
    function(site, Function::Sigmoid, Some(Activation::Sigmoid))
}

pub(super) fn tanh(site: &mut Site<'_>) -> Result<Value, Reason> {
    function(site, Function::Tanh, Some(Activation::Tanh))
}

pub(super) fn erf(site: &mut Site<'_>) -> Result<Value, Reason> {
    function(site, Function::Erf, None)
}

fn with_number(function: Elementwise, number: f64) -> Op {
    Op::WithOperand(WithOperand { function, operand: Operand::Number(number), reversed: false })
}

pub(super) fn activation(site: &mut Site<'_>, activation: Activation) -> Result<Value, Reason> {
    let Image { plan, flat } = site.value(0)?;
    let plan = site.add(Op::Activation(activation), vec![plan])?;
    Ok(Value::Image(Image { plan, flat }))
}

/// A function that is an activation of a value of the network, and a form of what arithmetic makes.
fn function(site: &mut Site<'_>, function: Function, alone: Option<Activation>) -> Result<Value, Reason> {
    site.settle()?;
    let mut forms: Vec<Form> = site.forms(0)?.iter().filter_map(|form| form.under(function)).collect();
    if forms.is_empty() {
        site.multiples()?;
        forms = site.forms(0)?.iter().filter_map(|form| form.under(function)).collect();
    }
    match (alone, site.operand(0)?) {
        (Some(alone), Value::Image(_)) => {
            let made = activation(site, alone)?;
            Ok(formed(site, made, forms))
        }
        _ if forms.is_empty() => site.wrong(0, "a value of the network"),
        _ => of_forms(site, forms),
    }
}

/// What is made, with what it is of other values.
pub(super) fn formed(site: &mut Site<'_>, made: Value, forms: Vec<Form>) -> Value {
    if let Value::Image(Image { plan, .. }) = made {
        site.plans.set_forms(plan, forms);
    }
    made
}

/// What forms stand for: an activation, the value itself, or arithmetic that later nodes go on with.
pub(super) fn of_forms(site: &mut Site<'_>, forms: Vec<Form>) -> Result<Value, Reason> {
    let known = forms.iter().find_map(|form| Some((form.recognised()?, form.x()?, form.flat)));
    match known {
        Some((Recognised::Itself, plan, flat)) => Ok(Value::Image(Image { plan, flat })),
        Some((Recognised::Activation(activation), plan, flat)) => {
            let plan = site.add(Op::Activation(activation), vec![plan])?;
            Ok(Value::Image(Image { plan, flat }))
        }
        None => {
            let (operator, node) = (site.node.op_type(), node_name(site.node));
            let forms = forms.into_iter().map(|form| form.made_by(operator, node));
            Ok(Value::Form(forms.collect()))
        }
    }
}
