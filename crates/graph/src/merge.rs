//! Parallel convolutions of one value as one convolution.
//!
//! A sum of convolutions of the same value is a convolution whose weights are theirs, added tap by tap: `w₁∗x + w₂∗x = (w₁ + w₂)∗x`, the smaller kernel
//! with zeros around it. A norm by running statistics, or a factor for each channel, scales a branch's weights, and the value itself is
//! a branch whose kernel is one. RepVGG (Ding et al., "RepVGG: Making VGG-style ConvNets great again", 2021), MobileOne and ACNet train
//! such branches, to be merged before they are used.

mod branch;
mod weights;
mod window;

use std::collections::HashMap;

use tiled_tensor::{Element, copied, push, with_room};

use crate::error::GraphError;
use crate::graph::{Graph, Shared};
use crate::index::ValueId;
use crate::op::Op;
use crate::params::{ParamTensor, Parameters, try_params};
use branch::{Sum, sums};
use weights::Tensors;

/// A network whose parallel convolutions are merged.
#[derive(Debug)]
#[non_exhaustive]
pub struct Merged<T> {
    /// The network.
    pub graph: Graph,
    /// Its parameters.
    pub parameters: Parameters<T>,
    /// How many convolutions stand for sums.
    pub convolutions: usize,
}

/// Merges the convolutions of one value that are added: for inference, since norms of such branches become weights.
///
/// Convolutions of the same stride and groups that pad with zeros are merged with what scales them and with the value itself, where nothing else reads what
/// lies between; the smaller windows first, and as many as one convolution multiplies no more often than they did. Weights are summed in `f64` and rounded
/// once, so results are those of other roundings; where a pixel is infinite, a tap that no branch had makes it NaN. The outputs keep their names; a parameter that others share with a branch becomes their own.
///
/// # Errors
/// Where the parameters are not those of the network or have been released, the network has no outputs, or memory is refused.
///
/// ```
/// use tiled_graph::{Conv2d, Graph, Op, initialise, merge, params};
/// let mut graph = Graph::new();
/// let x = graph.add_input("x", 8)?;
/// let three = graph.add_node("three", Op::Conv2d(Conv2d::new(8, [3, 3]).padded([1, 1])), &[x])?;
/// let one = graph.add_node("one", Op::Conv2d(Conv2d::new(8, [1, 1])), &[x])?;
/// let sum = graph.add_node("sum", Op::Add, &[three, one, x])?;
/// graph.set_outputs(&[sum])?;
/// let parameters = initialise::<f32>(&params(&graph), 1);
/// let merged = merge(&graph, parameters)?;
/// assert_eq!((merged.convolutions, merged.graph.nodes().len()), (1, 1));
/// assert_eq!(merged.parameters.get("sum.weight").map(|weight| weight.shape.clone()), Some(vec![8, 8, 3, 3]));
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn merge<T: Element>(graph: &Graph, parameters: Parameters<T>) -> Result<Merged<T>, GraphError> {
    parameters.check(&try_params(graph)?)?;
    parameters.tensors().iter().try_for_each(ParamTensor::check_length)?;
    let found = sums(graph)?;
    let mut convolutions = 0;
    let mut given = HashMap::new();
    for tensor in parameters.into_tensors() {
        given.insert(tensor.name.clone(), tensor);
    }
    let mut merged = Graph::new();
    merged.reserve(graph.nodes().len())?;
    let mut made = Vec::new();
    let mut places = with_room(graph.values())?;
    for input in graph.inputs() {
        places.push(Some(merged.add_input(&input.name, input.channels)?));
    }
    for (position, node) in graph.nodes().iter().enumerate() {
        let place = match &found.by_node[position] {
            // nobody reads it any more
            _ if found.is_absorbed[position] => None,
            Some(sum) => {
                convolutions += sum.clusters.len();
                Some(add_sum(graph, sum, &places, &given, (&mut merged, &mut made))?)
            }
            None => {
                let inputs = mapped(&node.inputs, &places)?;
                let mut names = Vec::new();
                for Shared { kind, node: owner } in &node.shared {
                    let tensor = weights::tensor(graph, position, *kind, &given);
                    if found.is_absorbed[*owner] {
                        // the node that it belonged to is no more
                        let name = format!("{}.{}", node.name, kind.suffix());
                        let (shape, data) = (tensor.shape.clone(), copied(&tensor.data)?);
                        push(&mut made, ParamTensor { name, shape, data })?;
                    } else {
                        push(&mut names, (*kind, tensor.name.as_str()))?;
                    }
                }
                Some(merged.add_node_sharing(&node.name, node.op.clone(), &inputs, &names)?)
            }
        };
        places.push(place);
    }
    merged.set_outputs(&mapped(graph.outputs(), &places)?)?;
    // one may have the name of a branch that is no more
    given.extend(made.into_iter().map(|tensor| (tensor.name.clone(), tensor)));
    let specs = try_params(&merged)?;
    let mut tensors = with_room(specs.len())?;
    tensors.extend(specs.iter().filter_map(|spec| given.remove(&spec.name)));
    let parameters = Parameters::new(&specs, tensors)?;
    Ok(Merged { graph: merged, parameters, convolutions })
}

/// Adds what a sum has become: a convolution of the sum's name, or the sum of what is left with convolutions in the place of
/// branches.
fn add_sum<T: Element>(
    graph: &Graph,
    sum: &Sum,
    places: &[Option<ValueId>],
    given: &Tensors<T>,
    (merged, made): (&mut Graph, &mut Vec<ParamTensor<T>>),
) -> Result<ValueId, GraphError> {
    let name = &graph.nodes()[sum.node].name;
    let mut operands = Vec::new();
    for (position, term) in sum.terms.iter().enumerate() {
        let Some(cluster) = sum.cluster_of[position].map(|cluster| &sum.clusters[cluster]) else {
            push(&mut operands, place(places, term.value))?;
            continue;
        };
        // it stands where its first term stood
        if cluster.terms[0] != position {
            continue;
        }
        let name = if cluster.terms.len() == sum.terms.len() { name } else { graph.name(cluster.named) };
        let conv = Op::Conv2d(cluster.conv.clone());
        let input = place(places, cluster.source);
        let input_channels = graph.channels(cluster.source);
        for tensor in weights::of(graph, sum, cluster, given, (name, input_channels))? {
            push(made, tensor)?;
        }
        push(&mut operands, merged.add_node(name, conv, &[input])?)?;
    }
    match operands.as_slice() {
        [operand] => Ok(*operand),
        operands => merged.add_node(name, Op::Add, operands),
    }
}

/// What a value has become that something still reads.
fn place(places: &[Option<ValueId>], value: ValueId) -> ValueId {
    places[value.0].expect("invariant: what is read is no part of a sum alone")
}

fn mapped(values: &[ValueId], places: &[Option<ValueId>]) -> Result<Vec<ValueId>, GraphError> {
    let mut mapped = with_room(values.len())?;
    mapped.extend(values.iter().map(|value| place(places, *value)));
    Ok(mapped)
}
