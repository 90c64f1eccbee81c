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

/// The same for values that are read and functions of them: a sum of two values.
const MANY_STEPS: usize = 3;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::lower;
    use crate::{Activation, Conv2d, Graph, Objective, Op, infer};

    /// Residual blocks, each with a gate that depends on the whole image: every block is a sweep that reads the sum of those before.
    fn gated_blocks(blocks: usize) -> Program {
        let mut graph = Graph::new();
        let mut value = graph.add_input("x", 3).expect("new");
        for block in 0..=blocks {
            let mut add = |name: &str, op, inputs: &[_]| {
                graph.add_node(&format!("{name}{block}"), op, inputs).expect("fits")
            };
            let conv = add("conv", Op::Conv2d(Conv2d::new(8, [3, 3]).padded([1, 1])), &[value]);
            if block == 0 {
                value = conv;
                continue;
            }
            let mean = add("mean", Op::GlobalAvgPool, &[conv]);
            let gate = add("gate", Op::Activation(Activation::Sigmoid), &[mean]);
            let gated = add("gated", Op::Mul, &[conv, gate]);
            let sum = add("sum", Op::Add, &[gated, value]);
            value = add("relu", Op::Activation(Activation::Relu), &[sum]);
        }
        graph.set_outputs(&[value]).expect("known");
        let shapes = infer(&graph, 1, &[[40, 30]]).expect("shapes");
        lower(&graph, &shapes, &Objective::inference(), &[]).expect("a program")
    }

    #[test]
    fn what_a_block_adds_to_is_kept_and_not_summed_again_from_all_before() {
        let program = gated_blocks(5);
        let sets = kept_sets(&program, &PlanOptions::default(), 8).expect("memory");
        let name = |node: &NodeId| program.nodes[*node].name.clone();
        let names: Vec<String> = sets[0].iter().map(name).collect();
        // one sum a block that a later one reads, whichever of its two nodes; the first block adds to a convolution
        for block in 1..5 {
            let sums = [format!("sum{block}"), format!("relu{block}")];
            assert_eq!(names.iter().filter(|name| sums.contains(name)).count(), 1, "{names:?}");
            assert!(!names.contains(&format!("gated{block}")), "a gate is applied again: {names:?}");
        }
        assert!(
            !names.iter().any(|name| name.ends_with('5') && name != "conv5"),
            "nobody reads the last: {names:?}"
        );
    }
}
