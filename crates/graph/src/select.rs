//! The algorithm and the epilogue of every node: the one pass between lowering and planning.
//!
//! A convolution takes in what follows it (batch norm in evaluation, a sum, an activation), and the gradient for its input the sum with other
//! gradients and the mask of a ReLU, so that the values between are neither written nor read. The bits stay, as an [`Epilogue`] rounds
//! like the kernels that it stands for.

use tiled_geometry::{AxisMap, Chain};
use tiled_kernel::{Activation, Algorithm, Backend, Epilogue, Kernel, Work};
use tiled_tensor::{Element, OutOfMemory, with_room};

use crate::index::{Id, IndexVec};
use crate::program::{Edge, NodeId, NodeKind, Program};

/// Selects how a backend carries out each node, and leaves out the nodes that nothing needs.
///
/// # Errors
/// Where memory is refused.
pub(crate) fn select<T: Element>(
    mut program: Program,
    backend: &dyn Backend<T>,
    winograd: bool,
) -> Result<Program, OutOfMemory> {
    if winograd {
        select_winograd(&mut program, backend);
    }
    select_epilogues(&mut program, backend)?;
    without_unused(program)
}

/// Lets the convolutions of the network that suit it run by Winograd's minimal filtering. Kernels of gradients stay sums.
fn select_winograd<T: Element>(program: &mut Program, backend: &dyn Backend<T>) {
    for id in program.nodes.ids().take(program.forward) {
        if let NodeKind::Compute(Kernel::Conv2d { conv, epilogue, .. }) = program.nodes[id].kind
            && conv.suits_winograd()
        {
            let kernel = Kernel::Conv2d { conv, algorithm: Algorithm::Winograd, epilogue };
            if program.support_of(id, &Work::Map(kernel), backend).is_some() {
                program.nodes[id].kind = NodeKind::Compute(kernel);
            }
        }
    }
}

/// Takes into convolutions what follows them, as far as the backend carries it out. The last of these nodes stays, with its name.
fn select_epilogues<T: Element>(program: &mut Program, backend: &dyn Backend<T>) -> Result<(), OutOfMemory> {
    let mut readers = IndexVec::filled(program.nodes.len(), 0)?;
    for edge in program.nodes.iter().flat_map(|node| &node.operands) {
        readers[edge.node] += 1;
    }
    for id in program.nodes.ids() {
        let Some((before, added)) = convolution_before(program, id, &readers) else { continue };
        let Some(kernel) = with_step(&program.nodes[before].kind, &program.nodes[id].kind) else { continue };
        let mut node = program.nodes[id].clone();
        let convolution = &program.nodes[before];
        node.kind = NodeKind::Compute(kernel);
        node.operands = convolution.operands.iter().cloned().chain(added).collect();
        node.params = convolution.params.iter().chain(&node.params).copied().collect();
        let alone = std::mem::replace(&mut program.nodes[id], node);
        if program.support(id, backend).is_none() {
            program.nodes[id] = alone;
        }
    }
    Ok(())
}

/// The convolution that could take a node in, which nothing else reads, and the tensor that is added to it.
fn convolution_before(
    program: &Program,
    id: NodeId,
    readers: &IndexVec<NodeId, usize>,
) -> Option<(NodeId, Option<Edge>)> {
    let node = &program.nodes[id];
    let is_convolution = |edge: &Edge| {
        let before = &program.nodes[edge.node];
        let is_whole = edge.axes.iter().flat_map(Chain::maps).all(|(map, _)| *map == AxisMap::Identity);
        let is_one = before.kernel().is_some_and(|kernel| kernel.epilogue().is_some());
        is_one && is_whole && readers[edge.node] == 1 && before.level == node.level
    };
    match (node.kernel()?, node.operands.as_slice()) {
        // factors of channels, not of the channels of each image
        (Kernel::ChannelAffine { .. }, [x])
            if is_convolution(x)
                && program.param_lens(&node.params).iter().all(|len| *len == node.channels) =>
        {
            Some((x.node, None))
        }
        (Kernel::Activation(_), [x]) if is_convolution(x) => Some((x.node, None)),
        (Kernel::ActivationBackward(_), [gradient, saved]) if is_convolution(gradient) => {
            Some((gradient.node, Some(saved.clone())))
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

/// The convolution with one more step, where that comes after those that it has.
fn with_step(convolution: &NodeKind, step: &NodeKind) -> Option<Kernel> {
    let (NodeKind::Compute(convolution), NodeKind::Compute(step)) = (convolution, step) else { return None };
    let may_go_on = |epilogue: &&Epilogue| epilogue.activation.is_none() && epilogue.mask.is_none();
    let before = convolution.epilogue().filter(may_go_on)?;
    let epilogue = match step {
        Kernel::ChannelAffine { activation } if !before.has_operands() => {
            Epilogue { affine: true, activation: *activation, ..*before }
        }
        Kernel::Add if !before.sum => Epilogue { sum: true, ..*before },
        Kernel::Activation(activation) => before.with_activation(Some(*activation)),
        Kernel::ActivationBackward(Activation::Relu) => Epilogue { mask: Some(Activation::Relu), ..*before },
        _ => return None,
    };
    Some(convolution.with_epilogue(epilogue))
}

/// The program without the nodes from which nothing leads to a reduction or a sink.
fn without_unused(mut program: Program) -> Result<Program, OutOfMemory> {
    let mut is_used = IndexVec::filled(program.nodes.len(), false)?;
    for (id, node) in program.nodes.entries().rev() {
        is_used[id] |= node.is_terminal();
        if is_used[id] {
            node.operands.iter().for_each(|edge| is_used[edge.node] = true);
        }
    }
    let mut ids = IndexVec::<NodeId, NodeId>::from(with_room(is_used.len())?);
    let mut count = 0;
    for is_used in &is_used {
        ids.push(NodeId::new(count))?;
        count += usize::from(*is_used);
    }
    program.forward = ids.get(program.forward).map_or(count, |id| id.index());
    program.anchor_node = program.anchor_node.filter(|node| is_used[*node]).map(|node| ids[node]);
    for reduction in &mut program.reductions {
        reduction.node = ids[reduction.node];
    }
    let mut used = is_used.iter();
    program.nodes.retain(|_| used.next() == Some(&true));
    for rates in &mut program.rates {
        let mut used = is_used.iter();
        rates.retain(|_| used.next() == Some(&true));
    }
    for edge in program.nodes.iter_mut().flat_map(|node| &mut node.operands) {
        edge.node = ids[edge.node];
    }
    Ok(program)
}
