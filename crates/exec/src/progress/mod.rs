//! How a long run tells how far it is, and how it is stopped.

mod resident;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use resident::{peak_rss_bytes, reset_peak_rss};

/// Hears how far a run is, and says whether to go on. Called from several threads, between steps.
pub trait Progress: Sync {
    /// `done` of `total` steps of `what` are done.
    fn step(&self, done: u64, total: u64, what: &str);

    /// Whether the run should stop; it then returns an error at the next step and leaves no file.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl<P: Progress + ?Sized> Progress for &P {
    fn step(&self, done: u64, total: u64, what: &str) {
        (**self).step(done, total, what);
    }
    fn is_cancelled(&self) -> bool {
        (**self).is_cancelled()
    }
}

/// Progress that nobody hears.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _done: u64, _total: u64, _what: &str) {}
}

/// A switch that stops a run: clones share it, so that a signal handler or another thread holds one.
///
/// ```
/// # use tiled_exec::{Cancel, Progress};
/// let cancel = Cancel::new();
/// let elsewhere = cancel.clone();
/// elsewhere.cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A switch that is off.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns it on, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Progress for Cancel {
    fn step(&self, _done: u64, _total: u64, _what: &str) {}
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
