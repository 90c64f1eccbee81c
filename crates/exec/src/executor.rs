//! Runs a plan, in one piece or in two halves.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tiled_graph::program::ParamId;
use tiled_graph::{Id, IndexVec, Parameters, Plan};
use tiled_kernel::Backend;
use tiled_tensor::{Element, collected, zeros};

use crate::error::refused;
use crate::finalise::Moved;
use crate::io::{Io, check};
use crate::labels::{Ignoring, take_census};
use crate::source::is_worth_sharing;
use crate::state::{State, Sweeps, released};
use crate::{ExecError, Pool, Progress, Sink};

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunReport {
    /// The loss, where the objective has one with a value.
    pub loss: Option<f64>,
    /// The time, in seconds.
    pub seconds: f64,
}

/// A run whose outputs are written and whose gradients wait for those of the outputs ([`Executor::forward`]). Its memory is given
/// back when it is dropped.
#[derive(Debug)]
pub struct Pending<'b, T: Element> {
    state: State<'b, T>,
    plan: Arc<Plan>,
    /// The versions of the parameters that it ran with.
    versions: Vec<u64>,
}

impl<T: Element> Pending<'_, T> {
    /// The bytes that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.plan.state_bytes()
    }
}

/// Which sweeps of a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Forward,
    Backward,
}

impl Part {
    fn sweeps(self, plan: &Plan) -> Range<usize> {
        let all = plan.sweeps.len();
        let second = plan.second_half().unwrap_or(all);
        match self {
            Self::Whole => 0..all,
            Self::Forward => 0..second,
            Self::Backward => second..all,
        }
    }

    /// The sinks that these write.
    fn sinks<'i, 'a, T: Element>(self, io: &'i Io<'a, T>) -> impl Iterator<Item = &'a dyn Sink<T>> + 'i {
        let outputs = (self != Self::Backward).then_some(&io.outputs);
        let gradients = (self != Self::Forward).then_some(&io.grad_inputs);
        outputs.into_iter().chain(gradients).flatten().copied()
    }
}

/// Runs a plan on a backend, any number of times. All its memory is allocated when it is made (where the plan lets go of parameters, that of what they are packed in and
/// of windows with the first run), and has been given back, with the
/// threads and what they kept, when its drop returns.
#[derive(Debug)]
pub struct Executor<'b, T: Element> {
    plan: Arc<Plan>,
    backend: &'b dyn Backend<T>,
    /// Where values lie that are kept in files.
    folder: PathBuf,
    pool: Arc<Pool>,
    /// That of the last run, for the next one; `None` where a [`Pending`] has it.
    spare: Option<State<'b, T>>,
    dropout_step: u64,
    /// Whether the plan lets go of a parameter.
    is_released: IndexVec<ParamId, bool>,
    gradients: IndexVec<ParamId, Option<Vec<T>>>,
}

/// The threads that may run a plan: workspaces were promised for as many. Where the host goes ahead of a device they are the device's, and no more
/// threads than the plan says read and write what goes to it ([`Plan::host_threads`]).
fn most_threads<T: Element>(plan: &Plan, backend: &dyn Backend<T>) -> usize {
    match plan.memory.scratch_bytes {
        _ if backend.transfers_beside() => usize::MAX,
        0 => usize::MAX,
        _ => plan.threads,
    }
}

impl<'b, T: Element> Executor<'b, T> {
    /// An executor for a plan, with its own pool of `threads` threads, but no more than the plan has scratch memory for
    /// ([`Plan::threads`]), where that is the host's. Where the plan keeps values in files, they lie in the system's folder for temporary files.
    ///
    /// # Errors
    /// Where the plan is for another element type or another backend, the threads cannot be started, or memory is refused.
    pub fn new(
        plan: impl Into<Arc<Plan>>,
        backend: &'b dyn Backend<T>,
        threads: usize,
    ) -> Result<Self, ExecError> {
        Self::with_folder(plan, backend, threads, &std::env::temp_dir())
    }

    /// The same with a folder for the values that the plan keeps in files.
    ///
    /// # Errors
    /// As [`Executor::new`], and where the folder has no room for them.
    pub fn with_folder(
        plan: impl Into<Arc<Plan>>,
        backend: &'b dyn Backend<T>,
        threads: usize,
        folder: &Path,
    ) -> Result<Self, ExecError> {
        let plan = plan.into();
        let threads = threads.min(most_threads(&plan, backend));
        // threads come last: each takes addresses for a heap of its own, and where those are limited it does with fewer, as
        // the memory before them would not
        let pool = || Pool::new(threads).map_err(|source| ExecError::Threads { threads, source });
        Self::build(plan, backend, threads, folder, || Ok(Arc::new(pool()?)))
    }

    /// The same with threads that several executors share; they end with the last one.
    ///
    /// # Errors
    /// As [`Executor::with_folder`], and where the plan has scratch memory for fewer threads ([`Plan::threads`]).
    pub fn with_pool(
        plan: impl Into<Arc<Plan>>,
        backend: &'b dyn Backend<T>,
        pool: Arc<Pool>,
        folder: &Path,
    ) -> Result<Self, ExecError> {
        let (plan, threads) = (plan.into(), pool.current_num_threads());
        if threads > most_threads(&plan, backend) {
            return Err(ExecError::PoolThreads { expected: plan.threads, got: threads });
        }
        Self::build(plan, backend, threads, folder, || Ok(pool))
    }

    fn build(
        plan: Arc<Plan>,
        backend: &'b dyn Backend<T>,
        threads: usize,
        folder: &Path,
        pool: impl FnOnce() -> Result<Arc<Pool>, ExecError>,
    ) -> Result<Self, ExecError> {
        if plan.dtype != T::DTYPE {
            return Err(ExecError::DType { expected: plan.dtype.name(), got: T::DTYPE.name() });
        }
        for (node, &expected) in plan.program.nodes.iter().zip(&plan.blocks) {
            let (channels, got) = (node.channels, backend.block(node.channels));
            if got != expected {
                return Err(ExecError::Backend { channels, expected, backend: backend.name(), got });
            }
        }
        for (id, node) in plan.program.nodes.entries() {
            if plan.program.support(id, backend) != plan.support[id] {
                return Err(ExecError::Unsupported { name: node.name.clone(), backend: backend.name() });
            }
        }
        let spare = Some(State::new(&plan, backend, threads, folder)?);
        let program = &plan.program;
        let mut gradients = IndexVec::filled(program.params.len(), None).map_err(refused("the gradients"))?;
        for param in &program.param_grads {
            let gradient = zeros(program.params[*param]);
            gradients[*param] =
                Some(gradient.map_err(refused(format!("the gradient of parameter {}", param.index())))?);
        }
        let is_released = IndexVec::filled(program.params.len(), false);
        let mut is_released = is_released.map_err(refused("a list of parameters"))?;
        plan.releases.iter().flat_map(|release| &release.params).for_each(|param| is_released[*param] = true);
        Ok(Self {
            backend,
            folder: folder.to_owned(),
            spare,
            is_released,
            gradients,
            dropout_step: 0,
            pool: pool()?,
            plan,
        })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The gradient with respect to a parameter after a run, by its index in [`tiled_graph::params`]; `None`
    /// where the objective wants none.
    #[must_use]
    pub fn gradient(&self, param: usize) -> Option<&[T]> {
        self.gradients.get(param)?.as_deref()
    }

    /// Gives dropout another mask, the same for every run with the same number.
    pub const fn set_dropout_step(&mut self, step: u64) {
        self.dropout_step = step;
    }

    /// Runs the plan. Running statistics in `params` are updated where the objective trains. Where the plan lets go of parameters
    /// ([`Plan::releases`]), those of them that `params` still has are packed first, and their memory is given back; runs of this executor follow with what is left.
    /// What is packed holds for the versions of all that it was made from: a convolution that carries out a norm wants its weight again where one of the norm's parameters has changed.
    /// What is given anew, to this executor or in other `params`, counts beside the plan until it is packed.
    ///
    /// # Errors
    /// Where elements of `params` are gone that would have to be packed; then nothing more is let go of. Where a source or sink is missing, has another shape or fails, where class numbers of the target are neither classes
    /// nor ignored, where `progress` cancels, and where memory for a list of the run is refused. Then every sink is
    /// aborted and `params` are as before, but for those that the plan lets go of; another run may follow.
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

    /// Runs the first half of a plan for [`Loss::GradOutputLater`](tiled_graph::Loss::GradOutputLater): what the outputs need. They are
    /// written and finished, running statistics are updated, and the gradients follow by [`Executor::backward`], at any time and
    /// whatever else runs before. A [`Pending`] holds memory of its own: the executor takes as much again for the next
    /// run that begins before it.
    ///
    /// # Errors
    /// As [`Executor::run`], and where the plan has no second half.
    pub fn forward(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<(Pending<'b, T>, RunReport), ExecError> {
        if self.plan.second_half().is_none() {
            return Err(ExecError::NoSecondHalf);
        }
        let mut state = self.state()?;
        let result = self.run_part(Part::Forward, &mut state, params, io, progress);
        let result =
            result.and_then(|report| Ok((report, versions(params)?, state.moved_statistics(params)?)));
        match result {
            Ok((report, versions, moved)) => {
                move_statistics(params, moved);
                Ok((Pending { state, plan: Arc::clone(&self.plan), versions }, report))
            }
            Err(error) => {
                self.spare = Some(state);
                Err(error)
            }
        }
    }

    /// Runs the second half: the gradients of a run that [`Executor::forward`] began, given those of its outputs. The inputs are read
    /// again and have to be the same.
    ///
    /// # Errors
    /// As [`Executor::run`], and where the run is another plan's, or the parameters have changed since. Then it is lost.
    pub fn backward(
        &mut self,
        pending: Pending<'b, T>,
        params: &Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        let Pending { mut state, plan, versions } = pending;
        let result = if Arc::ptr_eq(&plan, &self.plan) {
            self.check_unchanged(params, &versions)
                .and_then(|()| self.run_part(Part::Backward, &mut state, params, io, progress))
        } else {
            Err(ExecError::OtherPlan)
        };
        if result.is_err() {
            Part::Backward.sinks(io).for_each(|sink| sink.abort());
        }
        if Arc::ptr_eq(&plan, &self.plan) {
            self.spare = Some(state);
        }
        result
    }

    /// Runs the plan and leaves the running statistics as they are, for [`move_statistics`].
    pub(crate) fn run_apart(
        &mut self,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        finishing(Part::Whole, io, progress, || {
            self.check(Part::Whole, params, io)?;
            let mut state = self.state()?;
            let result = self.run_whole(&mut state, params, io, progress);
            self.spare = Some(state);
            result
        })
    }

    fn run_whole(
        &mut self,
        state: &mut State<'b, T>,
        params: &mut Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<Option<f64>, ExecError> {
        let ignored = self.census(state, io)?;
        state.release(&self.plan, params, &mut self.gradients)?;
        self.work(Part::Whole, state, params, io, ignored, progress)
    }

    /// The parameters that running statistics after the last run would be kept in, and their values.
    pub(crate) fn moved_statistics(&mut self, params: &Parameters<T>) -> Result<Moved<T>, ExecError> {
        self.spare.as_mut().map_or_else(|| Ok(Vec::new()), |state| state.moved_statistics(params))
    }

    /// The state of the last run, or one more.
    fn state(&mut self) -> Result<State<'b, T>, ExecError> {
        match self.spare.take() {
            Some(state) => Ok(state),
            None => State::new(&self.plan, self.backend, self.pool.current_num_threads(), &self.folder),
        }
    }

    fn run_part(
        &mut self,
        part: Part,
        state: &mut State<'b, T>,
        params: &Parameters<T>,
        io: &Io<'_, T>,
        progress: &dyn Progress,
    ) -> Result<RunReport, ExecError> {
        finishing(part, io, progress, || {
            self.check(part, params, io)?;
            let ignored = self.census(state, io)?;
            self.work(part, state, params, io, ignored, progress)
        })
    }

    /// Checks what a run is given.
    fn check(&self, part: Part, params: &Parameters<T>, io: &Io<'_, T>) -> Result<(), ExecError> {
        let expected = &self.plan.program.params;
        let tensors = params.tensors();
        let wrong = ExecError::Parameters { expected: expected.len(), got: tensors.len() };
        if tensors.len() != expected.len() {
            return Err(wrong);
        }
        for (param, len) in expected.entries() {
            match (params.is_released(param.index()), self.is_released[param]) {
                // packing will tell whether it is here that it was packed
                (true, true) => {}
                (true, false) => return Err(released(params, param.index())),
                (false, _) if tensors[param.index()].data.len() == *len => {}
                (false, _) => return Err(wrong),
            }
        }
        check(&self.plan, part.sweeps(&self.plan), io)
    }

    fn work(
        &mut self,
        part: Part,
        state: &mut State<'b, T>,
        params: &Parameters<T>,
        io: &Io<'_, T>,
        ignored: Option<Ignoring<'_, T>>,
        progress: &dyn Progress,
    ) -> Result<Option<f64>, ExecError> {
        let sweeps = part.sweeps(&self.plan);
        let with_labels = ignored.as_ref().map(|labels| io.with_target(labels));
        let mut run = Sweeps {
            plan: &self.plan,
            pool: &self.pool,
            params,
            io: with_labels.as_ref().unwrap_or(io),
            gradients: &mut self.gradients,
            progress,
        };
        state.lend(sweeps.clone(), &run)?;
        let begin = |state: &mut State<'b, T>, run: &mut Sweeps<'_, T>| {
            if part == Part::Backward {
                return Ok(());
            }
            state.set_dropout_step(&self.plan, self.dropout_step);
            state.begin(run)
        };
        let result = begin(state, &mut run).and_then(|()| state.run(sweeps, &mut run));
        let given_back = state.give_back();
        let loss = result?;
        given_back?;
        Ok(loss)
    }

    /// Counts and checks the class numbers of a cross-entropy, over which its mean is taken, and gives the target to read in
    /// place of the caller's, if any.
    fn census<'a>(
        &self,
        state: &mut State<'b, T>,
        io: &Io<'a, T>,
    ) -> Result<Option<Ignoring<'a, T>>, ExecError> {
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
                let numbers =
                    source.shape().iter().fold(1, |count: usize, extent| count.saturating_mul(*extent));
                if is_worth_sharing(numbers) { self.pool.install(take)? } else { take()? }
            }
        };
        state.set_cross_entropy_scale(1.0 / lossless(census.counted));
        // kernels ignore what is negative
        Ok(ignore_index.filter(|index| *index >= 0).map(|ignore_index| Ignoring { source, ignore_index }))
    }

    /// Checks that the parameters that gradients depend on have these versions still.
    fn check_unchanged(&self, params: &Parameters<T>, versions: &[u64]) -> Result<(), ExecError> {
        let are_read = self.plan.program.read_params().map_err(refused(VERSIONS))?;
        let read = (0..params.tensors().len()).filter(|param| are_read.get(*param) == Some(&true));
        match read.into_iter().find(|param| versions.get(*param) != Some(&params.version(*param))) {
            Some(param) => Err(ExecError::ParameterChanged { name: params.tensors()[param].name.clone() }),
            None => Ok(()),
        }
    }
}

/// Times the work of a run, and finishes its sinks, or aborts them where it fails.
fn finishing<T: Element>(
    part: Part,
    io: &Io<'_, T>,
    progress: &dyn Progress,
    work: impl FnOnce() -> Result<Option<f64>, ExecError>,
) -> Result<RunReport, ExecError> {
    let begin = Instant::now();
    let result = work().and_then(|loss| {
        // what has come since the last step
        if progress.is_cancelled() {
            return Err(ExecError::Cancelled);
        }
        // none has its name before all that may fail is done for each
        part.sinks(io).try_for_each(|sink| sink.prepare())?;
        part.sinks(io).try_for_each(|sink| sink.finish())?;
        Ok(RunReport { loss, seconds: begin.elapsed().as_secs_f64() })
    });
    if result.is_err() {
        part.sinks(io).for_each(|sink| sink.abort());
    }
    result
}

/// What memory is for, where it is refused.
const VERSIONS: &str = "the versions of the parameters";

fn versions<T: Element>(params: &Parameters<T>) -> Result<Vec<u64>, ExecError> {
    let versions = (0..params.tensors().len()).map(|param| params.version(param));
    collected(versions).map_err(refused(VERSIONS))
}

/// Gives running statistics the values of [`Executor::moved_statistics`].
pub(crate) fn move_statistics<T: Element>(params: &mut Parameters<T>, moved: Moved<T>) {
    for (param, values) in moved {
        let running = params.data_mut(param.index()).expect("invariant: running statistics are parameters");
        running.copy_from_slice(&values);
    }
}

#[expect(clippy::cast_precision_loss, reason = "pixels are far fewer than 2^53")]
const fn lossless(count: u64) -> f64 {
    count as f64
}
