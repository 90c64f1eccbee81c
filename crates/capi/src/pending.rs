//! Runs in two halves: outputs first, gradients later.

use tiled::exec::{Executor, Pending, RunReport};
use tiled::graph::Parameters;
use tiled::tensor::Element;

use crate::executor::{AnyExecutor, Report, mismatch, tiled_executor, tiled_report};
use crate::guard::guard;
use crate::handle::{self, Opaque};
use crate::io::{Tensors, tiled_io};
use crate::pointer::Output;
use crate::status::{Failure, Fallible, tiled_status};
use crate::weights::{Weights, tiled_weights};

/// A run whose outputs are written and whose gradients wait for those of the outputs.
#[derive(Debug)]
pub struct tiled_pending {
    _opaque: (),
}

impl Opaque for tiled_pending {
    type Object = AnyPending;
    const KIND: usize = 8;
    const NAME: &'static str = "pending";
}

/// A run of either element type; `None` once its gradients are computed.
#[derive(Debug)]
pub enum AnyPending {
    /// `float`.
    F32(Option<Pending<'static, f32>>),
    /// `double`.
    F64(Option<Pending<'static, f64>>),
}

/// Runs the first half of a plan whose objective has `TILED_LOSS_GRAD_OUTPUT_LATER`: what the outputs need. `io` has the inputs and the
/// outputs, which are written and finished; running statistics in `weights` are updated. The gradients follow by
/// `tiled_executor_backward`, whatever else the executor runs before.
///
/// A plan without a second half is `TILED_STATUS_INVALID_ARGUMENT`. The handle is the caller's, to be freed with `tiled_pending_free`; it holds
/// memory of its own (`tiled_pending_bytes`), and the executor takes as much again for the next run that begins before it
/// is used or freed. On failure `pending` is untouched. `report` and threads: as `tiled_executor_run`.
///
/// # Safety
/// As `tiled_executor_run`; `pending` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_executor_forward(
    executor: *mut tiled_executor,
    weights: *mut tiled_weights,
    io: *const tiled_io,
    pending: *mut *mut tiled_pending,
    report: *mut tiled_report,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (tensors, report) = unsafe { (Tensors::of(io)?, Report::of(report)?) };
        // SAFETY: the caller's promise
        let pending = unsafe { Output::new(pending, "pending")? };
        let (run, done) = handle::exclusive(executor, "executor", |executor| {
            handle::exclusive(weights, "weights", |weights| match (executor, weights) {
                (AnyExecutor::F32(executor), Weights::F32(params)) => {
                    // SAFETY: the caller's promise
                    let (run, done) = unsafe { forward(executor, params, &tensors)? };
                    Ok((AnyPending::F32(Some(run)), done))
                }
                (AnyExecutor::F64(executor), Weights::F64(params)) => {
                    // SAFETY: the caller's promise
                    let (run, done) = unsafe { forward(executor, params, &tensors)? };
                    Ok((AnyPending::F64(Some(run)), done))
                }
                (executor, weights) => Err(mismatch(executor.dtype(), weights.dtype())),
            })
        })?;
        let handle = handle::insert(run)?;
        report.set(&done)?;
        pending.set(handle);
        Ok(())
    })
}

/// # Safety
/// As [`Tensors::with_io`].
unsafe fn forward<T: Element>(
    executor: &mut Executor<'static, T>,
    params: &mut Parameters<T>,
    tensors: &Tensors,
) -> Fallible<(Pending<'static, T>, RunReport)> {
    // SAFETY: the caller's promise
    unsafe { tensors.with_io::<T, _>(|io| Ok(executor.forward(params, io, &tensors.progress)?)) }
}

/// Runs the second half: the gradients of a run that `tiled_executor_forward` began. `io` has the inputs, which are read again and
/// have to be the same, the gradients of the outputs, and the sinks of the gradients of the inputs.
///
/// `pending` is used up, whatever this returns, but where the call is refused for a handle that is not one; it is still to be freed. A
/// run of another plan, one that is used up, and weights that have changed since are `TILED_STATUS_INVALID_ARGUMENT`. Gradients of
/// parameters are read by `tiled_executor_gradient`. `report` and threads: as `tiled_executor_run`.
///
/// # Safety
/// As `tiled_executor_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_executor_backward(
    executor: *mut tiled_executor,
    pending: *mut tiled_pending,
    weights: *const tiled_weights,
    io: *const tiled_io,
    report: *mut tiled_report,
) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let (tensors, report) = unsafe { (Tensors::of(io)?, Report::of(report)?) };
        let done = handle::exclusive(executor, "executor", |executor| {
            handle::exclusive(pending, "pending", |pending| {
                handle::shared(weights, "weights", |weights| match (executor, pending, weights) {
                    (AnyExecutor::F32(executor), AnyPending::F32(run), Weights::F32(params)) => {
                        // SAFETY: the caller's promise
                        unsafe { backward(executor, run, params, &tensors) }
                    }
                    (AnyExecutor::F64(executor), AnyPending::F64(run), Weights::F64(params)) => {
                        // SAFETY: the caller's promise
                        unsafe { backward(executor, run, params, &tensors) }
                    }
                    (executor, _, weights) => Err(mismatch(executor.dtype(), weights.dtype())),
                })
            })
        })?;
        report.set(&done)
    })
}

/// # Safety
/// As [`Tensors::with_io`].
unsafe fn backward<T: Element>(
    executor: &mut Executor<'static, T>,
    run: &mut Option<Pending<'static, T>>,
    params: &Parameters<T>,
    tensors: &Tensors,
) -> Fallible<RunReport> {
    let run = run.take().ok_or_else(|| Failure::invalid("pending: its gradients have been computed"))?;
    // SAFETY: the caller's promise
    unsafe { tensors.with_io::<T, _>(|io| Ok(executor.backward(run, params, io, &tensors.progress)?)) }
}

/// The bytes that a run holds while it waits for its gradients; 0 once they are computed. On failure `bytes` is untouched.
/// Threads: any.
///
/// # Safety
/// `bytes` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tiled_pending_bytes(pending: *const tiled_pending, bytes: *mut u64) -> tiled_status {
    guard(|| {
        // SAFETY: the caller's promise
        let bytes = unsafe { Output::new(bytes, "bytes")? };
        let held = handle::shared(pending, "pending", |pending| {
            Ok(match pending {
                AnyPending::F32(run) => run.as_ref().map_or(0, Pending::held_bytes),
                AnyPending::F64(run) => run.as_ref().map_or(0, Pending::held_bytes),
            })
        })?;
        bytes.set(held);
        Ok(())
    })
}

/// Frees a run and the memory that it holds; NULL does nothing. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn tiled_pending_free(pending: *mut tiled_pending) -> tiled_status {
    guard(|| handle::free(pending, "pending"))
}
