//! Executors: run a plan, any number of times.

use std::ffi::c_void;
use std::sync::Arc;

use tiled::exec::{Executor, RunReport};
use tiled::graph::{Parameters, Plan};
use tiled::tensor::{DType, Element};

use crate::engine::{Real, tiled_engine};
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::io::{Tensors, tiled_io};
use crate::logger;
use crate::plan::tiled_plan;
use crate::pointer::{Extensible, Output, check_size, write_extensible};
use crate::status::{
    Failure, Fallible, TILED_STATUS_DTYPE, TILED_STATUS_NOT_FOUND, TILED_STATUS_SHAPE, tiled_status,
};
use crate::weights::{Weights, copy_out, require_data, tiled_weights};

/// Runs a plan, any number of times. All its memory is allocated when it is made, or with the first run where its plan has
/// `releases_weights`. One call at a time.
#[derive(Debug)]
pub struct tiled_executor {
    _opaque: (),
}

impl Opaque for tiled_executor {
    type Object = AnyExecutor;
    const KIND: usize = 6;
    const NAME: &'static str = "executor";
}

/// What a run did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_report {
    /// The size of the struct, set by the caller to `sizeof(tiled_report)`.
    pub struct_size: u32,
    /// Not zero where the objective has a loss with a value.
    pub has_loss: i32,
    /// The loss; 0 without one.
    pub loss: f64,
    /// The time of the run, in seconds.
    pub seconds: f64,
}

// SAFETY: repr(C), the size first, and numbers
unsafe impl Extensible for tiled_report {
    const NAME: &'static str = "tiled_report";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        Self { struct_size: crate::size_of_u32::<Self>(), has_loss: 0, loss: 0.0, seconds: 0.0 }
    }
}

/// Makes an executor for a plan on an engine's backend, with as many threads of its own as the engine has.
///
/// The engine need not be the one that the plan was made on, but its backend must be the same
/// (`TILED_STATUS_INVALID_ARGUMENT`). Allocates all memory that runs take, but for what `releases_weights` leaves to the first one. The handle is the caller's, to be freed with
/// `tiled_executor_free`; it depends on neither plan nor engine afterwards. On failure `executor` is untouched.
/// Threads: any.
///
/// # Safety
/// `executor` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_executor_new(
    engine: *const tiled_engine,
    plan: *const tiled_plan,
    executor: *mut *mut tiled_executor,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let executor = unsafe { Output::new(executor, "executor")? };
        executor.set(handle::insert(make(engine, plan)?)?);
        Ok(())
    })
}

/// An executor of either element type for a plan.
pub(crate) fn make(engine: *const tiled_engine, plan: *const tiled_plan) -> Fallible<AnyExecutor> {
    let plan: Arc<Plan> = handle::shared(plan, "plan", |planned| {
        handle::shared(engine, "engine", |engine| planned.require_backend(engine))?;
        Ok(Arc::clone(&planned.plan))
    })?;
    // what the caller holds beside the run counts in the plan, and is not allocated
    let bytes = plan.peak_bytes().saturating_sub(plan.memory.resident_bytes);
    let made = handle::shared(engine, "engine", |engine| {
        Ok(match plan.dtype {
            DType::F32 => AnyExecutor::F32(Executor::new(plan, f32::backend(engine), engine.threads())?),
            DType::F64 => AnyExecutor::F64(Executor::new(plan, f64::backend(engine), engine.threads())?),
        })
    })?;
    logger::info(|| format!("executor of {bytes} bytes"));
    Ok(made)
}

/// Runs the plan. Running statistics in `weights` are updated where the objective trains. Where the plan has `releases_weights`, those that `weights` still has are
/// packed first and let go of; weights that would have to be packed and are gone are `TILED_STATUS_INVALID_ARGUMENT`, before anything is let go of or written.
///
/// `report` may be NULL, else its first field is `sizeof(tiled_report)`. Tensors of `io` have the plan's shapes and
/// element type. Where a check fails nothing is written; where a callback fails or cancels, sinks in memory may be
/// written in part and sinks with an `end` hear it; `report` is written on success alone.
/// Threads: `executor` and `weights` are used by one call at a time; callbacks run on the executor's threads or the
/// caller's.
///
/// # Safety
/// Structs have their sizes set, arrays of `io` as many entries as it says, tensors describe memory that can be read or
/// written, and callbacks may be called from any thread and do not throw.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_executor_run(
    executor: *mut tiled_executor,
    weights: *mut tiled_weights,
    io: *const tiled_io,
    report: *mut tiled_report,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (tensors, report) = unsafe { (Tensors::of(io)?, Report::of(report)?) };
        let done = handle::exclusive(executor, "executor", |executor| {
            handle::exclusive(weights, "weights", |weights| match (executor, weights) {
                // SAFETY: the caller's promise
                (AnyExecutor::F32(executor), Weights::F32(params)) => unsafe {
                    run(executor, params, &tensors)
                },
                // SAFETY: the caller's promise
                (AnyExecutor::F64(executor), Weights::F64(params)) => unsafe {
                    run(executor, params, &tensors)
                },
                (executor, weights) => Err(mismatch(executor.dtype(), weights.dtype())),
            })
        })?;
        report.set(&done)
    })
}

/// # Safety
/// As [`Tensors::with_io`].
unsafe fn run<T: Element>(
    executor: &mut Executor<'static, T>,
    params: &mut Parameters<T>,
    tensors: &Tensors,
) -> Fallible<RunReport> {
    // SAFETY: the caller's promise
    unsafe { tensors.with_io::<T, _>(|io| Ok(executor.run(params, io, &tensors.progress)?)) }
}

pub(crate) fn mismatch(executor: DType, weights: DType) -> Failure {
    let message = format!("the plan is for {}, the weights hold {}", executor.name(), weights.name());
    Failure::new(TILED_STATUS_DTYPE, message)
}

/// Copies the gradient with respect to a parameter after a run: `count` elements of the plan's type.
///
/// `index` is the parameter's place in the weights. On failure (`TILED_STATUS_NOT_FOUND`: the objective wants none)
/// nothing is written. Threads: any, not during a run.
///
/// # Safety
/// `data` is NULL or `count` elements can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_executor_gradient(
    executor: *const tiled_executor,
    index: usize,
    dtype: i32,
    data: *mut c_void,
    count: usize,
) -> tiled_status {
    guard(|| {
        require_data(data.cast_const())?;
        let dtype = crate::tensor::dtype(dtype)?;
        handle::shared(executor, "executor", |executor| match executor {
            // SAFETY: the caller's promise
            AnyExecutor::F32(executor) => unsafe { gradient(executor, index, dtype, data, count) },
            // SAFETY: the caller's promise
            AnyExecutor::F64(executor) => unsafe { gradient(executor, index, dtype, data, count) },
        })
    })
}

/// Copies a gradient out.
///
/// # Safety
/// `data` is NULL or `count` elements can be written to it.
pub(crate) unsafe fn gradient<T: Element>(
    executor: &Executor<'static, T>,
    index: usize,
    dtype: DType,
    data: *mut c_void,
    count: usize,
) -> Fallible {
    if dtype != T::DTYPE {
        let message = format!("gradients are {}, asked for are {}", T::DTYPE.name(), dtype.name());
        return Err(Failure::new(TILED_STATUS_DTYPE, message));
    }
    let Some(values) = executor.gradient(index) else {
        let message = format!("parameter {index} has no gradient in this plan");
        return Err(Failure::new(TILED_STATUS_NOT_FOUND, message));
    };
    if values.len() != count {
        let message = format!("the gradient has {} elements, asked for are {count}", values.len());
        return Err(Failure::new(TILED_STATUS_SHAPE, message));
    }
    // SAFETY: the caller's promise
    unsafe { copy_out(values, data) }
}

/// Frees an executor; NULL does nothing. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_executor_free(executor: *mut tiled_executor) -> tiled_status {
    guard(|| handle::free(executor, "executor"))
}

/// An executor of either element type.
#[derive(Debug)]
pub enum AnyExecutor {
    /// `float`.
    F32(Executor<'static, f32>),
    /// `double`.
    F64(Executor<'static, f64>),
}

impl AnyExecutor {
    pub(crate) const fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
        }
    }
}

/// Where the report of a run goes, which may be nowhere.
pub(crate) struct Report(Option<(*mut tiled_report, u32)>);

impl Report {
    /// Checks the caller's struct.
    ///
    /// # Safety
    /// `report` is NULL or has room for as many bytes as its first field says, until the call returns.
    pub(crate) unsafe fn of(report: *mut tiled_report) -> Fallible<Self> {
        if report.is_null() {
            return Ok(Self(None));
        }
        if !report.is_aligned() {
            return Err(Failure::invalid("report is not aligned"));
        }
        // SAFETY: not NULL and aligned; the first field can be read by the caller's promise
        let size = unsafe { report.cast::<u32>().read() };
        check_size::<tiled_report>(size as usize)?;
        Ok(Self(Some((report, size))))
    }

    pub(crate) fn set(self, done: &RunReport) -> Fallible {
        let Some((report, size)) = self.0 else { return Ok(()) };
        let value = tiled_report {
            struct_size: crate::size_of_u32::<tiled_report>(),
            has_loss: i32::from(done.loss.is_some()),
            loss: done.loss.unwrap_or(0.0),
            seconds: done.seconds,
        };
        // SAFETY: `of` has checked it, and the promise made there holds until the call returns
        unsafe { write_extensible(report, size, "report", &value) }
    }
}
