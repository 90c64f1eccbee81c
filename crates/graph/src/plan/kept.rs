//! Which values that several sweeps need are kept whole: sets of them to try.

use tiled_tensor::{OutOfMemory, collected, copied, push};

use super::{Hold, PlanOptions};
use crate::index::IndexVec;
use crate::program::{NodeId, NodeKind, Program, ProgramNode};
use crate::sweep::{read_again, shared_between_sweeps};

/// The sets of values to keep that are tried, at most `most`: those that are costly to compute, then the same without the largest ones, at last none.
/// What no later sweep reads is in none of them.
pub(super) fn kept_sets(
    program: &Program,
    options: &PlanOptions,
    most: usize,
) -> Result<Vec<Vec<NodeId>>, OutOfMemory> {
    if options.hold == Hold::Materialise {
        return Ok(vec![read_again(program, shared_between_sweeps(program)?)?]);
    }
    let costly = costly(program)?;
    let mut sizes = collected(costly.iter().map(|node| elements_of_image(&program.nodes[*node])))?;
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    // the sets get smaller by one size each time, or by several where there are many
    let step = sizes.len().div_ceil(most.saturating_sub(1).max(1)).max(1);
    let largest = sizes.into_iter().step_by(step);
    let mut sets: Vec<Vec<NodeId>> = Vec::new();
    for largest in largest {
        let is_small = |node: &NodeId| elements_of_image(&program.nodes[*node]) <= largest;
        push(&mut sets, read_again(program, collected(costly.iter().copied().filter(is_small))?)?)?;
    }
    push(&mut sets, Vec::new())?;
    sets.dedup();
    Ok(sets)
}

/// The values that several sweeps need and that take long to compute: what takes many operations, and what reads many values that are kept, as
/// the sums of a long row of residual blocks do.
fn costly(program: &Program) -> Result<Vec<NodeId>, OutOfMemory> {
    let mut is_shared = IndexVec::filled(program.nodes.len(), false)?;
    for node in shared_between_sweeps(program)? {
        is_shared[node] = true;
    }
    // what is read and computed for an element, from values that are kept
    let mut steps: IndexVec<NodeId, usize> = IndexVec::filled(program.nodes.len(), 1)?;
    let mut costly = Vec::new();
    for (id, node) in program.nodes.entries() {
        let NodeKind::Compute(kernel) = &node.kind else { continue };
        if node.extents == [1, 1] {
            steps[id] = 0;
            continue;
        }
        let taken = node.operands.iter().fold(1, |sum: usize, edge| sum.saturating_add(steps[edge.node]));
        let takes_long = kernel.flops_per_element() >= MANY_OPERATIONS || taken >= MANY_STEPS;
        if is_shared[id] && takes_long {
            push(&mut costly, id)?;
        } else {
            steps[id] = taken;
        }
    }
    Ok(costly)
}

/// The operations of an element that take longer than to write it and to read it again.
const MANY_OPERATIONS: f64 = 16.0;

/// The same for values that are read and functions of them: a gate, a sum and an activation over two values.
const MANY_STEPS: usize = 5;

/// A set of kept values with one more of those that are costly, for at most `most` of them. What nobody reads any more is in none.
pub(super) fn with_one_more(
    program: &Program,
    kept: &[NodeId],
    most: usize,
) -> Result<Vec<Vec<NodeId>>, OutOfMemory> {
    let mut others = costly(program)?;
    others.retain(|node| !kept.contains(node));
    let step = others.len().div_ceil(most.max(1)).max(1);
    let mut sets = Vec::new();
    for node in others.into_iter().step_by(step) {
        let mut set = copied(kept)?;
        push(&mut set, node)?;
        let set = read_again(program, set)?;
        if set.contains(&node) {
            push(&mut sets, set)?;
        }
    }
    Ok(sets)
}

/// A set of kept values without one of them, for at most `most` of them.
pub(super) fn with_one_less(kept: &[NodeId], most: usize) -> Result<Vec<Vec<NodeId>>, OutOfMemory> {
    let step = kept.len().div_ceil(most.max(1)).max(1);
    let mut sets = Vec::new();
    for less in kept.iter().step_by(step) {
        push(&mut sets, collected(kept.iter().copied().filter(|node| node != less))?)?;
    }
    Ok(sets)
}

/// The elements of a value of one image.
fn elements_of_image(node: &ProgramNode) -> i64 {
    let pixels = node.extents[0].saturating_mul(node.extents[1]);
    pixels.saturating_mul(i64::try_from(node.channels).unwrap_or(i64::MAX))
}
