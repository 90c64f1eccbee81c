//! Runs operators, modules and steps of training on request: our side of the comparison with PyTorch,
//! `bindings/python/bench/seed003.py`.
//!
//! Reads a JSON request per line from the standard input and answers each by a line of JSON, in which `error` stands where it failed.
//! `TILED_ISA` chooses the instruction set.
//!
//! ```text
//!   {"command": "hello"}                                              name, version, backend
//!   {"command": "load", "kind": "linear", "shape": [32, 64, 128], "form": "", "tensors": "case.safetensors",
//!    "task": "backward", "inputs_need": true, "threads": 2}
//!   {"command": "first"}                                              runs once: seconds, memory beyond what was held
//!   {"command": "run", "repeats": 3}                                  seconds of each
//!   {"command": "save", "path": "out.safetensors"}                    output, grad.<name>
//!   {"command": "peaks", "threads": 2}                                a loop of multiply-adds, a loop of copies
//! ```

mod case;
mod job;
mod networks;
#[path = "../bench_worker/peaks.rs"]
mod peaks;

use std::io::{BufRead, Write};

use serde_json::{Value, json};
use tiled::kernel::dense::Dense;
use tiled::prelude::CpuBackend;

use crate::job::Job;

/// Whatever went wrong, as one line.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let backend: &'static CpuBackend = Box::leak(Box::new(CpuBackend::new()?));
    let mut job = None;
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = serde_json::from_str(&line?)
            .map_err(Failure::from)
            .and_then(|request| answer(backend, &mut job, &request))
            .unwrap_or_else(|failure| json!({"error": failure.to_string()}));
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(backend: &'static CpuBackend, job: &mut Option<Job>, request: &Value) -> Result<Value, Failure> {
    match text(request, "command")? {
        "hello" => Ok(json!({
            "name": "tiled",
            "version": env!("CARGO_PKG_VERSION"),
            "backend": Dense::<f32>::name(backend),
        })),
        "load" => {
            *job = None;
            *job = Some(Job::load(backend, request)?);
            Ok(json!({}))
        }
        "first" => loaded(job)?.first(),
        "run" => Ok(json!({"seconds": loaded(job)?.run(number(request, "repeats")?)?})),
        "save" => loaded(job)?.save(text(request, "path")?.as_ref()),
        "peaks" => {
            let threads = number(request, "threads")?;
            let [median, fastest] = peaks::multiply_add_gflops(backend.isa(), threads);
            Ok(json!({
                "multiply_add_gflops": median,
                "fastest_multiply_add_gflops": fastest,
                "copy_gb_per_second": peaks::copy_gb_per_second(threads),
                "round_trip_ns": peaks::round_trip_ns(threads),
            }))
        }
        other => Err(format!("unknown command `{other}`").into()),
    }
}

fn loaded(job: &mut Option<Job>) -> Result<&mut Job, Failure> {
    job.as_mut().ok_or_else(|| "nothing is loaded".into())
}

/// The text of a field.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> Result<&'v str, Failure> {
    value[field].as_str().ok_or_else(|| format!("`{field}` is no text").into())
}

/// The number of a field.
pub(crate) fn number(value: &Value, field: &str) -> Result<usize, Failure> {
    let found = value[field].as_u64().and_then(|found| usize::try_from(found).ok());
    found.ok_or_else(|| format!("`{field}` is no count").into())
}

/// The numbers of a field.
pub(crate) fn numbers<const N: usize>(value: &Value, field: &str) -> Result<[usize; N], Failure> {
    let failed = || Failure::from(format!("`{field}` is no list of {N} counts"));
    let items = value[field].as_array().filter(|items| items.len() == N).ok_or_else(failed)?;
    let mut numbers = [0; N];
    for (number, item) in numbers.iter_mut().zip(items) {
        *number = item.as_u64().and_then(|item| usize::try_from(item).ok()).ok_or_else(failed)?;
    }
    Ok(numbers)
}
