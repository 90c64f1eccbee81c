//! The memory of a run, from its first sweep to its last.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use tiled_graph::program::{DerivedId, NodeId, NodeKind, Param, ParamId, ProgramNode, ReductionId};
use tiled_graph::{Action, Id, IndexVec, Parameters, Plan};
use tiled_kernel::{
    Backend, Context, DeviceError, Kernel, Needs, NodeNeeds, ParamNeeds, ReductionNeeds, StoreNeeds,
    SweepNeeds, ThreadsAwake,
};
use tiled_tensor::{Element, collected, filled, give_back_freed, with_room, zeros};

use crate::chunks::HeldChunks;
use crate::error::refused;
use crate::failure::Failure;
use crate::finalise::{self, BatchMoments, Moved};
use crate::io::{adopted, on_device};
use crate::lane::{Lane, SweepContext, Waiting};
use crate::store::{self, Stores};
use crate::{ExecError, Io, Pool, Progress};

/// What parameters were packed from: the versions of those of the network, the bits of derived vectors.
#[derive(Debug, Default)]
struct Stamp {
    numbers: Vec<u64>,
}

impl Stamp {
    fn numbers<'a, T: Element>(
        node: &'a ProgramNode,
        params: &'a Parameters<T>,
        derived: &'a IndexVec<DerivedId, Vec<T>>,
    ) -> impl Iterator<Item = u64> + 'a {
        node.params.iter().flat_map(move |param| {
            let (version, values) = match param {
                Param::Network(param) => (Some(params.version(param.index())), &[][..]),
                Param::Derived(vector) => (None, derived[*vector].as_slice()),
                Param::Extrema(_) => (None, &[][..]), // never packed
            };
            version.into_iter().chain(values.iter().map(|value| value.to_bits_u64()))
        })
    }

    fn is<T: Element>(
        &self,
        node: &ProgramNode,
        params: &Parameters<T>,
        derived: &IndexVec<DerivedId, Vec<T>>,
    ) -> bool {
        self.numbers.iter().copied().eq(Self::numbers(node, params, derived))
    }

    /// Takes what was packed from now on.
    fn set<T: Element>(
        &mut self,
        node: &ProgramNode,
        params: &Parameters<T>,
        derived: &IndexVec<DerivedId, Vec<T>>,
    ) {
        self.numbers.clear();
        self.numbers.extend(Self::numbers(node, params, derived));
    }
}

/// All that a run keeps between its calls: what is packed, gathered and stored, and the kernels with what they take from the run.
#[derive(Debug)]
pub(crate) struct State<'b, T: Element> {
    context: Box<dyn Context<T> + 'b>,
    /// Whether the host goes ahead of a device.
    is_ahead: bool,
    kernels: IndexVec<NodeId, Option<Kernel>>,
    /// What each node's packed parameters were made from.
    packed_from: IndexVec<NodeId, Stamp>,
    stores: Stores<T>,
    derived: IndexVec<DerivedId, Vec<T>>,
    /// What running statistics move towards after the run.
    moments: Vec<BatchMoments>,
}

/// What the sweeps of a run read and write beside its state.
pub(crate) struct Sweeps<'r, T: Element> {
    pub(crate) plan: &'r Plan,
    pub(crate) pool: &'r Pool,
    pub(crate) params: &'r Parameters<T>,
    pub(crate) io: &'r Io<'r, T>,
    pub(crate) gradients: &'r mut IndexVec<ParamId, Option<Vec<T>>>,
    pub(crate) progress: &'r dyn Progress,
}

impl<'b, T: Element> State<'b, T> {
    /// The state of a plan's runs on a backend that so many threads call; temporary files lie in `folder`.
    pub(crate) fn new(
        plan: &Plan,
        backend: &'b dyn Backend<T>,
        threads: usize,
        folder: &Path,
    ) -> Result<Self, ExecError> {
        let program = &plan.program;
        let kernels = collected(program.nodes.iter().map(|node| node.kernel().copied()))
            .map_err(refused("the kernels of the network"))?;
        let mut packed_from = with_room(program.nodes.len()).map_err(refused("the packed parameters"))?;
        for node in &program.nodes {
            let refused = |error| refused(format!("the packed parameters of `{}`", node.name))(error);
            packed_from.push(Stamp { numbers: with_room(program.stamp_len(&node.params)).map_err(refused)? });
        }
        let context = open(plan, backend, threads)?;
        let mut derived = with_room(program.derived.len()).map_err(refused("the derived vectors"))?;
        for len in &program.derived {
            derived.push(zeros(*len).map_err(refused("a derived vector"))?);
        }
        Ok(Self {
            context,
            is_ahead: backend.transfers_beside(),
            kernels: kernels.into(),
            packed_from: packed_from.into(),
            stores: Stores::new(plan, folder)?,
            derived: derived.into(),
            moments: Vec::new(),
        })
    }

    /// Gives dropout the mask of a step.
    pub(crate) fn set_dropout_step(&mut self, plan: &Plan, step: u64) {
        for (kernel, node) in self.kernels.iter_mut().zip(&plan.program.nodes) {
            if let (
                Some(Kernel::Dropout { seed, .. }),
                NodeKind::Compute(Kernel::Dropout { seed: base, .. }),
            ) = (kernel.as_mut(), &node.kind)
            {
                *seed = base.wrapping_add(step.wrapping_mul(0xd134_2543_de82_ef95));
            }
        }
    }

    /// Gives the gradient of a cross-entropy the factor of its mean.
    pub(crate) fn set_cross_entropy_scale(&mut self, factor: f64) {
        for kernel in self.kernels.iter_mut().flatten() {
            if let Kernel::CrossEntropyBackward { scale } = kernel {
                *scale = factor;
            }
        }
    }

    /// The parameters that running statistics after the last run would be kept in, and their values.
    pub(crate) fn moved_statistics(&mut self, params: &Parameters<T>) -> Result<Moved<T>, ExecError> {
        finalise::moved_statistics(&mut self.moments, params)
    }

    /// Lends the tensors of these sweeps that lie in the memory of the device, and gives back those that were lent before.
    pub(crate) fn lend(&mut self, sweeps: Range<usize>, run: &Sweeps<'_, T>) -> Result<(), ExecError> {
        let (tensors, names) = on_device(run.plan, sweeps, run.io)?;
        self.context.lend(&tensors).map_err(|error| match error {
            DeviceError::Elsewhere { expected, got } => {
                let place = tensors.iter().position(|tensor| tensor.device() == got);
                let name = place.map_or_else(String::new, |place| names[place].to_owned());
                ExecError::Elsewhere { name, expected, got }
            }
            other => other.into(),
        })
    }

    /// Gives back the tensors that were lent.
    pub(crate) fn give_back(&mut self) -> Result<(), ExecError> {
        Ok(self.context.lend(&[])?)
    }

    /// Forgets the run before.
    pub(crate) fn begin(&mut self, run: &mut Sweeps<'_, T>) -> Result<(), ExecError> {
        self.moments.clear();
        self.finalise(None, run.plan, run.params, run.gradients, &mut Vec::new())
    }

    /// Runs these sweeps, and gives the loss that they end in, if any.
    pub(crate) fn run(
        &mut self,
        sweeps: Range<usize>,
        run: &mut Sweeps<'_, T>,
    ) -> Result<Option<f64>, ExecError> {
        // a thread of another pool may hold what a call that it takes up meanwhile would wait for
        let is_of_a_pool = rayon::current_thread_index().is_some();
        let stays = run.plan.stays_on_caller() && !is_of_a_pool;
        let pool = run.pool;
        if stays {
            return self.run_sweeps(sweeps, run, None);
        }
        if self.is_ahead {
            // its calls are nobody's to share
            return pool.install(|| self.run_sweeps(sweeps, run, Some(pool)));
        }
        if run.plan.sweeps[sweeps.clone()].iter().all(|sweep| sweep.in_flight > 1) {
            return self.run_sweeps(sweeps, run, Some(pool));
        }
        // one sweep after another, with nobody falling asleep between them
        pool.install_awake(|| self.run_sweeps(sweeps, run, Some(pool)))
    }

    /// Runs these sweeps, the lanes of each on the threads of a pool, or all on the thread at hand. A sweep of one lane runs on the thread at hand,
    /// and the others share its calls.
    fn run_sweeps(
        &mut self,
        sweeps: Range<usize>,
        run: &mut Sweeps<'_, T>,
        pool: Option<&Pool>,
    ) -> Result<Option<f64>, ExecError> {
        let (plan, io, progress) = (run.plan, run.io, run.progress);
        let done = AtomicU64::new(0);
        let total: u64 = plan.sweeps[sweeps.clone()].iter().map(|sweep| sweep.steps).sum();
        let mut losses = Vec::new();
        for index in sweeps {
            self.pack(plan, index, run.params)?;
            self.clear(plan, index)?;
            let sweep = &plan.sweeps[index];
            let adopted = adopted(sweep, io, &self.stores)?;
            let chunks = HeldChunks::of_sweep(sweep, io, sweep.in_flight == 1)?;
            let context = SweepContext {
                plan,
                sweep,
                kernels: &self.kernels,
                stores: &self.stores,
                io,
                chunks: &chunks,
                step: &|| {
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress.step(done, total, "steps");
                    if progress.is_cancelled() { Err(ExecError::Cancelled) } else { Ok(()) }
                },
                is_ahead: self.is_ahead,
                waiting: Waiting::new(sweep.lanes),
                failure: Failure::default(),
            };
            let queues = self.context.queues(&SweepNeeds {
                queues: sweep.in_flight,
                slots: &sweep.slot_elements,
                vectors: &self.derived,
                adopted: &adopted,
            })?;
            let mut lanes = with_room(queues.len()).map_err(refused("the lanes"))?;
            for queue in queues {
                lanes.push(Lane::new(queue, sweep).map_err(refused("the windows of a lane"))?);
            }
            match pool.filter(|_| lanes.len() > 1) {
                None => lanes[0].run(&context),
                Some(pool) => pool.install(|| {
                    // each thread has a lane, and helps with no more than what is worth waking one
                    let _asleep = ThreadsAwake::as_if_asleep();
                    lanes.par_iter_mut().with_max_len(1).for_each(|lane| lane.run(&context));
                }),
            }
            drop(lanes);
            context.failure.into_result()?;
            self.finalise(Some(plan.level_of(index)), plan, run.params, run.gradients, &mut losses)?;
        }
        // in the order of the outputs, whichever sweep their losses end in
        losses.sort_by_key(|(reduction, _)| *reduction);
        Ok(losses.iter().map(|(_, loss)| *loss).reduce(|total, loss| total + loss))
    }

    fn finalise(
        &mut self,
        level: Option<usize>,
        plan: &Plan,
        params: &Parameters<T>,
        gradients: &mut IndexVec<ParamId, Option<Vec<T>>>,
        losses: &mut Vec<(ReductionId, f64)>,
    ) -> Result<(), ExecError> {
        let mut state = finalise::State {
            program: &plan.program,
            context: self.context.as_mut(),
            stores: &mut self.stores,
            derived: &mut self.derived,
            moments: &mut self.moments,
            gradients,
            params,
            losses,
        };
        for (after, finaliser) in &plan.program.finalisers {
            if *after == level {
                state.apply(finaliser)?;
            }
        }
        Ok(())
    }

    /// Packs the parameters that the plan lets go of, and lets go of them one after the other.
    ///
    /// # Errors
    /// Where elements are gone that would have to be packed: then nothing more is let go of.
    pub(crate) fn release(
        &mut self,
        plan: &Plan,
        params: &mut Parameters<T>,
        gradients: &mut IndexVec<ParamId, Option<Vec<T>>>,
    ) -> Result<(), ExecError> {
        if plan.releases.is_empty() {
            return Ok(());
        }
        // some are packed with what normalisation in evaluation derives
        self.finalise(None, plan, params, gradients, &mut Vec::new())?;
        for release in &plan.releases {
            let node = &plan.program.nodes[release.node];
            match gone(node, params) {
                Some(param) if !self.packed_from[release.node].is(node, params, &self.derived) => {
                    return Err(released(params, param.index()));
                }
                _ => {}
            }
        }
        let mut freed_bytes = 0;
        for release in &plan.releases {
            self.pack_node(plan, release.node, params)?;
            for param in &release.params {
                freed_bytes += size_of_val(params.tensors()[param.index()].data.as_slice());
                params.release(param.index());
            }
            // what is packed next, with gaps of its own, may not fit where the last was
            if freed_bytes >= GIVEN_BACK_BYTES {
                give_back_freed();
                freed_bytes = 0;
            }
        }
        Ok(())
    }

    /// Begins the reductions of a sweep.
    fn clear(&mut self, plan: &Plan, sweep: usize) -> Result<(), ExecError> {
        for node in &plan.sweeps[sweep].nodes {
            if let Action::Reduce(reduction) = node.action {
                self.context.clear(reduction.index())?;
            }
        }
        Ok(())
    }

    /// Packs the parameters of a sweep's kernels, but for those that have not changed since.
    fn pack(&mut self, plan: &Plan, sweep: usize, params: &Parameters<T>) -> Result<(), ExecError> {
        let computed = plan.sweeps[sweep].nodes.iter().filter(|node| node.action == Action::Compute);
        computed.map(|node| node.node).try_for_each(|node| self.pack_node(plan, node, params))
    }

    /// Packs the parameters of a node, where it has any and they have changed since.
    fn pack_node(&mut self, plan: &Plan, id: NodeId, params: &Parameters<T>) -> Result<(), ExecError> {
        let node = &plan.program.nodes[id];
        let Some(kernel) = &self.kernels[id] else { return Ok(()) };
        let stamp = &mut self.packed_from[id];
        if node.params.is_empty() || node.extrema().is_some() || stamp.is(node, params, &self.derived) {
            return Ok(());
        }
        if let Some(param) = gone(node, params) {
            return Err(released(params, param.index()));
        }
        let mut values: Vec<&[T]> = with_room(node.params.len()).map_err(refused("a list of parameters"))?;
        for param in &node.params {
            values.push(match param {
                Param::Network(param) => params.tensors()[param.index()].data.as_slice(),
                Param::Derived(vector) => self.derived[*vector].as_slice(),
                Param::Extrema(_) => unreachable!("invariant: extrema are not packed"),
            });
        }
        stamp.numbers.clear(); // nothing is packed while it is being packed
        self.context.pack(id.index(), kernel, &values)?;
        self.packed_from[id].set(node, params, &self.derived);
        Ok(())
    }
}

/// The bytes of parameters that are given back to the system at a time.
const GIVEN_BACK_BYTES: usize = 4 << 20;

/// A parameter that a node reads and whose elements are gone.
fn gone<T: Element>(node: &ProgramNode, params: &Parameters<T>) -> Option<ParamId> {
    node.params.iter().find_map(|param| match param {
        Param::Network(param) => params.is_released(param.index()).then_some(*param),
        Param::Derived(_) | Param::Extrema(_) => None,
    })
}

/// The error of a parameter whose elements are gone.
pub(crate) fn released<T: Element>(params: &Parameters<T>, param: usize) -> ExecError {
    ExecError::Released { name: params.tensors()[param].name.clone() }
}

/// The memory of a plan's runs on a backend, which so many threads call.
fn open<'b, T: Element>(
    plan: &Plan,
    backend: &'b dyn Backend<T>,
    threads: usize,
) -> Result<Box<dyn Context<T> + 'b>, ExecError> {
    let program = &plan.program;
    // a device's calls come from one thread at a time, however many read and write
    let threads = if backend.transfers_beside() { plan.threads } else { threads };
    let support = |node: NodeId| plan.support[node].as_ref();
    let mut is_released = filled(program.nodes.len(), false).map_err(refused("the packed parameters"))?;
    plan.releases.iter().for_each(|release| is_released[release.node.index()] = true);
    let mut nodes = with_room(program.nodes.len()).map_err(refused("the packed parameters"))?;
    for (id, node) in program.nodes.entries() {
        let support = support(id).filter(|_| !node.params.is_empty());
        let bytes = support.map_or(0, |support| support.packed_bytes);
        let params = match node.extrema() {
            Some(reduction) => ParamNeeds::Extrema { reduction: reduction.index() },
            None if is_released[id.index()] => ParamNeeds::PackedLater { bytes },
            None => ParamNeeds::Packed { bytes },
        };
        nodes.push(NodeNeeds { name: &node.name, params });
    }
    let mut reductions = with_room(program.reductions.len()).map_err(refused("the partial sums"))?;
    for (reduction, slot) in program.reductions.iter().zip(&plan.partial_slots) {
        let (node, reduction) = (reduction.node, reduction.reduction);
        let partial_bytes = support(node).map_or(0, |support| support.partial_bytes);
        let ProgramNode { name, batch, channels, .. } = &program.nodes[node];
        let (batch, channels) = (*batch, *channels);
        reductions.push(ReductionNeeds {
            name,
            reduction,
            batch,
            channels,
            partial_bytes,
            slot: slot.index(),
        });
    }
    let layouts = store::layouts(plan)?;
    let stores = program.stores.entries().map(|(id, store)| {
        let (layout, slot) = (layouts[id]?, plan.store_slots[id]?.index());
        Some(StoreNeeds { name: &store.name, layout, slot })
    });
    let stores = collected(stores).map_err(refused("the values kept between sweeps"))?;
    let supports = plan.support.iter().flatten();
    let needs = Needs {
        nodes: &nodes,
        reductions: &reductions,
        stores: &stores,
        lanes: plan.lanes(),
        queues: plan.in_flight(),
        window_elements: plan.window_elements(),
        threads,
        workspace_bytes: supports.map(|support| support.workspace_bytes).max().unwrap_or(0),
    };
    Ok(backend.open(&needs)?)
}
