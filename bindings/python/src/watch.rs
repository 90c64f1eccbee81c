//! Work that Python waits for: Ctrl-C ends it, and a function of Python hears how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tiled::exec::{Cancel, Progress};

use crate::error::Failure;

/// How often signals are looked at.
const TICK: Duration = Duration::from_millis(50);

/// The planner walks graphs by recursion, as it does on a main thread.
const STACK_BYTES: usize = 8 << 20;

/// How far the work is, and whether it should end.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    cancel: Cancel,
    done: AtomicU64,
    total: AtomicU64,
    /// What Python code raised first that the work called.
    raised: Mutex<Option<PyErr>>,
}

impl Watch {
    /// Ends the work with what Python code raised.
    pub(crate) fn raise(&self, error: PyErr) {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.cancel.cancel();
    }

    fn hear(&self, function: Option<&Py<PyAny>>) {
        let heard = Python::try_attach(|py| {
            py.check_signals()?;
            if let Some(function) = function {
                let steps = [&self.done, &self.total].map(|count| count.load(Ordering::Relaxed));
                function.call1(py, (steps[0], steps[1]))?;
            }
            Ok(())
        });
        // the interpreter is ending
        let Some(heard) = heard else { return self.cancel.cancel() };
        if let Err(error) = heard {
            self.raise(error);
        }
    }
}

impl Progress for Watch {
    fn step(&self, done: u64, total: u64, _what: &str) {
        // threads come here in any order
        self.done.fetch_max(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

/// Does the work on a thread of its own, without the interpreter, while this one looks at signals and calls `function` with the steps
/// that are done and all of them.
///
/// # Errors
/// What the work says, or what a signal or Python code raised meanwhile.
pub(crate) fn run<R: Send>(
    py: Python<'_>,
    function: Option<&Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let watch = Watch::default();
    let result = py.detach(|| {
        thread::scope(|scope| {
            let (ended, is_ended) = channel::<()>();
            let watched = &watch;
            let thread = thread::Builder::new().name("tiled".to_owned()).stack_size(STACK_BYTES);
            let started = thread.spawn_scoped(scope, move || {
                // dropped when the work ends, by a panic too
                let _ended = ended;
                work(watched)
            });
            let worker = started.map_err(|error| Failure::Argument(format!("no thread: {error}")))?;
            while let Err(RecvTimeoutError::Timeout) = is_ended.recv_timeout(TICK) {
                if !watched.is_cancelled() {
                    watched.hear(function);
                }
            }
            let panicked = |_| Err(Failure::Argument("internal error: the work panicked".to_owned()));
            worker.join().unwrap_or_else(panicked)
        })
    });
    if let Some(raised) = watch.raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(raised);
    }
    if result.is_ok()
        && let Some(function) = function
    {
        let total = watch.total.load(Ordering::Relaxed);
        function.call1(py, (total, total))?;
    }
    Ok(result?)
}
