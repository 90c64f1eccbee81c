//! What the search for a plan goes over: where segments end, what is kept, tilings, bands and lanes.

use std::marker::PhantomData;
use std::rc::Rc;

use tiled_kernel::Backend;
use tiled_tensor::{Element, OutOfMemory, collected, copied, with_room};

use super::build::Lowered;
use super::kept::kept_sets;
use super::search::{Choice, Search};
use super::{Budget, Hold, Plan, PlanError, PlanOptions};
use crate::program::NodeId;
use crate::select::select;
use crate::sweep::nodes_of_sweeps;
use crate::{Graph, Objective, Op, Shapes, ValueId, lower};

/// Plans runs of a network on a backend.
#[derive(Debug)]
pub struct Planner<'a, T> {
    graph: &'a Graph,
    shapes: &'a Shapes,
    objective: &'a Objective,
    backend: &'a dyn Backend<T>,
    element: PhantomData<T>,
}

/// The sets of values to keep that are tried, at most and of the largest networks.
const MOST_KEPT_SETS: usize = 32;
const LEAST_KEPT_SETS: usize = 8;

/// The nodes of all sweeps of all sets of values to keep that are tried, and how few sets leave no room for checkpoints.
const MOST_NODES: usize = 650_000;
const FEW_CHOICES: usize = 10;

impl<'a, T: Element> Planner<'a, T> {
    /// A planner for a network of these shapes and an objective.
    #[must_use]
    pub fn new(
        graph: &'a Graph,
        shapes: &'a Shapes,
        objective: &'a Objective,
        backend: &'a dyn Backend<T>,
    ) -> Self {
        Self { graph, shapes, objective, backend, element: PhantomData }
    }

    /// The plan of least predicted time that meets the options; of two that take the same within a percent, the one that
    /// takes half the memory, and of two that keep more and less between sweeps within an eighth, the one that keeps more.
    ///
    /// # Errors
    /// Where the objective does not fit the network, or no plan fits the budget, or the memory that can be had where there is
    /// none: then the smallest budget that would do is named. Where memory for the plan itself is refused.
    pub fn plan(&self, options: &PlanOptions) -> Result<Plan, PlanError> {
        self.plan_unless(options, &|| false)
    }

    /// The same, given up soon after `is_cancelled` says so; it is asked often, and from this thread alone.
    ///
    /// # Errors
    /// As [`Planner::plan`], and [`PlanError::Cancelled`].
    pub fn plan_unless(
        &self,
        options: &PlanOptions,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Plan, PlanError> {
        let budget = options.budget();
        let options = options.within(budget.limit())?;
        match self.plan_within(budget, &options, is_cancelled) {
            Err(PlanError::BudgetTooSmall { budget: available, smallest }) if budget.is_default() => {
                Err(PlanError::MemoryTooSmall { available, limited_by: budget.source, smallest })
            }
            planned => {
                let (in_memory, transfer_bytes) = (options.in_memory, options.transfer_bytes);
                planned.map(|plan| Plan { budget, in_memory, transfer_bytes, ..plan })
            }
        }
    }

    /// The plan for a budget, which stands in the options too; none there means any.
    fn plan_within(
        &self,
        budget: Budget,
        options: &PlanOptions,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Plan, PlanError> {
        let sets = self.checkpoint_sets(options)?;
        let mut lowered: Vec<(Lowered, Vec<Rc<Vec<NodeId>>>)> = with_room(sets.len())?;
        let mut choices = 0;
        for checkpoints in &sets {
            if is_cancelled() {
                return Err(PlanError::Cancelled);
            }
            let program = lower(self.graph, self.shapes, self.objective, checkpoints)?;
            let program = select(program, self.backend, options.winograd)?;
            // networks of many sweeps are searched more coarsely
            let most = MOST_NODES / nodes_of_sweeps(&program)?.max(1);
            if most < FEW_CHOICES && choices > 0 {
                break;
            }
            let kept = kept_sets(&program, options, most.clamp(LEAST_KEPT_SETS, MOST_KEPT_SETS))?;
            choices += kept.len();
            let kept = collected(kept.into_iter().map(Rc::new))?;
            lowered.push((Lowered::new(program, self.backend, options)?, kept));
        }
        let mut search = Search::<T>::new(self.backend, options, is_cancelled, choices);
        for (lowered, kept_sets) in &lowered {
            let was_found = search.has_plan();
            for kept in kept_sets {
                for in_files in [false, true] {
                    // files only for what memory does not hold
                    let stores = lowered.program.stores.len() + kept.len();
                    if in_files && (!options.temporary_files || stores == 0 || search.has_plan()) {
                        continue;
                    }
                    search.try_choice(Choice { lowered, kept: Rc::clone(kept), in_files })?;
                }
                // keeping less computes more; but what is kept may leave too little for windows
                if !was_found && search.has_room() {
                    break;
                }
            }
            // the fastest plan is asked for where nobody sets a budget: segments only where nothing else fits
            if search.is_comfortable() || (budget.is_default() && search.has_plan()) {
                break;
            }
        }
        search.improve_kept()?;
        search.finish()
    }

    /// Where segments may end, fewest first: nowhere, then behind every pooling, then behind every second one.
    fn checkpoint_sets(&self, options: &PlanOptions) -> Result<Vec<Vec<ValueId>>, OutOfMemory> {
        if let Some(checkpoints) = &options.checkpoints {
            return Ok(vec![copied(checkpoints)?]);
        }
        let mut sets = vec![Vec::new()];
        let is_free = options.hold != Hold::Materialise && options.memory_bytes.is_some();
        if self.objective.loss.is_some() && is_free {
            let mut outputs = copied(self.graph.outputs())?;
            outputs.sort_unstable();
            let nodes = self.graph.nodes().iter().enumerate();
            let pools = nodes
                .filter(|(_, node)| matches!(node.op, Op::MaxPool2d(_) | Op::AvgPool2d(_)))
                .map(|(position, _)| self.graph.node_value(position))
                .filter(|value| outputs.binary_search(value).is_err());
            let pools: Vec<ValueId> = collected(pools)?;
            for stride in [2, 1] {
                let set: Vec<ValueId> = collected(pools.iter().copied().skip(stride - 1).step_by(stride))?;
                if !set.is_empty() && !sets.contains(&set) {
                    sets.push(set);
                }
            }
        }
        Ok(sets)
    }
}

#[cfg(test)]
mod tests {
    use tiled_kernel::Reference;

    use super::*;
    use crate::{SweepPlan, infer};

    fn plan(graph: &Graph, extents: [usize; 2], options: &PlanOptions) -> Result<Plan, PlanError> {
        let shapes = infer(graph, 1, &[extents]).expect("shapes");
        Planner::<f32>::new(graph, &shapes, &Objective::inference(), &Reference).plan(options)
    }

    /// The steps of the layers with the most weights.
    fn steps(plan: &Plan) -> u64 {
        let weights = |sweep: &&SweepPlan| -> usize {
            let work = sweep.nodes.iter().filter_map(|node| plan.program.work(node.node));
            work.map(|work| work.weights()).sum()
        };
        plan.sweeps.iter().max_by_key(weights).map_or(0, |sweep| sweep.steps)
    }

    #[test]
    fn only_auto_may_choose_the_untiled_run() {
        // deep layers of many weights on few pixels
        let graph = Graph::builtin("resnet18").expect("a built-in network");
        let of = |hold, memory_bytes| PlanOptions { hold, memory_bytes, ..PlanOptions::default() };
        let auto = plan(&graph, [2048, 32], &of(Hold::Auto, None)).expect("a plan");
        assert_eq!(steps(&auto), 1, "weights read once take less time than those of each band");
        let slide = plan(&graph, [2048, 32], &of(Hold::Slide, None)).expect("a plan");
        assert!(steps(&slide) > 1, "windows that slide were asked for");
        // with a byte less than any plan takes in which the layers with the most weights are untiled
        let mut budget = auto.peak_bytes() - 1;
        let within = loop {
            let within = plan(&graph, [2048, 32], &of(Hold::Auto, Some(budget))).expect("a plan");
            assert!(within.peak_bytes() <= budget, "{} of {budget} bytes", within.peak_bytes());
            if steps(&within) > 1 {
                break within;
            }
            budget = within.peak_bytes() - 1;
        };
        assert!(within.predicted_seconds > auto.predicted_seconds, "it was not chosen before");
    }
}
