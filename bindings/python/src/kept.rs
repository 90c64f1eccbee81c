//! What a plan keeps between its runs.

use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::error::Failure;

/// What runs, for one thread at a time, and for the process that made it.
pub(crate) struct Kept<T>(Mutex<Held<T>>);

/// The value, and whose it is.
pub(crate) struct Held<T> {
    pub(crate) value: Option<T>,
    process: u32,
}

impl<T> Kept<T> {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Held { value: None, process: std::process::id() }))
    }

    /// What is kept, where no other thread has it. A process that was forked has none of the threads: what they worked for is left
    /// alone.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Held<T>>, Failure> {
        let mut held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text = "the plan is running: make another for another thread";
                return Err(Failure::Argument(text.to_owned()));
            }
        };
        if held.process != std::process::id() {
            std::mem::forget(held.value.take());
            held.process = std::process::id();
        }
        Ok(held)
    }
}
