//! Builds every kernel for some architectures, and says what each takes.
//!
//!     cargo run -p tiled-cuda --features device --example kernels -- sm_80 sm_90 sm_120
//!
//! Fails where one cannot be built, spills registers, or takes more of them than `kernels/registers.txt` records; `BLESS=1` records
//! anew. Where `TILED_NVDISASM` names a disassembler, the inner loops of convolutions to many channels have to consist of multiply-adds, but for
//! 15 %. Wants NVRTC; where its library is not found, it says so.
#![expect(clippy::print_stdout, reason = "its table is its result")]

mod sass;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use tiled_cuda::nvrtc;
use tiled_cuda::units::UNITS;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/registers.txt");

fn main() -> ExitCode {
    let architectures: Vec<String> = env::args().skip(1).collect();
    let recorded = recorded();
    let mut table: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut faults = Vec::new();
    for architecture in &architectures {
        let begin = Instant::now();
        for unit in UNITS {
            let built = match nvrtc::build(unit, architecture) {
                Ok(built) => built,
                Err(error) => {
                    println!("{error}");
                    return ExitCode::FAILURE;
                }
            };
            if let Some(disassembler) = env::var_os("TILED_NVDISASM") {
                faults.extend(loops(Path::new(&disassembler), &built.code, architecture));
            }
            let usage = built.usage();
            let found = |kernel: &&&str| usage.iter().any(|usage| usage.kernel == ***kernel);
            faults.extend(
                unit.kernels.iter().filter(|kernel| !found(kernel)).map(|name| format!("{name}: not built")),
            );
            for usage in usage {
                if usage.spilled != [0; 2] {
                    let [stores, loads] = usage.spilled;
                    faults
                        .push(format!("{} {architecture}: spills {stores} and {loads} bytes", usage.kernel));
                }
                table.entry(usage.kernel).or_default().push(usage.registers);
            }
        }
        println!("{architecture}: {:.1} s", begin.elapsed().as_secs_f64());
    }
    let mut text = format!("# registers of a thread: {}\n", architectures.join(" "));
    for (kernel, registers) in &table {
        let numbers: Vec<String> = registers.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "{kernel} {}", numbers.join(" "));
        let most = recorded.get(kernel);
        if most.is_some_and(|most| most.iter().zip(registers).any(|(most, own)| own > most)) {
            faults.push(format!("{kernel}: {registers:?} registers, recorded {most:?}"));
        }
        if most.is_none() && env::var_os("BLESS").is_none() {
            faults.push(format!("{kernel}: {registers:?} registers, none recorded"));
        }
    }
    let gone = recorded.keys().filter(|kernel| !table.contains_key(*kernel));
    faults.extend(gone.map(|kernel| format!("{kernel}: recorded, and no kernel")));
    print!("{text}");
    if env::var_os("BLESS").is_some() {
        if let Err(error) = fs::write(RECORD, text) {
            faults.push(format!("{RECORD}: {error}"));
        }
        faults.retain(|fault| !fault.contains("recorded"));
    }
    faults.iter().for_each(|fault| println!("{fault}"));
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The convolutions of singles with many channels on one side or both, whose inner loops should hold little but multiply-adds.
const DENSE: [&str; 4] = ["dense_f32_128", "dense_f32_64", "gather_f32_64", "gather_f32_32"];
const LEAST_SHARE: f64 = 0.85;

/// Prints what the inner loops of some machine code consist of; gives those that hold too few multiply-adds.
#[expect(clippy::cast_precision_loss, reason = "a share of some hundred instructions")]
fn loops(disassembler: &Path, code: &[u8], architecture: &str) -> Vec<String> {
    let text = match sass::text(disassembler, code) {
        Ok(text) => text,
        Err(error) => return vec![format!("{}: {error}", disassembler.display())],
    };
    let mut faults = Vec::new();
    for sass::Loop { kernel, multiply_adds, instructions } in sass::loops(&text) {
        let share = multiply_adds as f64 / instructions as f64;
        println!(
            "{architecture} {kernel}: {multiply_adds} of {instructions} are multiply-adds, {:.1} %",
            100.0 * share
        );
        if DENSE.contains(&kernel.as_str()) && share < LEAST_SHARE {
            faults.push(format!(
                "{kernel} {architecture}: {:.1} % of its loop are multiply-adds",
                100.0 * share
            ));
        }
    }
    faults
}

/// The registers of each kernel, by architectures, as they were recorded.
fn recorded() -> BTreeMap<String, Vec<u32>> {
    let text = fs::read_to_string(RECORD).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.filter_map(|word| word.parse().ok()).collect()))
        })
        .collect()
}
