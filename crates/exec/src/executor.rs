//! Runs a plan: sweeps, lanes, tiles, calls.

use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use tiled_graph::program::{NodeKind, Param, ProgramNode, SinkRole, SourceRole};
use tiled_graph::{Action, Parameters, Plan};
use tiled_kernel::{Backend, Kernel, Partial};
use tiled_tensor::{AlignedBuffer, Element};

use crate::in_place::InPlace;
use crate::labels::{Ignoring, is_worth_sharing, take_census};
use crate::lane::{Lane, SweepContext};
use crate::store::Stores;
use crate::{ExecError, Progress, Sink, Source, finalise};

/// The tensors that a run reads and writes, in the order of the network.
pub struct Io<'a, T: Element> {
    /// The inputs.
    pub inputs: Vec<&'a dyn Source<T>>,
    /// The target of the loss.
    pub target: Option<&'a dyn Source<T>>,
    /// The gradients with respect to the outputs, where the caller gives them.
    pub grad_outputs: Vec<&'a dyn Source<T>>,
    /// Where the outputs go.
    pub outputs: Vec<&'a dyn Sink<T>>,
    /// Where the gradients with respect to the inputs go.
    pub grad_inputs: Vec<&'a dyn Sink<T>>,
}

impl<T: Element> Default for Io<'_, T> {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            target: None,
            grad_outputs: Vec::new(),
            outputs: Vec::new(),
            grad_inputs: Vec::new(),
        }
    }
}

impl<T: Element> std::fmt::Debug for Io<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io")
            .field("inputs", &self.inputs.len())
            .field("target", &self.target.is_some())
            .field("grad_outputs", &self.grad_outputs.len())
            .field("outputs", &self.outputs.len())
            .field("grad_inputs", &self.grad_inputs.len())
            .finish()
    }
}

impl<'a, T: Element> Io<'a, T> {
    pub(crate) fn source(&self, role: SourceRole) -> Option<&'a dyn Source<T>> {
        match role {
            SourceRole::Input(place) => self.inputs.get(place).copied(),
            SourceRole::Target => self.target,
            SourceRole::GradOutput(place) => self.grad_outputs.get(place).copied(),
            SourceRole::Store(_) | SourceRole::Pixel(_) => None,
        }
    }

    pub(crate) fn sink(&self, role: SinkRole) -> Option<&'a dyn Sink<T>> {
        match role {
            SinkRole::Output(place) => self.outputs.get(place).copied(),
            SinkRole::GradInput(place) => self.grad_inputs.get(place).copied(),
            SinkRole::Store(_) => None,
        }
    }

    /// The same with another target, for as long as that lives.
    fn with_target<'b>(&self, target: Option<&'b dyn Source<T>>) -> Io<'b, T>
    where
        'a: 'b,
    {
        Io {
            inputs: self.inputs.clone(),
            target,
            grad_outputs: self.grad_outputs.clone(),
            outputs: self.outputs.clone(),
            grad_inputs: self.grad_inputs.clone(),
        }
    }

    fn sinks(&self) -> impl Iterator<Item = &'a dyn Sink<T>> + '_ {
        self.outputs.iter().chain(&self.grad_inputs).copied()
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunReport {
    /// The loss, where the objective has one with a value.
    pub loss: Option<f64>,
    /// The time, in seconds.
    pub seconds: f64,
}

/// Runs with less work stay on the thread of the caller: to wake another one takes longer than it would save.
const WORTH_THREADS_SECONDS: f64 = 100e-6;

/// How often a thread without work looks again at once, about a millisecond, and how long it waits from then on.
const SPINS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// Runs `work`, whose calls the threads of this pool share, and keeps them from falling asleep between two calls:
/// to wake one takes as long as many a call.
fn with_threads_awake<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    static CORES: OnceLock<usize> = OnceLock::new();
    let others = rayon::current_num_threads() - 1;
    if others == 0 || others >= *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
    {
        return work();
    }
    let is_done = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let _done = Done(&is_done); // also where `work` panics, or the scope would wait for ever
        for _ in 0..others {
            scope.spawn(|_| {
                let mut idle = 0;
                while !is_done.load(Ordering::Acquire) {
                    idle = if rayon::yield_now() == Some(rayon::Yield::Executed) { 0 } else { idle + 1 };
                    if idle > SPINS {
                        thread::sleep(NAP); // a slow source: there will be nothing to do for a while
                    } else if idle > 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        work()
    })
}

/// What parameters were packed from: the versions of those of the network, the bits of derived vectors.
#[derive(Debug, Default)]
struct Stamp {
    numbers: Vec<u64>,
}

impl Stamp {
    fn numbers<'a, T: Element>(
        node: &'a ProgramNode,
        params: &'a Parameters<T>,
        derived: &'a [Vec<T>],
    ) -> impl Iterator<Item = u64> + 'a {
        node.params.iter().flat_map(move |param| {
            let (version, values) = match param {
                Param::Network(place) => (Some(params.version(*place)), &[][..]),
                Param::Derived(place) => (None, derived[*place].as_slice()),
            };
            version.into_iter().chain(values.iter().map(|value| value.to_bits_u64()))
        })
    }

    fn is<T: Element>(&self, node: &ProgramNode, params: &Parameters<T>, derived: &[Vec<T>]) -> bool {
        self.numbers.iter().copied().eq(Self::numbers(node, params, derived))
    }

    /// Takes what was packed from now on.
    fn set<T: Element>(&mut self, node: &ProgramNode, params: &Parameters<T>, derived: &[Vec<T>]) {
        self.numbers.clear();
        self.numbers.extend(Self::numbers(node, params, derived));
    }
}

/// Runs a plan on a backend, any number of times. All its memory is allocated when it is made.
#[derive(Debug)]
pub struct Executor<'b, T: Element> {
    plan: Plan,
    backend: &'b dyn Backend<T>,
    pool: rayon::ThreadPool,
    arena: AlignedBuffer<T>,
    kernels: Vec<Option<Kernel>>,
    packed: Vec<AlignedBuffer<T>>,
    /// What each node's packed parameters were made from.
    packed_from: Vec<Stamp>,
    partials: Vec<Vec<Partial<T>>>,
    stores: Stores<T>,
    derived: Vec<Vec<T>>,
    gradients: Vec<Option<Vec<T>>>,
}

impl<'b, T: Element> Executor<'b, T> {
    /// An executor for a plan, with its own pool of `threads` threads, but no more than the plan has scratch memory for
    /// ([`Plan::threads`]). Where the plan keeps values in files, they lie in the system's folder for temporary files.
    ///
    /// # Errors
    /// Where the plan is for another element type or another backend, or the threads cannot be started.
    pub fn new(plan: Plan, backend: &'b dyn Backend<T>, threads: usize) -> Result<Self, ExecError> {
        Self::with_scratch(plan, backend, threads, &std::env::temp_dir())
    }

    /// The same with a folder for the values that the plan keeps in files.
    ///
    /// # Errors
    /// As [`Executor::new`], and where the folder has no room for them.
    pub fn with_scratch(
        plan: Plan,
        backend: &'b dyn Backend<T>,
        threads: usize,
        scratch: &Path,
    ) -> Result<Self, ExecError> {
        if plan.dtype != T::DTYPE {
            return Err(ExecError::DType { expected: plan.dtype.name(), got: T::DTYPE.name() });
        }
        let runs = plan.sweeps.iter().flat_map(|sweep| &sweep.sweep.nodes);
        for node in runs.filter(|node| node.action == Action::Compute) {
            let node = &plan.program.nodes[node.node];
            if node
                .kernel()
                .is_some_and(|kernel| matches!(kernel, Kernel::ConvThen { .. }) && !backend.fuses(kernel))
            {
                return Err(ExecError::Fusion { name: node.name.clone(), backend: backend.name() });
            }
        }
        for (node, &expected) in plan.program.nodes.iter().zip(&plan.blocks) {
            let (channels, got) = (node.channels, backend.block(node.channels));
            if got != expected {
                return Err(ExecError::Backend { channels, expected, backend: backend.name(), got });
            }
        }
        let program = &plan.program;
        let kernels: Vec<Option<Kernel>> = program
            .nodes
            .iter()
            .map(|node| match &node.kind {
                NodeKind::Compute(kernel) => Some(kernel.clone()),
                _ => None,
            })
            .collect();
        let scratch_elements =
            kernels.iter().flatten().map(|kernel| backend.scratch_len(kernel)).max().unwrap_or(0);
        let packed = program
            .nodes
            .iter()
            .map(|node| match &node.kind {
                NodeKind::Compute(kernel) if !node.params.is_empty() => {
                    AlignedBuffer::new(backend.packed_len(kernel, &program.param_lens(&node.params)))
                }
                _ => AlignedBuffer::default(),
            })
            .collect();
        let packed_from = program
            .nodes
            .iter()
            .map(|node| Stamp { numbers: Vec::with_capacity(program.stamp_len(&node.params)) })
            .collect();
        let lane_partials = || {
            program
                .reductions
                .iter()
                .map(|reduction| {
                    let node = &program.nodes[reduction.node];
                    backend.partial(&reduction.reduction, node.batch, node.channels)
                })
                .collect()
        };
        let mut gradients = vec![None; program.params.len()];
        for param in &program.param_grads {
            gradients[*param] = Some(vec![T::ZERO; program.params[*param]]);
        }
        let partials = (0..plan.lanes).map(|_| lane_partials()).collect();
        let arena = AlignedBuffer::new(plan.arena_elements());
        let stores = Stores::new(&plan, scratch)?;
        let derived = program.derived.iter().map(|len| vec![T::ZERO; *len]).collect();
        // threads come last: each takes addresses for a heap of its own, and where those are limited it does with fewer, as
        // the memory above would not
        // scratch was promised for as many
        let most = if plan.memory.scratch_bytes > 0 { plan.threads } else { usize::MAX };
        let threads = threads.min(most);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|index| format!("tiled-{index}"))
            .build()
            .map_err(|source| ExecError::Threads { threads, source })?;
        if scratch_elements > 0 {
            pool.broadcast(|_| backend.reserve(scratch_elements));
        }
        Ok(Self {
            partials,
            arena,
            stores,
            derived,
            gradients,
            packed_from,
            kernels,
            packed,
            pool,
            backend,
            plan,
        })
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The gradient with respect to a parameter after a run, by its place in [`tiled_graph::params`]; `None`
    /// where the objective wants none.
    #[must_use]
    pub fn gradient(&self, param: usize) -> Option<&[T]> {
        self.gradients.get(param)?.as_deref()
    }

    /// Gives dropout another mask, the same for every run with the same number.
    pub fn set_dropout_step(&mut self, step: u64) {
        for (kernel, node) in self.kernels.iter_mut().zip(&self.plan.program.nodes) {
            if let (
                Some(Kernel::Dropout { seed, .. }),
                NodeKind::Compute(Kernel::Dropout { seed: base, .. }),
            ) = (kernel.as_mut(), &node.kind)
            {
                *seed = base.wrapping_add(step.wrapping_mul(0xd134_2543_de82_ef95));
            }
        }
    }

    /// Runs the plan. Running statistics in `params` are updated where the objective trains.
    ///
    /// # Errors
    /// Where a source or sink is missing, has another shape or fails, and where `progress` cancels. Then every
    /// sink is aborted.
    pub fn run(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        let begin = Instant::now();
        let result = self.check(params, io).and_then(|()| self.census(io)).and_then(|ignored| {
            let target = ignored.as_ref().map(|labels| labels as &dyn Source<T>).or(io.target);
            self.sweeps(params, &io.with_target(target), progress)
        });
        let result = result.and_then(|loss| {
            io.sinks().try_for_each(|sink| sink.finish())?;
            Ok(RunReport { loss, seconds: begin.elapsed().as_secs_f64() })
        });
        if result.is_err() {
            io.sinks().for_each(|sink| sink.abort());
        }
        result
    }

    /// Counts and checks the class numbers of a cross-entropy, over which its mean is taken, and gives the target to read in
    /// place of the caller's, if any.
    fn census<'a>(&mut self, io: &Io<'a, T>) -> Result<Option<Ignoring<'a, T>>, ExecError> {
        let (Some(classes), Some(source)) = (self.plan.program.target_classes(), io.target) else {
            return Ok(None);
        };
        let ignore_index = self.plan.program.ignore_index;
        let known = source.label_census();
        let census = match known.filter(|c| (c.classes, c.ignore_index) == (classes, ignore_index)) {
            Some(census) => census,
            None => {
                let take = || take_census(Path::new("<target>"), source, classes, ignore_index);
                // as with the run itself, waking a thread has to be worth it
                if is_worth_sharing(source.shape()) { self.pool.install(take)? } else { take()? }
            }
        };
        for kernel in self.kernels.iter_mut().flatten() {
            if let Kernel::CrossEntropyBackward { scale } = kernel {
                *scale = 1.0 / lossless(census.counted);
            }
        }
        // kernels ignore what is negative
        Ok(ignore_index.filter(|index| *index >= 0).map(|ignore_index| Ignoring { source, ignore_index }))
    }

    /// Everything that can be wrong with what the caller gave, before any work.
    fn check(&self, params: &Parameters<T>, io: &Io<'_, T>) -> Result<(), ExecError> {
        let program = &self.plan.program;
        let got: Vec<usize> = params.tensors().iter().map(|tensor| tensor.data.len()).collect();
        if got != program.params {
            return Err(ExecError::Parameters { expected: program.params.len(), got: got.len() });
        }
        for node in &program.nodes {
            let [height, width] = node.extents.map(|extent| usize::try_from(extent).unwrap_or(usize::MAX));
            let expected = [node.batch, node.channels, height, width];
            let got = match &node.kind {
                NodeKind::Source(SourceRole::Store(_) | SourceRole::Pixel(_))
                | NodeKind::Sink(SinkRole::Store(_)) => {
                    continue;
                }
                NodeKind::Source(role) => io.source(*role).map(Source::shape),
                NodeKind::Sink(role) => io.sink(*role).map(Sink::shape),
                NodeKind::Compute(_) | NodeKind::Reduce(_) => continue,
            };
            let name = || node.name.clone();
            let got = got.ok_or_else(|| ExecError::Missing { name: name() })?;
            if got != expected {
                return Err(ExecError::Shape { name: name(), expected, got });
            }
        }
        Ok(())
    }

    fn sweeps(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<Option<f64>, ExecError> {
        let done = AtomicU64::new(0);
        let total: u64 = self.plan.sweeps.iter().map(|sweep| sweep.steps).sum();
        self.partials.iter_mut().flatten().for_each(Partial::clear);
        let mut losses = Vec::new();
        self.finalise(None, params, &mut losses);
        for index in 0..self.plan.sweeps.len() {
            self.pack(index, params);
            let plan = &self.plan;
            let sweep = &plan.sweeps[index];
            let context = SweepContext {
                plan,
                sweep,
                backend: self.backend,
                kernels: &self.kernels,
                packed: &self.packed,
                derived: &self.derived,
                stores: &self.stores,
                io,
                in_place: InPlace::new(plan, sweep, self.backend, io),
                step: &|| {
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress.step(done, total, "steps");
                    if progress.is_cancelled() { Err(ExecError::Cancelled) } else { Ok(()) }
                },
            };
            let lane_elements: usize = sweep.slot_elements.iter().sum();
            let mut lanes: Vec<Lane<'_, T>> = self
                .arena
                .chunks_mut(lane_elements.max(1))
                .zip(&mut self.partials)
                .take(plan.lanes)
                .map(|(storage, partials)| Lane::new(storage, &sweep.slot_elements, partials))
                .collect();
            if lane_elements == 0 {
                lanes = self.partials.iter_mut().map(|partials| Lane::new(&mut [], &[], partials)).collect();
            }
            let count = lanes.len();
            let tiles = sweep.grid.len();
            let run = |lane: usize, state: &mut Lane<'_, T>| {
                let share = (lane * tiles).div_ceil(count)..((lane + 1) * tiles).div_ceil(count);
                share.into_iter().try_for_each(|tile| state.run_tile(&context, sweep.grid.index_of(tile)))
            };
            // only threads of the pool have scratch
            let work_seconds = plan.predicted_seconds - plan.meeting_seconds;
            if work_seconds < WORTH_THREADS_SECONDS && plan.memory.scratch_bytes == 0 {
                lanes.iter_mut().enumerate().try_for_each(|(lane, state)| run(lane, state))?;
            } else {
                self.pool.install(|| match lanes.as_mut_slice() {
                    [only] => with_threads_awake(|| run(0, only)),
                    lanes => lanes
                        .par_iter_mut()
                        .enumerate()
                        .with_max_len(1)
                        .try_for_each(|(lane, state)| run(lane, state)),
                })?;
            }
            let level = self.level_of(index);
            self.finalise(Some(level), params, &mut losses);
        }
        // in the order of the outputs, whichever sweep their losses end in
        losses.sort_by_key(|(reduction, _)| *reduction);
        Ok(losses.iter().map(|(_, loss)| *loss).reduce(|total, loss| total + loss))
    }

    /// The level of a sweep's reductions and sinks; sweeps without any were left out of the plan.
    fn level_of(&self, sweep: usize) -> usize {
        let nodes = &self.plan.sweeps[sweep].sweep.nodes;
        let terminals = nodes.iter().filter(|node| self.plan.program.nodes[node.node].is_terminal());
        terminals.map(|node| self.plan.program.nodes[node.node].level).max().unwrap_or(0)
    }

    fn finalise(&mut self, level: Option<usize>, params: &mut Parameters<T>, losses: &mut Vec<(usize, f64)>) {
        let Some((first, rest)) = self.partials.split_first_mut() else { return };
        let mut state = finalise::State {
            backend: self.backend,
            program: &self.plan.program,
            partials: first,
            others: rest,
            stores: &mut self.stores,
            derived: &mut self.derived,
            gradients: &mut self.gradients,
            params,
            losses,
        };
        for (after, finaliser) in &self.plan.program.finalisers {
            if *after == level {
                state.apply(finaliser);
            }
        }
    }

    /// Packs the parameters of a sweep's kernels, but for those that have not changed since.
    fn pack(&mut self, sweep: usize, params: &Parameters<T>) {
        for node in &self.plan.sweeps[sweep].sweep.nodes {
            let program_node = &self.plan.program.nodes[node.node];
            if node.action != Action::Compute || program_node.params.is_empty() {
                continue;
            }
            let Some(kernel) = &self.kernels[node.node] else { continue };
            let stamp = &mut self.packed_from[node.node];
            if stamp.is(program_node, params, &self.derived) {
                continue;
            }
            stamp.numbers.clear(); // nothing is packed while it is being packed
            let values: Vec<&[T]> = program_node
                .params
                .iter()
                .map(|param| match param {
                    Param::Network(place) => params.tensors()[*place].data.as_slice(),
                    Param::Derived(place) => self.derived[*place].as_slice(),
                })
                .collect();
            self.backend.pack(kernel, &values, &mut self.packed[node.node]);
            self.packed_from[node.node].set(program_node, params, &self.derived);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "pixels are far fewer than 2^53")]
const fn lossless(count: u64) -> f64 {
    count as f64
}
