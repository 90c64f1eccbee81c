//! Networks as data, and what running them demands.
//!
//! A [`Graph`] is read from JSON or built node by node, [`infer`] gives its shapes, [`lower`] makes a [`Program`]
//! of kernels of it, and a [`Planner`] finds the fastest [`Plan`] within a budget of bytes.
//!
//! It does not compute: no element is read or written here, and a plan can be made for an image that does not exist.
//! Nor does it say what a plan holds, in words or pictures: that is `tiled-explain`.
//!
//! ```text
//!   network (JSON, builder) ─ infer ─► shapes ─ lower ─► program: forward, gradient and reduction nodes
//!   program ─ demand ─► regions per tile ─ schedule ─► calls ─ plan, budget ─► a plan that states its peak
//! ```
//!
//! # Example
//!
//! What a training step over an image of ten thousand million values takes in 64 MiB:
//!
//! ```
//! use tiled_graph::{Graph, Loss, Objective, PlanOptions, Planner, infer};
//! use tiled_kernel::Reference;
//!
//! let graph = Graph::builtin("light").expect("it is built in");
//! let shapes = infer(&graph, 1, &[[57_735, 57_735]])?;
//! let objective = Objective::training(Loss::MeanSquaredError);
//! let options = PlanOptions { memory_bytes: Some(64 << 20), ..PlanOptions::default() };
//! let plan = Planner::<f32>::new(&graph, &shapes, &objective, &Reference).plan(&options)?;
//! assert!(plan.peak_bytes() <= 64 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod cuts;
mod demand;
mod error;
mod flow;
mod format;
mod graph;
mod index;
mod infer;
mod instances;
mod lower;
mod merge;
mod objective;
mod op;
mod params;
mod parts;
mod plan;
pub mod program;
mod rate;
mod schedule;
mod select;
mod shapes;
mod sweep;
mod wanted;
mod zoo;

pub use demand::{Demand, needed};
pub use error::{Arity, Axis, Extent, GraphError, Place};
pub use graph::{Graph, Input, Node, Shared};
pub use index::{Id, IndexVec, ValueId};
pub use infer::{infer, infer_nchw};
#[doc(hidden)]
pub use instances::instances;
pub use lower::lower;
pub use merge::{Merged, merge};
pub use objective::{Loss, Mode, Objective};
pub use op::{
    AdaptivePool2d, AvgPool2d, BatchNorm, ChannelShuffle, Conv2d, ConvTranspose2d, Dropout, Dropout2d,
    Elementwise, GroupNorm, InstanceNorm, LayerNorm, Linear, LocalResponseNorm, MaxPool2d, Op, Operand, Pad,
    PadTarget, PadTo, PadWith, PaddingMode, PartPooling, PixelShuffle, PixelUnshuffle, Placement, Prelu,
    RmsNorm, Slice, Split, SplitSize, StochasticDepth, StochasticDepthMode, Upsample, UpsampleTo,
    WithOperand,
};
pub use params::{
    Init, MatchedParams, ParamKind, ParamSpec, ParamTensor, Parameters, Rng, initialise, is_counter,
    match_params, params, try_params, wants_tensor,
};
pub use parts::{Part, Parts};
pub use plan::{
    Binding, Budget, BudgetSource, ChunkCache, Chunks, Hold, InMemory, Memory, Plan, PlanError, PlanOptions,
    Planner, Release, SlotId, SweepPlan, TRANSFER_BYTES, Tiling, UNLIMITED,
};
pub use program::Program;
pub use schedule::{Call, Schedule};
pub use shapes::{MAX_ELEMENTS, MAX_EXTENT, Shapes};
pub use sweep::{Action, Sweep, SweepNode, SweepNodeId, sweeps};
pub use tiled_geometry::{Coordinates, Cubic, Filter, Ratio, ResizeMode, Rounding};
pub use tiled_kernel::Activation;
pub use zoo::builtin_names;
