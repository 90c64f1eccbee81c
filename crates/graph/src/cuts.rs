//! Where a sweep may end though nothing is gathered there.

use tiled_tensor::{OutOfMemory, collected, push};

use crate::index::IndexVec;
use crate::program::{NodeId, Program};

/// The most places, and the fewest rows and columns of a value that is worth keeping for one.
const MOST_PLACES: usize = 8;
const LEAST_EXTENT: i64 = 8;

/// Values that all paths through a program go through, where it may be cut: of those of each height, the last one with the fewest channels.
pub(crate) fn places(program: &Program) -> Result<Vec<NodeId>, OutOfMemory> {
    let mut last_reader: IndexVec<NodeId, Option<NodeId>> = IndexVec::filled(program.nodes.len(), None)?;
    for (id, node) in program.nodes.entries() {
        for edge in &node.operands {
            last_reader[edge.node] = Some(id);
        }
    }
    let mut found: Vec<(i64, usize, NodeId)> = Vec::new();
    let mut reach: Option<NodeId> = None;
    for (id, node) in program.nodes.entries() {
        // nobody behind it reads what lies before it
        let is_passed = reach.is_none_or(|reach| reach <= id);
        reach = reach.max(last_reader[id]);
        let [height, width] = node.extents;
        let is_value = node.kernel().is_some() && last_reader[id].is_some();
        if !is_passed || !is_value || height.min(width) < LEAST_EXTENT {
            continue;
        }
        match found.iter_mut().find(|(of, ..)| *of == height) {
            Some((_, channels, place)) if node.channels <= *channels => {
                (*channels, *place) = (node.channels, id);
            }
            Some(_) => {}
            None => push(&mut found, (height, node.channels, id))?,
        }
    }
    collected(found.into_iter().take(MOST_PLACES).map(|(_, _, id)| id))
}

/// Ends a sweep with a node: what follows it at its level gets a level of its own, and what had a later one gets one more. Whether anything follows
/// it there: where nothing is computed behind it, nothing is changed. The node has to be kept.
pub(crate) fn cut_after(program: &mut Program, cut: NodeId) -> Result<bool, OutOfMemory> {
    let level = program.nodes[cut].level;
    let mut follows = IndexVec::filled(program.nodes.len(), false)?;
    for id in program.nodes.ids() {
        let node = &program.nodes[id];
        let is_behind = node.operands.iter().any(|edge| edge.node == cut || follows[edge.node]);
        follows[id] = is_behind && node.level == level;
    }
    // something that is gathered or written has to end what follows, and something to be computed
    let those = || program.nodes.entries().filter(|(id, _)| follows[*id]);
    let has_end = those().any(|(id, node)| node.is_terminal() || program.cuts.contains(&id));
    if !has_end || !those().any(|(_, node)| node.kernel().is_some()) {
        return Ok(false);
    }
    for (node, follows) in program.nodes.iter_mut().zip(&follows) {
        node.level += usize::from(node.level > level || *follows);
    }
    for (after, _) in &mut program.finalisers {
        *after = after.map(|after| if after >= level { after + 1 } else { after });
    }
    push(&mut program.cuts, cut)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::StoreId;
    use crate::{Graph, Id, Objective, infer, lower, sweeps};

    fn program(network: &str) -> Program {
        let graph = Graph::builtin(network).expect("a built-in network");
        let shapes = infer(&graph, 1, &[[128, 128]]).expect("shapes");
        lower(&graph, &shapes, &Objective::inference(), &[]).expect("a program")
    }

    #[test]
    fn nothing_goes_around_a_place() {
        for (network, least) in [("resnet18", 4), ("darknet19", 4), ("unet", 0)] {
            let program = program(network);
            let places = places(&program).expect("memory");
            assert!(places.len() >= least, "{network}: {places:?}");
            for place in places {
                for (id, node) in program.nodes.entries().filter(|(id, _)| *id > place) {
                    let around = node.operands.iter().find(|edge| edge.node < place);
                    assert!(around.is_none(), "{network}: {id:?} reads {around:?} before {place:?}");
                }
            }
        }
    }

    #[test]
    fn a_cut_makes_two_sweeps_of_one_and_moves_those_behind() {
        let mut program = program("resnet18");
        let before = program.sweeps();
        assert_eq!(before, 2, "a global mean");
        let finalisers: Vec<Option<usize>> = program.finalisers.iter().map(|(after, _)| *after).collect();
        let place = places(&program).expect("memory")[1];
        assert!(cut_after(&mut program, place).expect("memory"));
        assert_eq!((program.sweeps(), program.cuts.as_slice()), (3, &[place][..]));
        for (id, node) in program.nodes.entries() {
            for edge in &node.operands {
                let least = program.nodes[edge.node].level + usize::from(edge.node == place);
                assert!(node.level >= least, "{id:?} is not behind {:?}", edge.node);
            }
        }
        for ((after, _), before) in program.finalisers.iter().zip(finalisers) {
            assert_eq!(
                *after,
                before.map(|before| before + 1),
                "after the sweep that was the first, now the second"
            );
        }
        let sweeps = sweeps(&program, &[(place, StoreId::new(0))]);
        assert_eq!(sweeps.len(), 3);
        assert!(sweeps[0].iter().all(|node| node.node <= place));
        assert!(sweeps[1].iter().all(|node| node.node >= place));
        // before it, another
        let earlier = places(&program).expect("memory")[0];
        assert!(earlier < place && cut_after(&mut program, earlier).expect("memory"));
        assert_eq!((program.sweeps(), program.nodes[place].level, program.nodes[earlier].level), (4, 1, 0));
        // what nothing of its level follows is no place for a cut
        let last = program.nodes.entries().filter(|(_, node)| node.level == 3).map(|(id, _)| id).next_back();
        assert!(!cut_after(&mut program, last.expect("a node")).expect("memory"));
        assert_eq!(program.sweeps(), 4);
    }
}
