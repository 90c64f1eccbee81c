//! Runs a plan: sweeps, lanes, tiles, calls.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use tiled_graph::program::{NodeKind, Param, ProgramNode, SinkRole, SourceRole};
use tiled_graph::{Action, Parameters, Plan};
use tiled_kernel::{Backend, Kernel, Partial};
use tiled_tensor::{AlignedBuffer, Element, OutOfMemory, collected, with_room, zeros};

use crate::in_place::InPlace;
use crate::labels::{Ignoring, is_worth_sharing, take_census};
use crate::lane::{Lane, SweepContext, Waiting};
use crate::store::Stores;
use crate::{ExecError, Pool, Progress, Sink, Source, finalise};

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
    /// Where the gradients with respect to the inputs go, one for each of `Program::input_grads`.
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

/// Runs a plan on a backend, any number of times. All its memory is allocated when it is made, and has been given back, with the
/// threads and what they kept, when its drop returns.
#[derive(Debug)]
pub struct Executor<'b, T: Element> {
    plan: Arc<Plan>,
    backend: &'b dyn Backend<T>,
    pool: Pool,
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
    /// Where the plan is for another element type or another backend, the threads cannot be started, or memory is refused.
    pub fn new(
        plan: impl Into<Arc<Plan>>,
        backend: &'b dyn Backend<T>,
        threads: usize,
    ) -> Result<Self, ExecError> {
        Self::with_scratch(plan, backend, threads, &std::env::temp_dir())
    }

    /// The same with a folder for the values that the plan keeps in files.
    ///
    /// # Errors
    /// As [`Executor::new`], and where the folder has no room for them.
    pub fn with_scratch(
        plan: impl Into<Arc<Plan>>,
        backend: &'b dyn Backend<T>,
        threads: usize,
        scratch: &Path,
    ) -> Result<Self, ExecError> {
        let plan = plan.into();
        if plan.dtype != T::DTYPE {
            return Err(ExecError::DType { expected: plan.dtype.name(), got: T::DTYPE.name() });
        }
        for (node, &expected) in plan.program.nodes.iter().zip(&plan.blocks) {
            let (channels, got) = (node.channels, backend.block(node.channels));
            if got != expected {
                return Err(ExecError::Backend { channels, expected, backend: backend.name(), got });
            }
        }
        for (id, node) in plan.program.nodes.iter().enumerate() {
            if plan.program.support(id, backend) != plan.support[id] {
                return Err(ExecError::Unsupported { name: node.name.clone(), backend: backend.name() });
            }
        }
        let program = &plan.program;
        let kernels = collected(program.nodes.iter().map(|node| match &node.kind {
            NodeKind::Compute(kernel) => Some(*kernel),
            _ => None,
        }))
        .map_err(refused("the kernels of the network"))?;
        let supports = || plan.support.iter().flatten();
        let workspace_bytes = supports().map(|support| support.workspace_bytes).max().unwrap_or(0);
        let arena = AlignedBuffer::try_new(plan.arena_elements()).map_err(refused("the windows"))?;
        let mut packed = with_room(program.nodes.len()).map_err(refused("the packed parameters"))?;
        let mut packed_from = with_room(program.nodes.len()).map_err(refused("the packed parameters"))?;
        for (node, support) in program.nodes.iter().zip(&plan.support) {
            let fail = |error| refused(format!("the packed parameters of `{}`", node.name))(error);
            let len = support.filter(|_| !node.params.is_empty()).map_or(0, |support| support.packed_bytes)
                / size_of::<T>();
            packed.push(AlignedBuffer::try_new(len).map_err(fail)?);
            packed_from.push(Stamp { numbers: with_room(program.stamp_len(&node.params)).map_err(fail)? });
        }
        let mut partials = with_room(plan.lanes).map_err(refused("the partial sums"))?;
        for _ in 0..plan.lanes {
            partials.push(lane_partials(&plan, backend)?);
        }
        let mut gradients =
            collected(program.params.iter().map(|_| None)).map_err(refused("the gradients"))?;
        for param in &program.param_grads {
            let gradient = zeros(program.params[*param]);
            gradients[*param] =
                Some(gradient.map_err(refused(format!("the gradient of parameter {param}")))?);
        }
        let mut derived = with_room(program.derived.len()).map_err(refused("the derived vectors"))?;
        for len in &program.derived {
            derived.push(zeros(*len).map_err(refused("a derived vector"))?);
        }
        let stores = Stores::new(&plan, scratch)?;
        // threads come last: each takes addresses for a heap of its own, and where those are limited it does with fewer, as
        // the memory above would not
        // scratch was promised for as many
        let most = if plan.memory.scratch_bytes > 0 { plan.threads } else { usize::MAX };
        let threads = threads.min(most);
        let pool = Pool::new(threads).map_err(|source| ExecError::Threads { threads, source })?;
        if workspace_bytes > 0 {
            let reserved = pool.broadcast(|_| backend.reserve(workspace_bytes));
            reserved.into_iter().collect::<Result<(), _>>().map_err(refused("the scratch of a thread"))?;
        }
        Ok(Self {
            stores,
            partials,
            arena,
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
    pub fn plan(&self) -> &Plan {
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
    /// Where a source or sink is missing, has another shape or fails, where class numbers of the target are neither classes
    /// nor ignored, where `progress` cancels, and where memory for a list of the run is refused. Then every sink is
    /// aborted and `params` are as before; another run may follow.
    pub fn run(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        let report = self.run_apart(params, io, progress)?;
        move_statistics(params, self.moved_statistics(params)?);
        Ok(report)
    }

    /// Runs the plan and leaves the running statistics as they are, for [`move_statistics`].
    pub(crate) fn run_apart(
        &mut self,
        params: &Parameters<T>,
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

    /// The parameters that running statistics after the last run would be kept in, and their values.
    pub(crate) fn moved_statistics(&self, params: &Parameters<T>) -> Result<Moved<T>, ExecError> {
        let partials = self.partials.first().map_or(&[][..], Vec::as_slice);
        finalise::moved_statistics(&self.plan.program, partials, params)
            .map_err(refused("running statistics"))
    }

    /// Everything that can be wrong with what the caller gave, before any work.
    fn check(&self, params: &Parameters<T>, io: &Io<'_, T>) -> Result<(), ExecError> {
        let program = &self.plan.program;
        let got = params.tensors();
        if !got.iter().map(|tensor| tensor.data.len()).eq(program.params.iter().copied()) {
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
        params: &Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<Option<f64>, ExecError> {
        let done = AtomicU64::new(0);
        let total: u64 = self.plan.sweeps.iter().map(|sweep| sweep.steps).sum();
        self.partials.iter_mut().flatten().for_each(Partial::clear);
        let mut losses = Vec::new();
        self.finalise(None, params, &mut losses)?;
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
                in_place: InPlace::new(plan, sweep, io).map_err(refused("the places of a sweep"))?,
                step: &|| {
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    progress.step(done, total, "steps");
                    if progress.is_cancelled() { Err(ExecError::Cancelled) } else { Ok(()) }
                },
            };
            let lane_elements: usize = sweep.slot_elements.iter().sum();
            let mut in_flight = with_room(plan.in_flight).map_err(refused("the lanes"))?;
            let mut storage = self.arena.chunks_exact_mut(lane_elements.max(1));
            for _ in 0..plan.in_flight {
                let storage = if lane_elements == 0 { None } else { storage.next() }.unwrap_or_default();
                in_flight.push(Lane::new(storage, sweep).map_err(refused("the windows of a lane"))?);
            }
            let waiting = Waiting::new(&mut self.partials);
            // only threads of the pool have scratch
            let work_seconds = plan.predicted_seconds - plan.meeting_seconds;
            if work_seconds < WORTH_THREADS_SECONDS && plan.memory.scratch_bytes == 0 {
                in_flight[0].run(&context, &waiting)?;
            } else {
                self.pool.install(|| match in_flight.as_mut_slice() {
                    [only] => with_threads_awake(|| only.run(&context, &waiting)),
                    lanes => {
                        lanes.par_iter_mut().with_max_len(1).try_for_each(|lane| lane.run(&context, &waiting))
                    }
                })?;
            }
            let level = self.level_of(index);
            self.finalise(Some(level), params, &mut losses)?;
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

    fn finalise(
        &mut self,
        level: Option<usize>,
        params: &Parameters<T>,
        losses: &mut Vec<(usize, f64)>,
    ) -> Result<(), ExecError> {
        let Some((first, rest)) = self.partials.split_first_mut() else { return Ok(()) };
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
                state.apply(finaliser).map_err(refused("the sums of a reduction"))?;
            }
        }
        Ok(())
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

/// Parameters with values that they are to have.
pub(crate) type Moved<T> = Vec<(usize, Vec<T>)>;

/// Gives running statistics the values of [`Executor::moved_statistics`].
pub(crate) fn move_statistics<T: Element>(params: &mut Parameters<T>, moved: Moved<T>) {
    for (place, values) in moved {
        let running = params.data_mut(place).expect("invariant: running statistics are parameters");
        running.copy_from_slice(&values);
    }
}

/// The partial sums of one lane.
fn lane_partials<T: Element>(plan: &Plan, backend: &dyn Backend<T>) -> Result<Vec<Partial<T>>, ExecError> {
    let program = &plan.program;
    let mut partials = with_room(program.reductions.len()).map_err(refused("the partial sums"))?;
    for reduction in &program.reductions {
        let node = &program.nodes[reduction.node];
        let partial = backend.partial(&reduction.reduction, node.batch, node.channels);
        partials.push(partial.map_err(refused(format!("the partial sums of `{}`", node.name)))?);
    }
    Ok(partials)
}

/// The error of memory that was refused for something.
pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(OutOfMemory) -> ExecError {
    move |OutOfMemory { bytes }| ExecError::OutOfMemory { what: what.into(), bytes }
}

#[expect(clippy::cast_precision_loss, reason = "pixels are far fewer than 2^53")]
const fn lossless(count: u64) -> f64 {
    count as f64
}
