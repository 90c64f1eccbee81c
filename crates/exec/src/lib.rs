//! Runs and trains a plan on a backend.
#![forbid(unsafe_code)]

mod error;
mod executor;
mod file;
mod finalise;
mod lane;
mod npy;
mod optim;
mod picture;
mod progress;
mod raw;
mod sink;
mod source;
mod store;
mod trainer;
mod weights;

pub use error::{ExecError, IoError, NpyProblem};
pub use executor::{Executor, Io, RunReport};
pub use file::{FileSink, FileSource, PICTURE_LIMIT_BYTES, create_sink, open_source, open_source_within};
pub use npy::NpyHeader;
pub use optim::{AdamW, AdamWOptions, OptimError, Optimizer, Sgd, SgdOptions};
pub use picture::{PictureSink, PictureSource};
pub use progress::{Cancel, NoProgress, Progress, peak_rss_bytes, reset_peak_rss};
pub use sink::{FnSink, MemorySink, Sink, SliceSink};
pub use source::{ConstantSource, FnSource, MemorySource, PointSource, Source};
pub use trainer::Trainer;
pub use weights::{load_weights, save_weights};
