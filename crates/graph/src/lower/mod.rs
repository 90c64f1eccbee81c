//! From a network to a [`Program`]: operators become kernels, training becomes more nodes.

pub(crate) mod arithmetic;
mod backward;
pub(crate) mod builder;
mod forward;
pub(crate) mod unary;

use tiled_tensor::{OutOfMemory, collected, with_room};

use crate::graph::Graph;
use crate::index::ValueId;
use crate::objective::Objective;
use crate::plan::error::PlanError;
use crate::program::{Finaliser, Program};
use crate::rate::rates;
use crate::shapes::Shapes;
use forward::Network;

/// Lowers a network for an objective.
///
/// `checkpoints` are values of nodes that are kept whole: what follows them runs in a later sweep, and in
/// training the part before them is computed again for its own backward sweep.
///
/// # Errors
/// Where the objective does not fit the network (a target of the wrong shape, a name that it has not), or memory is refused.
///
/// ```
/// use tiled_graph::{Graph, Objective, infer, lower};
/// let graph = Graph::from_json(r#"{"inputs": [{"name": "x", "channels": 3}], "outputs": ["c"], "nodes": [
///     {"name": "c", "op": "conv2d", "inputs": ["x"], "out_channels": 8, "kernel_size": 3}]}"#)?;
/// let program = lower(&graph, &infer(&graph, 1, &[[10, 12]])?, &Objective::inference(), &[])?;
/// let names: Vec<&str> = program.nodes.iter().map(|node| node.name.as_str()).collect();
/// assert_eq!(names, ["x", "c", "c.output"]);
/// assert_eq!(program.anchor, [8, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lower(
    graph: &Graph,
    shapes: &Shapes,
    objective: &Objective,
    checkpoints: &[ValueId],
) -> Result<Program, PlanError> {
    let mut network = Network::new(graph, shapes, objective, checkpoints)?;
    network.forward()?;
    if let Some(loss) = objective.loss {
        network.backward(loss)?;
    }
    let mut program = network.lowering.program;
    program.rates = [rates(&program.nodes, 0)?, rates(&program.nodes, 1)?];
    program.finalisers = in_order_of_sweeps(program.finalisers)?;
    Ok(program)
}

/// The finalisers by sweep, those of one sweep in their order. A stable sort of the list itself would take memory unasked.
fn in_order_of_sweeps(
    finalisers: Vec<(Option<usize>, Finaliser)>,
) -> Result<Vec<(Option<usize>, Finaliser)>, OutOfMemory> {
    let mut order = collected(finalisers.iter().enumerate().map(|(index, (sweep, _))| (*sweep, index)))?;
    order.sort_unstable();
    let mut unordered = collected(finalisers.into_iter().map(Some))?;
    let mut ordered = with_room(order.len())?;
    ordered.extend(order.into_iter().filter_map(|(_, index)| unordered[index].take()));
    Ok(ordered)
}
