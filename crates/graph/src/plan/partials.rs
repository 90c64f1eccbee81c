//! Which sums over the whole image share memory: those that are not needed together.

use tiled_kernel::Reduction;
use tiled_tensor::{OutOfMemory, filled};

use super::slots::{SlotId, Span, Spans, Stored};
use crate::index::{Id, IndexVec};
use crate::program::{Program, ReductionId};

/// The slot of each reduction, and the bytes of each slot in one lane.
pub(super) type Gathered = (IndexVec<ReductionId, SlotId>, IndexVec<SlotId, usize>);

/// Gives reductions slots, of these bytes each: a reduction lies in its own from the sweep that gathers it to the last one after which it is read.
pub(super) fn assign(
    program: &Program,
    bytes: &IndexVec<ReductionId, usize>,
) -> Result<Gathered, OutOfMemory> {
    let mut held: Vec<Span> = filled(bytes.len(), None)?;
    for (id, reduction) in program.reductions.entries() {
        let level = program.nodes[reduction.node].level as u64;
        // kernels of any later sweep read extrema
        let last = if reduction.reduction == Reduction::ImageMax { program.sweeps() as u64 } else { level };
        held[id.index()] = Some([level, last]);
    }
    for (level, finaliser) in &program.finalisers {
        if let (Some(level), Some(id)) = (level, finaliser.reduction())
            && let Some([_, last]) = &mut held[id.index()]
        {
            *last = (*last).max(*level as u64);
        }
    }
    let mut spans = Spans::default();
    spans.add(held)?;
    let mut slot_of: IndexVec<ReductionId, SlotId> = IndexVec::filled(bytes.len(), SlotId::new(0))?;
    let mut sizes = IndexVec::<SlotId, usize>::from(Vec::new());
    // states of different kinds lie in memory of their own
    for kind in [Kind::Values, Kind::Exact, Kind::Extrema] {
        let mut of_kind = filled(bytes.len(), 0)?;
        for (id, reduction) in program.reductions.entries() {
            if Kind::of(&reduction.reduction) == kind {
                of_kind[id.index()] = bytes[id].max(1);
            }
        }
        // none for those of another kind
        let (slots, longest): Stored<ReductionId> = spans.assign(&of_kind)?;
        for (id, slot) in slots.entries() {
            if let Some(slot) = slot {
                slot_of[id] = SlotId::new(sizes.len() + slot.index());
            }
        }
        for size in &longest {
            sizes.push(*size)?;
        }
    }
    Ok((slot_of, sizes))
}

/// The kinds of [`tiled_kernel::Partial`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Values,
    Exact,
    Extrema,
}

impl Kind {
    const fn of(reduction: &Reduction) -> Self {
        match reduction {
            Reduction::ConvWeight(_) => Self::Values,
            Reduction::ImageMax => Self::Extrema,
            _ => Self::Exact,
        }
    }
}

#[cfg(test)]
mod tests {
    use tiled_kernel::{Backend, Reference};

    use super::*;
    use crate::{Graph, Loss, Objective, infer, lower};

    /// The slots of a step of training, with the bytes of each reduction.
    fn assigned(network: &str) -> (Program, IndexVec<ReductionId, usize>, Gathered) {
        let graph = Graph::builtin(network).expect("a built-in network");
        let shapes = infer(&graph, 2, &[[64, 64]]).expect("shapes");
        let program = lower(&graph, &shapes, &Objective::training(Loss::Sum), &[]).expect("a program");
        let backend: &dyn Backend<f32> = &Reference;
        let bytes = program.reductions.iter().map(|reduction| {
            program.support(reduction.node, backend).expect("it carries out everything").partial_bytes
        });
        let bytes = IndexVec::from(bytes.collect::<Vec<_>>());
        let gathered = assign(&program, &bytes).expect("memory");
        (program, bytes, gathered)
    }

    #[test]
    fn sums_of_one_slot_are_of_one_kind_and_not_needed_together() {
        let (program, bytes, (slots, sizes)) = assigned("resnet18");
        let last = |id: ReductionId| {
            let readers = program.finalisers.iter().filter(|(_, of)| of.reduction() == Some(id));
            readers.filter_map(|(level, _)| *level).max().expect("it is read")
        };
        let first = |id: ReductionId| program.nodes[program.reductions[id].node].level;
        let kind = |id: ReductionId| Kind::of(&program.reductions[id].reduction);
        for (a, slot) in slots.entries() {
            assert!(bytes[a] <= sizes[*slot]);
            for (b, _) in slots.entries().filter(|(b, other)| a < *b && *other == slot) {
                assert_eq!(kind(a), kind(b), "{a:?} and {b:?}");
                assert!(last(a) < first(b) || last(b) < first(a), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn many_norms_take_little_more_than_the_largest() {
        let (program, bytes, (_, sizes)) = assigned("resnet18");
        let [all, slots] = [bytes.iter().sum::<usize>(), sizes.iter().sum()];
        assert!(4 * slots < all, "{slots} of {all} bytes");
        assert!(program.reductions.len() > 40);
    }
}
