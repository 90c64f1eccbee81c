//! Whether the threads that share work wait awake.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::WORTH_SHARING_SECONDS;

/// Work that takes one thread less than this stays on it, though the others wait awake: to hand a part of it over takes about 1 µs.
pub const WORTH_SHARING_AWAKE_SECONDS: f64 = 6e-6;

thread_local! {
    static AWAKE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, the threads that share the work of this one are held awake by somebody, so that less work is worth sharing, or count as asleep.
#[derive(Debug)]
#[must_use = "what was said before counts again when it is dropped"]
pub struct ThreadsAwake {
    before: bool,
    of_this_thread: PhantomData<*const ()>,
}

impl ThreadsAwake {
    /// Says so, on this thread.
    pub fn new() -> Self {
        Self { before: AWAKE.replace(true), of_this_thread: PhantomData }
    }

    /// Says that they count as asleep for a while, as each of them has work of its own.
    pub fn as_if_asleep() -> Self {
        Self { before: AWAKE.replace(false), of_this_thread: PhantomData }
    }

    /// Whether somebody holds the threads awake that share the work of this one.
    #[must_use]
    pub fn is_so() -> bool {
        AWAKE.get()
    }
}

impl Default for ThreadsAwake {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ThreadsAwake {
    fn drop(&mut self) {
        AWAKE.set(self.before);
    }
}

/// The work, in seconds of one thread, that is worth sharing with others now.
///
/// ```
/// use tiled_kernel::{ThreadsAwake, WORTH_SHARING_SECONDS, worth_sharing_seconds};
/// assert_eq!(worth_sharing_seconds(), WORTH_SHARING_SECONDS);
/// let _awake = ThreadsAwake::new();
/// assert!(worth_sharing_seconds() < WORTH_SHARING_SECONDS);
/// ```
#[must_use]
pub fn worth_sharing_seconds() -> f64 {
    if ThreadsAwake::is_so() { WORTH_SHARING_AWAKE_SECONDS } else { WORTH_SHARING_SECONDS }
}
