//! `relu`, `gelu`, `clamp`, `pow` and the other functions of one element: `y = f(x)`, with the attributes of [`Activation`].

use serde_json::{Value, json};
use tiled_kernel::{Activation, Epilogue, Kernel};

use super::check::out_of_range;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Saved;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{NodeId, NodeKind};
use crate::shapes::Shapes;

const fn format(name: &'static str, keys: &'static [&'static str]) -> Format {
    Format { name, arity: Arity::Exactly(1), keys }
}

pub(super) static RELU: Format = format("relu", &[]);
pub(super) static LEAKY_RELU: Format = format("leaky_relu", &["negative_slope"]);
pub(super) static SIGMOID: Format = format("sigmoid", &[]);
pub(super) static TANH: Format = format("tanh", &[]);
pub(super) static SILU: Format = format("silu", &[]);
pub(super) static GELU: Format = format("gelu", &["approximate"]);

pub(super) static RELU6: Format = format("relu6", &[]);
pub(super) static CLAMP: Format = format("clamp", &["min", "max"]);
pub(super) static HARDTANH: Format = format("hardtanh", &["min_val", "max_val"]);
pub(super) static THRESHOLD: Format = format("threshold", &["threshold", "value"]);
pub(super) static ELU: Format = format("elu", &["alpha"]);
pub(super) static SELU: Format = format("selu", &[]);
pub(super) static CELU: Format = format("celu", &["alpha"]);
pub(super) static SOFTPLUS: Format = format("softplus", &["beta", "threshold"]);
pub(super) static SOFTSIGN: Format = format("softsign", &[]);
pub(super) static HARDSIGMOID: Format = format("hardsigmoid", &[]);
pub(super) static HARDSWISH: Format = format("hardswish", &[]);
pub(super) static MISH: Format = format("mish", &[]);
pub(super) static LOGSIGMOID: Format = format("logsigmoid", &[]);
pub(super) static EXP: Format = format("exp", &[]);
pub(super) static LOG: Format = format("log", &[]);
pub(super) static SQRT: Format = format("sqrt", &[]);
pub(super) static ABS: Format = format("abs", &[]);
pub(super) static NEG: Format = format("neg", &[]);
pub(super) static RECIPROCAL: Format = format("reciprocal", &[]);
pub(super) static POW: Format = format("pow", &["exponent"]);

/// What `relu6` clamps to.
pub(super) const OF_RELU6: Activation = Activation::Clamp { min: 0.0, max: 6.0 };

pub(super) fn read_leaky_relu(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    Ok(Activation::LeakyRelu { slope: fields.number("negative_slope", 0.01)? })
}

pub(super) fn read_gelu(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    let choices = [("none", Activation::Gelu), ("tanh", Activation::GeluTanh)];
    fields.choice("approximate", "\"none\" or \"tanh\"", &choices, Activation::Gelu)
}

pub(super) fn read_clamp(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    let bound = |key| fields.number_or_null(key, None);
    let (min, max) = (bound("min")?, bound("max")?);
    Ok(Activation::Clamp { min: min.unwrap_or(f64::NEG_INFINITY), max: max.unwrap_or(f64::INFINITY) })
}

pub(super) fn read_hardtanh(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    Ok(Activation::Clamp { min: fields.number("min_val", -1.0)?, max: fields.number("max_val", 1.0)? })
}

pub(super) fn read_threshold(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    let number = |key| fields.require(key).and_then(|_| fields.number(key, 0.0));
    Ok(Activation::Threshold { threshold: number("threshold")?, value: number("value")? })
}

pub(super) fn read_elu(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    Ok(Activation::Elu { alpha: fields.number("alpha", 1.0)? })
}

pub(super) fn read_celu(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    Ok(Activation::Celu { alpha: fields.number("alpha", 1.0)? })
}

pub(super) fn read_softplus(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    let (beta, threshold) = (fields.number("beta", 1.0)?, fields.number("threshold", 20.0)?);
    Ok(Activation::Softplus { beta, threshold })
}

pub(super) fn read_pow(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    fields.require("exponent")?;
    Ok(Activation::Pow { exponent: fields.number("exponent", 1.0)? })
}

impl Operator for Activation {
    fn format(&self) -> &'static Format {
        match self {
            Self::Relu => &RELU,
            Self::LeakyRelu { .. } => &LEAKY_RELU,
            Self::Sigmoid => &SIGMOID,
            Self::Tanh => &TANH,
            Self::Silu => &SILU,
            Self::Gelu | Self::GeluTanh => &GELU,
            Self::Clamp { .. } if *self == OF_RELU6 => &RELU6,
            Self::Clamp { .. } => &CLAMP,
            Self::Threshold { .. } => &THRESHOLD,
            Self::Elu { .. } => &ELU,
            Self::Selu => &SELU,
            Self::Celu { .. } => &CELU,
            Self::Softplus { .. } => &SOFTPLUS,
            Self::Softsign => &SOFTSIGN,
            Self::HardSigmoid => &HARDSIGMOID,
            Self::HardSwish => &HARDSWISH,
            Self::Mish => &MISH,
            Self::LogSigmoid => &LOGSIGMOID,
            Self::Exp => &EXP,
            Self::Log => &LOG,
            Self::Sqrt => &SQRT,
            Self::Abs => &ABS,
            Self::Neg => &NEG,
            Self::Reciprocal => &RECIPROCAL,
            Self::Pow { .. } => &POW,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        match self {
            Self::LeakyRelu { slope } => json!({"negative_slope": slope}),
            Self::Gelu => json!({"approximate": "none"}),
            Self::GeluTanh => json!({"approximate": "tanh"}),
            Self::Clamp { .. } if *self == OF_RELU6 => Value::Null,
            // null stands for a bound that is not there
            Self::Clamp { min, max } => json!({
                "min": min.is_finite().then_some(min),
                "max": max.is_finite().then_some(max),
            }),
            Self::Threshold { threshold, value } => json!({"threshold": threshold, "value": value}),
            Self::Elu { alpha } | Self::Celu { alpha } => json!({"alpha": alpha}),
            Self::Softplus { beta, threshold } => json!({"beta": beta, "threshold": threshold}),
            Self::Pow { exponent } => json!({"exponent": exponent}),
            _ => Value::Null,
        }
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        const FINITE: &str = "a finite number";
        let check = |key, expected, got: f64, holds: bool| {
            if holds { Ok(()) } else { Err(out_of_range(&at.place, key, expected, got)) }
        };
        let finite = |key, got: f64| check(key, FINITE, got, got.is_finite());
        match *self {
            Self::LeakyRelu { slope } => finite("negative_slope", slope)?,
            Self::Clamp { min, max } => {
                check("min", "a number below infinity", min, min < f64::INFINITY)?;
                check("max", "a number above negative infinity", max, max > f64::NEG_INFINITY)?;
            }
            Self::Threshold { threshold, value } => {
                finite("threshold", threshold)?;
                finite("value", value)?;
            }
            Self::Elu { alpha } => finite("alpha", alpha)?,
            Self::Celu { alpha } => {
                check("alpha", "a finite number above 0", alpha, alpha.is_finite() && alpha > 0.0)?;
            }
            Self::Softplus { beta, threshold } => {
                check("beta", "a finite number other than 0", beta, beta.is_finite() && beta != 0.0)?;
                finite("threshold", threshold)?;
            }
            Self::Pow { exponent } => finite("exponent", exponent)?,
            _ => {}
        }
        Ok(at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    /// Fuses the activation into the node before it where that node serves nothing else, and where it is exact: a
    /// checkpoint between the two, which keeps them apart, must not change a bit.
    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let x = site.x();
        let tape = lowering.tape.last_mut().filter(|tape| tape.output == x && tape.activation.is_none());
        if let (Some(tape), true, Self::Relu) = (tape, site.owns_x, self)
            && let NodeKind::Compute(
                Kernel::Conv2d { epilogue: Epilogue { activation: fused, .. }, .. }
                | Kernel::Conv2dBackwardInput { epilogue: Epilogue { activation: fused, .. }, .. }
                | Kernel::ChannelAffine { activation: fused },
            ) = &mut lowering.program.nodes[x].kind
        {
            *fused = Some(*self);
            tape.activation = Some(*self);
            return Ok(x);
        }
        let saved = if self.differentiates_from_output() { Saved::Output } else { Saved::Operand };
        let (kernel, gradient) = (Kernel::Activation(*self), Kernel::ActivationBackward(*self));
        Ok(lowering.pointwise(site, kernel, gradient, Some(saved))?)
    }
}
