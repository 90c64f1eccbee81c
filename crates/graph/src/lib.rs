//! Networks as data, and what running them demands.
//!
//! ```text
//!   network (JSON, builder) ─ infer ─► shapes ─ lower ─► program: forward, gradient and reduction nodes
//!   program ─ demand ─► regions per tile ─ schedule ─► calls ─ plan, budget ─► a plan that states its peak
//! ```
#![forbid(unsafe_code)]

mod error;
mod graph;
mod op;

pub use error::GraphError;
pub use graph::{Graph, Input, Node, ValueId};
pub use op::{
    AvgPool2d, BatchNorm, Conv2d, ConvTranspose2d, Dropout, Linear, MaxPool2d, Op, PaddingMode, Upsample,
    UpsampleMode, UpsampleTo,
};
