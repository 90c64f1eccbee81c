//! Training steps: a run, then an optimiser.

use std::ffi::c_void;

use tiled::exec::{AdamW, AdamWOptions, OptimError, Optimizer, RunReport, Sgd, SgdOptions, Trainer};
use tiled::graph::Parameters;
use tiled::tensor::{DType, Element};

use crate::engine::tiled_engine;
use crate::executor::{AnyExecutor, Report, gradient, make, mismatch, tiled_report};
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::io::{Tensors, tiled_io};
use crate::plan::tiled_plan;
use crate::pointer::{Extensible, Output, extensible, write_extensible};
use crate::status::{Failure, Fallible, tiled_status};
use crate::weights::{Weights, require_data, tiled_weights};

/// Trains the parameters of a network, one step at a time. One call at a time.
#[derive(Debug)]
pub struct tiled_trainer {
    _opaque: (),
}

impl Opaque for tiled_trainer {
    type Object = AnyTrainer;
    const KIND: usize = 7;
    const NAME: &'static str = "trainer";
}

/// Stochastic gradient descent, as `torch.optim.SGD`.
pub const TILED_OPTIMIZER_SGD: i32 = 1;
/// Adam with decoupled weight decay, as `torch.optim.AdamW`.
pub const TILED_OPTIMIZER_ADAMW: i32 = 2;

/// An optimiser and its options, with PyTorch's names.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tiled_optimizer {
    /// The size of the struct, as `tiled_optimizer_init` sets it.
    pub struct_size: u32,
    /// `TILED_OPTIMIZER_SGD` or `TILED_OPTIMIZER_ADAMW`.
    pub kind: i32,
    /// The learning rate.
    pub learning_rate: f64,
    /// The weight decay.
    pub weight_decay: f64,
    /// SGD: the share of the last step that is kept.
    pub momentum: f64,
    /// SGD: the share of the gradient that momentum leaves out.
    pub dampening: f64,
    /// AdamW: what is kept of the averages of the gradient and of its square.
    pub betas: [f64; 2],
    /// AdamW: what is added to the denominator.
    pub eps: f64,
    /// SGD: not zero for Nesterov's momentum.
    pub nesterov: i32,
    /// Zero.
    pub reserved: i32,
}

// SAFETY: repr(C), the size first, and numbers
unsafe impl Extensible for tiled_optimizer {
    const NAME: &'static str = "tiled_optimizer";
    const FIRST_SIZE: usize = size_of::<Self>();

    fn initial() -> Self {
        let (sgd, adamw) = (SgdOptions::default(), AdamWOptions::default());
        Self {
            struct_size: crate::size_of_u32::<Self>(),
            kind: TILED_OPTIMIZER_SGD,
            learning_rate: sgd.lr,
            weight_decay: sgd.weight_decay,
            momentum: sgd.momentum,
            dampening: sgd.dampening,
            betas: adamw.betas,
            eps: adamw.eps,
            nesterov: 0,
            reserved: 0,
        }
    }
}

/// Sets every field to its default: SGD with learning rate 1e-3, no momentum, no weight decay.
/// `struct_size` is `sizeof(tiled_optimizer)`.
///
/// # Safety
/// `optimizer` is NULL or has room for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_optimizer_init(
    optimizer: *mut tiled_optimizer,
    struct_size: u32,
) -> tiled_status {
    // SAFETY: the caller's promise
    guard(|| unsafe { write_extensible(optimizer, struct_size, "optimizer", &tiled_optimizer::initial()) })
}

/// Makes a trainer for a plan whose objective has a loss and wants the gradients of parameters.
///
/// As `tiled_executor_new`, the engine's backend must be that of the plan, and nothing of both is used afterwards. The
/// handle is the caller's, to be freed with `tiled_trainer_free`. On failure `trainer` is untouched. Threads: any.
///
/// # Safety
/// `optimizer` is NULL or a struct with its size set; `trainer` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_trainer_new(
    engine: *const tiled_engine,
    plan: *const tiled_plan,
    optimizer: *const tiled_optimizer,
    trainer: *mut *mut tiled_trainer,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (options, trainer) =
            unsafe { (extensible(optimizer, "optimizer")?, Output::new(trainer, "trainer")?) };
        let is_training = handle::shared(plan, "plan", |plan| Ok(!plan.program.param_grads.is_empty()))?;
        if !is_training {
            return Err(Failure::invalid("the plan computes no gradients of parameters"));
        }
        let made = match make(engine, plan)? {
            AnyExecutor::F32(executor) => {
                AnyTrainer::F32(Trainer::new(executor, AnyOptimizer::new(&options)?))
            }
            AnyExecutor::F64(executor) => {
                AnyTrainer::F64(Trainer::new(executor, AnyOptimizer::new(&options)?))
            }
        };
        trainer.set(handle::insert(made)?);
        Ok(())
    })
}

/// One step: the loss and the gradients, then the optimiser on every parameter that has a gradient.
///
/// Arguments and promises as `tiled_executor_run`; on failure all parameters are as before. Where the loss, a gradient or
/// what a parameter would become is NaN or infinite, the status is `TILED_STATUS_NOT_FINITE`; sinks are complete then.
///
/// # Safety
/// As `tiled_executor_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_trainer_step(
    trainer: *mut tiled_trainer,
    weights: *mut tiled_weights,
    io: *const tiled_io,
    report: *mut tiled_report,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (tensors, report) = unsafe { (Tensors::of(io)?, Report::of(report)?) };
        let done = handle::exclusive(trainer, "trainer", |trainer| {
            handle::exclusive(weights, "weights", |weights| match (trainer, weights) {
                // SAFETY: the caller's promise
                (AnyTrainer::F32(trainer), Weights::F32(params)) => unsafe {
                    step(trainer, params, &tensors)
                },
                // SAFETY: the caller's promise
                (AnyTrainer::F64(trainer), Weights::F64(params)) => unsafe {
                    step(trainer, params, &tensors)
                },
                (AnyTrainer::F32(_), weights) => Err(mismatch(DType::F32, weights.dtype())),
                (AnyTrainer::F64(_), weights) => Err(mismatch(DType::F64, weights.dtype())),
            })
        })?;
        report.set(&done)
    })
}

/// # Safety
/// As [`Tensors::with_io`].
unsafe fn step<T: Element>(
    trainer: &mut Trainer<'static, T, AnyOptimizer<T>>,
    params: &mut Parameters<T>,
    tensors: &Tensors,
) -> Fallible<RunReport> {
    // SAFETY: the caller's promise
    unsafe { tensors.with_io::<T, _>(|io| Ok(trainer.step(params, io, &tensors.progress)?)) }
}

/// Sets the learning rate of the steps to come, a finite number of at least 0. On failure nothing changes.
///
/// Threads: one call at a time.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_trainer_set_learning_rate(
    trainer: *mut tiled_trainer,
    learning_rate: f64,
) -> tiled_status {
    guard(|| {
        handle::exclusive(trainer, "trainer", |trainer| {
            let set = match trainer {
                AnyTrainer::F32(trainer) => trainer.optimizer_mut().set_learning_rate(learning_rate),
                AnyTrainer::F64(trainer) => trainer.optimizer_mut().set_learning_rate(learning_rate),
            };
            Ok(set?)
        })
    })
}

/// Copies the gradient of the last step with respect to a parameter; as `tiled_executor_gradient`.
///
/// # Safety
/// `data` is NULL or `count` elements can be written to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_trainer_gradient(
    trainer: *const tiled_trainer,
    index: usize,
    dtype: i32,
    data: *mut c_void,
    count: usize,
) -> tiled_status {
    guard(|| {
        require_data(data.cast_const())?;
        let dtype = crate::tensor::dtype(dtype)?;
        handle::shared(trainer, "trainer", |trainer| match trainer {
            // SAFETY: the caller's promise
            AnyTrainer::F32(trainer) => unsafe { gradient(trainer.executor(), index, dtype, data, count) },
            // SAFETY: the caller's promise
            AnyTrainer::F64(trainer) => unsafe { gradient(trainer.executor(), index, dtype, data, count) },
        })
    })
}

/// Frees a trainer; NULL does nothing. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_trainer_free(trainer: *mut tiled_trainer) -> tiled_status {
    guard(|| handle::free(trainer, "trainer"))
}

/// A trainer of either element type.
#[derive(Debug)]
pub enum AnyTrainer {
    /// `float`.
    F32(Trainer<'static, f32, AnyOptimizer<f32>>),
    /// `double`.
    F64(Trainer<'static, f64, AnyOptimizer<f64>>),
}

/// Either optimiser.
#[derive(Debug)]
pub enum AnyOptimizer<T> {
    /// Stochastic gradient descent.
    Sgd(Sgd<T>),
    /// Adam with decoupled weight decay.
    AdamW(AdamW<T>),
}

impl<T: Element> AnyOptimizer<T> {
    fn new(options: &tiled_optimizer) -> Fallible<Self> {
        let &tiled_optimizer { learning_rate: lr, weight_decay, momentum, dampening, betas, eps, .. } =
            options;
        Ok(match options.kind {
            TILED_OPTIMIZER_SGD => {
                let nesterov = options.nesterov != 0;
                Self::Sgd(Sgd::new(SgdOptions { lr, momentum, dampening, weight_decay, nesterov })?)
            }
            TILED_OPTIMIZER_ADAMW => Self::AdamW(AdamW::new(AdamWOptions { lr, betas, eps, weight_decay })?),
            kind => return Err(Failure::invalid(format!("optimizer: kind {kind} is not one"))),
        })
    }
}

impl<T: Element> Optimizer<T> for AnyOptimizer<T> {
    fn step(&mut self, params: &mut [&mut [T]], grads: &[&[T]]) -> Result<(), OptimError> {
        match self {
            Self::Sgd(sgd) => sgd.step(params, grads),
            Self::AdamW(adamw) => adamw.step(params, grads),
        }
    }

    fn set_learning_rate(&mut self, learning_rate: f64) -> Result<(), OptimError> {
        match self {
            Self::Sgd(sgd) => sgd.set_learning_rate(learning_rate),
            Self::AdamW(adamw) => adamw.set_learning_rate(learning_rate),
        }
    }

    fn learning_rate(&self) -> f64 {
        match self {
            Self::Sgd(sgd) => sgd.learning_rate(),
            Self::AdamW(adamw) => adamw.learning_rate(),
        }
    }

    fn state_bytes(&self, elements: usize) -> u64 {
        match self {
            Self::Sgd(sgd) => sgd.state_bytes(elements),
            Self::AdamW(adamw) => adamw.state_bytes(elements),
        }
    }
}
