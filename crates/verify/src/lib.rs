//! Random networks, sizes and plans: the tiled run against the untiled one, on the CPU or another device.
//!
//! A case draws a network of up to twelve nodes over every operator, one to three inputs and outputs, a batch,
//! an element type, an objective, and options of a plan that cuts it into more than one tile or step. Then
//!
//! - outputs, gradients of inputs, the loss and running statistics have the bits of the untiled run;
//! - gradients of parameters have the same bits for one thread and two, and those of weights lie within
//!   `n·ε·Σ|x·g|` of the untiled ones (n terms; those of other parameters have the same bits);
//! - the smallest budget that an error names is enough, and no plan exceeds its budget.
//!
//! It does not say that the untiled run is right: `tiled_testkit::conformance` holds every kernel to the reference, and
//! the tests of this crate the calls of random cases too.
//!
//! ```text
//!   seed, case ─ draw ─► network, objective, options ─┬─ untiled plan ─ run ───────────────┐
//!                                                     └─ tiled plan ── run, 1 and 2 threads ┴─► same bits? near? ─► report
//! ```
//!
//! # Example
//!
//! ```
//! use tiled::prelude::NoProgress;
//! use tiled_verify::{VerifyOptions, verify};
//!
//! let report = verify(&VerifyOptions { cases: 3, seed: 1, ..VerifyOptions::default() }, &NoProgress)?;
//! assert!(report.passed(), "{:#?}", report.failures);
//! assert!(report.min_tiles > 1);
//! # Ok::<(), tiled_verify::VerifyError>(())
//! ```
#![forbid(unsafe_code)]

mod case;
#[cfg(all(test, unix))]
mod cuda;
#[cfg(test)]
mod deferred;
mod draw;
#[cfg(test)]
mod faults;
mod magnitude;
mod network;
#[cfg(test)]
mod oracle;
mod run;
mod setting;
mod shadow;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tiled::cpu::CpuBackend;
use tiled::device::{Device, DeviceBackend, DeviceChoiceError};
use tiled::exec::Progress;
use tiled::kernel::{Backend, Host};
use tiled::tensor::Element;

use case::CaseReport;
use draw::Draw;
use shadow::Shadow;

/// How much to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyOptions {
    /// The number of cases.
    pub cases: u64,
    /// The seed of all of them.
    pub seed: u64,
    /// The cases that run at a time.
    pub threads: usize,
    /// The one case to run, as a failure names it.
    pub only: Option<u64>,
    /// What the cases run on.
    pub device: Device,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self { cases: 200, seed: 0, threads: 1, only: None, device: Device::Cpu }
    }
}

/// What verification found.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyReport {
    /// The cases run.
    pub cases: u64,
    /// The least number of tiles or steps of a case.
    pub min_tiles: u64,
    /// The numbers compared: elements of outputs and gradients, and losses.
    pub compared: u64,
    /// The elements of outputs, losses and running statistics whose bits differ from those of the untiled run.
    pub output_mismatches: u64,
    /// The elements of input gradients whose bits differ from those of the untiled run.
    pub input_grad_mismatches: u64,
    /// The gradients of parameters that differ between threads or lie outside the bound.
    pub weight_grad_failures: u64,
    /// One line for each case that failed: its number, what is wrong, the network and the options.
    pub failures: Vec<String>,
    /// The time, in seconds.
    pub seconds: f64,
}

impl VerifyReport {
    /// Whether every case passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
            && self.output_mismatches + self.input_grad_mismatches + self.weight_grad_failures == 0
    }
}

/// Why verification did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceChoiceError),
    /// The caller's progress cancelled it.
    #[error("cancelled after {done} of {total} cases")]
    Cancelled {
        /// The cases done.
        done: u64,
        /// The cases asked for.
        total: u64,
    },
}

/// Runs random cases on a device. A case that fails, or panics, is told in the report.
///
/// # Errors
/// Where the device is not there, and where `progress` cancels.
pub fn verify(options: &VerifyOptions, progress: &dyn Progress) -> Result<VerifyReport, VerifyError> {
    match options.device.open()? {
        DeviceBackend::Cpu(cpu) => verify_on(options, progress, Subject::of(&cpu), Subject::of(&cpu)),
        DeviceBackend::Cuda(gpu) => {
            let shadow = Shadow::new(&gpu, CpuBackend::new().map_err(DeviceChoiceError::from)?);
            let narrow = Subject { backend: &gpu, host: &shadow };
            verify_on(options, progress, narrow, Subject { backend: &gpu, host: &shadow })
        }
    }
}

/// What is verified.
#[derive(Clone, Copy, Debug)]
struct Subject<'a, T: Element> {
    /// The backend.
    backend: &'a dyn Backend<T>,
    /// Its kernels on the host, for which a plan of the backend is one as well: they tell the sizes of what it sums.
    host: &'a dyn Host<T>,
}

impl<'a, T: Element> Subject<'a, T> {
    /// A backend on the host.
    fn of(host: &'a dyn Host<T>) -> Self {
        Self { backend: host, host }
    }
}

fn verify_on(
    options: &VerifyOptions,
    progress: &dyn Progress,
    narrow: Subject<'_, f32>,
    wide: Subject<'_, f64>,
) -> Result<VerifyReport, VerifyError> {
    let begin = Instant::now();
    let cases: Vec<u64> = match options.only {
        Some(case) => vec![case],
        None => (0..options.cases).collect(),
    };
    let total = cases.len() as u64;
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let reports = Mutex::new(Vec::with_capacity(cases.len()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while !progress.is_cancelled() {
                    let place = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                    let Some(&case) = cases.get(place) else { return };
                    let report = check(options.seed, case, narrow, wide);
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push((case, report));
                    progress.step(done.fetch_add(1, Ordering::Relaxed) + 1, total, "cases");
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    if (reports.len() as u64) < total {
        return Err(VerifyError::Cancelled { done: reports.len() as u64, total });
    }
    reports.sort_by_key(|(case, _)| *case);
    let sum = |of: fn(&CaseReport) -> u64| reports.iter().map(|(_, report)| of(report)).sum();
    Ok(VerifyReport {
        cases: total,
        min_tiles: reports.iter().map(|(_, report)| report.tiles).min().unwrap_or(0),
        compared: sum(|report| report.compared),
        output_mismatches: sum(|report| report.output_mismatches),
        input_grad_mismatches: sum(|report| report.input_grad_mismatches),
        weight_grad_failures: sum(|report| report.weight_grad_failures),
        failures: reports.iter().filter_map(|(_, report)| report.failure.clone()).collect(),
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Runs one case of either element type; a panic becomes a failure.
fn check(seed: u64, case: u64, narrow: Subject<'_, f32>, wide: Subject<'_, f64>) -> CaseReport {
    let run = || {
        let mut draw = Draw::new(seed, &format!("case {case}"));
        if draw.chance(50) {
            case::check(&mut draw, &format!("seed {seed}, case {case}, f32"), narrow)
        } else {
            case::check(&mut draw, &format!("seed {seed}, case {case}, f64"), wide)
        }
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let failure = Some(format!("seed {seed}, case {case}: panicked: {text}"));
        CaseReport { failure, ..CaseReport::default() }
    })
}
