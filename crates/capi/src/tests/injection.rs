//! Panics where a test asks for them.

use std::cell::Cell;

thread_local! {
    static INJECTED: Cell<Option<Injection>> = const { Cell::new(None) };
}

/// Where a test wants a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Injection {
    /// Before anything is looked at.
    AtEntry,
    /// With the first handle that is used exclusively held.
    WithHandle,
}

/// Makes the next call of this thread that gets there panic; gives what was asked for before.
pub(crate) fn inject_panic(injection: Option<Injection>) -> Option<Injection> {
    INJECTED.replace(injection)
}

/// Panics where a test asked for it.
pub(crate) fn inject(here: Injection) {
    if INJECTED.get() == Some(here) {
        INJECTED.set(None);
        panic!("injected panic");
    }
}
