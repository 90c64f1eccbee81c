//! The search for a plan: the least predicted time within the budget, where the double memory must save a percent.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use tiled_geometry::Grid;
use tiled_kernel::Backend;
use tiled_tensor::Element;

use super::build::{Cols, Prepared, Rows};
use super::fuse::fuse;
use super::{Budget, Hold, Plan, PlanError, PlanOptions, SweepPlan, Tiling};
use crate::program::{NodeId, NodeKind, Program, Store};
use crate::sweep::shared_between_sweeps;
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

/// A band as tall as any tile: every node in one call.
const WHOLE: i64 = tiled_geometry::MAX_COORDINATE;

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
    /// takes half the memory.
    ///
    /// # Errors
    /// Where the objective does not fit the network, or no plan fits the budget, or the memory that can be had where there is
    /// none: then the smallest budget that would do is named.
    pub fn plan(&self, options: &PlanOptions) -> Result<Plan, PlanError> {
        let budget = options.budget();
        match self.plan_within(budget, &PlanOptions { memory_bytes: budget.limit(), ..options.clone() }) {
            Err(PlanError::BudgetTooSmall { budget: available, smallest }) if budget.is_default() => {
                Err(PlanError::MemoryTooSmall { available, limited_by: budget.source, smallest })
            }
            planned => planned.map(|plan| Plan { budget, ..plan }),
        }
    }

    /// The plan for a budget, which stands in the options too; none there means any.
    fn plan_within(&self, budget: Budget, options: &PlanOptions) -> Result<Plan, PlanError> {
        let mut best = Best::new(options.memory_bytes);
        for checkpoints in self.checkpoint_sets(options) {
            let mut program = lower(self.graph, self.shapes, self.objective, &checkpoints)?;
            if options.winograd {
                program.use_winograd();
            }
            fuse(&mut program, self.backend);
            for kept in self.kept_sets(&program, options) {
                let (program, kept) = keep(program.clone(), &kept);
                let found = best.plan.is_some();
                for in_files in [false, true] {
                    // files only for what memory does not hold
                    if in_files && (!options.scratch || program.stores.is_empty() || best.plan.is_some()) {
                        continue;
                    }
                    let resident = options.resident_bytes;
                    let prepared = Prepared::new(program.clone(), &kept, self.backend, resident, in_files)?;
                    self.search(&prepared, options, &mut best)?;
                }
                if !found && best.plan.is_some() {
                    break; // keeping less computes more
                }
            }
            // the fastest plan is asked for where nobody sets a budget: segments only where nothing else fits
            if best.is_comfortable() || (budget.is_default() && best.plan.is_some()) {
                break;
            }
        }
        best.finish()
    }

    /// Where segments may end, fewest first: nowhere, then behind every pooling, then behind every second one.
    fn checkpoint_sets(&self, options: &PlanOptions) -> Vec<Vec<ValueId>> {
        if let Some(checkpoints) = &options.checkpoints {
            return vec![checkpoints.clone()];
        }
        let mut sets = vec![Vec::new()];
        let is_free = options.hold != Hold::Materialise && options.memory_bytes.is_some();
        if self.objective.loss.is_some() && is_free {
            let inputs = self.graph.inputs().len();
            let pools: Vec<ValueId> = self
                .graph
                .nodes()
                .iter()
                .enumerate()
                .filter(|(_, node)| matches!(node.op, Op::MaxPool2d(_) | Op::AvgPool2d(_)))
                .map(|(place, _)| ValueId(inputs + place))
                .filter(|value| !self.graph.outputs().contains(value))
                .collect();
            for stride in [2, 1] {
                let set: Vec<ValueId> = pools.iter().copied().skip(stride - 1).step_by(stride).collect();
                if !set.is_empty() && !sets.contains(&set) {
                    sets.push(set);
                }
            }
        }
        sets
    }

    /// Which of the values that several sweeps need are kept whole: those that are dear to compute, then the same
    /// without the largest ones, at last none.
    fn kept_sets(&self, program: &Program, options: &PlanOptions) -> Vec<Vec<NodeId>> {
        let shared = shared_between_sweeps(program);
        if options.hold == Hold::Materialise {
            return vec![shared];
        }
        let is_dear = |node: &NodeId| match &program.nodes[*node].kind {
            NodeKind::Compute(kernel) => kernel.flops_per_element() >= 16.0,
            _ => false,
        };
        let size = |node: &NodeId| {
            let node = &program.nodes[*node];
            node.extents[0]
                .saturating_mul(node.extents[1])
                .saturating_mul(i64::try_from(node.channels).unwrap_or(i64::MAX))
        };
        let mut dear: Vec<NodeId> = shared.iter().copied().filter(is_dear).collect();
        let mut sets = Vec::new();
        while let Some(largest) = dear.iter().map(size).max() {
            sets.push(dear.clone());
            dear.retain(|node| size(node) < largest);
        }
        sets.push(Vec::new());
        sets
    }

    fn search(&self, prepared: &Prepared, options: &PlanOptions, best: &mut Best) -> Result<(), PlanError> {
        let anchor = prepared.program.anchor;
        // rows do not depend on the columns of tiles, so each band is simulated once for all strips
        let mut simulated = BTreeMap::new();
        // windows that slide over whole rows compute nothing twice: strips only where those do not fit
        let whole_rows_first = (options.hold, options.tiling) == (Hold::Slide, Tiling::Auto);
        for (counts, bands) in shapes_to_try(&prepared.program, options)? {
            if whole_rows_first && best.plan.is_some() {
                break;
            }
            let grid = match counts {
                Counts::Given(grid) => grid,
                Counts::Of(counts) => Grid::from_counts(anchor, counts)?,
            };
            let cols: Vec<Cols> = prepared.sweeps.iter().map(|sweep| prepared.cols(sweep, &grid)).collect();
            let lowest = bands.last().copied();
            for band in bands {
                let rows = simulated.entry((grid.counts()[0], band)).or_insert_with(|| {
                    prepared
                        .sweeps
                        .iter()
                        .map(|sweep| prepared.rows(sweep, &grid, band))
                        .collect::<Vec<Rows>>()
                });
                let sweeps = prepared
                    .sweeps
                    .iter()
                    .zip(rows.iter().zip(&cols))
                    .map(|(sweep, (rows, cols))| prepared.sweep_plan(sweep, &grid, rows, cols))
                    .collect::<Result<Vec<SweepPlan>, PlanError>>();
                let finish = |lanes| prepared.finish::<T>(sweeps.clone()?, lanes, options.parallelism);
                for plan in lanes_to_try(grid.len(), options).into_iter().map(finish) {
                    match plan {
                        Ok(plan) => best.offer(plan),
                        // windows that leave the address space: those of lower bands may not
                        Err(PlanError::TooLarge | PlanError::Layout(_)) if Some(band) != lowest => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }
}

/// A tiling to try.
enum Counts {
    Given(Grid<2>),
    Of([i64; 2]),
}

fn shapes_to_try(program: &Program, options: &PlanOptions) -> Result<Vec<(Counts, Vec<i64>)>, PlanError> {
    let anchor = program.anchor;
    // tiles are given in rows of the anchor, bands in rows of the tallest node
    let tallest = program.nodes.iter().map(|node| node.extents[0]).max().unwrap_or(1);
    let band = |rows: i64| {
        let scaled = tiled_geometry::div_ceil(rows.min(anchor[0]) * tallest, anchor[0].max(1));
        options.band.unwrap_or(scaled).max(1)
    };
    let clamp =
        |counts: [i64; 2]| [counts[0].clamp(1, anchor[0].max(1)), counts[1].clamp(1, anchor[1].max(1))];
    let strips = |count: i64| Counts::Of(clamp([1, count]));
    // only where the planner chooses how to hold values may windows stand still
    let whole = (options.hold == Hold::Auto).then_some(WHOLE);
    let bands = whole.into_iter().chain([512, 256, 128, 64, 32, 16, 8, 4, 2, 1]).collect();
    let bands = options.band.map_or(bands, |band| vec![band.max(1)]);
    Ok(match (options.hold, options.tiling) {
        (Hold::Materialise, _) => vec![(Counts::Of([1, 1]), vec![WHOLE])],
        (Hold::Auto | Hold::Recompute, Tiling::Grid(counts)) => {
            vec![(Counts::Given(Grid::from_counts(anchor, counts)?), vec![WHOLE])]
        }
        (Hold::Auto | Hold::Recompute, Tiling::Tile(tile)) => {
            vec![(Counts::Given(Grid::from_tile(anchor, tile)?), vec![WHOLE])]
        }
        (Hold::Slide, Tiling::Grid(counts)) if options.band.is_some() => {
            vec![(Counts::Given(Grid::from_counts(anchor, counts)?), bands)]
        }
        (Hold::Slide, Tiling::Grid([rows, cols])) => {
            let grid = Grid::from_counts(anchor, [1, cols])?;
            Grid::from_counts(anchor, [rows, cols])?;
            vec![(Counts::Given(grid), vec![band(tiled_geometry::div_ceil(anchor[0], rows))])]
        }
        (Hold::Slide, Tiling::Tile([height, width])) => {
            Grid::from_tile(anchor, [height, width])?;
            vec![(Counts::Given(Grid::from_tile(anchor, [anchor[0].max(1), width])?), vec![band(height)])]
        }
        (Hold::Recompute, Tiling::Auto) => powers(anchor[0].max(anchor[1]))
            .map(|count| (Counts::Of(clamp([count, count])), vec![WHOLE]))
            .collect(),
        (Hold::Slide, Tiling::Auto) => {
            powers(anchor[1]).map(|count| (strips(count), bands.clone())).collect()
        }
        (Hold::Auto, Tiling::Auto) => {
            // a part of the rows for each core: whole rows are read and written in one go
            let lanes = i64::try_from(options.lanes.unwrap_or(options.parallelism)).unwrap_or(1);
            let parts = if lanes > 1 { vec![lanes, 1] } else { vec![1] };
            powers(anchor[1])
                .flat_map(|strips| parts.iter().map(move |parts| [*parts, strips]))
                .map(|counts| (Counts::Of(clamp(counts)), bands.clone()))
                .collect()
        }
    })
}

/// 1, 2, 3, 4, 6, 8, 12, 16, … up to the extent.
fn powers(extent: i64) -> impl Iterator<Item = i64> {
    let extent = extent.clamp(1, 4096);
    std::iter::successors(Some((1_i64, 2_i64)), |(a, b)| {
        Some((*b, if b.count_ones() == 1 { b / 2 * 3 } else { a * 2 }))
    })
    .map(|(count, _)| count)
    .take_while(move |count| *count <= extent)
}

fn lanes_to_try(tiles: usize, options: &PlanOptions) -> Vec<usize> {
    let mut lanes = match (options.lanes, options.hold) {
        (Some(lanes), _) => vec![lanes],
        (None, Hold::Materialise) => vec![1],
        (None, _) => vec![options.parallelism, 1],
    };
    for count in &mut lanes {
        *count = (*count).clamp(1, tiles.max(1));
    }
    lanes.dedup();
    lanes
}

/// Marks nodes as kept and gives each a store.
fn keep(mut program: Program, nodes: &[NodeId]) -> (Program, Vec<(NodeId, usize)>) {
    let mut kept = Vec::with_capacity(nodes.len());
    for id in nodes {
        let node = &program.nodes[*id];
        let [height, width] = node.extents.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX));
        let store = Store { name: node.name.clone(), shape: [node.batch, node.channels, height, width] };
        kept.push((*id, program.stores.len()));
        program.stores.push(store);
    }
    (program, kept)
}

/// What plans are compared by: their time, where the double memory must save a percent.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn price(plan: &Plan) -> f64 {
    plan.predicted_seconds.ln() + 0.01 * (plan.peak_bytes().max(1) as f64).log2()
}

/// The best plan so far.
struct Best {
    budget: Option<u64>,
    plan: Option<Plan>,
    smallest: u64,
}

impl Best {
    const fn new(budget: Option<u64>) -> Self {
        Self { budget, plan: None, smallest: u64::MAX }
    }

    fn offer(&mut self, plan: Plan) {
        let bytes = plan.peak_bytes();
        self.smallest = self.smallest.min(bytes);
        if self.budget.is_some_and(|budget| bytes > budget) {
            return;
        }
        let is_better = self.plan.as_ref().is_none_or(|best| price(&plan) < price(best));
        if is_better {
            self.plan = Some(plan);
        }
    }

    /// Whether cutting the network into segments could hardly be faster than what was found.
    fn is_comfortable(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.redundant_flops <= 0.02 * plan.flops)
    }

    fn finish(self) -> Result<Plan, PlanError> {
        self.plan
            .ok_or(PlanError::BudgetTooSmall { budget: self.budget.unwrap_or(0), smallest: self.smallest })
    }
}

#[cfg(test)]
mod tests {
    use tiled_kernel::Reference;

    use super::*;
    use crate::infer;

    fn plan(graph: &Graph, extents: [usize; 2], options: &PlanOptions) -> Result<Plan, PlanError> {
        let shapes = infer(graph, 1, &[extents]).expect("shapes");
        Planner::<f32>::new(graph, &shapes, &Objective::inference(), &Reference).plan(options)
    }

    fn steps(plan: &Plan) -> u64 {
        plan.sweeps[0].steps
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
        let budget = auto.peak_bytes() - 1;
        let within = plan(&graph, [2048, 32], &of(Hold::Auto, Some(budget))).expect("a plan");
        assert!(steps(&within) > 1 && within.peak_bytes() <= budget, "{} bytes", within.peak_bytes());
    }
}
