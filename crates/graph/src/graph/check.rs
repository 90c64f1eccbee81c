//! What must hold for a node whatever the size of the image, and the channels that it makes.

use super::{Graph, Node};
use crate::op::Applied;
use crate::{GraphError, Place};

/// Checks a node over the values of a graph that it may join; returns the channels of its output.
pub(super) fn node(graph: &Graph, node: &Node) -> Result<usize, GraphError> {
    let place = node.place();
    let arity = node.op.arity();
    if !arity.accepts(node.inputs.len()) {
        return Err(GraphError::Arity { place, expected: arity, got: node.inputs.len() });
    }
    for input in &node.inputs {
        graph.check_value(&place, *input)?;
    }
    node.op.operator().check(&Applied { graph, operands: &node.inputs, place })
}

/// Checks a number of channels or features.
pub(crate) fn count(place: &Place, key: &'static str, got: usize) -> Result<(), GraphError> {
    const MAX: usize = 1 << 30;
    if (1..=MAX).contains(&got) {
        return Ok(());
    }
    let expected = if got == 0 { "at least 1" } else { "at most 2^30" };
    Err(GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() })
}

pub(crate) fn out_of_range(
    place: &Place,
    key: &'static str,
    expected: &'static str,
    got: impl std::fmt::Display,
) -> GraphError {
    GraphError::OutOfRange { place: place.clone(), key, expected, got: got.to_string() }
}
