//! Progress as lines for a log: few enough to read, often enough to see that it goes on.

use std::time::{Duration, Instant};

/// When the next line is due.
///
/// After a second a line at each tenth of the steps, but at most one a second; else one every five seconds, and later one
/// for each twentieth of the time that has passed, so that a night makes some hundred lines. What ends within a second
/// says nothing.
#[derive(Debug)]
pub(super) struct Lines {
    message: String,
    begin: Instant,
    /// When the last line was written, counted from the beginning.
    last: Duration,
    /// The tenths of the steps that were done then.
    tenths: u64,
}

impl Lines {
    pub(super) fn new(message: &str) -> Self {
        Self { message: message.to_owned(), begin: Instant::now(), last: Duration::ZERO, tenths: 0 }
    }

    /// Begins the count of steps anew.
    pub(super) fn say(&mut self, message: String) {
        self.message = message;
        self.tenths = 0;
    }

    /// Another line was written now.
    pub(super) fn wrote_line(&mut self) {
        self.last = self.begin.elapsed();
    }

    /// The line to write after a step, if one is due.
    pub(super) fn step(&mut self, done: u64, total: u64) -> Option<String> {
        self.step_at(self.begin.elapsed(), done, total)
    }

    /// The line to write while nothing is counted, if one is due.
    pub(super) fn wait(&mut self) -> Option<String> {
        self.wait_at(self.begin.elapsed())
    }

    fn wait_at(&mut self, elapsed: Duration) -> Option<String> {
        let since = elapsed.saturating_sub(self.last);
        let is_due = since >= LONGEST.max(elapsed / 20) || self.last.is_zero() && since >= SHORTEST;
        if !is_due {
            return None;
        }
        self.last = elapsed;
        Some(format!("{}: {:.0} s", self.message, elapsed.as_secs_f64()))
    }

    fn step_at(&mut self, elapsed: Duration, done: u64, total: u64) -> Option<String> {
        let tenths = share(done, total, 10);
        let since = elapsed.saturating_sub(self.last);
        let is_due = since >= LONGEST.max(elapsed / 20) || since >= SHORTEST && tenths > self.tenths;
        if !is_due || done >= total {
            return None;
        }
        (self.last, self.tenths) = (elapsed, tenths);
        let (percent, seconds) = (share(done, total, 100), elapsed.as_secs_f64());
        Some(format!("{}: {done} of {total} steps, {percent} %, {seconds:.0} s", self.message))
    }
}

/// `done / total` in parts of `of`, rounded down.
fn share(done: u64, total: u64, of: u64) -> u64 {
    let share = u128::from(done) * u128::from(of) / u128::from(total.max(1));
    u64::try_from(share).unwrap_or(of)
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which lines are written, of a run of so many steps of a length.
    fn lines(steps: u64, millis: u64) -> Vec<u64> {
        let mut lines = Lines::new("run");
        let at = |step: u64| Duration::from_millis(step * millis);
        (1..=steps)
            .filter(|step| lines.step_at(at(*step), *step, steps).is_some())
            .map(|step| step * millis / 1000)
            .collect()
    }

    #[test]
    fn r07_progress_is_a_line_at_each_tenth_and_one_every_five_seconds() {
        assert!(lines(100_000, 0).is_empty(), "no time");
        assert!(lines(9, 100).is_empty(), "less than a second");
        assert_eq!(lines(20, 100), [1], "two seconds");
        assert_eq!(lines(100, 200), [2, 4, 6, 8, 10, 12, 14, 16, 18], "each tenth");
        assert_eq!(
            lines(1000, 100).iter().filter(|second| **second % 5 == 0).count(),
            19,
            "each five seconds"
        );
        let night = lines(8 * 36_000, 100);
        assert!((100..300).contains(&night.len()), "{} lines in a night", night.len());
    }

    #[test]
    fn what_counts_no_steps_says_so_after_a_second_and_every_five() {
        let mut lines = Lines::new("planning");
        let mut at = |millis| lines.wait_at(Duration::from_millis(millis));
        let written: Vec<String> = (0..120).filter_map(|tenth| at(100 * tenth)).collect();
        assert_eq!(written, ["planning: 1 s", "planning: 6 s", "planning: 11 s"]);
    }

    #[test]
    fn r07_a_line_says_what_how_far_and_how_long() {
        let mut lines = Lines::new("run");
        let line = lines.step_at(Duration::from_secs(7), 123, 1000);
        assert_eq!(line.as_deref(), Some("run: 123 of 1000 steps, 12 %, 7 s"));
        lines.say("step 2/20".to_owned());
        let line = lines.step_at(Duration::from_secs(14), u64::MAX / 2, u64::MAX);
        let expected = format!("step 2/20: {} of {} steps, 49 %, 14 s", u64::MAX / 2, u64::MAX);
        assert_eq!(line, Some(expected));
        assert_eq!(lines.step_at(Duration::from_secs(99), 10, 10), None, "the report says that it is done");
    }
}
