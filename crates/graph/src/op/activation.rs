//! `relu`, `leaky_relu`, `sigmoid`, `tanh`, `silu`, `gelu`: `y = f(x)`, element by element, with the attributes of [`Activation`].

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

pub(super) fn read_leaky_relu(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    Ok(Activation::LeakyRelu { slope: fields.number("negative_slope", 0.01)? })
}

pub(super) fn read_gelu(fields: &Fields<'_>) -> Result<Activation, GraphError> {
    let choices = [("none", Activation::Gelu), ("tanh", Activation::GeluTanh)];
    fields.choice("approximate", "\"none\" or \"tanh\"", &choices, Activation::Gelu)
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
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        match self {
            Self::LeakyRelu { slope } => json!({"negative_slope": slope}),
            Self::Gelu => json!({"approximate": "none"}),
            Self::GeluTanh => json!({"approximate": "tanh"}),
            Self::Relu | Self::Sigmoid | Self::Tanh | Self::Silu => Value::Null,
        }
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        match self {
            Self::LeakyRelu { slope } if !slope.is_finite() => {
                Err(out_of_range(&at.place, "negative_slope", "a finite number", slope))
            }
            _ => Ok(at.channels()),
        }
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
