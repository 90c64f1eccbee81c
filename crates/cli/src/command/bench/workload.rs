//! What is timed.

use tiled::graph::{Graph, Linear, Loss, Mode, Objective, Op};

use crate::error::CliError;

/// A network, the size of its one input `x`, and what is computed.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) graph: Graph,
    pub(super) extents: [usize; 2],
    pub(super) objective: Objective,
}

/// Every network at its sizes: inference; a training step whose loss is local to a pixel; for `vgg2` also one whose
/// loss needs the whole image, so that the activations are computed a second time on the way back.
pub(super) fn workloads() -> Result<Vec<Workload>, CliError> {
    let mut all = Vec::new();
    for (name, size) in [("max_pool", 4096), ("vgg2", 1024), ("vgg2", 2048), ("light", 1024), ("light", 4096)]
    {
        let mut push = |task: &str, graph, objective| {
            let name = format!("{name}-{size}-{task}");
            all.push(Workload { name, graph, extents: [size; 2], objective });
        };
        push("inference", network(name)?, Objective::inference());
        push("training", network(name)?, training(name));
        if name == "vgg2" {
            push("training-whole-image", with_head(network(name)?)?, training(name));
        }
    }
    Ok(all)
}

/// The network with a classifier behind the mean over the image.
fn with_head(mut graph: Graph) -> Result<Graph, CliError> {
    let trunk = graph.outputs()[0];
    let mean = graph.add_node("mean", Op::GlobalAvgPool, &[trunk])?;
    let classes = graph.add_node("classes", Op::Linear(Linear::new(10)), &[mean])?;
    graph.set_outputs(&[classes])?;
    Ok(graph)
}

/// One convolution, untiled: little but arithmetic.
pub(super) fn convolution() -> Result<Workload, CliError> {
    let graph = Graph::from_json(CONVOLUTION)?;
    let name = "convolution".to_owned();
    Ok(Workload { name, graph, extents: [96, 96], objective: Objective::inference() })
}

/// Gradients of the weights; of the input where there are no weights.
fn training(name: &str) -> Objective {
    let has_weights = name != "max_pool";
    Objective {
        mode: Mode::Train,
        grad_inputs: !has_weights,
        grad_params: has_weights,
        ..Objective::training(Loss::Sum)
    }
}

fn network(name: &str) -> Result<Graph, CliError> {
    match Graph::builtin(name) {
        Some(graph) => Ok(graph),
        None => Ok(Graph::from_json(MAX_POOL)?),
    }
}

const MAX_POOL: &str = r#"{"inputs": [{"name": "x", "channels": 3}],
    "nodes": [{"name": "pool", "op": "max_pool2d", "inputs": ["x"], "kernel_size": 2}], "outputs": ["pool"]}"#;

const CONVOLUTION: &str = r#"{"inputs": [{"name": "x", "channels": 128}],
    "nodes": [{"name": "conv", "op": "conv2d", "inputs": ["x"], "out_channels": 128, "kernel_size": 3, "padding": 1}],
    "outputs": ["conv"]}"#;
