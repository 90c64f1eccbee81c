//! `If`, as PyTorch's older exporter writes it where it does not know a size: the condition tells which branch is taken.

use crate::Reason;
use crate::import::site::Site;
use crate::import::value::{Taken, Value};
use crate::proto::AttributeProto;

pub(super) const BRANCHES: &[&str] = &["else_branch", "then_branch"];

/// The branch that is taken. The other need not be one that a network has.
pub(super) fn taken(site: &mut Site<'_>) -> Result<Value, Reason> {
    site.operand(0)?;
    let name = match site.scalar(0)? {
        Some(1.0) => "then_branch",
        Some(0.0) => "else_branch",
        _ => return site.wrong(0, "a condition that is known"),
    };
    match site.attribute(name) {
        Some(AttributeProto { g: Some(graph), .. }) => {
            Ok(Value::Taken(Box::new(Taken { name, graph: graph.clone() })))
        }
        given => {
            let got = if given.is_some() { "of another type" } else { "missing" }.to_owned();
            Err(Reason::Attribute { name, expected: "a graph", got })
        }
    }
}
