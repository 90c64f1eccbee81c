//! From JSON to a network.

use tiled_tensor::{collected, push, with_room};

use super::fields::Fields;
use super::json::{self, Json};
use super::names::{cannot_tile, nearest};
use crate::error::{GraphError, Place};
use crate::graph::Graph;
use crate::index::ValueId;
use crate::op::operator::{Format, Values};
use crate::op::{OPERATORS, Read};
use crate::params::own::ParamKind;

/// Keys of every node.
const NODE_KEYS: [&str; 3] = ["name", "op", "inputs"];

/// The network that a file describes.
pub(super) fn graph(json: &Json) -> Result<Graph, GraphError> {
    let network = Fields::new(Place::Network, json)?;
    network.only(&["inputs", "nodes", "outputs"])?;
    let mut graph = Graph::new();
    for (index, entry) in network.list("inputs")?.iter().enumerate() {
        let fields = named(Fields::new(Place::Entry { list: "inputs", index }, entry)?, |name| {
            Place::Input { name: name.into() }
        })?;
        fields.only(&["name", "channels"])?;
        graph.add_input(fields.text("name")?, fields.required_count("channels")?)?;
    }
    let nodes = network.list("nodes")?;
    let names = collected(nodes.iter().filter_map(name_of))?;
    for (index, entry) in nodes.iter().enumerate() {
        node(&mut graph, Fields::new(Place::Entry { list: "nodes", index }, entry)?, &names)?;
    }
    let outputs = found(&network.texts("outputs")?, |name| {
        graph.value(name).ok_or_else(|| GraphError::UnknownOutput {
            name: name.to_owned(),
            nearest: nearest(name, values(&graph)),
        })
    })?;
    graph.set_outputs(&outputs)?;
    Ok(graph)
}

/// The values of these names.
fn found(
    names: &[&str],
    find: impl Fn(&str) -> Result<ValueId, GraphError>,
) -> Result<Vec<ValueId>, GraphError> {
    let mut values = with_room(names.len())?;
    for name in names {
        values.push(find(name)?);
    }
    Ok(values)
}

fn node(graph: &mut Graph, fields: Fields<'_>, names: &[&str]) -> Result<(), GraphError> {
    let unknown_op = |name: &str| Place::Node { op: "node".into(), name: name.into() };
    let fields = named(fields, unknown_op)?;
    let (name, op) = (fields.text("name")?, fields.text("op")?);
    let place = Place::Node { op: op.into(), name: name.into() };
    let (format, read) = operator(&place, name, op)?;
    let fields = fields.at(place);
    fields.only(&[&NODE_KEYS[..], format.keys].concat())?;
    let find = |input: &str| operand(graph, fields.place(), input, names);
    let inputs = found(&fields.texts("inputs")?, find)?;
    let op = read(&fields, &find)?;
    check_channels(graph, &fields, &inputs)?;
    graph.add_node_sharing(name, op, &inputs, &shared(&fields, format)?).map(drop)
}

/// Adds the node of this name, operator and operands, whose attributes are a JSON object.
pub(super) fn attributed(
    graph: &mut Graph,
    name: &str,
    op: &str,
    attributes: &str,
    inputs: &[ValueId],
) -> Result<ValueId, GraphError> {
    let place = Place::Node { op: op.into(), name: name.into() };
    let json = json::parse(attributes)?;
    let (format, read) = operator(&place, name, op)?;
    let fields = Fields::new(place, &json)?;
    fields.only(format.keys)?;
    for input in inputs {
        graph.check(fields.place(), *input)?;
    }
    let find = |input: &str| operand(graph, fields.place(), input, &[name]);
    let op = read(&fields, &find)?;
    check_channels(graph, &fields, inputs)?;
    graph.add_node_sharing(name, op, inputs, &shared(&fields, format)?)
}

/// The parameters of other nodes that the keys name. A bias may be said to be there instead.
fn shared<'a>(fields: &Fields<'a>, format: &Format) -> Result<Vec<(ParamKind, &'a str)>, GraphError> {
    let mut shared = Vec::new();
    for kind in ParamKind::ALL {
        match fields.get(kind.suffix()) {
            None => {}
            Some(Json::Text(name)) => push(&mut shared, (kind, name.as_str()))?,
            Some(Json::Bool(_)) if kind == ParamKind::Bias && !is_norm(format) => {}
            Some(other) => return Err(fields.wrong(kind.suffix(), "the name of a parameter", other)),
        }
    }
    Ok(shared)
}

/// Whether `bias` names a parameter alone: whether there is one is said by another key.
fn is_norm(format: &Format) -> bool {
    ["batch_norm", "instance_norm", "group_norm"].contains(&format.name)
}

/// Checks what PyTorch's modules say of their input: it is inferred here, and where it stands it must be right.
fn check_channels(graph: &Graph, fields: &Fields<'_>, inputs: &[ValueId]) -> Result<(), GraphError> {
    for key in ["in_channels", "num_features", "num_channels", "normalized_shape"] {
        let count = match fields.get(key) {
            // a shape of one axis
            Some(Json::List(axes)) if key == "normalized_shape" => {
                axes.first().map_or(Ok(None), |axis| fields.count_of(key, axis).map(Some))?
            }
            _ => fields.count(key)?,
        };
        if let (Some(expected), Some(input)) = (count, inputs.first())
            && graph.channels(*input) != expected
        {
            let (place, got) = (fields.place().clone(), graph.channels(*input));
            return Err(GraphError::Channels { place, what: key, expected, got });
        }
    }
    Ok(())
}

/// The operator of this name and how it is read, or why there is none.
fn operator(place: &Place, node: &str, op: &str) -> Result<(&'static Format, Read), GraphError> {
    if let Some(known) = OPERATORS.iter().find(|(format, _)| format.name == op) {
        return Ok(*known);
    }
    match cannot_tile(op) {
        Some(reason) => Err(GraphError::CannotTile { place: place.clone(), reason }),
        None => {
            let nearest = nearest(op, OPERATORS.iter().map(|(format, _)| format.name));
            Err(GraphError::UnknownOperator { node: node.to_owned(), op: op.to_owned(), nearest })
        }
    }
}

fn operand(graph: &Graph, place: &Place, name: &str, names: &[&str]) -> Result<ValueId, GraphError> {
    if let Some(value) = graph.value(name) {
        return Ok(value);
    }
    let (place, name) = (place.clone(), name.to_owned());
    if names.contains(&name.as_str()) {
        return Err(GraphError::UsedBeforeDefined { place, name });
    }
    let nearest = nearest(&name, values(graph));
    Err(GraphError::UnknownInput { place, name, nearest })
}

fn named<'a>(fields: Fields<'a>, place: impl Fn(&str) -> Place) -> Result<Fields<'a>, GraphError> {
    let name = fields.text("name")?;
    Ok(fields.at(place(name)))
}

fn name_of(json: &Json) -> Option<&str> {
    let Json::Object(entries) = json else { return None };
    entries.iter().find_map(|(key, value)| match value {
        Json::Text(name) if key == "name" => Some(name.as_str()),
        _ => None,
    })
}

fn values(graph: &Graph) -> impl Iterator<Item = &str> {
    (0..graph.values()).map(|value| graph.name(ValueId(value)))
}

#[cfg(test)]
mod tests {
    use crate::op::OPERATORS;

    #[test]
    fn the_documentation_has_every_operator_and_key() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/network-format.md");
        let page = std::fs::read_to_string(page).expect("the page is in the repository");
        for (operator, _) in OPERATORS {
            for word in [operator.name].iter().chain(operator.keys) {
                assert!(page.contains(&format!("`{word}`")), "{} lacks `{word}`", operator.name);
            }
        }
    }
}
