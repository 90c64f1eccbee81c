//! What a plan keeps between its runs.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use tiled::device::DeviceBackend;
use tiled::exec::Executor;
use tiled::graph::{Parameters, Plan};
use tiled::tensor::{DType, Element};

use crate::error::Failure;
use crate::network::Loaded;

/// An executor with its weights.
pub(crate) enum Ready {
    F32(Executor<'static, f32>, Parameters<f32>),
    F64(Executor<'static, f64>, Parameters<f64>),
}

impl Ready {
    /// That of a plan, with the weights of its network.
    pub(crate) fn new(
        loaded: &Loaded,
        plan: &Arc<Plan>,
        device: &'static DeviceBackend,
        threads: usize,
        folder: &Path,
    ) -> Result<Self, Failure> {
        fn made<T: Element>(
            loaded: &Loaded,
            plan: &Arc<Plan>,
            device: &'static DeviceBackend,
            threads: usize,
            folder: &Path,
        ) -> Result<(Executor<'static, T>, Parameters<T>), Failure> {
            let parameters = loaded.parameters()?;
            Ok((Executor::with_folder(Arc::clone(plan), device, threads, folder)?, parameters))
        }
        Ok(match plan.dtype {
            DType::F32 => {
                made(loaded, plan, device, threads, folder).map(|(run, weights)| Self::F32(run, weights))?
            }
            DType::F64 => {
                made(loaded, plan, device, threads, folder).map(|(run, weights)| Self::F64(run, weights))?
            }
        })
    }
}

/// An element type whose executor may be ready.
pub(crate) trait OfReady: Element {
    /// The executor and the weights.
    ///
    /// # Panics
    /// Where they are of the other type.
    fn of(ready: &mut Ready) -> (&mut Executor<'static, Self>, &mut Parameters<Self>);
}

const OTHER: &str = "invariant: what is ready has the type of its plan";

impl OfReady for f32 {
    fn of(ready: &mut Ready) -> (&mut Executor<'static, Self>, &mut Parameters<Self>) {
        let Ready::F32(executor, parameters) = ready else { panic!("{OTHER}") };
        (executor, parameters)
    }
}

impl OfReady for f64 {
    fn of(ready: &mut Ready) -> (&mut Executor<'static, Self>, &mut Parameters<Self>) {
        let Ready::F64(executor, parameters) = ready else { panic!("{OTHER}") };
        (executor, parameters)
    }
}

/// What runs, for one thread at a time, and for the process that made it.
pub(crate) struct Kept(Mutex<Held>);

/// What is ready, and whose it is.
pub(crate) struct Held {
    pub(crate) ready: Option<Ready>,
    process: u32,
}

impl Kept {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Held { ready: None, process: std::process::id() }))
    }

    /// What is kept, where no other thread has it. A process that was forked has none of the threads: what they worked for is left
    /// alone.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Held>, Failure> {
        let mut held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text = "the plan is running: make another for another thread";
                return Err(Failure::Argument(text.to_owned()));
            }
        };
        if held.process != std::process::id() {
            std::mem::forget(held.ready.take());
            held.process = std::process::id();
        }
        Ok(held)
    }
}
