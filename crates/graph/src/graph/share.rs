//! Parameters that a node reads in place of its own.

use tiled_tensor::{push, with_room};

use super::{Graph, Node, Shared};
use crate::error::GraphError;
use crate::format::names::nearest;
use crate::params::own::{Own, ParamKind};

impl Graph {
    /// The nodes that these parameters belong to, in the order of the operator's own parameters.
    pub(super) fn resolved(
        &self,
        node: &Node,
        named: &[(ParamKind, &str)],
    ) -> Result<Vec<Shared>, GraphError> {
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let own = self.params_of(node);
        for (position, (kind, _)) in named.iter().enumerate() {
            let key = kind.suffix();
            if named[..position].iter().any(|(other, _)| other == kind) {
                return Err(GraphError::DuplicateKey { place: node.place(), key: key.to_owned() });
            }
            if !own.iter().any(|param| param.kind == *kind) {
                return Err(GraphError::NoSuchParameter { place: node.place(), key });
            }
        }
        let mut shared = with_room(named.len())?;
        for Own { kind, shape, .. } in own {
            if let Some((_, name)) = named.iter().find(|(other, _)| *other == kind) {
                let owner = owner(self, node, kind, name)?;
                check_shape(self, node, kind, &shape, owner)?;
                push(&mut shared, Shared { kind, node: owner })?;
            }
        }
        Ok(shared)
    }
}

/// The position of the node that a parameter of this name belongs to.
fn owner(graph: &Graph, node: &Node, kind: ParamKind, name: &str) -> Result<usize, GraphError> {
    let key = kind.suffix();
    match graph.find_param(name) {
        Some((owner, of)) if of == kind => Ok(owner),
        Some(_) => Err(GraphError::SharedKind { place: node.place(), key, name: name.to_owned() }),
        None => {
            let mut known = Vec::new();
            for (position, before) in graph.nodes().iter().enumerate() {
                if graph.param_shape(position, kind).is_some() {
                    push(&mut known, format!("{}.{key}", before.name))?;
                }
            }
            let nearest = nearest(name, known.iter().map(String::as_str));
            Err(GraphError::UnknownShared { place: node.place(), key, name: name.to_owned(), nearest })
        }
    }
}

fn check_shape(
    graph: &Graph,
    node: &Node,
    kind: ParamKind,
    got: &[usize],
    owner: usize,
) -> Result<(), GraphError> {
    match graph.param_shape(owner, kind) {
        Some(expected) if expected != got => Err(GraphError::SharedShape {
            place: node.place(),
            key: kind.suffix(),
            got: got.into(),
            name: format!("{}.{}", graph.nodes()[owner].name, kind.suffix()).into(),
            expected: expected.into(),
        }),
        _ => Ok(()),
    }
}
