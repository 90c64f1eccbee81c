//! Progress bars and Ctrl-C.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tiled::exec::{Cancel, Progress};

use crate::error::CliError;

/// What lasts as long as the program: the switch that Ctrl-C turns.
#[derive(Debug)]
pub(crate) struct Session {
    cancel: Cancel,
}

impl Session {
    /// Listens to Ctrl-C. The first one stops the run at its next step, so that sinks remove what they began; the
    /// second one ends the program at once.
    pub(crate) fn start() -> Result<Self, CliError> {
        let cancel = Cancel::new();
        let switch = cancel.clone();
        ctrlc::set_handler(move || {
            if switch.is_cancelled() {
                std::process::exit(130);
            }
            switch.cancel();
        })
        .map_err(|source| CliError::Signals { source })?;
        Ok(Self { cancel })
    }

    /// A bar for one run, on standard error where that is a terminal.
    pub(crate) fn bar(&self, message: &str) -> Bar {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar.set_message(message.to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Bar { cancel: self.cancel.clone(), bar }
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Stops between runs where Ctrl-C was pressed.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        if self.cancel.is_cancelled() { Err(tiled::exec::ExecError::Cancelled.into()) } else { Ok(()) }
    }
}

/// The progress of one run.
#[derive(Debug)]
pub(crate) struct Bar {
    cancel: Cancel,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Says what the run is doing.
    pub(crate) fn say(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        }
    }
}

impl Progress for Bar {
    fn step(&self, done: u64, total: u64, _what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

const TEMPLATE: &str = "{msg:24} {bar:40} {pos}/{len} {elapsed} (left {eta})";
