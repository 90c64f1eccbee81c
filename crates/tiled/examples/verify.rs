//! Random networks, tiled against whole: `cargo run --release --example verify -- CASES SEED [CASE]`.

use tiled::prelude::NoProgress;
use tiled::verify::{VerifyOptions, verify};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> =
        std::env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let number = |place: usize, default: u64| numbers.get(place).copied().unwrap_or(default);
    let options = VerifyOptions {
        cases: number(0, 100),
        seed: number(1, 1),
        threads: 2,
        only: numbers.get(2).copied(),
    };
    let report = verify(&options, &NoProgress)?;
    for failure in &report.failures {
        eprintln!("{failure}\n");
    }
    eprintln!(
        "{} cases, at least {} tiles, {} compared, {} output, {} input gradient, {} weight gradient, {} failures, {:.1} s",
        report.cases,
        report.min_tiles,
        report.compared,
        report.output_mismatches,
        report.input_grad_mismatches,
        report.weight_grad_failures,
        report.failures.len(),
        report.seconds
    );
    Ok(())
}
