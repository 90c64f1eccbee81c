//! The one boundary that every call passes: a failure or a panic becomes a status.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::logger;
use crate::status::{Failure, Fallible, TILED_STATUS_OK, TILED_STATUS_PANIC, keep, kept, tiled_status};

/// Runs the body of an exported function.
///
/// A panic leaves an exclusively used handle poisoned, because the lock around it is dropped while unwinding.
pub(crate) fn guard(body: impl FnOnce() -> Fallible) -> tiled_status {
    quiet_panics();
    let outer = INSIDE.replace(true);
    let before = kept();
    // what a panic can leave half changed lies behind a handle's lock, which is poisoned then
    let result = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        crate::tests::inject(crate::tests::Injection::AtEntry);
        body()
    }));
    INSIDE.set(outer);
    let failure = match result {
        Ok(Ok(())) => {
            // callbacks may have failed in calls of their own on this thread
            keep(before);
            return TILED_STATUS_OK;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(TILED_STATUS_PANIC, format!("internal error: {}", text(&*payload))),
    };
    logger::error(&failure.message);
    keep(failure.message);
    failure.status
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("panic without a message")
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics that are caught here from being printed: a library does not write to the caller's terminal.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                before(info);
            }
        }));
    });
}
