//! What ends the program from outside: Ctrl-C, a request to terminate, a terminal that is closed.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use tiled::exec::{Cancel, Progress, remove_partial_files};

/// Turns the switch at the first of SIGINT, SIGTERM and SIGHUP: the run stops at its next step, sinks remove what they
/// began, training saves what it has. A second SIGINT or SIGTERM ends the program at once, without its partial files.
///
/// A closed session sends SIGHUP beside another signal, so that it is no second one. A signal that is ignored when the
/// program starts stays so: `nohup` works.
pub(super) fn listen(cancel: Cancel) -> io::Result<()> {
    #[cfg(unix)]
    {
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = signal_hook::iterator::Signals::new(wanted)?;
        let listen = move || {
            let mut is_second = false;
            for signal in signals.forever() {
                is_second |= receive(signal, &cancel, is_second);
            }
        };
        std::thread::Builder::new().name("tiled-signals".to_owned()).spawn(listen).map(drop)
    }
    #[cfg(not(unix))]
    {
        let is_second = std::sync::atomic::AtomicBool::new(false);
        ctrlc::set_handler(move || {
            let before = is_second.load(Ordering::Relaxed);
            is_second.store(receive(SIGINT, &cancel, before), Ordering::Relaxed);
        })
        .map_err(io::Error::other)
    }
}

/// The exit code of a run that a signal ended, as a shell has it: 128 and the signal's number; 130 for Ctrl-C.
pub(crate) fn exit_code() -> u8 {
    u8::try_from(128 + FIRST.load(Ordering::Relaxed)).unwrap_or(u8::MAX)
}

/// Returns whether the next one ends the program at once.
fn receive(signal: i32, cancel: &Cancel, is_second: bool) -> bool {
    if !cancel.is_cancelled() {
        FIRST.store(signal, Ordering::Relaxed);
        cancel.cancel();
        return signal != SIGHUP;
    }
    if is_second && signal != SIGHUP {
        remove_partial_files();
        std::process::exit(128 + signal);
    }
    is_second || signal != SIGHUP
}

/// The signal that turned the switch.
static FIRST: AtomicI32 = AtomicI32::new(SIGINT);

// the same numbers on every system
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
#[cfg(unix)]
const SIGTERM: i32 = 15;

/// Whether a signal is ignored, where the system says so.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| is_in_mask(&status, signal))
}

#[cfg(unix)]
fn is_in_mask(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn r15_ignored_signals_are_bits_of_a_mask() {
        let status = "Name:\ttiled\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_in_mask(status, SIGHUP) && !is_in_mask(status, SIGINT) && !is_in_mask(status, SIGTERM));
        assert!(!is_in_mask("Name:\ttiled\n", SIGHUP) && !is_in_mask("SigIgn:\tno\n", SIGHUP));
    }
}
