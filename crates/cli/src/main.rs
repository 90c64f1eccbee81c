//! The program `tiled`: runs and trains networks on images that do not fit in memory.
//!
//! What it is: arguments, files and reports around the crate `tiled`. What it is not: any part of the
//! computation; that lies in the library.
//!
//! ```text
//!   arguments ─► args ─► command/<subcommand> ─► job: network, weights, inputs ─► plan ─► run
//!                                                                  └─► report: text or one JSON object
//! ```
#![forbid(unsafe_code)]

mod args;
mod chart;
mod command;
mod error;
mod files;
mod job;
mod network;
mod opened;
mod progress;
mod report;
mod target;
mod text;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::error::CliError;
use crate::progress::Session;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return error::exit_usage(&error),
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
}

fn run(arguments: Arguments) -> Result<(), CliError> {
    let session = Session::start().map_err(|source| CliError::Signals { source })?;
    match arguments.command {
        Command::Demo(args) => command::demo::run(&args, &session),
        Command::Plan(args) => command::plan::run(&args, &session),
        Command::Run(args) => command::run::run(&args, &session),
        Command::Grad(args) => command::grad::run(&args, &session),
        Command::Train(args) => command::train::run(&args, &session),
        Command::Verify(args) => command::verify::run(&args, &session),
        Command::Bench(args) => command::bench::run(&args, &session),
        Command::Devices(args) => command::devices::run(&args),
        Command::CudaBuild(args) => command::cuda_build::run(&args, &session),
        Command::Net(args) => command::net::run(&args),
        Command::Convert(args) => command::convert::run(&args, &session),
    }
}
