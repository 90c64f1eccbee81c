//! `relu`, `leaky_relu`, `sigmoid`, `tanh`, `silu`, `gelu`: `y = f(x)`, element by element, with the attributes of [`Activation`].

use serde_json::json;
use tiled_kernel::{Activation, Epilogue, Kernel};

use super::{Applied, Format, Op, Operator};
use crate::format::{Fields, Find, Value};
use crate::graph::check::out_of_range;
use crate::lower::{Lowering, Saved, Site};
use crate::params::Own;
use crate::program::{NodeId, NodeKind};
use crate::{Arity, Graph, GraphError, PlanError, Shapes};

const fn format(
    name: &'static str,
    keys: &'static [&'static str],
    read: fn(&Fields<'_>, Find<'_>) -> Result<Op, GraphError>,
) -> Format {
    Format { name, arity: Arity::Exactly(1), keys, read }
}

pub(super) static RELU: Format = format("relu", &[], |_, _| Ok(Op::Activation(Activation::Relu)));
pub(super) static LEAKY_RELU: Format = format("leaky_relu", &["negative_slope"], leaky_relu);
pub(super) static SIGMOID: Format = format("sigmoid", &[], |_, _| Ok(Op::Activation(Activation::Sigmoid)));
pub(super) static TANH: Format = format("tanh", &[], |_, _| Ok(Op::Activation(Activation::Tanh)));
pub(super) static SILU: Format = format("silu", &[], |_, _| Ok(Op::Activation(Activation::Silu)));
pub(super) static GELU: Format = format("gelu", &["approximate"], gelu);

fn leaky_relu(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    Ok(Op::Activation(Activation::LeakyRelu { slope: fields.number("negative_slope", 0.01)? }))
}

fn gelu(fields: &Fields<'_>, _: Find<'_>) -> Result<Op, GraphError> {
    let choices = [("none", Activation::Gelu), ("tanh", Activation::GeluTanh)];
    fields.choice("approximate", "\"none\" or \"tanh\"", &choices, Activation::Gelu).map(Op::Activation)
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

    fn write(&self, _: &Graph) -> Value {
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
    fn lower(&self, lowering: &mut Lowering<'_>, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let x = site.x();
        let operand = lowering.graph.operands(site.value)[0];
        let serves_others = lowering.is_output[operand.0] || lowering.reads[operand.0] > 1;
        let tape = lowering.tape.last_mut().filter(|tape| tape.output == x && tape.activation.is_none());
        if let (Some(tape), false, Self::Relu) = (tape, serves_others, self)
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
