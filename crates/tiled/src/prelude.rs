//! What most programs need.

pub use tiled_cpu::{CpuBackend, Isa};
pub use tiled_exec::{
    AdamW, AdamWOptions, Cancel, ExecError, Executor, Io, IoError, MemorySink, MemorySource, NoProgress,
    Optimizer, Progress, RunReport, Sgd, SgdOptions, Sink, Source, Trainer, create_sink, load_weights,
    open_source, save_weights,
};
pub use tiled_explain::Explain;
pub use tiled_geometry::{Interval, Region};
pub use tiled_graph::{
    Graph, GraphError, Hold, InMemory, Loss, Mode, Objective, Parameters, Plan, PlanError, PlanOptions,
    Planner, Tiling, infer, infer_nchw, initialise, params,
};
pub use tiled_kernel::Backend;
pub use tiled_tensor::{DType, Element, Tensor};
