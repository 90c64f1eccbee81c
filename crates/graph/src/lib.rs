//! Networks as data, and what running them demands.
//!
//! ```text
//!   network (JSON, builder) ─ infer ─► shapes ─ lower ─► program: forward, gradient and reduction nodes
//!   program ─ demand ─► regions per tile ─ schedule ─► calls ─ plan, budget ─► a plan that states its peak
//! ```
#![forbid(unsafe_code)]

mod demand;
mod error;
mod explain;
mod format;
mod graph;
mod infer;
mod lower;
mod objective;
mod op;
mod params;
mod plan;
pub mod program;
mod schedule;
mod sweep;
mod zoo;

pub use demand::{Demand, needed};
pub use error::{Arity, Axis, Extent, GraphError, Place};
pub use explain::{Description, StepDetail};
pub use graph::{Graph, Input, Node, ValueId};
pub use infer::{MAX_ELEMENTS, MAX_EXTENT, Shapes, infer, infer_nchw};
pub use lower::lower;
pub use objective::{Loss, Mode, Objective};
pub use op::{
    AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, Linear, MaxPool2d, Op, PaddingMode, Upsample,
    UpsampleMode, UpsampleTo,
};
pub use params::{Init, ParamKind, ParamSpec, ParamTensor, Parameters, Rng, initialise, params};
pub use plan::{Hold, Memory, Plan, PlanError, PlanOptions, Planner, SweepPlan, Tiling};
pub use program::Program;
pub use schedule::{Call, Schedule};
pub use sweep::{Action, Sweep, SweepNode, sweeps};
pub use tiled_kernel::Activation;
pub use zoo::builtin_names;
