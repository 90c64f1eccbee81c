//! `softmax`: `y[c] = e^x[c]/Σe^x[i]` over the channels of each pixel; `log_softmax`: its logarithm.

use serde_json::Value;
use tiled_kernel::Kernel;

use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::{Fields, whole};
use crate::lower::builder::{Lowering, Site};
use crate::lower::unary::Saved;
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Which of the two; neither has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Softmax {
    Plain,
    Log,
}

pub(super) static PLAIN: Format = Format { name: "softmax", arity: Arity::Exactly(1), keys: &["dim"] };

pub(super) static LOG: Format = Format { name: "log_softmax", arity: Arity::Exactly(1), keys: &["dim"] };

/// Checks that it goes over the channels, as it does where nothing else is said.
pub(super) fn check_dim(fields: &Fields<'_>) -> Result<(), GraphError> {
    match fields.get("dim").map(|dim| (dim, whole(dim))) {
        None | Some((_, Some(1 | -3))) => Ok(()),
        Some((_, Some(0 | 2 | 3 | -1 | -2 | -4))) => {
            let reason = "along other axes than the channels, dim 1, every pixel reads the sum over its row, its \
                          column or the batch";
            Err(GraphError::CannotTile { place: fields.place().clone(), reason })
        }
        Some((dim, _)) => Err(fields.wrong("dim", "1, the channels", dim)),
    }
}

impl Operator for Softmax {
    fn format(&self) -> &'static Format {
        match self {
            Self::Plain => &PLAIN,
            Self::Log => &LOG,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        Ok(at.channels())
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let log = *self == Self::Log;
        let (kernel, gradient) = (Kernel::Softmax { log }, Kernel::SoftmaxBackward { log });
        Ok(lowering.pointwise(site, kernel, gradient, Some(Saved::Output))?)
    }
}
