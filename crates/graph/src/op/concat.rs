//! `concat`: the channels of the first operand, then those of the second, and so on.

use serde_json::Value;
use tiled_kernel::{Kernel, MAX_INPUTS};
use tiled_tensor::{OutOfMemory, copied};

use super::check::count;
use super::elementwise::equal_extents;
use super::operator::{Applied, Format, Operator, Values};
use crate::error::{Arity, GraphError};
use crate::lower::builder::{Flowing, Lowering, Site, identity};
use crate::params::own::Own;
use crate::plan::error::PlanError;
use crate::program::{NodeId, NodeKind};
use crate::shapes::Shapes;

/// It has no attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Concat;

pub(super) static FORMAT: Format = Format { name: "concat", arity: Arity::AtLeast(2), keys: &[] };

impl Operator for Concat {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn write(&self, _: &dyn Values) -> Value {
        Value::Null
    }

    fn check(&self, at: &Applied<'_>) -> Result<usize, GraphError> {
        let channels =
            at.operands.iter().map(|input| at.values.channels(*input)).fold(0, usize::saturating_add);
        count(&at.place, "channels", channels).map(|()| channels)
    }

    fn extents(&self, at: &Applied<'_>, known: &Shapes) -> Result<[usize; 2], GraphError> {
        equal_extents(at, known)
    }

    fn params(&self, _: usize) -> Vec<Own> {
        Vec::new()
    }

    fn lower(&self, lowering: &mut Lowering, site: &Site<'_>) -> Result<NodeId, PlanError> {
        // what was joined comes first in the next few
        let mut parts = copied(site.operands)?;
        let (mut first, mut left) = (0, parts.len());
        while left > MAX_INPUTS {
            let next = first + MAX_INPUTS - 1;
            let joined = few(lowering, &format!("{}.{left}", site.name), &parts[first..=next])?;
            parts[next] = joined;
            (first, left) = (next, left - MAX_INPUTS + 1);
        }
        Ok(few(lowering, site.name, &parts[first..])?)
    }
}

/// As many as a kernel joins.
fn few(lowering: &mut Lowering, name: &str, parts: &[NodeId]) -> Result<NodeId, OutOfMemory> {
    let (_, extents, _) = lowering.described(parts[0]);
    let channels = parts.iter().map(|part| lowering.program.nodes[*part].channels).sum();
    let operands = parts.iter().map(|part| identity(*part, extents)).collect();
    let kind = NodeKind::Compute(Kernel::Concat);
    let node = lowering.push(name.to_owned(), kind, channels, extents, operands, Vec::new())?;
    let parts = parts.to_vec();
    lowering.record(name, node, move |lowering, at| backward(lowering, at, &parts))?;
    Ok(node)
}

fn backward(lowering: &mut Lowering, at: &Flowing<'_>, parts: &[NodeId]) -> Result<(), OutOfMemory> {
    let mut begin = 0;
    for (position, &part) in parts.iter().enumerate() {
        let (channels, extents, _) = lowering.described(part);
        lowering.flow(part, |lowering| {
            let (name, kind) =
                (at.named(&format!("grad_input{position}")), NodeKind::Compute(Kernel::Slice { begin }));
            lowering.push(name, kind, channels, extents, vec![identity(at.gradient, extents)], Vec::new())
        })?;
        begin += channels;
    }
    Ok(())
}
