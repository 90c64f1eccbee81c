//! `argmax`: the number of the largest channel at each pixel.

use serde_json::Value;
use tiled_geometry::AxisMap;
use tiled_kernel::Kernel;

use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError, Place};
use crate::lower::builder::{Lowering, Site, edge};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{NodeId, NodeKind};
use crate::shapes::Shapes;

/// It has no attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArgMax;

pub(super) static FORMAT: Format = Format { name: "argmax", arity: Arity::Exactly(1), keys: &[] };

impl Operator for ArgMax {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, _: &Applied<'_>) -> Result<usize, GraphError> {
        Ok(1)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        Ok(known.extents(at.operands[0]))
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let x = site.x();
        if lowering.wants_grad[x] {
            let place = Place::Node { op: FORMAT.name.into(), name: site.name.into() };
            return Err(GraphError::NoGradient { place }.into());
        }
        let operands = vec![edge(x, [AxisMap::Identity; 2], site.extents)];
        let kind = NodeKind::Compute(Kernel::ArgMax);
        Ok(lowering.push(site.name.to_owned(), kind, site.channels, site.extents, operands, Vec::new())?)
    }
}
