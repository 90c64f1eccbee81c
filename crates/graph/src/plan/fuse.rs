//! What follows a convolution, carried out with it: batch norm in evaluation, a sum, ReLU.
//!
//! The values between are then neither written nor read, and the bits stay, as [`Kernel::ConvThen`] rounds like its parts.

use tiled_geometry::AxisMap;
use tiled_kernel::{Activation, Backend, Kernel};
use tiled_tensor::{Element, OutOfMemory, filled};

use crate::program::{Edge, NodeId, NodeKind, Program};

/// Fuses what the backend can. A node keeps its place and name; those that it takes in are left without readers or parameters.
pub(super) fn fuse<T: Element>(program: &mut Program, backend: &dyn Backend<T>) -> Result<(), OutOfMemory> {
    let mut readers = filled(program.nodes.len(), 0_usize)?;
    for edge in program.nodes.iter().flat_map(|node| &node.operands) {
        readers[edge.node] += 1;
    }
    for id in 0..program.nodes.len() {
        let Some((taken, other)) = follows(program, id, &readers) else { continue };
        let Some(kernel) = with_follower(&program.nodes[taken].kind, &program.nodes[id].kind) else {
            continue;
        };
        if !backend.fuses(&kernel) {
            continue;
        }
        let before = &mut program.nodes[taken];
        let mut operands = before.operands.clone();
        let mut params = std::mem::take(&mut before.params);
        operands.extend(other);
        let node = &mut program.nodes[id];
        params.append(&mut node.params);
        node.kind = NodeKind::Compute(kernel);
        node.params = params;
        node.operands = operands;
    }
    Ok(())
}

/// The convolution that a node could be fused with, which nothing else reads, and the tensor that is added to it.
fn follows(program: &Program, id: NodeId, readers: &[usize]) -> Option<(NodeId, Option<Edge>)> {
    let node = &program.nodes[id];
    let is_convolution = |edge: &Edge| {
        let before = &program.nodes[edge.node];
        let kernel = before.kernel();
        let is_one = matches!(
            kernel,
            Some(Kernel::Conv2d { .. } | Kernel::Conv2dWinograd { .. } | Kernel::ConvThen { .. })
        );
        let is_whole = edge.axes.iter().flatten().all(|(map, _)| *map == AxisMap::Identity);
        is_one && is_whole && readers[edge.node] == 1 && before.level == node.level
    };
    match (node.kernel()?, node.operands.as_slice()) {
        (Kernel::ChannelAffine { .. } | Kernel::Activation(_), [x]) if is_convolution(x) => {
            Some((x.node, None))
        }
        (Kernel::Add, [a, b]) => {
            // the later one: what it is added to is there by then
            let (last, other) = if a.node > b.node { (a, b) } else { (b, a) };
            [(last, other), (other, last)]
                .into_iter()
                .find(|(x, _)| is_convolution(x))
                .map(|(x, other)| (x.node, Some(other.clone())))
        }
        _ => None,
    }
}

/// The convolution with one more step, where it comes after those that it has.
fn with_follower(convolution: &NodeKind, follower: &NodeKind) -> Option<Kernel> {
    let (NodeKind::Compute(convolution), NodeKind::Compute(follower)) = (convolution, follower) else {
        return None;
    };
    let (conv, affine, sum) = match convolution {
        Kernel::ConvThen { conv, affine, sum, activation: None } => (conv.clone(), *affine, *sum),
        Kernel::Conv2d { activation: None, .. } | Kernel::Conv2dWinograd { activation: None, .. } => {
            (Box::new(convolution.clone()), false, false)
        }
        _ => return None,
    };
    let then = |affine, sum, activation| Some(Kernel::ConvThen { conv, affine, sum, activation });
    match follower {
        Kernel::ChannelAffine { activation } if !affine && !sum => then(true, false, *activation),
        Kernel::Add if !sum => then(affine, true, None),
        Kernel::Activation(Activation::Relu) => then(affine, sum, Some(Activation::Relu)),
        _ => None,
    }
}
