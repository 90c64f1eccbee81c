//! `dropout`: `y = x/(1 − p)` with probability 1 − p, else 0, by the seed and the position of the element; identity in evaluation.

use serde_json::{Value, json};
use tiled_kernel::Dropped;

use super::drop_whole::{check, drop};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `dropout`.
///
/// ```
/// assert_eq!(tiled_graph::Dropout::default().p, 0.5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of zeroing an element in training; in `[0, 1)`.
    pub p: f64,
}

impl Default for Dropout {
    /// PyTorch's: `p` 0.5.
    fn default() -> Self {
        Self { p: 0.5 }
    }
}

pub(super) static FORMAT: Format = Format { name: "dropout", arity: Arity::Exactly(1), keys: &["p"] };

pub(super) fn read(fields: &Fields<'_>) -> Result<Dropout, GraphError> {
    Ok(Dropout { p: fields.number("p", Dropout::default().p)? })
}

impl Operator for Dropout {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"p": self.p})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        check(at, self.p)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        drop(lowering, site, self.p, Dropped::Elements)
    }
}
