//! Single values kept beside those of the best set, or no longer kept, as long as that makes the run faster.
//!
//! The sets that are tried first hold all values up to some size. Where a budget is too small for all of a size, one of them may fit yet, and every
//! sweep behind it starts there; and one value less may leave the others their windows. Those are tried first with which the run is the shortest
//! whatever the tiling, as long as no other takes less memory and as little time.

use std::rc::Rc;

use tiled_tensor::{Element, OutOfMemory, push};

use super::bound::least_seconds;
use super::kept::{with_one_less, with_one_more};
use super::lanes::cores;
use super::search::{Choice, Search};
use super::{Hold, PlanError, Tiling};
use crate::program::{NodeId, Program};

/// The most changes of a set, and the sets whose tilings are searched for one.
const MOST_CHANGES: usize = 12;
const MOST_TRIED: usize = 6;

/// The nodes of all sweeps that are looked at for one, and how few sets are not worth a look.
const MOST_NODES: usize = 400_000;
const FEW_SETS: usize = 8;

/// The share of the time that is worth more bytes.
const LESS_TIME: f64 = 0.99;

impl<T: Element> Search<'_, T> {
    /// Adds values to what the best plan keeps, or takes them out, one at a time, while some budget keeps it from keeping more.
    pub(super) fn improve_kept(&mut self) -> Result<(), PlanError> {
        if self.options.hold == Hold::Materialise || self.options.tiling != Tiling::Auto {
            return Ok(());
        }
        let Some(budget) = self.options.memory_bytes else { return Ok(()) };
        for _ in 0..MOST_CHANGES {
            let is_better = !self.is_comfortable()
                && (self.change(budget, with_one_more)?
                    || self.change(budget, |_, kept, most| with_one_less(kept, most))?);
            if !is_better {
                break;
            }
        }
        Ok(())
    }

    /// Takes one of some sets, at most so many, with which the run is faster: the one that promises the most if its windows fit; whether there is one.
    fn change(
        &mut self,
        budget: u64,
        sets: impl FnOnce(&Program, &[NodeId], usize) -> Result<Vec<Vec<NodeId>>, OutOfMemory>,
    ) -> Result<bool, PlanError> {
        let Some((Choice { lowered, kept, in_files }, nodes, price)) = self.best_choice() else {
            return Ok(false);
        };
        let most = MOST_NODES / nodes.max(1);
        if in_files || most < FEW_SETS {
            return Ok(false);
        }
        let cores = cores(&lowered.program, self.options, self.backend);
        // each with the least bytes and seconds
        let mut found: Vec<(u64, f64, Vec<NodeId>)> = Vec::new();
        for set in sets(&lowered.program, &kept, most)? {
            self.check()?;
            let kept = lowered.keep(&set, self.backend, false)?;
            if kept.least_bytes() > budget {
                continue;
            }
            let Some(prepared) = self.prepared(lowered, &kept)? else { continue };
            if prepared.least_bytes() > budget {
                continue;
            }
            let seconds = least_seconds(self.backend, &prepared, cores)?;
            push(&mut found, (prepared.least_bytes(), seconds, set))?;
        }
        found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        // what takes more bytes has to take less time
        let mut fastest = f64::INFINITY;
        found.retain(|(_, seconds, _)| {
            let is_faster = *seconds < LESS_TIME * fastest;
            fastest = fastest.min(*seconds);
            is_faster
        });
        for (.., set) in found.into_iter().rev().take(MOST_TRIED) {
            self.try_choice(Choice { lowered, kept: Rc::new(set), in_files })?;
            if self.best_choice().is_some_and(|(.., best)| best < price) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use tiled_kernel::Reference;

    use crate::{Conv2d, Graph, GroupNorm, Objective, Op, Plan, PlanOptions, Planner, infer};

    /// Convolutions of one size, each with a norm whose statistics are those of the whole image.
    fn norms() -> Graph {
        let mut graph = Graph::new();
        let mut value = graph.add_input("x", 3).expect("new");
        for layer in 0..6 {
            let conv = Op::Conv2d(Conv2d::new(8, [3, 3]).padded([1, 1]));
            value = graph.add_node(&format!("conv{layer}"), conv, &[value]).expect("fits");
            value = graph
                .add_node(&format!("norm{layer}"), Op::GroupNorm(GroupNorm::new(2)), &[value])
                .expect("fits");
        }
        graph.set_outputs(&[value]).expect("known");
        graph
    }

    fn plan(memory_bytes: u64) -> Plan {
        let graph = norms();
        let shapes = infer(&graph, 1, &[[96, 80]]).expect("shapes");
        let options = PlanOptions { memory_bytes: Some(memory_bytes), ..PlanOptions::default() };
        Planner::<f32>::new(&graph, &shapes, &Objective::inference(), &Reference)
            .plan(&options)
            .expect("a plan")
    }

    #[test]
    fn some_values_of_a_size_are_kept_where_all_take_too_much() {
        let value = 4 * 8 * 96 * 80;
        let ample = plan(1 << 30);
        assert!(ample.memory.stores_bytes >= 2 * value, "several are needed at a time");
        // down to where none is kept
        let (mut budget, mut found) = (ample.peak_bytes(), Vec::new());
        loop {
            let plan = plan(budget);
            assert!(plan.peak_bytes() <= budget, "{} of {budget} bytes", plan.peak_bytes());
            found.push((plan.memory.stores_bytes / value, plan.predicted_seconds));
            if plan.memory.stores_bytes == 0 {
                break;
            }
            budget = plan.peak_bytes() - value / 4;
        }
        assert!(found.iter().any(|(values, _)| *values == 1), "one value is kept alone: {found:?}");
        assert!(found.is_sorted_by_key(|(_, seconds)| *seconds), "less memory takes longer: {found:?}");
    }
}
