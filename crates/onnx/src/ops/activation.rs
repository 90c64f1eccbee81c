//! Functions of every element.

use std::rc::Rc;

use tiled_graph::{Activation, Op};

use crate::Reason;
use crate::import::form::{Form, Function, Recognised};
use crate::import::site::{Site, node_name};
use crate::import::value::{Image, Value};

pub(super) fn relu(site: &mut Site<'_>) -> Result<Value, Reason> {
    activation(site, Activation::Relu)
}

pub(super) fn leaky_relu(site: &mut Site<'_>) -> Result<Value, Reason> {
    let slope = site.float("alpha", 0.01)?;
    activation(site, Activation::LeakyRelu { slope })
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

pub(super) fn swish(site: &mut Site<'_>) -> Result<Value, Reason> {
    let alpha = site.float("alpha", 1.0)?;
    if alpha == 1.0 {
        return activation(site, Activation::Silu);
    }
    Err(Reason::Attribute { name: "alpha", expected: "1", got: alpha.to_string() })
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

fn activation(site: &mut Site<'_>, activation: Activation) -> Result<Value, Reason> {
    let Image { plan, flat } = site.value(0)?;
    let plan = site.add(Op::Activation(activation), vec![plan])?;
    Ok(Value::Image(Image { plan, flat }))
}

/// A function that is an activation of a value of the network, and a form of what arithmetic makes.
fn function(site: &mut Site<'_>, function: Function, alone: Option<Activation>) -> Result<Value, Reason> {
    let forms = site.forms(0)?;
    let form = forms.iter().find(|form| form.x().is_some()).and_then(|form| form.under(function));
    match (alone, site.operand(0)?) {
        (Some(alone), Value::Image(_)) => {
            let made = activation(site, alone)?;
            if let Value::Image(Image { plan, .. }) = made {
                site.plans.set_form(plan, form);
            }
            Ok(made)
        }
        _ => match form {
            Some(form) => of_form(site, form),
            None => site.wrong(0, "a value of the network"),
        },
    }
}

/// What a form stands for: an activation, the value itself, or arithmetic that later nodes go on with.
pub(super) fn of_form(site: &mut Site<'_>, form: Form) -> Result<Value, Reason> {
    match (form.recognised(), form.x()) {
        (Some(Recognised::Itself), Some(plan)) => Ok(Value::Image(Image { plan, flat: form.flat })),
        (Some(Recognised::Activation(activation)), Some(plan)) => {
            let made = site.add(Op::Activation(activation), vec![plan])?;
            Ok(Value::Image(Image { plan: made, flat: form.flat }))
        }
        _ => {
            let form = form.made_by(site.node.op_type(), node_name(site.node));
            Ok(Value::Form(Rc::new(form)))
        }
    }
}
