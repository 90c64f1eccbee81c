//! `add`: `y = x₁ + x₂ + …`; `mul`: `y = x₁·x₂·…`, from the left.

use serde_json::Value;
use tiled_kernel::Kernel;
use tiled_tensor::OutOfMemory;

use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::lower::builder::{Lowering, Site};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::NodeId;
use crate::shapes::Shapes;

/// A sum or a product; neither has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elementwise {
    Add,
    Mul,
}

pub(super) static ADD: Format = Format { name: "add", arity: Arity::AtLeast(2), keys: &[] };

pub(super) static MUL: Format = Format { name: "mul", arity: Arity::AtLeast(2), keys: &[] };

impl Operator for Elementwise {
    fn format(&self) -> &'static Format {
        match self {
            Self::Add => &ADD,
            Self::Mul => &MUL,
        }
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let (graph, first) = (at.values, at.operands[0]);
        match at.operands.iter().find(|other| graph.channels(**other) != graph.channels(first)) {
            None => Ok(at.channels()),
            Some(other) => Err(GraphError::OperandChannels {
                place: at.place.clone(),
                first: graph.name(first).into(),
                expected: graph.channels(first),
                other: graph.name(*other).into(),
                got: graph.channels(*other),
            }),
        }
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        equal_extents(at, known)
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        let mut total = site.x();
        for (position, &next) in site.operands.iter().enumerate().skip(1) {
            let last = position + 1 == site.operands.len();
            let name = if last { site.name.to_owned() } else { format!("{}.{position}", site.name) };
            total = self.pair(lowering, &name, total, next)?;
        }
        Ok(total)
    }
}

impl Elementwise {
    fn pair(self, lowering: &mut Lowering, name: &str, a: NodeId, b: NodeId) -> Result<NodeId, OutOfMemory> {
        let kernel = match self {
            Self::Add => Kernel::Add,
            Self::Mul => Kernel::Mul,
        };
        let node = lowering.binary(name, kernel, a, b)?;
        lowering.record(name, node, move |lowering, at| match self {
            Self::Add => {
                [a, b].into_iter().try_for_each(|operand| lowering.flow(operand, |_| Ok(at.gradient)))
            }
            Self::Mul => [(0, a, b), (1, b, a)].into_iter().try_for_each(|(position, operand, other)| {
                let name = at.named(&format!("grad_input{position}"));
                lowering.flow(operand, |lowering| lowering.binary(&name, Kernel::Mul, at.gradient, other))
            }),
        })?;
        Ok(node)
    }
}

/// The extents of the first operand, which all others must have.
pub(super) fn equal_extents(at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
    let first = at.operands[0];
    match at.operands.iter().find(|other| known.extents(**other) != known.extents(first)) {
        None => Ok(known.extents(first)),
        Some(other) => Err(GraphError::OperandExtents {
            place: at.place.clone(),
            first: at.values.name(first).into(),
            expected: known.extents(first),
            other: at.values.name(*other).into(),
            got: known.extents(*other),
        }),
    }
}
