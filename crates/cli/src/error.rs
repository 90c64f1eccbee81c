//! What ends the program, and with which code.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use tiled::cuda::driver::DriverError;
use tiled::device::DeviceChoiceError;
use tiled::exec::{ExecError, IoError, OptimError};
use tiled::graph::{GraphError, PlanError};
use tiled::network::NetworkError;
use tiled::tensor::TensorError;
use tiled_verify::VerifyError;

use crate::progress::{print_line, signals};
use crate::text::{escape, one_line};

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("network `{name}` has no weights of its own: give --weights")]
    NoWeights { name: String },
    #[error("--{option} is given {got} times, network wants {expected}")]
    Count { option: &'static str, expected: usize, got: usize },
    #[error("--{option} is given {got} times, network wants {}: {}", names.len(), names.join(", "))]
    NamedCount { option: &'static str, names: Vec<String>, got: usize },
    #[error(
        "`{}`: a raw file needs its shape, and its element type where it is not {dtype}: such as {}:3x512x512 or {}:3x512x512:u8",
        path.display(), path.display(), path.display()
    )]
    RawShape { path: PathBuf, dtype: &'static str },
    #[error("a loss is of one output, network has {}: {}", names.len(), names.join(", "))]
    LossOutputs { names: Vec<String> },
    #[error("{given}: shape is {got:?}, {what} of output {output} wants {expected}")]
    Shape { given: String, got: [usize; 4], what: &'static str, output: String, expected: String },
    #[error("--momentum is for sgd, the optimiser is adamw")]
    Momentum,
    #[error("--hold materialise is the untiled run, --{option} is for another")]
    Untiled { option: &'static str },
    #[error("--ignore-index is for class numbers, the loss is another or the target has probabilities")]
    IgnoreIndex,
    #[error("nothing to compute: give --grad-input or --grad-weights")]
    NoResult,
    #[error("--{option} `{}` and --{second} `{}` are one file", path.display(), second_path.display())]
    SameFile { option: &'static str, path: PathBuf, second: &'static str, second_path: PathBuf },
    #[error("`{}`: cannot write: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}`: {reason}", path.display())]
    Chart { path: PathBuf, reason: String },
    #[error("standard output: {source}")]
    Stdout { source: io::Error },
    #[error("cannot listen to signals: {source}")]
    Signals { source: io::Error },
    #[error("tiled and untiled differ: {mismatches} of {compared} values")]
    Mismatch { mismatches: u64, compared: u64 },
    #[error("{failures} of {cases} cases failed")]
    Verification { failures: usize, cases: u64 },
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Io(#[from] IoError),
    #[error(transparent)]
    Optim(#[from] OptimError),
    #[error(transparent)]
    Device(#[from] DeviceChoiceError),
    #[error(transparent)]
    Isa(#[from] tiled::cpu::IsaError),
    #[error("{source}")]
    Kernels { source: DriverError },
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

impl CliError {
    /// 2 where what was given cannot be used, 130 where the user stopped it (by another signal than Ctrl-C its own), 1 for
    /// everything else.
    fn code(&self) -> u8 {
        match self {
            error if error.is_refused_memory() => FAILED,
            Self::Network(_)
            | Self::NoWeights { .. }
            | Self::Count { .. }
            | Self::NamedCount { .. }
            | Self::LossOutputs { .. }
            | Self::Shape { .. }
            | Self::Momentum
            | Self::Untiled { .. }
            | Self::NoResult
            | Self::RawShape { .. }
            | Self::IgnoreIndex
            | Self::SameFile { .. }
            | Self::Graph(_)
            | Self::Optim(_)
            | Self::Tensor(_)
            | Self::Device(_)
            | Self::Isa(_) => BAD_INPUT,
            Self::Plan(error) => plan_code(error),
            Self::Io(error) => io_code(error),
            Self::Exec(error) => match error {
                ExecError::Io(error) => io_code(error),
                ExecError::Plan(error) => plan_code(error),
                ExecError::Cancelled => signals::exit_code(),
                ExecError::Threads { .. } | ExecError::NotFinite { .. } => FAILED,
                _ => BAD_INPUT,
            },
            Self::Verify(VerifyError::Cancelled { .. }) => signals::exit_code(),
            Self::Verify(VerifyError::Device(_)) => BAD_INPUT,
            _ => FAILED,
        }
    }

    /// Whether the system did not give memory.
    fn is_refused_memory(&self) -> bool {
        let of_graph = |error: &GraphError| matches!(error, GraphError::OutOfMemory { .. });
        let of_plan = |error: &PlanError| matches!(error, PlanError::Graph(error) if of_graph(error));
        let of_io = |error: &IoError| matches!(error, IoError::OutOfMemory { .. });
        let of_optim = |error: &OptimError| matches!(error, OptimError::OutOfMemory { .. });
        match self {
            Self::Graph(error) => of_graph(error),
            Self::Plan(error) => of_plan(error),
            Self::Io(error) => of_io(error),
            Self::Optim(error) => of_optim(error),
            Self::Tensor(error) => matches!(error, TensorError::OutOfMemory(_)),
            Self::Network(error) => error.is_refused_memory(),
            Self::Exec(ExecError::Graph(error)) => of_graph(error),
            Self::Exec(ExecError::Plan(error)) => of_plan(error),
            Self::Exec(ExecError::Io(error)) => of_io(error),
            Self::Exec(ExecError::Optim(error)) => of_optim(error),
            Self::Exec(error) => matches!(error, ExecError::OutOfMemory { .. }),
            _ => false,
        }
    }

    /// Says why on standard error, and the code to exit with.
    pub(crate) fn exit(&self) -> ExitCode {
        match self {
            error if error.code() == signals::exit_code() => print_line("cancelled"),
            // whoever reads our output has gone and wants no more
            Self::Stdout { source } if source.kind() == io::ErrorKind::BrokenPipe => {}
            error => print_line(&format!("error: {}", chain(error))),
        }
        ExitCode::from(self.code())
    }
}

/// A network that cannot be planned is bad input, a machine without the memory for it is not.
fn plan_code(error: &PlanError) -> u8 {
    match error {
        PlanError::MemoryTooSmall { .. } => FAILED,
        PlanError::Cancelled => signals::exit_code(),
        _ => BAD_INPUT,
    }
}

/// An error of reading is bad input, one of writing is not.
fn io_code(error: &IoError) -> u8 {
    match error {
        IoError::Create { .. }
        | IoError::Write { .. }
        | IoError::NoSpace { .. }
        | IoError::DiskFull { .. }
        | IoError::Incomplete { .. }
        | IoError::Closed { .. }
        | IoError::Function { .. }
        | IoError::OutOfMemory { .. } => FAILED,
        _ => BAD_INPUT,
    }
}

/// An error and its causes on one line; most messages hold their cause already.
fn chain(error: &dyn Error) -> String {
    let mut text = one_line(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = one_line(error);
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

/// Help and version go to standard output; what is wrong with the arguments goes to standard error, on one line.
pub(crate) fn exit_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return if error.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // help is shown as it is; where standard error is closed there is nobody to tell
        let _ = error.print();
        return ExitCode::from(BAD_INPUT);
    }
    let rendered = error.render().to_string();
    let paragraph = rendered.split("\n\n").next().unwrap_or(&rendered);
    print_line(&escape(&format!(
        "{}, see --help",
        paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
    )));
    ExitCode::from(BAD_INPUT)
}

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_the_message_holds_is_not_said_twice() {
        let source = io::Error::new(io::ErrorKind::NotFound, "gone");
        let error = CliError::Network(NetworkError::Read { path: "n.json".into(), source });
        assert_eq!(chain(&error), "`n.json`: cannot read: gone");
    }

    #[test]
    fn reading_is_bad_input_and_writing_a_failure() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(CliError::Io(IoError::DiskFull { path: "y".into(), source: full() }).code(), FAILED);
        assert_eq!(CliError::Io(IoError::Read { path: "x".into(), source: full() }).code(), BAD_INPUT);
        assert_eq!(CliError::Exec(ExecError::Cancelled).code(), 130);
    }

    #[test]
    fn r09_refused_memory_is_a_failure_wherever_it_happens() {
        let what = || "the windows".to_owned();
        let graph = || GraphError::OutOfMemory { what: what(), bytes: 8 };
        let io = || IoError::OutOfMemory { path: "x".into(), bytes: 8 };
        let errors = [
            CliError::Graph(graph()),
            CliError::Plan(graph().into()),
            CliError::Io(io()),
            CliError::Optim(OptimError::OutOfMemory { bytes: 8 }),
            CliError::Tensor(tiled::tensor::OutOfMemory { bytes: 8 }.into()),
            NetworkError::Format { path: "n".into(), source: graph().into() }.into(),
            CliError::Exec(io().into()),
            CliError::Exec(graph().into()),
            CliError::Exec(OptimError::OutOfMemory { bytes: 8 }.into()),
            CliError::Exec(ExecError::OutOfMemory { what: what(), bytes: 8 }),
        ];
        for error in errors {
            assert_eq!(error.code(), FAILED, "{error}");
            assert!(error.to_string().ends_with(": 8 bytes could not be had"), "{error}");
        }
    }
}
