//! Runs networks on request: our side of the comparison with other engines, `bindings/python/bench/peers.py`.
//!
//! Reads a JSON request per line from the standard input and answers each by a line of JSON, in which `error`
//! stands where it failed. `TILED_ISA` chooses the instruction set.
//!
//! ```text
//!   {"command": "describe", "network": "light"}                       network, parameters
//!   {"command": "initialise", "network": "light", "seed": 1, "path": "w.safetensors"}
//!   {"command": "load", "network": "light", "weights": "w.safetensors", "input": "x.npy", "task": "inference",
//!    "hold": "auto", "threads": 2}                                    flops of the convolutions
//!   {"command": "load", "network": {"onnx": "net.onnx"}, …}           with the weights of the file
//!   {"command": "load", …, "double": true}                            in f64, from the same files
//!   {"command": "first"}             plans, runs once: seconds, memory beyond what was held, the plan's figures; once after
//!                                    each "load" for inference, whose weights go as they are packed
//!   {"command": "run", "repeats": 3}                                  seconds of each
//!   {"command": "save", "folder": "out"}                              output.npy, grad_input.npy, grad.<name>.npy
//!   {"command": "peaks", "threads": 2}                                a loop of multiply-adds, a loop of copies
//! ```

mod arrays;
mod job;
mod network;
mod peaks;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use tiled::exec::save_weights;
use tiled::prelude::{Backend, CpuBackend, initialise, params};

use crate::job::{Load, Loaded};

/// Whatever went wrong, as one line.
type Failure = Box<dyn std::error::Error>;

#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    Hello,
    Describe { network: Value },
    Initialise { network: Value, seed: u64, path: PathBuf },
    Load(Load),
    First,
    Run { repeats: usize },
    Save { folder: PathBuf },
    Peaks { threads: usize },
}

fn main() -> Result<(), Failure> {
    let backend = CpuBackend::new()?;
    let mut job = None;
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = serde_json::from_str(&line?)
            .map_err(Failure::from)
            .and_then(|request| answer(&backend, &mut job, request))
            .unwrap_or_else(|failure| json!({"error": failure.to_string()}));
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer<'b>(
    backend: &'b CpuBackend,
    job: &mut Option<Box<dyn Loaded + 'b>>,
    request: Request,
) -> Result<Value, Failure> {
    match request {
        Request::Hello => Ok(json!({
            "name": "tiled",
            "version": env!("CARGO_PKG_VERSION"),
            "backend": Backend::<f32>::name(backend),
        })),
        Request::Describe { network } => {
            let graph = network::read(&network)?.graph;
            let parameters: Vec<Value> = params(&graph)
                .iter()
                .map(
                    |spec| json!({"name": spec.name, "shape": spec.shape, "trained": spec.kind.is_trained()}),
                )
                .collect();
            let network: Value = serde_json::from_str(&graph.to_json())?;
            Ok(json!({"network": network, "parameters": parameters}))
        }
        Request::Initialise { network, seed, path } => {
            let parameters = initialise::<f32>(&params(&network::read(&network)?.graph), seed);
            save_weights(path, parameters.tensors())?;
            Ok(json!({}))
        }
        Request::Load(load) => {
            *job = None;
            let (fresh, answer) = job::load(backend, &load)?;
            *job = Some(fresh);
            Ok(answer)
        }
        Request::First => loaded(job)?.first(),
        Request::Run { repeats } => {
            let job = loaded(job)?;
            let seconds = (0..repeats).map(|_| job.run()).collect::<Result<Vec<f64>, Failure>>()?;
            Ok(json!({"seconds": seconds}))
        }
        Request::Save { folder } => loaded(job)?.save(&folder),
        Request::Peaks { threads } => {
            let [median, fastest] = peaks::multiply_add_gflops(backend.isa(), threads);
            Ok(json!({
                "multiply_add_gflops": median,
                "fastest_multiply_add_gflops": fastest,
                "copy_gb_per_second": peaks::copy_gb_per_second(threads),
                "round_trip_ns": peaks::round_trip_ns(threads),
            }))
        }
    }
}

fn loaded<'a, 'b>(job: &'a mut Option<Box<dyn Loaded + 'b>>) -> Result<&'a mut (dyn Loaded + 'b), Failure> {
    job.as_deref_mut().ok_or_else(|| "nothing is loaded".into())
}
