//! The parameters that a run lets go of once they are packed.

use tiled_tensor::{OutOfMemory, filled, push, with_room};

use crate::index::{Id, IndexVec};
use crate::program::{Finaliser, NodeId, Param, ParamId, Program, ProgramNode, Running};

/// A node whose parameters are packed before the first sweep, and those of the caller that nothing reads any more after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The node.
    pub node: NodeId,
    /// What the run lets go of once they are packed.
    pub params: Vec<ParamId>,
}

/// What a run packs and lets go of, in its order: the largest first, while most of what is not yet packed is small. Nothing where gradients
/// with respect to parameters are wanted, which whoever asks for them changes, or where the run has two halves, which share none of their memory.
pub(super) fn releases(
    program: &Program,
    packed_bytes: impl Fn(NodeId) -> u64,
) -> Result<Vec<Release>, OutOfMemory> {
    if !program.param_grads.is_empty() || program.second_half.is_some() {
        return Ok(Vec::new());
    }
    let stay = staying(program)?;
    let leaves = |node: &ProgramNode| network_params(node).any(|param| !stay[param]);
    let leaving = || program.nodes.entries().filter(|(_, node)| leaves(node)).map(|(id, _)| id);
    let mut nodes: Vec<NodeId> = with_room(leaving().count())?;
    nodes.extend(leaving());
    nodes.sort_by_key(|node| std::cmp::Reverse(packed_bytes(*node)));
    let mut readers = IndexVec::filled(program.params.len(), 0_usize)?;
    for param in nodes.iter().flat_map(|node| network_params(&program.nodes[*node])) {
        readers[param] += 1;
    }
    let mut releases = with_room(nodes.len())?;
    for node in nodes {
        let mut params = Vec::new();
        for param in network_params(&program.nodes[node]).filter(|param| !stay[*param]) {
            readers[param] -= 1;
            if readers[param] == 0 {
                push(&mut params, param)?;
            }
        }
        releases.push(Release { node, params });
    }
    Ok(releases)
}

/// The bytes of parameters, as they are given and as they are packed: when all are packed that a run lets go of, and the most that there are before.
pub(super) fn parameters_bytes(
    program: &Program,
    releases: &[Release],
    packed_bytes: impl Fn(NodeId) -> u64,
    element_bytes: u64,
) -> Result<[u64; 2], OutOfMemory> {
    let given = |param: ParamId| (program.params[param] as u64).saturating_mul(element_bytes);
    let mut is_early = filled(program.nodes.len(), false)?;
    releases.iter().for_each(|release| is_early[release.node.index()] = true);
    let late = program.nodes.ids().filter(|node| !is_early[node.index()]).map(&packed_bytes);
    let mut held = program.params.ids().map(given).chain(late).fold(0, u64::saturating_add);
    let mut most = held;
    for Release { node, params } in releases {
        held = held.saturating_add(packed_bytes(*node));
        most = most.max(held);
        held = params.iter().map(|param| given(*param)).fold(held, u64::saturating_sub);
    }
    Ok([held, most])
}

/// The parameters that have to stay: those that nothing packs, and those that are read again after the first sweep has begun.
fn staying(program: &Program) -> Result<IndexVec<ParamId, bool>, OutOfMemory> {
    let mut stay = IndexVec::filled(program.params.len(), true)?;
    for param in program.nodes.iter().flat_map(network_params) {
        stay[param] = false;
    }
    let mut comes_later = IndexVec::filled(program.derived.len(), false)?;
    for (after, finaliser) in &program.finalisers {
        let (norm, read) = match finaliser {
            Finaliser::NormEval { norm, running: [mean, variance] } => {
                (norm, [Some(*mean), Some(*variance), None])
            }
            Finaliser::NormTrain { norm, running, .. } => (norm, running.map_or([None; 3], Running::params)),
            Finaliser::NormBackward { norm, coefficients, .. } => {
                coefficients.iter().flatten().for_each(|vector| comes_later[*vector] = true);
                (norm, [None; 3])
            }
            // these read what was gathered or derived
            Finaliser::GlobalMean { .. }
            | Finaliser::GlobalMax { .. }
            | Finaliser::ParamGrad { .. }
            | Finaliser::SharedGrad { .. }
            | Finaliser::Loss { .. } => continue,
        };
        let read = read.into_iter().chain([norm.weight, norm.bias]).flatten();
        read.for_each(|param| stay[param] = true);
        if after.is_some() {
            let vectors = [norm.mean, norm.inverse_std, norm.scale, norm.shift];
            vectors.into_iter().for_each(|vector| comes_later[vector] = true);
        }
    }
    for node in &program.nodes {
        let is_packed_later = node.params.iter().any(|param| match param {
            Param::Network(_) => false,
            Param::Derived(vector) => comes_later[*vector],
            Param::Extrema(_) => true,
        });
        if is_packed_later {
            network_params(node).for_each(|param| stay[param] = true);
        }
    }
    Ok(stay)
}

fn network_params(node: &ProgramNode) -> impl Iterator<Item = ParamId> + '_ {
    node.params.iter().filter_map(|param| match param {
        Param::Network(param) => Some(*param),
        Param::Derived(_) | Param::Extrema(_) => None,
    })
}
