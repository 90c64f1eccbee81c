//! The shapes of all values of a network, inferred and checked once.

use tiled_tensor::collected;

use crate::error::{GraphError, Place};
use crate::graph::Graph;
use crate::op::operator::Applied;
use crate::shapes::Shapes;

/// The shapes of all values for a batch size and the height and width of each input.
///
/// # Errors
/// Where the network has no outputs, an input is missing, empty or too large, operands do not fit each other, a kernel does not
/// fit its input, or memory is refused.
///
/// ```
/// use tiled_graph::{Graph, infer};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let shapes = infer(&graph, 2, &[[2700, 5400]])?;
/// assert_eq!(shapes.shape(graph.outputs()[0]), [2, 128, 675, 1350]);
/// # Ok::<(), tiled_graph::GraphError>(())
/// ```
pub fn infer(graph: &Graph, batch: usize, inputs: &[[usize; 2]]) -> Result<Shapes, GraphError> {
    if graph.outputs().is_empty() {
        return Err(GraphError::NoOutputs);
    }
    if inputs.len() != graph.inputs().len() {
        return Err(GraphError::InputCount { expected: graph.inputs().len(), got: inputs.len() });
    }
    let mut known = Shapes::with_room(graph.values())?;
    for (input, extents) in graph.inputs().iter().zip(inputs) {
        let place = Place::Input { name: input.name.as_str().into() };
        for (key, size) in [("batch size", batch), ("height", extents[0]), ("width", extents[1])] {
            if size == 0 {
                let (expected, got) = ("at least 1", "0".to_owned());
                return Err(GraphError::OutOfRange { place, key, expected, got });
            }
        }
        let shape = [batch, input.channels, extents[0], extents[1]];
        known.push(&place, shape)?;
    }
    for (position, node) in graph.nodes().iter().enumerate() {
        let at = Applied { values: graph, operands: &node.inputs, place: node.place() };
        let [height, width] = node.op.operator().extents(&at, &known)?;
        let shape = [batch, graph.channels(graph.node_value(position)), height, width];
        known.push(&at.place, shape)?;
    }
    Ok(known)
}

/// The shapes of all values for the whole shapes of the inputs, NCHW.
///
/// # Errors
/// Where [`infer`] refuses, or an input has other channels or another batch size.
///
/// ```
/// use tiled_graph::{Graph, infer_nchw};
/// let graph = Graph::builtin("vgg2").expect("it is built in");
/// let error = infer_nchw(&graph, &[[1, 4, 64, 64]]).expect_err("vgg2 reads 3 channels");
/// assert_eq!(error.to_string(), "input `x`: input has 4 channels, network wants 3");
/// ```
pub fn infer_nchw(graph: &Graph, inputs: &[[usize; 4]]) -> Result<Shapes, GraphError> {
    let batch = inputs.first().map_or(1, |shape| shape[0]);
    for (input, [got_batch, got, _, _]) in graph.inputs().iter().zip(inputs.iter().copied()) {
        let place = Place::Input { name: input.name.as_str().into() };
        if got != input.channels {
            return Err(GraphError::Channels { place, what: "network", expected: input.channels, got });
        }
        if got_batch != batch {
            let name = input.name.clone();
            return Err(GraphError::BatchMismatch { name, expected: batch, got: got_batch });
        }
    }
    let extents = collected(inputs.iter().map(|shape| [shape[2], shape[3]]))?;
    infer(graph, batch, &extents)
}
