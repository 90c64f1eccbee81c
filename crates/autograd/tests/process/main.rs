//! What concerns the process as a whole: its memory, and its death.
//!
//! Each test starts this program again for itself alone, so that no other test shares the process.

mod budget;
mod flat;
mod killed;

use std::ffi::OsStr;
use std::process::{Child, Command, Stdio};

/// The variable that says which part a process that a test has started plays.
const PART: &str = "TILED_TEST_PART";

/// Whether this process was started to play the part.
pub(crate) fn plays(part: &str) -> bool {
    std::env::var(PART).is_ok_and(|own| own == part)
}

/// This program once more, for one test in a part, with some variables.
pub(crate) fn start(test: &str, part: &str, variables: &[(&str, &OsStr)]) -> Child {
    let program = std::env::current_exe().expect("a test knows its program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(PART, part);
    command.envs(variables.iter().copied());
    command.stdout(Stdio::null()).spawn().expect("the program starts again")
}

/// Runs a test in a process of its own: `run` is called there.
pub(crate) fn alone(test: &str, run: impl FnOnce()) {
    const ALONE: &str = "alone";
    if plays(ALONE) {
        return run();
    }
    let status = start(test, ALONE, &[]).wait().expect("a process that was started ends");
    assert!(status.success(), "{test}: {status}");
}
