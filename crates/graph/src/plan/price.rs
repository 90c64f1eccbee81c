//! What candidates and plans are compared by.

use super::lanes::has_ordered_sums;
use super::measure::Numbers;
use super::stays_on_caller;
use crate::program::Program;

/// The time that a candidate is judged by. A run of little to do stays on the caller's thread, which then does the work of all, one
/// lane after another; where sums depend on lanes, these are the same wherever the plan is made.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
fn seconds(program: &Program, numbers: &Numbers) -> f64 {
    let shared = numbers.seconds - numbers.meeting_seconds;
    if stays_on_caller(shared) && !has_ordered_sums(program) {
        shared * numbers.share.threads as f64
    } else {
        numbers.seconds
    }
}

/// What plans are compared by: their time, where twice the memory has to be worth one percent of it.
#[expect(clippy::cast_precision_loss, reason = "a model of time")]
pub(super) fn price(seconds: f64, peak_bytes: u64) -> f64 {
    seconds.ln() + 0.01 * (peak_bytes.max(1) as f64).log2()
}

/// What a candidate is compared by: chunks that are read again count before time. A hundredth more reads is as bad as three times the time.
pub(super) fn price_of(program: &Program, numbers: &Numbers) -> f64 {
    price(seconds(program, numbers), numbers.memory.total_bytes()) + 100.0 * numbers.chunk_reads.ln()
}
