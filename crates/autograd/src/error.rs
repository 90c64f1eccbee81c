//! What can be wrong with an operation on tensors.

use std::fmt;

use tiled_exec::{ExecError, IoError, OptimError};
use tiled_graph::{GraphError, PlanError};
use tiled_kernel::dense::IndexError;

/// A shape as it stands in a message: `[2, 3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

impl From<&[usize]> for Shape {
    fn from(shape: &[usize]) -> Self {
        Self(shape.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An operation that cannot be carried out. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapeError {
    /// Shapes that do not broadcast to one another.
    #[error("{operator}: shapes {a} and {b} do not broadcast")]
    Broadcast {
        /// The operator.
        operator: &'static str,
        /// The shape of the first operand.
        a: Shape,
        /// The shape of the second.
        b: Shape,
    },
    /// A shape that is not the one that is wanted.
    #[error("{operator}: {what} has shape {got}, wants {expected}")]
    Shape {
        /// The operator.
        operator: &'static str,
        /// The operand.
        what: &'static str,
        /// The shape that is wanted.
        expected: Shape,
        /// The shape that is.
        got: Shape,
    },
    /// Extents that a product sums over, which differ.
    #[error("{operator}: inner extents {a} and {b} differ, of shapes {first} and {second}")]
    Inner {
        /// The operator.
        operator: &'static str,
        /// The extent of the first operand.
        a: usize,
        /// The extent of the second.
        b: usize,
        /// The shape of the first operand.
        first: Shape,
        /// The shape of the second.
        second: Shape,
    },
    /// Another number of elements than a shape has.
    #[error("{operator}: {got} elements do not fit shape {expected}")]
    Elements {
        /// The operator.
        operator: &'static str,
        /// The shape.
        expected: Shape,
        /// The elements.
        got: usize,
    },
    /// Another number of things than is wanted.
    #[error("{operator}: the number of {what} is {got}, must be {expected}")]
    Count {
        /// The operator.
        operator: &'static str,
        /// What is counted.
        what: &'static str,
        /// The number that is wanted.
        expected: usize,
        /// The number that is.
        got: usize,
    },
    /// A parameter that would be moved twice in a step.
    #[error("{operator}: parameter `{name}` is there twice")]
    Repeated {
        /// The operator.
        operator: &'static str,
        /// The parameter.
        name: String,
    },
    /// A number of axes that an operator does not take.
    #[error("{operator}: {what} of shape {got} has {} axes, wants {expected}", got.0.len())]
    Axes {
        /// The operator.
        operator: &'static str,
        /// The operand.
        what: &'static str,
        /// The axes that are wanted, in words.
        expected: &'static str,
        /// The shape.
        got: Shape,
    },
    /// An axis that a tensor does not have, or that is named twice.
    #[error("{operator}: axis {axis} is out of range or named twice for shape {shape}")]
    Axis {
        /// The operator.
        operator: &'static str,
        /// The axis.
        axis: isize,
        /// The shape.
        shape: Shape,
    },
    /// A part of an axis that is not there.
    #[error("{operator}: {begin}..{end} by {step} is no part of axis {axis} with {extent} elements")]
    Range {
        /// The operator.
        operator: &'static str,
        /// The axis.
        axis: usize,
        /// Where the part begins.
        begin: usize,
        /// Where it ends.
        end: usize,
        /// Its step.
        step: usize,
        /// The elements of the axis.
        extent: usize,
    },
    /// An index out of range.
    #[error("{operator}: {source}")]
    Index {
        /// The operator.
        operator: &'static str,
        /// The index and its range.
        source: IndexError,
    },
    /// No element where at least one is wanted.
    #[error("{operator}: shape {shape} has no elements along the axes that are reduced")]
    Empty {
        /// The operator.
        operator: &'static str,
        /// The shape.
        shape: Shape,
    },
    /// An attribute out of its range.
    #[error("{operator}: {attribute} is {got}, {expected} is wanted")]
    Attribute {
        /// The operator.
        operator: &'static str,
        /// The attribute.
        attribute: &'static str,
        /// The range, in words.
        expected: &'static str,
        /// The value.
        got: f64,
    },
    /// Tensors of two contexts.
    #[error("{operator}: operands belong to two contexts")]
    Contexts {
        /// The operator.
        operator: &'static str,
    },
    /// An operand that must not need a gradient.
    #[error("{operator}: {what} needs a gradient, which {operator} has not")]
    NoGradient {
        /// The operator.
        operator: &'static str,
        /// The operand.
        what: &'static str,
    },
    /// A gradient that depends on nothing that is asked for.
    #[error(
        "{operator}: the value depends on nothing that needs a gradient; gradients of gradients are not computed"
    )]
    NoHistory {
        /// The operator.
        operator: &'static str,
    },
    /// The gradient of more than one element without an upstream gradient.
    #[error("backward: a value of shape {shape} has more than one element and wants an upstream gradient")]
    NotScalar {
        /// The shape.
        shape: Shape,
    },
    /// A graph whose saved values an earlier backward has given back.
    #[error(
        "backward: the graph of {operator} was freed by an earlier backward; keep it with `retain_graph`"
    )]
    Freed {
        /// The operator.
        operator: &'static str,
    },
    /// A value that was changed in place after it had been saved or derived.
    #[error(
        "{operator}: {what} of shape {shape} was changed in place: it is at version {got}, {expected} is wanted"
    )]
    Changed {
        /// The operator.
        operator: &'static str,
        /// Operand or result.
        what: &'static str,
        /// The shape.
        shape: Shape,
        /// The version that was saved.
        expected: u64,
        /// The version that is.
        got: u64,
    },
    /// A change in place that would lose a gradient.
    #[error("{operator}: {what} of shape {shape} cannot be changed in place")]
    InPlace {
        /// The operator.
        operator: &'static str,
        /// Why.
        what: &'static str,
        /// The shape.
        shape: Shape,
    },
    /// More bytes than the context may hold.
    #[error("{operator}: {bytes} bytes more than the {live} that are live would pass the limit of {limit}")]
    Limit {
        /// The operator.
        operator: &'static str,
        /// The bytes that were wanted.
        bytes: u64,
        /// The bytes that are live.
        live: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory that the system refuses.
    #[error("{operator}: {bytes} bytes could not be had")]
    OutOfMemory {
        /// The operator.
        operator: &'static str,
        /// The bytes.
        bytes: u64,
    },
    /// Threads that cannot be started.
    #[error("{threads} threads could not be started: {reason}")]
    Threads {
        /// The threads.
        threads: usize,
        /// What the system says.
        reason: String,
    },
    /// A network that cannot be built.
    #[error("{operator}: {source}")]
    Network {
        /// The operator.
        operator: &'static str,
        /// What is wrong with it.
        source: Box<GraphError>,
    },
    /// A network that cannot be planned.
    #[error("{operator}: {source}")]
    Plan {
        /// The operator.
        operator: &'static str,
        /// What is wrong with it.
        source: Box<PlanError>,
    },
    /// A network that cannot be run.
    #[error("{operator}: {source}")]
    Run {
        /// The operator.
        operator: &'static str,
        /// What is wrong with it.
        source: Box<ExecError>,
    },
    /// An entry that a set of parameters lacks.
    #[error("state: entry `{name}` of shape {expected} is missing")]
    MissingEntry {
        /// Its name.
        name: String,
        /// Its shape.
        expected: Shape,
    },
    /// An entry that no module has.
    #[error("state: there is no parameter for entry `{name}` of shape {got}")]
    UnknownEntry {
        /// Its name.
        name: String,
        /// Its shape.
        got: Shape,
    },
    /// An entry of another shape than its parameter.
    #[error("state: entry `{name}` has shape {got}, the parameter wants {expected}")]
    EntryShape {
        /// Its name.
        name: String,
        /// The shape of the parameter.
        expected: Shape,
        /// Its shape.
        got: Shape,
    },
    /// A file that cannot be read or written.
    #[error(transparent)]
    File(#[from] Box<IoError>),
    /// An optimiser that cannot do what is asked.
    #[error(transparent)]
    Optimizer(#[from] OptimError),
    /// What a function of the user reports.
    #[error("{operator}: {source}")]
    Function {
        /// The function.
        operator: &'static str,
        /// What it reports.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<IoError> for TapeError {
    fn from(source: IoError) -> Self {
        Self::File(Box::new(source))
    }
}

impl TapeError {
    pub(crate) fn network(operator: &'static str) -> impl Fn(GraphError) -> Self + Copy {
        move |source| Self::Network { operator, source: Box::new(source) }
    }

    pub(crate) fn plan(operator: &'static str) -> impl Fn(PlanError) -> Self + Copy {
        move |source| Self::Plan { operator, source: Box::new(source) }
    }

    pub(crate) fn run(operator: &'static str) -> impl Fn(ExecError) -> Self + Copy {
        move |source| Self::Run { operator, source: Box::new(source) }
    }
}

/// The result of an operation on tensors.
pub type Result<R, E = TapeError> = std::result::Result<R, E>;
