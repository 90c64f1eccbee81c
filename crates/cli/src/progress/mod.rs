//! How far a run is: a bar where standard error is a terminal, lines where it is not.

mod lines;
pub(crate) mod signals;

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tiled::exec::{Cancel, ExecError, Progress};

use self::lines::Lines;

/// What lasts as long as the program: the switch that a signal turns.
#[derive(Debug)]
pub(crate) struct Session {
    cancel: Cancel,
}

impl Session {
    /// Listens to signals, see [`signals::listen`].
    pub(crate) fn start() -> std::io::Result<Self> {
        let cancel = Cancel::new();
        signals::listen(cancel.clone())?;
        Ok(Self { cancel })
    }

    /// The progress of one run, or of several after each other.
    pub(crate) fn bar(&self, message: &str) -> Bar {
        self.shown(message, TEMPLATE)
    }

    /// The progress of a plan, of which nobody knows how far it is.
    pub(crate) fn planning(&self) -> Bar {
        self.shown("planning", WITHOUT_STEPS)
    }

    fn shown(&self, message: &str, template: &str) -> Bar {
        let shown = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar.set_message(message.to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            Shown::Bar(bar)
        } else {
            Shown::Lines(Mutex::new(Lines::new(message)))
        };
        Bar { cancel: self.cancel.clone(), shown }
    }

    /// Stops between runs where a signal came.
    pub(crate) fn check(&self) -> Result<(), ExecError> {
        if self.cancel.is_cancelled() { Err(ExecError::Cancelled) } else { Ok(()) }
    }
}

/// Writes a line to standard error. Where that has gone, as with a terminal that was closed, there is nobody to tell, and
/// the work goes on.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// The progress of one run.
#[derive(Debug)]
pub(crate) struct Bar {
    cancel: Cancel,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

impl Bar {
    /// Says what the run is doing.
    pub(crate) fn say(&self, message: String) {
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(message),
            Shown::Lines(lines) => lines.lock().unwrap_or_else(PoisonError::into_inner).say(message),
        }
    }

    /// Says that it goes on, where no steps are counted; whether a signal came.
    pub(crate) fn wait(&self) -> bool {
        if let Shown::Lines(lines) = &self.shown
            && let Some(line) = lines.lock().unwrap_or_else(PoisonError::into_inner).wait()
        {
            print_line(&line);
        }
        self.cancel.is_cancelled()
    }

    /// Writes a line that stays.
    pub(crate) fn print_line(&self, line: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| print_line(line)),
            Shown::Lines(lines) => {
                lines.lock().unwrap_or_else(PoisonError::into_inner).wrote_line();
                print_line(line);
            }
        }
    }
}

impl Progress for Bar {
    fn step(&self, done: u64, total: u64, _what: &str) {
        match &self.shown {
            Shown::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            Shown::Lines(lines) => {
                // where another thread is at it, it says as much
                if let Ok(mut lines) = lines.try_lock()
                    && let Some(line) = lines.step(done, total)
                {
                    print_line(&line);
                }
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

const TEMPLATE: &str = "{msg:24} {bar:40} {pos}/{len} {elapsed} (left {eta})";
const WITHOUT_STEPS: &str = "{msg} {spinner} {elapsed}";
