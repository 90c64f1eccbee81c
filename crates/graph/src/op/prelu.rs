//! `prelu`: `y = x` where `x > 0`, else `w·x`, with one weight for all channels or one for each.

use serde_json::{Value, json};
use tiled_kernel::Arithmetic;

use super::check::{count, out_of_range};
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::format::fields::Fields;
use crate::lower::arithmetic::Term;
use crate::lower::builder::{Lowering, Site};
use crate::params::own::{Init, InputAxis, Own, ParamKind};
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// Attributes of `prelu`.
///
/// ```
/// assert_eq!(tiled_graph::Prelu::default().num_parameters, 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Prelu {
    /// The slopes: one for all channels, or as many as there are.
    pub num_parameters: usize,
    /// The value that they start with.
    pub init: f64,
}

impl Default for Prelu {
    /// PyTorch's: one slope, 0.25.
    fn default() -> Self {
        Self { num_parameters: 1, init: 0.25 }
    }
}

pub(super) static FORMAT: Format =
    Format { name: "prelu", arity: Arity::Exactly(1), keys: &["num_parameters", "init", "weight"] };

pub(super) fn read(fields: &Fields<'_>) -> Result<Prelu, GraphError> {
    let default = Prelu::default();
    Ok(Prelu {
        num_parameters: fields.count("num_parameters")?.unwrap_or(default.num_parameters),
        init: fields.number("init", default.init)?,
    })
}

impl Operator for Prelu {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        json!({"num_parameters": self.num_parameters, "init": self.init})
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        count(&at.place, "num_parameters", self.num_parameters)?;
        if !self.init.is_finite() {
            return Err(out_of_range(&at.place, "init", "a finite number", self.init));
        }
        let (got, expected) = (at.channels(), self.num_parameters);
        if expected != 1 && expected != got {
            let (place, what) = (at.place.clone(), "num_parameters");
            return Err(GraphError::Channels { place, what, expected, got });
        }
        Ok(got)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, channels: usize) -> Vec<Own> {
        let is_per_channel = self.num_parameters == channels;
        vec![Own {
            kind: ParamKind::Weight,
            shape: vec![self.num_parameters],
            init: Init::Constant(self.init),
            input: is_per_channel.then_some(InputAxis { axis: 0, groups: 1 }),
        }]
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let operands = [Term::Node(site.x()), Term::Param(lowering.param(site.name, "weight"))];
        let shape = lowering.shape(site.x());
        Ok(lowering.arithmetic(site.name, Arithmetic::Prelu, operands, shape)?)
    }
}
