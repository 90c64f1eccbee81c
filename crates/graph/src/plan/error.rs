//! Why there is no plan.

use tiled_geometry::GeometryError;
use tiled_tensor::{LayoutError, OutOfMemory};

use super::BudgetSource;
use crate::GraphError;

/// An objective, a tiling or a budget that does not fit a network.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The network itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A window or a tiling.
    #[error(transparent)]
    Geometry(GeometryError),
    /// A window larger than the address space.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The target of a cross-entropy has the wrong channels.
    #[error(
        "cross-entropy: target has {target} channels, wants 1 (class numbers) or {output} (probabilities)"
    )]
    TargetChannels {
        /// The channels of the output.
        output: usize,
        /// The channels of the target.
        target: usize,
    },
    /// A name among those whose gradients are wanted.
    #[error("`{name}` is no input, parameter with a gradient, or node that has one")]
    NoGradient {
        /// The name.
        name: String,
    },
    /// Of the gradients that are named, none is asked for.
    #[error("no gradient is left to compute: of the inputs and parameters that are named, none is asked for")]
    NothingWanted,
    /// A name among the nodes that evaluate.
    #[error("`{name}` is no node of the network")]
    UnknownNode {
        /// The name.
        name: String,
    },
    /// A layer that the backend does not carry out.
    #[error("`{name}`: {backend} does not carry out {work}")]
    Unsupported {
        /// The layer.
        name: String,
        /// What it does.
        work: &'static str,
        /// The backend.
        backend: String,
    },
    /// No plan fits.
    #[error("memory budget of {budget} bytes is too small, the smallest that works is {smallest} bytes")]
    BudgetTooSmall {
        /// The budget, in bytes.
        budget: u64,
        /// The smallest budget for which there is a plan, in bytes.
        smallest: u64,
    },
    /// No plan fits the memory that can be had, where the caller sets no budget.
    #[error(
        "the run needs at least {smallest} bytes of memory, {available} bytes can be had now ({})",
        limited_by.name()
    )]
    MemoryTooSmall {
        /// What can be had, in bytes.
        available: u64,
        /// What limits it.
        limited_by: BudgetSource,
        /// The smallest budget for which there is a plan, in bytes.
        smallest: u64,
    },
    /// Nobody waited for the plan any more.
    #[error("cancelled")]
    Cancelled,
    /// Sizes that leave 64 bits.
    #[error("the run would need more than 2^63 bytes")]
    TooLarge,
}

impl From<GeometryError> for PlanError {
    /// A grid that finds no room is memory that is refused.
    fn from(error: GeometryError) -> Self {
        match error {
            GeometryError::OutOfMemory { bytes } => OutOfMemory { bytes }.into(),
            error => Self::Geometry(error),
        }
    }
}

impl From<OutOfMemory> for PlanError {
    /// A list of a plan, or of what it is made from, that is refused.
    fn from(OutOfMemory { bytes }: OutOfMemory) -> Self {
        Self::Graph(GraphError::OutOfMemory { what: "the plan".to_owned(), bytes })
    }
}
