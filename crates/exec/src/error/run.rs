//! What can go wrong in a run or a training step.

use tiled_graph::{Chunks, GraphError};
use tiled_kernel::DeviceError;
use tiled_tensor::{MemoryDevice, OutOfMemory};

use super::IoError;

/// A run that cannot start or did not finish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// A source, a sink or a file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] tiled_graph::PlanError),
    /// The network does not fit.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A window larger than the address space.
    #[error(transparent)]
    Layout(#[from] tiled_tensor::LayoutError),
    /// The plan was made for another element type.
    #[error("plan is for {expected}, executor is for {got}")]
    DType {
        /// The plan's.
        expected: &'static str,
        /// The executor's.
        got: &'static str,
    },
    /// The plan was made for a backend that lays windows out in another way.
    #[error(
        "plan has windows of {channels} channels in blocks of {expected}, backend `{backend}` in blocks of {got}"
    )]
    Backend {
        /// The channels of a window.
        channels: usize,
        /// The block that the plan has for them.
        expected: usize,
        /// The name of the executor's backend.
        backend: String,
        /// Its block for them.
        got: usize,
    },
    /// The plan was made for a backend that carries out a node otherwise.
    #[error("plan has another way to carry out `{name}` than backend `{backend}`")]
    Unsupported {
        /// The name of the node.
        name: String,
        /// The name of the executor's backend.
        backend: String,
    },
    /// Memory is refused.
    #[error("{what}: {bytes} bytes could not be had")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// A run has let go of the elements of a parameter once it had packed them, and the executor at hand would have to pack them: it has not
    /// yet, it has packed others since, or what it packed them with has changed.
    #[error(
        "parameter `{name}`: a run has let go of its elements, which have to be packed again: give them again"
    )]
    Released {
        /// The name of the parameter.
        name: String,
    },
    /// The plan's objective gives no gradients later.
    #[error("plan has no second half: its objective is not `GradOutputLater`")]
    NoSecondHalf,
    /// A run that waits for its gradients belongs to another plan.
    #[error("the run that waits for its gradients is another plan's")]
    OtherPlan,
    /// A parameter is not what it was in the first half of a run.
    #[error("`{name}` has changed since the run that waits for its gradients")]
    ParameterChanged {
        /// The name of the parameter.
        name: String,
    },
    /// The plan reads or writes a tensor where it lies in memory, and it does not lie there.
    #[error("plan has `{name}` in memory as NCHW without gaps, where it does not lie")]
    NotInMemory {
        /// The name of the node.
        name: String,
    },
    /// A tensor of the run lies in memory that the plan's device does not work on.
    #[error("`{name}` lies on {got}, the plan runs on {expected}")]
    Elsewhere {
        /// The name of the node.
        name: String,
        /// The plan's device.
        expected: String,
        /// The device whose memory the tensor lies in.
        got: MemoryDevice,
    },
    /// A device did not do what it was asked.
    #[error("{source}")]
    Device {
        /// What it says.
        source: DeviceError,
    },
    /// The threads cannot be started.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system says.
        source: rayon::ThreadPoolBuildError,
    },
    /// A pool of more threads than the plan has scratch memory for.
    #[error("plan has scratch memory for {expected} threads, pool has {got}")]
    PoolThreads {
        /// The most that there may be.
        expected: usize,
        /// Those of the pool.
        got: usize,
    },
    /// The parameters are not those of the network.
    #[error("network has {expected} parameters, got {got} or others")]
    Parameters {
        /// How many the network has.
        expected: usize,
        /// How many were given.
        got: usize,
    },
    /// A source or sink that the plan needs was not given.
    #[error("`{name}`: no source or sink was given")]
    Missing {
        /// The value.
        name: String,
    },
    /// A source or sink has another shape than the plan.
    #[error("`{name}`: shape is {got:?}, plan wants {expected:?}")]
    Shape {
        /// The value.
        name: String,
        /// The plan's, NCHW.
        expected: [usize; 4],
        /// The source's or sink's, NCHW.
        got: [usize; 4],
    },
    /// A source or sink that holds more memory while it converts elements than the plan has for it.
    #[error("`{name}` may hold {got} bytes while it is read or written, the plan has {expected}")]
    Transfer {
        /// The input, output or gradient.
        name: String,
        /// The bytes that the plan has for it, for each lane.
        expected: u64,
        /// The bytes that it may hold.
        got: u64,
    },
    /// A source that is not read in the chunks that the plan has memory for.
    #[error("`{name}` is read in {}, the plan has memory for {}", chunks_text(*got), chunks_text(Some(*expected)))]
    Chunks {
        /// The input, target or gradient.
        name: String,
        /// The plan's.
        expected: Chunks,
        /// The source's; `None` where it has none.
        got: Option<Chunks>,
    },
    /// The optimiser refuses.
    #[error(transparent)]
    Optim(#[from] crate::OptimError),
    /// A training step whose numbers leave the finite ones.
    #[error("training step {step}: {}", what.message(*loss))]
    NotFinite {
        /// The step, from 1.
        step: u64,
        /// Its loss, where the objective has one with a value.
        loss: Option<f64>,
        /// What is not finite.
        what: NotFinite,
    },
    /// Progress asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// What of a training step is NaN or infinite.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotFinite {
    /// The loss.
    Loss,
    /// The gradient with respect to the parameter of this name.
    Gradient(String),
    /// What the running statistic of this name would become.
    Statistic(String),
    /// What the parameter of this name would become.
    Parameter(String),
}

impl NotFinite {
    fn message(&self, loss: Option<f64>) -> String {
        let loss = loss.map_or_else(|| "without a value".to_owned(), |loss| loss.to_string());
        match self {
            Self::Loss => format!("loss is {loss}, not a finite number"),
            Self::Gradient(name) => format!("gradient of `{name}` is not finite, loss is {loss}"),
            Self::Statistic(name) => format!("`{name}` would not be finite, loss is {loss}"),
            Self::Parameter(name) => format!("`{name}` would not be finite after it, loss is {loss}"),
        }
    }
}

impl From<DeviceError> for ExecError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory { what, bytes } => Self::OutOfMemory { what, bytes },
            source => Self::Device { source },
        }
    }
}

/// The error of memory that was refused for something.
pub(crate) fn refused(what: impl Into<String>) -> impl FnOnce(OutOfMemory) -> ExecError {
    move |OutOfMemory { bytes }| ExecError::OutOfMemory { what: what.into(), bytes }
}

fn chunks_text(chunks: Option<Chunks>) -> String {
    chunks.map_or_else(
        || "no chunks".to_owned(),
        |chunks| {
            let ([rows, cols], bytes) = (chunks.shape(), chunks.element_bytes());
            format!("chunks of {rows}×{cols} elements of {bytes} bytes")
        },
    )
}
