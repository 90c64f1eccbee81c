//! From a tiling to a plan: rows are simulated once per row of tiles, columns once per column.

use tiled_geometry::{Grid, Interval, Region};
use tiled_kernel::{Backend, Costs, ExactSum, Extremum, Kernel, Reduction};
use tiled_tensor::{Element, Layout};

use super::slots::Conflicts;
use super::{Budget, Memory, Plan, PlanError, SweepPlan, layout};
use crate::demand::Demand;
use crate::program::{NodeKind, Program, ProgramNode};
use crate::schedule::Schedule;
use crate::sweep::{Action, Sweep};

/// The bytes that a source or sink may hold for each lane while it converts elements.
pub(super) const TRANSFER_BYTES: u64 = 256 << 10;

/// A lowered program with the values that it keeps, cut into sweeps.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) program: Program,
    pub(super) sweeps: Vec<Sweep>,
    pub(super) blocks: Vec<usize>,
    /// Bytes that do not depend on the tiling, and those of one lane's partial sums.
    fixed: Memory,
    partial_bytes: u64,
    /// What kernels need beside the windows, for one thread.
    scratch_bytes: u64,
    stores_in_files: bool,
    /// The arithmetic of computing every needed element of every node once.
    untiled_flops: f64,
    pub(super) costs: Costs,
    /// The share of the peak that the kernel or the reduction of each node reaches; none where bytes count.
    pub(super) shares: Vec<Option<f64>>,
}

/// What the rows of a sweep's tiles take, for one band height.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    demands: Vec<Demand>,
    rings: Vec<i64>,
    conflicts: Conflicts,
    calls: u64,
    steps: u64,
    band: i64,
}

/// What the columns of a sweep's tiles take.
#[derive(Clone, Debug)]
pub(super) struct Cols {
    demands: Vec<Demand>,
    widest: Vec<i64>,
}

impl Prepared {
    pub(super) fn new<T: Element>(
        program: Program,
        kept: &[(usize, usize)],
        backend: &dyn Backend<T>,
        resident_bytes: u64,
        stores_in_files: bool,
    ) -> Result<Self, PlanError> {
        let sweeps = crate::sweep::sweeps(&program, kept);
        let blocks = program.nodes.iter().map(|node| backend.block(node.channels)).collect();
        let (mut fixed, partial_bytes) = fixed_memory(&program, &sweeps, backend, resident_bytes)?;
        if stores_in_files {
            fixed.stores_bytes = 0;
        }
        let scratch_elements =
            program.nodes.iter().filter_map(ProgramNode::kernel).map(|kernel| backend.scratch_len(kernel));
        let scratch_bytes = (scratch_elements.max().unwrap_or(0) * size_of::<T>()) as u64;
        let shares = program.nodes.iter().map(|node| share_of_peak(&program, node, backend)).collect();
        let mut prepared = Self {
            program,
            sweeps,
            blocks,
            fixed,
            partial_bytes,
            scratch_bytes,
            stores_in_files,
            untiled_flops: 0.0,
            costs: backend.costs(),
            shares,
        };
        prepared.untiled_flops = prepared.flops_once();
        Ok(prepared)
    }

    pub(super) fn rows(&self, sweep: &Sweep, grid: &Grid<2>, band: i64) -> Rows {
        let demands: Vec<Demand> =
            (0..grid.counts()[0]).map(|part| Demand::of_part(&self.program, sweep, grid, 0, part)).collect();
        let count = sweep.nodes.len();
        let mut rows = Rows {
            demands: Vec::new(),
            rings: vec![0; count],
            conflicts: Conflicts::new(count),
            calls: 0,
            steps: 0,
            band,
        };
        for demand in &demands {
            let schedule = Schedule::new(&self.program, sweep, demand, band);
            rows.steps += schedule.steps();
            let mut spans: Vec<Option<(u64, u64)>> = vec![None; count];
            let mut time = 0_u64;
            let simulated = schedule.run(
                |call| {
                    let touch = |span: &mut Option<(u64, u64)>| {
                        *span = Some((span.map_or(time, |held| held.0), time))
                    };
                    touch(&mut spans[call.place]);
                    for operand in &sweep.nodes[call.place].operands {
                        touch(&mut spans[*operand]);
                    }
                    if !sweep.nodes[call.place].is_terminal() {
                        rows.rings[call.place] = rows.rings[call.place].max(call.rows.end() - call.low);
                    }
                    time += 1;
                    Ok::<(), PlanError>(())
                },
                || Ok(()),
            );
            debug_assert!(simulated.is_ok(), "invariant: the simulation has no errors");
            rows.calls += time;
            rows.conflicts.add(&spans);
        }
        rows.demands = demands;
        rows
    }

    pub(super) fn cols(&self, sweep: &Sweep, grid: &Grid<2>) -> Cols {
        let demands: Vec<Demand> =
            (0..grid.counts()[1]).map(|part| Demand::of_part(&self.program, sweep, grid, 1, part)).collect();
        let widest = (0..sweep.nodes.len())
            .map(|place| demands.iter().map(|demand| demand.interval(place).len()).max().unwrap_or(0))
            .collect();
        Cols { demands, widest }
    }

    pub(super) fn sweep_plan(
        &self,
        sweep: &Sweep,
        grid: &Grid<2>,
        rows: &Rows,
        cols: &Cols,
    ) -> Result<SweepPlan, PlanError> {
        let mut plan = SweepPlan {
            sweep: sweep.clone(),
            grid: grid.clone(),
            band: rows.band,
            rows: rows.demands.clone(),
            cols: cols.demands.clone(),
            rings: rows.rings.clone(),
            slots: Vec::new(),
            slot_elements: Vec::new(),
            calls: rows.calls * cols.demands.len() as u64,
            steps: rows.steps * cols.demands.len() as u64,
        };
        let sizes = self.window_elements(&plan, cols)?;
        (plan.slots, plan.slot_elements) = rows.conflicts.assign(&sizes);
        Ok(plan)
    }

    fn window_elements(&self, plan: &SweepPlan, cols: &Cols) -> Result<Vec<usize>, PlanError> {
        (0..plan.sweep.nodes.len())
            .map(|place| {
                if plan.rings[place] == 0 || !plan.has_window(place) {
                    return Ok(0);
                }
                let widest = Region::whole([1, cols.widest[place]]);
                // a cache line of slack keeps neighbouring windows of lanes apart
                Ok(layout(&self.program, &self.blocks, plan, place, widest)?.len().next_multiple_of(16))
            })
            .collect()
    }

    pub(super) fn finish<T: Element>(
        &self,
        sweeps: Vec<SweepPlan>,
        lanes: usize,
        parallelism: usize,
    ) -> Result<Plan, PlanError> {
        let lanes_bytes = |bytes: u64| bytes.checked_mul(lanes as u64).ok_or(PlanError::TooLarge);
        let bytes = |sweep: &SweepPlan| {
            let elements =
                sweep.slot_elements.iter().try_fold(0_u64, |sum, len| sum.checked_add(*len as u64));
            elements
                .and_then(|elements| elements.checked_mul(size_of::<T>() as u64))
                .ok_or(PlanError::TooLarge)
        };
        let windows =
            sweeps.iter().map(bytes).try_fold(0, |most, bytes| bytes.map(|bytes| most.max(bytes)))?;
        let mut memory = self.fixed;
        memory.windows_bytes = lanes_bytes(windows)?;
        memory.reductions_bytes += lanes_bytes(self.partial_bytes)?;
        let transfers = sweeps
            .iter()
            .map(|sweep| {
                let moves = |node: &&crate::sweep::SweepNode| {
                    matches!(node.action, Action::Load(_) | Action::Write(_))
                };
                sweep.sweep.nodes.iter().filter(moves).count()
            })
            .max()
            .unwrap_or(0);
        let threads = parallelism.max(1);
        memory.scratch_bytes = self.scratch_bytes.checked_mul(threads as u64).ok_or(PlanError::TooLarge)?;
        memory.transfer_bytes = lanes_bytes(TRANSFER_BYTES * transfers as u64)?;
        let flops = sweeps.iter().map(|sweep| self.flops(sweep)).sum::<f64>();
        let predicted = sweeps
            .iter()
            .map(|sweep| super::cost::predict(self, sweep, lanes, parallelism, size_of::<T>()))
            .fold([0.0; 2], |[work, meetings], sweep| [work + sweep[0], meetings + sweep[1]]);
        Ok(Plan {
            program: self.program.clone(),
            lanes,
            threads,
            stores_in_files: self.stores_in_files,
            blocks: self.blocks.clone(),
            dtype: T::DTYPE,
            memory,
            budget: Budget::UNLIMITED, // whoever chooses between plans says
            flops,
            redundant_flops: flops - self.untiled_flops,
            predicted_seconds: predicted[0] + predicted[1],
            meeting_seconds: predicted[1],
            sweeps,
        })
    }

    /// The arithmetic of a sweep.
    fn flops(&self, sweep: &SweepPlan) -> f64 {
        (0..sweep.sweep.nodes.len())
            .map(|place| {
                let sum = |demands: &[Demand]| {
                    demands.iter().map(|demand| demand.interval(place).len()).sum::<i64>()
                };
                self.node_flops(&sweep.sweep, place, sum(&sweep.rows), sum(&sweep.cols))
            })
            .sum()
    }

    /// The arithmetic of every node once, over the smallest region that covers all that any sweep wants of it.
    fn flops_once(&self) -> f64 {
        let mut wanted: Vec<Option<(&Sweep, usize, [Interval; 2])>> = vec![None; self.program.nodes.len()];
        for sweep in &self.sweeps {
            let whole: [Demand; 2] = std::array::from_fn(|axis| {
                Demand::new(&self.program, sweep, axis, |_, extent| Interval::whole(extent))
            });
            for (place, node) in sweep.nodes.iter().enumerate() {
                if matches!(node.action, Action::Compute | Action::Reduce(_)) {
                    let own = [0, 1].map(|axis| whole[axis].interval(place));
                    let before = wanted[node.node].map_or(own, |(.., region)| region);
                    let both = [0, 1].map(|axis| own[axis].hull(before[axis]));
                    wanted[node.node] = Some((sweep, place, both));
                }
            }
        }
        let flops = |(sweep, place, [rows, cols]): (&Sweep, usize, [Interval; 2])| {
            self.node_flops(sweep, place, rows.len(), cols.len())
        };
        wanted.into_iter().flatten().map(flops).sum()
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate of arithmetic")]
    pub(super) fn node_flops(&self, sweep: &Sweep, place: usize, rows: i64, cols: i64) -> f64 {
        let node = &self.program.nodes[sweep.nodes[place].node];
        let per_element = match (&sweep.nodes[place].action, &node.kind) {
            (Action::Compute, NodeKind::Compute(kernel)) => kernel.flops_per_element(),
            (Action::Reduce(place), _) => self.program.reductions[*place].reduction.flops_per_element(),
            _ => 0.0,
        };
        per_element * (node.batch * node.channels) as f64 * rows as f64 * cols as f64
    }
}

/// The share of the peak where arithmetic bounds a node.
fn share_of_peak<T: Element>(program: &Program, node: &ProgramNode, backend: &dyn Backend<T>) -> Option<f64> {
    match &node.kind {
        NodeKind::Compute(
            kernel @ (Kernel::Conv2d { .. }
            | Kernel::Conv2dWinograd { .. }
            | Kernel::ConvThen { .. }
            | Kernel::Conv2dBackwardInput { .. }),
        ) => Some(backend.share_of_peak(kernel)),
        NodeKind::Reduce(place) => match &program.reductions[*place].reduction {
            reduction @ Reduction::ConvWeight(_) => Some(backend.reduce_share_of_peak(reduction)),
            _ => None,
        },
        _ => None,
    }
}

fn fixed_memory<T: Element>(
    program: &Program,
    sweeps: &[Sweep],
    backend: &dyn Backend<T>,
    resident_bytes: u64,
) -> Result<(Memory, u64), PlanError> {
    let element = size_of::<T>() as u64;
    let bytes = |elements: usize| (elements as u64).checked_mul(element).ok_or(PlanError::TooLarge);
    let mut memory = Memory { resident_bytes, ..Memory::default() };
    memory.parameters_bytes = bytes(program.params.iter().sum())?;
    for node in &program.nodes {
        if let NodeKind::Compute(kernel) = &node.kind
            && !node.params.is_empty()
        {
            memory.parameters_bytes += bytes(backend.packed_len(kernel, &program.param_lens(&node.params)))?;
            memory.parameters_bytes += (program.stamp_len(&node.params) * size_of::<u64>()) as u64;
        }
    }
    memory.gradients_bytes = bytes(program.param_grads.iter().map(|param| program.params[*param]).sum())?;
    for store in &program.stores {
        let [batch, channels, height, width] = store.shape;
        let extents = [height, width].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX));
        let layout = Layout::new(batch, channels, backend.block(channels), Region::whole(extents), height);
        let is_used =
            sweeps.iter().flat_map(|sweep| &sweep.nodes).any(|node| node.action.stores(program, store));
        if is_used {
            let total =
                memory.stores_bytes.checked_add(bytes(layout.map_err(|_| PlanError::TooLarge)?.len())?);
            memory.stores_bytes = total.ok_or(PlanError::TooLarge)?;
        }
    }
    let pixels: usize = program.pixels.iter().map(|[batch, channels]| batch * channels).sum();
    memory.reductions_bytes = bytes(program.derived.iter().sum::<usize>() + pixels)?;
    let mut partial_bytes = 0;
    for reduction in &program.reductions {
        let node = &program.nodes[reduction.node];
        partial_bytes += match reduction.reduction {
            Reduction::ConvWeight(_) => bytes(backend.partial_len(&reduction.reduction))?,
            Reduction::ImageMax => (node.batch * node.channels * size_of::<Extremum<T>>()) as u64,
            exact => (exact.slots(node.batch, node.channels) * size_of::<ExactSum>()) as u64,
        };
    }
    Ok((memory, partial_bytes))
}

impl Action {
    fn stores(&self, program: &Program, store: &crate::program::Store) -> bool {
        use crate::program::SinkRole;
        match self {
            Self::Write(SinkRole::Store(place)) => std::ptr::eq(&raw const program.stores[*place], store),
            _ => false,
        }
    }
}
