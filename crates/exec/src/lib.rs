//! Runs and trains a plan on a backend.
#![forbid(unsafe_code)]

mod error;
mod progress;
mod sink;
mod source;

pub use error::{IoError, NpyProblem};
pub use progress::{Cancel, NoProgress, Progress};
pub use sink::{FnSink, MemorySink, Sink, SliceSink};
pub use source::{ConstantSource, FnSource, MemorySource, PointSource, Source};
