//! Runs and trains a plan on a backend.
//!
//! An [`Executor`] allocates what the plan promised and carries out its calls; a [`Trainer`] adds an optimiser.
//! Tensors come from a [`Source`] and go to a [`Sink`]: memory of any element type, `.npy` and raw files, pictures, functions. A
//! [`Progress`] hears of every step and may stop the run.
//!
//! It decides nothing: tiles, bands, lanes and memory are the plan's.
//!
//! ```text
//!   Source ─ read region ─► window ─ Backend ─► window ─ write region ─► Sink
//!                              └──── reduce ───► partial ─ finalise ─► statistics, gradients, loss
//! ```
//!
//! # Example
//!
//! ```
//! use tiled_exec::{Executor, Io, MemorySink, MemorySource, NoProgress};
//! use tiled_graph::{Graph, Objective, PlanOptions, Planner, infer, initialise, params};
//! use tiled_kernel::Reference;
//!
//! let graph = Graph::builtin("seed-001").expect("it is built in");
//! let shapes = infer(&graph, 1, &[[16, 24]])?;
//! let objective = Objective::inference();
//! let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&PlanOptions::default())?;
//!
//! let image = vec![1.0_f32; 16 * 24];
//! let source = MemorySource::new(&image, [1, 1, 16, 24])?;
//! let sink = MemorySink::new(shapes.shape(graph.outputs()[0]))?;
//! let io = Io { inputs: vec![&source], outputs: vec![&sink], ..Io::default() };
//! let mut parameters = initialise::<f32>(&params(&graph), 1);
//! Executor::new(plan, &Reference, 2)?.run(&mut parameters, &io, &NoProgress)?;
//! assert_eq!(sink.into_tensor().shape(), [1, 1, 4, 6]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod array;
mod changes;
mod chunks;
mod error;
mod executor;
mod failure;
mod file;
mod finalise;
mod instances;
mod io;
mod labels;
mod lane;
mod npy;
mod numbers;
mod optim;
mod picture;
mod pool;
mod progress;
mod raw;
mod sink;
mod source;
mod state;
mod store;
mod stored;
mod trainer;
mod weights;

pub use array::{ArrayFile, ArrayValue};
pub use changes::Changes;
pub use error::{ExecError, IoError, NotFinite, NpyProblem, WeightsProblem};
pub use executor::{Executor, Pending, RunReport};
pub use file::{
    ElementType, FileSink, FileSource, PICTURE_LIMIT_BYTES, RawFormat, Reservation, SinkOptions, SourceFacts,
    SourceOptions, WrittenFile, create_sink, create_sink_with, inspect_source, open_regular, open_source,
    open_source_with, open_source_within, remove_partial_files, write_whole,
};
pub use half::{bf16, f16};
#[doc(hidden)]
pub use instances::instances;
pub use io::Io;
pub use labels::{LabelCensus, Labels};
pub use npy::NpyHeader;
pub use numbers::Numbers;
pub use optim::{AdamOptions, AdamW, AdamWOptions, OptimError, OptimState, Optimizer, Sgd, SgdOptions};
pub use picture::{JpegDamage, PictureProblem, PictureSink, PictureSource};
pub use pool::Pool;
pub use progress::{Cancel, NoProgress, Progress, peak_rss_bytes, reset_peak_rss};
pub use sink::{
    DecidedSink, Decision, DeviceSink, FnSink, MemorySink, Sink, SinkInMemory, SliceSink, StoredSink,
    sink_resident_bytes,
};
pub use source::{
    ChunkPart, ChunkSlots, Chunked, ChunkedSource, ConstantSource, DeviceSource, FnSource, MemorySource,
    Normalization, NormalizedSource, PointSource, Source, StoredSource,
};
pub use stored::Stored;
pub use trainer::Trainer;
pub use weights::{WeightRef, load_parameters, load_weights, save_weights, write_weights};
